"""Posteriors under a low-rank covariance, which predict through the inducing inputs; symbols as in `structure`.

With v* = L⁻¹k_m*, k_m* the prior covariance of the inducing inputs with a new one, and a site posterior N(Cα, S),

    mean v*'V'α,     variance k** - v*'v* + v*'A⁻¹v*.

New values are independent of the training ones given the inducing variables, so predictions at a training input need
not equal the posterior of the value there.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.evidence.low_rank.structure import Conditioned
from hmcgp.evidence.status import leave_out
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class InducingPosterior:
    """Part of a low-rank posterior that predicts: a Gaussian of the inducing variables."""

    L: Array  # (m, m) factor of K_mm
    L_A: Array  # (m, m) factor of A
    weight: Array  # (m,) V'α, or (m, k) for k columns of targets

    @classmethod
    def of(cls, conditioned: Conditioned, alpha: Array) -> "InducingPosterior":
        """From a structure with its sites and α, of shape (n,) or (n, k)."""
        return cls(conditioned.prior.L, conditioned.L, np.asarray(conditioned.prior.V.T @ alpha))

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean and variance at new inputs.

        Parameters
        ----------
        K_cross : ndarray of shape (m, p)
            Prior covariance between the inducing and the new inputs.
        k_diag : ndarray of shape (p,)
        """
        prior, after = self._parts(K_cross)
        variance = k_diag - np.einsum("mp,mp->p", prior, prior) + np.einsum("mp,mp->p", after, after)
        return prior.T @ self.weight, np.maximum(variance, 0.0)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean and covariance at new inputs (see `SupportsJointPrediction`)."""
        prior, after = self._parts(K_cross)
        return prior.T @ self.weight, K_new - prior.T @ prior + after.T @ after

    def _parts(self, K_cross: Array) -> tuple[Array, Array]:
        prior = solve_triangular(self.L, K_cross, lower=True, check_finite=False)
        return prior, solve_triangular(self.L_A, prior, lower=True, check_finite=False)


@dataclass(frozen=True)
class LowRankPosterior(InducingPosterior):
    """N(f, (C⁻¹ + diag w)⁻¹) with f = Cα, of Laplace's approximation or of Gaussian noise."""

    f: Array  # (n,) mean, or (n, k)
    alpha: Array  # (n,) C⁻¹f, or (n, k)
    w: Array  # (n,) curvatures, or precisions of the noise
    variances: Array  # (n,) S_ii

    @property
    def start(self) -> Array:
        """The mean, from which the next solution starts."""
        return self.f

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The mean and, of new rows, the predicted means."""
        return np.concatenate([self.f, mean])

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of the latent values: 1/v = 1/S_ii - w_i, μ = f - vα."""
        mean, v = leave_out(self.f.T, self.alpha.T, self.variances, self.w)
        return mean.T, v
