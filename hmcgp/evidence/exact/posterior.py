"""The posterior of Gaussian-process regression; symbols as in `provider`.

Latent predictions: mean k'α, variance k** - k'C⁻¹k; a new observation has the variance of its noise on top.
Leaving out row i: mean y_i - α_i/(C⁻¹)_ii, variance 1/(C⁻¹)_ii - s_i.
With m more rows the factor grows at n² operations each,

    C' = (C  B)       L' = (L   0)      M = L⁻¹B,   NN' = D - M'M.
         (B' D)            (M'  N)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.products import LatentProducts, by_factor
from hmcgp.evidence.status import needs_factor, predict_by_factor, predict_jointly_by_factor
from hmcgp.numerics.constants import LOG_2PI
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class ExactPosterior:
    """N(Kα, (K⁻¹ + diag(s)⁻¹)⁻¹), the posterior of the latent values itself."""

    f: Array  # (n,) mean, Kα = y - sα; (n, k) for k columns of targets
    alpha: Array  # (n,) C⁻¹ y, or (n, k)
    noise: Array  # (n,) variances of the noise
    L: Array | None  # (n, n), lower triangle: Cholesky factor of C; None where the gradient has used its memory

    @property
    def start(self) -> Array:
        """The posterior mean; no solution needs it."""
        return self.f

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value, exactly: v = 1/(C⁻¹)_ii - s_i, μ = f - vα.

        A new observation in its place has the variance of the noise on top.
        """
        L_inverse = self._inverse_factor()
        v = np.maximum(1.0 / np.einsum("ij,ij->j", L_inverse, L_inverse) - self.noise, 0.0)
        return self.f - (v * self.alpha.T).T, v

    def log_density_without(self, groups: Sequence[NDArray[np.intp]]) -> Array:
        """Log density of the targets of each group given all other rows: N(y_g - P⁻¹α_g, P⁻¹), with P = (C⁻¹)_gg."""
        L_inverse = self._inverse_factor()
        out, sizes = np.empty(len(groups)), np.array([len(rows) for rows in groups])
        for size in np.unique(sizes):
            chosen = np.flatnonzero(sizes == size)
            rows = np.array([groups[int(g)] for g in chosen])  # (G, size)
            part = L_inverse[:, rows].transpose(1, 2, 0)  # (G, size, n)
            root = np.linalg.cholesky(part @ part.transpose(0, 2, 1))
            z = np.linalg.solve(root, self.alpha[rows][:, :, None])[:, :, 0]
            log_root = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
            out[chosen] = log_root - 0.5 * ((z * z).sum(axis=1) + size * LOG_2PI)
        return out

    def _inverse_factor(self) -> Array:
        L = needs_factor(self.L, "for cavities")
        return solve_triangular(L, np.eye(len(self.f)), lower=True, check_finite=False)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'α and variance k** - k'C⁻¹k at new inputs (see `Posterior.predict`)."""
        return predict_by_factor(self.L, self.alpha, K_cross, K_cross, k_diag)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'α and covariance K** - k'C⁻¹k at new inputs (see `SupportsJointPrediction`)."""
        return predict_jointly_by_factor(self.L, self.alpha, K_cross, K_cross, K_new)

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return LatentProducts(self.alpha, by_factor(needs_factor(self.L, "to predict")))

    def extended(self, K_cross: Array, K_new: Array, y: Array, noise: Array) -> tuple[Self, float]:
        """The posterior with more rows, and the log density of their targets (see `SupportsMoreRows`)."""
        L, n, m = needs_factor(self.L, "for more rows"), len(self.alpha), len(y)
        M = solve_triangular(L, K_cross, lower=True, check_finite=False)
        try:
            N = np.linalg.cholesky(K_new + np.diag(noise) - M.T @ M)
        except np.linalg.LinAlgError as error:
            raise NotPositiveDefinite(
                "the new rows make K + diag noise singular: are they copies, without noise?"
            ) from error
        larger = np.zeros((n + m, n + m))
        larger[:n, :n], larger[n:, :n], larger[n:, n:] = L, M.T, N
        targets = np.concatenate([self.f + (self.noise * self.alpha.T).T, y])
        z = np.empty(targets.shape)  # L'⁻¹y
        z[:n] = solve_triangular(L, targets[:n], lower=True, check_finite=False)
        z[n:] = solve_triangular(N, y - M.T @ z[:n], lower=True, check_finite=False)
        alpha = solve_triangular(larger, z, lower=True, trans=1, check_finite=False)
        log_root = float(np.log(np.diag(N)).sum()) + 0.5 * m * LOG_2PI
        log_density = -0.5 * float(np.vdot(z[n:], z[n:])) - (y.size // m) * log_root
        all_noise = np.concatenate([self.noise, noise])
        return type(self)(targets - (all_noise * alpha.T).T, alpha, all_noise, larger), log_density
