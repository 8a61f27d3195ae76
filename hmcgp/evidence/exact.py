"""Exact evidence of Gaussian-process regression (Rasmussen & Williams 2006, eqs. 2.23-2.30 and 5.9).

    y = f + e,   f ~ N(0, K),   e ~ N(0, diag s),   C = K + diag s = LL',   α = C⁻¹ y

    log Z = log N(y; 0, C) = -½ y'α - Σ log L_ii - ½ n log 2π
    G = ∂ log Z/∂K = ½(αα' - C⁻¹),     ∂ log Z/∂s_i = G_ii

The gradient is exact: nothing is approximated and nothing iterates.
Latent predictions: mean k'α, variance k** - k'C⁻¹k; a new observation has the variance of its noise on top.
Leaving out row i: mean y_i - α_i/(C⁻¹)_ii, variance 1/(C⁻¹)_ii - s_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp._typing import Array
from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence import _exact_core as core
from hmcgp.evidence._solver import needs_factor, predict_by_factor
from hmcgp.evidence.base import Evidence
from hmcgp.likelihoods import Gaussian, Likelihood, NoisyNumbers, VaryingNoise


@dataclass(frozen=True)
class ExactPosterior:
    """N(Kα, (K⁻¹ + diag(s)⁻¹)⁻¹), the posterior of the latent values itself."""

    f: Array  # (n,) mean, Kα = y - sα
    alpha: Array  # (n,) C⁻¹ y
    noise: Array  # (n,) variances of the noise
    L: Array | None  # (n, n), lower triangle: Cholesky factor of C; None where the gradient has used its memory

    @property
    def start(self) -> Array:
        """The posterior mean; no solution needs it."""
        return self.f

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value, exactly: v = 1/(C⁻¹)_ii - s_i, μ = f - vα.

        A new observation in its place has the variance of the noise on top.

        Returns
        -------
        mean, variance : ndarrays of shape (n,)
        """
        L = needs_factor(self.L, "for cavities")
        L_inverse = solve_triangular(L, np.eye(len(self.f)), lower=True, check_finite=False)
        v = np.maximum(1.0 / np.einsum("ij,ij->j", L_inverse, L_inverse) - self.noise, 0.0)
        return self.f - v * self.alpha, v

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'α and variance k** - k'C⁻¹k at new inputs (see `Posterior.predict`)."""
        return predict_by_factor(self.L, self.alpha, K_cross, K_cross, k_diag)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean, of shape (m,), and covariance K** - k'C⁻¹k, of shape (m, m), at new inputs."""
        V = solve_triangular(needs_factor(self.L, "to predict"), K_cross, lower=True, check_finite=False)
        return K_cross.T @ self.alpha, K_new - V.T @ V


@dataclass(frozen=True)
class Exact:
    """The evidence of numbers observed with Gaussian noise: log N(y; 0, K + diag noise)."""

    supports: ClassVar[tuple[type[Likelihood], ...]] = (Gaussian, VaryingNoise)

    def __call__(
        self, K: Array, y: Array, likelihood: Likelihood, start: Array | None = None, *, gradient: bool = True
    ) -> Evidence:
        """Evidence of targets y under f ~ N(0, K).

        Parameters
        ----------
        K : ndarray of shape (n, n)
            Prior covariance; only its lower triangle is read.
        y : ndarray of shape (n,)
            Targets.
        likelihood : Gaussian or VaryingNoise
            With a number for each of its parameters.
        start : ndarray of shape (n,), optional
            Not used: there is nothing to iterate.
        gradient : bool, default=True
            With the gradient, its matrix takes the place of the factor that `posterior.predict` needs.

        Returns
        -------
        Evidence
            `dlik` has the derivatives with respect to the parameters of the likelihood.

        Raises
        ------
        NotPositiveDefinite
            Where K + diag noise cannot be told from a singular matrix.
        """
        assert isinstance(likelihood, NoisyNumbers)
        noise = likelihood.row_noise(len(y))
        positive_definite, log_z, alpha, L = core.solve(K, y, noise, gradient)
        if not positive_definite:
            raise NotPositiveDefinite(
                f"Exact: K + diag noise is not positive definite to working precision (least noise {noise.min():.1e}, "
                f"largest prior variance {np.max(np.diag(K)):.1e}); is K a finite covariance matrix, and the noise not "
                "too small?"
            )
        posterior = ExactPosterior(y - noise * alpha, alpha, noise, None if gradient else L)
        dlik = likelihood.pull_back(np.diag(L)) if gradient else np.empty(0)
        return Evidence(log_z, L if gradient else None, dlik, posterior, 0, 0.0)
