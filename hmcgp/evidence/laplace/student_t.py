"""Laplace's approximation behind Student's t, which is not log-concave (Vanhatalo, Jylänki & Vehtari 2009).

Symbols as in `evidence.laplace`; W has either sign, and is negative in rows that are far off.  Where f is a maximum of
Ψ, K⁻¹ + W is positive definite all the same, and

    log Z = Ψ - ½ log|I + KW|,   G = ½((u + ½g)g' + g(u + ½g)' - R),   u = (I + WK)⁻¹c,   R = (K + W⁻¹)⁻¹,

the exact derivative, the motion of the maximum included (`signed_curvature`).

Ψ may have several maxima.  The search (`heavy_mode_search`) is the same from wherever the sampler comes, so that log Z
is a function of K and of the parameters alone: uphill from the regression with Gaussian noise of variance q/(ν + 1), in
which every row counts in full, by the weights E = (ν + 1)/(q + r²) with which rows then count, and by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.laplace import heavy_mode_search as core
from hmcgp.evidence.products import LatentProducts, by_precision
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import leave_out, needs_factor, raise_for_status, refuse_lost_digits
from hmcgp.likelihoods import StudentT
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class StudentPosterior:
    """N(f, (K⁻¹ + W)⁻¹) with f the maximum found, and W of either sign."""

    f: Array  # (n,)
    alpha: Array  # (n,) K⁻¹f
    w: Array  # (n,)
    variances: Array  # (n,) S_ii
    R: Array | None  # (n, n); None where the gradient has used its memory

    @property
    def start(self) -> Array:
        """The maximum; searches do not start from it (see the module)."""
        return self.f

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The maximum and, of new rows, the predicted means."""
        return np.concatenate([self.f, mean])

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of the latent values, by linear response: 1/v = 1/S_ii - W_i, μ = f - v g."""
        return leave_out(self.f, self.alpha, self.variances, self.w)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'α and variance k** - k'Rk at new inputs (see `Posterior.predict`)."""
        explained = np.einsum("nm,nm->m", K_cross, needs_factor(self.R, "to predict") @ K_cross)
        return K_cross.T @ self.alpha, np.maximum(k_diag - explained, 0.0)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'α and covariance K** - k'Rk at new inputs (see `SupportsJointPrediction`)."""
        return K_cross.T @ self.alpha, K_new - K_cross.T @ (needs_factor(self.R, "to predict") @ K_cross)

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return LatentProducts(self.alpha, by_precision(needs_factor(self.R, "to predict")))


def student_evidence(provider: SolverProvider, K: Array, y: Array, likelihood: StudentT, gradient: bool) -> Evidence:
    """Evidence of numbers y under f ~ N(0, K) (see `Provider.__call__`)."""
    (noise, nu), weights = likelihood.values(), likelihood.row_weights(len(y))
    status, n_factor, residual, log_z, state, R = core.solve(
        K, y, weights, nu, noise, provider.tol, provider.max_iter, gradient
    )
    raise_for_status(provider, status, n_factor, residual, K)
    f, alpha, w, variances = (state[part] for part in (row.LATENT, row.ALPHA, row.CURVATURE, row.VARIANCE))
    refuse_lost_digits(provider, alpha, w, np.diagonal(K), n_factor)
    log_z += likelihood.log_constant() * float(weights.sum())
    dlik = likelihood.laplace_gradient(y, f, variances, state[row.SHIFT]) if gradient else np.empty(0)
    posterior = StudentPosterior(f, alpha, w, variances, None if gradient else R)
    return Evidence(log_z, R if gradient else None, dlik, posterior, n_factor - 1, residual)
