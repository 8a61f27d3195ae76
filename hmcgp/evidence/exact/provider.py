"""Exact evidence of Gaussian-process regression (Rasmussen & Williams 2006, eqs. 2.23-2.30 and 5.9).

    y = f + e,   f ~ N(0, K),   e ~ N(0, diag s),   C = K + diag s = LL',   α = C⁻¹ y

    log Z = log N(y; 0, C) = -½ y'α - Σ log L_ii - ½ n log 2π
    G = ∂ log Z/∂K = ½(αα' - C⁻¹),     ∂ log Z/∂s_i = G_ii

Several columns of targets that share K and the noise, y_a ~ N(0, C) for a = 1 … k, share the factor too:
log Z = -½ Σ_a y_a'α_a - k Σ log L_ii - ½ k n log 2π and G = ½(Σ_a α_a α_a' - k C⁻¹); y, f and α are then (n, k).

By a Cholesky factorisation, O(n³), the gradient is exact: nothing is approximated and nothing iterates.  For a few
thousand rows and more there is an iterative solver, O(n²) for each of its products with K, whose log|C| is an estimate
(`estimate`); its gradient is that of the estimate.
Latent predictions: mean k'α, variance k** - k'C⁻¹k; a new observation has the variance of its noise on top.
Rows with weights are rows in other units (`repeated_rows`).
Leaving out row i: mean y_i - α_i/(C⁻¹)_ii, variance 1/(C⁻¹)_ii - s_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from hmcgp.errors import InvalidInput, NotPositiveDefinite
from hmcgp.evidence.base import Evidence
from hmcgp.evidence.exact import factorisation as core
from hmcgp.evidence.exact.repeated_rows import weighted_evidence
from hmcgp.evidence.iterative import estimate
from hmcgp.evidence.status import needs_factor, predict_by_factor
from hmcgp.likelihoods import Gaussian, Likelihood, NoisyNumbers, OutputNoise, VaryingNoise
from hmcgp.numerics.constants import LOG_2PI
from hmcgp.runtime.checks import lowered
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

        Returns
        -------
        mean, variance : ndarrays of shape (n,)
            The mean is of shape (n, k) for k columns of targets.
        """
        L_inverse = self._inverse_factor()
        v = np.maximum(1.0 / np.einsum("ij,ij->j", L_inverse, L_inverse) - self.noise, 0.0)
        return self.f - (v * self.alpha.T).T, v

    def log_density_without(self, groups: Sequence[NDArray[np.intp]]) -> Array:
        """Log density of the targets of each group of rows given all others, noise included, of shape (len(groups),).

        With P = (C⁻¹)_gg, y_g given the rest is N(y_g - P⁻¹α_g, P⁻¹).
        """
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
        """Latent mean, of shape (m,) or (m, k), and covariance K** - k'C⁻¹k, of shape (m, m), at new inputs."""
        V = solve_triangular(needs_factor(self.L, "to predict"), K_cross, lower=True, check_finite=False)
        return K_cross.T @ self.alpha, K_new - V.T @ V


@dataclass(frozen=True, repr=False)
class Exact:
    """The evidence of numbers observed with Gaussian noise: log N(y; 0, K + diag noise).

    Parameters
    ----------
    solver : {"cholesky", "iterative"}, default="cholesky"
        How C = K + diag noise is inverted and its determinant found.  "iterative" takes O(n²) operations for each of a
        few tens of products with K instead of O(n³), and estimates log|C| from random vectors.  It pays for a few
        thousand rows and more, where a low-rank model of K is good: smooth functions, few inputs that matter, noise
        that is not tiny.  The other settings are its own.
    probes : int, default=32
        Random vectors.  In any direction they shift the posterior of the hyperparameters by about its standard
        deviation over √probes without a low-rank model, and by much less where that is good.
    rank : int, optional
        Rows of K of which the low-rank model is made.  Default: n/10, and at least 400.
    seed : int, default=0
        Of the random vectors and rows.  They are the same in every call, so that all chains sample the same smooth
        density.
    tol : float, default=1e-4
        Relative residual of every solution.  The bounds on ½ y'C⁻¹y are then closer than ½ n tol², about, and the
        gradient is that of the value to a relative tol.  Solutions do not depend on where they start.
    max_products : int, default=200
        Products with K before `NotConverged` is raised.
    """

    solver: str = "cholesky"
    probes: int = 32
    rank: int | None = None
    seed: int = 0
    tol: float = 1e-4
    max_products: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Gaussian, VaryingNoise, OutputNoise)

    def __post_init__(self) -> None:
        object.__setattr__(self, "solver", lowered(self.solver))
        if self.solver not in {"cholesky", "iterative"}:
            raise InvalidInput(f"'solver' of Exact must be 'cholesky' or 'iterative'; got {self.solver!r}.")
        if not (isinstance(self.tol, Real) and 0.0 < self.tol < 1.0):
            raise InvalidInput(f"'tol' of Exact must lie between 0 and 1; got {self.tol!r}.")
        for name, least in {"probes": 1, "rank": 1, "seed": 0, "max_products": 1}.items():
            value = getattr(self, name)
            if not (isinstance(value, Integral) and value >= least) and (name, value) != ("rank", None):
                raise InvalidInput(f"{name!r} of Exact must be an integer >= {least}; got {value!r}.")

    def __repr__(self) -> str:
        used = fields(self) if self.solver == "iterative" else ()
        return f"Exact({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in used)})"

    def __call__(
        self, K: Array, y: Array, likelihood: Likelihood, start: Array | None = None, *, gradient: bool = True
    ) -> Evidence:
        """Evidence of targets y under f ~ N(0, K).

        Parameters
        ----------
        K : ndarray of shape (n, n)
            Prior covariance; the solver "cholesky" reads its lower triangle only.
        y : ndarray of shape (n,) or (n, k)
            Targets; k columns of them are independent, and share K and the noise.
        likelihood : Gaussian, VaryingNoise or OutputNoise
            With a number for each of its parameters.
        start : ndarray of shape (n,), optional
            Not used.
        gradient : bool, default=True
            With the gradient, its matrix takes the place of the factor that `posterior.predict` needs.

        Returns
        -------
        Evidence
            `dlik` has the derivatives with respect to the parameters of the likelihood.

        Raises
        ------
        NotPositiveDefinite
            Where K + diag noise cannot be told from a singular matrix, or is so near to one that a bound on the
            rounding of log Z exceeds 0.1 nats plus a millionth of |log Z| (rounding is a few per cent of the bound).
        NotConverged
            Where the iterative solver used up its products with K.
        """
        assert isinstance(likelihood, NoisyNumbers)
        if likelihood.weights is not None:
            return weighted_evidence(self, K, y, likelihood, gradient=gradient)
        noise = likelihood.row_noise(len(y))
        if self.solver == "iterative":
            return self._iterate(K, y, likelihood, noise, gradient)
        if y.ndim == 1:
            known, log_z, alpha, L = core.solve(K, y, noise, gradient)
        else:
            known, log_z, alpha, L = core.solve_columns(K, np.ascontiguousarray(y), noise, gradient)
        if not known:
            raise NotPositiveDefinite(
                "Exact: K + diag noise is not positive definite to working precision, or so nearly singular that "
                f"rounding eats log Z (least noise {noise.min():.1e}, largest prior variance "
                f"{np.max(np.diag(K)):.1e}); is K a finite covariance matrix, and the noise not too small for rows "
                "that repeat with other targets?"
            )
        posterior = ExactPosterior(y - (noise * alpha.T).T, alpha, noise, None if gradient else L)
        dlik = likelihood.pull_back(np.diag(L)) if gradient else np.empty(0)
        return Evidence(log_z, L if gradient else None, dlik, posterior, 0, 0.0)

    def _iterate(self, K: Array, y: Array, likelihood: NoisyNumbers, noise: Array, gradient: bool) -> Evidence:
        rank = max(len(y) // 10, 400) if self.rank is None else self.rank
        settings = estimate.Settings(self.probes, min(rank, len(y)), self.seed, self.tol, self.max_products)
        found = estimate.solve(K, y, noise, settings, with_gradient=gradient)
        dlik = np.empty(0) if found.dnoise is None else likelihood.pull_back(found.dnoise)
        return Evidence(found.log_z, found.dK, dlik, found.posterior, found.n_products, found.residual)
