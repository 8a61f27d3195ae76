"""Posteriors under a low-rank covariance, which predict through the inducing inputs; symbols as in `structure`.

With v* = L⁻¹k_m*, k_m* the prior covariance of the inducing inputs with a new one, and a site posterior N(Cα, S),

    mean v*'V'α,     variance k** - v*'v* + v*'A⁻¹v*.

By products (`evidence.products`): mean k'L⁻ᵀV'α, variance k** - |k'F|², FF' = L⁻ᵀ(I - A⁻¹)L⁻¹, with F made triangular
by an orthogonal transformation, so that only eps cond(L) of k** is lost.

New values are independent of the training ones given the inducing variables, so predictions at a training input need
not equal the posterior of the value there.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from hmcgp.evidence.low_rank.structure import Conditioned
from hmcgp.evidence.products import LatentProducts, Product, Quadratic
from hmcgp.evidence.status import leave_out
from hmcgp.runtime.typing import Array

_ROUNDING = 1e-12  # of an eigenvalue of A below 1


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

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        alpha = solve_triangular(self.L, self.weight, trans="T", lower=True, check_finite=False)
        sizes, Q = np.linalg.eigh(self.L_A @ self.L_A.T)
        share = 1.0 - 1.0 / sizes  # eigenvalues of I - A⁻¹
        F = solve_triangular(self.L, Q * np.sqrt(np.abs(share)), trans="T", lower=True, check_finite=False)
        if share.min() < -_ROUNDING:  # sites of negative precision
            return LatentProducts(alpha, Quadratic((F * np.sign(share)) @ F.T))
        (R,) = qr(F.T, mode="r", check_finite=False)
        return LatentProducts(alpha, Product(np.ascontiguousarray(R.T), lower=True))

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
