"""Laplace approximation for the Student-t likelihood, which is not log-concave (Vanhatalo, Jylänki & Vehtari 2009).

Symbols as in `evidence.laplace`.  f is a maximum of Ψ(f) = log p(y | f) - ½f'K⁻¹f.  The observed curvature
W = -∂² log p is negative in rows that are far off.  By default, the covariance of the approximation has its expectation
over y, the Fisher information, instead (Hartmann & Vanhatalo 2019):

    F = ω(ν + 1)/((ν + 3)s²),   log Z = Ψ(f) - ½ log|I + KF|,   S = (K⁻¹ + F)⁻¹,   R = (K + F⁻¹)⁻¹,   G = ½(gg' - R).

F is positive and does not depend on f.  So S never exceeds the prior covariance, and the gradient is exact without the
motion of the maximum, where Ψ has no slope.  With W (`curvature="observed"`),

    log Z = Ψ - ½ log|I + KW|,   G = ½((u + ½g)g' + g(u + ½g)' - R),   u = (I + WK)⁻¹c,   R = (K + W⁻¹)⁻¹,

which includes the motion of the maximum (`signed_curvature`).  This log Z tends to infinity where K⁻¹ + W becomes
singular, as a maximum of Ψ vanishes: a search for the most probable hyperparameters can end there.

Ψ may have several maxima.  The search (`heavy_mode_search`) is the same from wherever the sampler comes, so that log Z
is a function of K and of the parameters alone: uphill from the regression with Gaussian noise of variance q/(ν + 1), in
which every row counts in full, by the weights E = (ν + 1)/(q + r²) with which rows then count, and by Newton's method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.laplace import heavy_mode_search as core
from hmcgp.evidence.products import LatentProducts, by_precision
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import needs_factor, raise_for_status, refuse_lost_digits
from hmcgp.likelihoods import StudentT
from hmcgp.runtime.typing import Array

MAX_RELATIVE_SHIFT = 0.5  # of another row's latent value, in units of √(ν s²), by linear response to leaving a row out


@dataclass(frozen=True)
class StudentProblem:
    """Targets and likelihood of a solution, with which rows are left out."""

    provider: SolverProvider
    y: Array  # (n,)
    likelihood: StudentT
    observed: bool  # whether the covariance has the observed curvature

    def without(self, i: int) -> tuple[NDArray[np.intp], Array, StudentT]:
        """Indices of all rows but i, their targets, and their likelihood."""
        rest = np.delete(np.arange(len(self.y)), i)
        weights = self.likelihood.weights
        likelihood = self.likelihood if weights is None else self.likelihood.weighted(np.asarray(weights)[rest])
        return rest, self.y[rest], likelihood


@dataclass(frozen=True)
class StudentPosterior:
    """N(f, (K⁻¹ + W)⁻¹) with f a maximum of Ψ, and W the expected curvature, or the observed one of either sign."""

    f: Array  # (n,)
    alpha: Array  # (n,) K⁻¹f
    w: Array  # (n,)
    variances: Array  # (n,) S_ii
    R: Array | None  # (n, n); None where the gradient has used its memory
    observed_w: Array  # (n,) -∂² log p at f
    problem: StudentProblem
    K: Array  # (n, n) prior covariance

    @property
    def start(self) -> Array:
        """The maximum; searches do not start from it (see the module)."""
        return self.f

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The maximum and, of new rows, the predicted means."""
        return np.concatenate([self.f, mean])

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of the latent values.

        By linear response of the maximum, μ = f - S°_ii g/(1 - S°_ii W°_i) with the observed curvature W° and
        S° = (K⁻¹ + W°)⁻¹, and 1/v = 1/S_ii - W_i.  Rows that move other latent values too far for that are solved again
        without the row.
        """
        K = self.K
        response = np.linalg.inv(np.eye(len(K)) + K * self.observed_w)  # (I + KW°)⁻¹
        share, S = np.diagonal(response), response @ K
        shifts = np.abs(S * self.alpha)
        np.fill_diagonal(shifts, 0.0)

        def solved_without(i: int) -> tuple[float, float]:
            rest, y, likelihood = self.problem.without(i)
            part = np.ascontiguousarray(K[np.ix_(rest, rest)])
            evidence = student_evidence(
                self.problem.provider, part, y, likelihood, gradient=False, observed=self.problem.observed
            )
            mean, variance = evidence.posterior.predict(K[rest][:, [i]], K[i, [i]])
            return float(mean[0]), float(variance[0])

        return student_cavities(
            self.f, self.alpha, self.w, self.variances, np.diagonal(S), share, shifts.max(axis=0), self.problem,
            solved_without,
        )  # fmt: skip

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


def student_cavities(
    f: Array,
    alpha: Array,
    w: Array,
    variances: Array,
    observed_variances: Array,
    share: Array,
    shifts: Array,
    problem: StudentProblem,
    solved_without: Callable[[int], tuple[float, float]],
) -> tuple[Array, Array]:
    """Leave-one-out means and variances, by linear response or, row by row, by a solution without the row.

    Parameters
    ----------
    f, alpha, w, variances : ndarrays of shape (n,)
        As of `StudentPosterior`.
    observed_variances : ndarray of shape (n,)
        S°_ii, with the observed curvature.
    share : ndarray of shape (n,)
        1 - S°_ii W°_i.  Where it is not positive, the maximum vanishes with the row.
    shifts : ndarray of shape (n,)
        Largest |S°_ji g_i|, j ≠ i: `share` times the shift of another latent value when row i is left out.
    problem : StudentProblem
    solved_without : callable
        Latent mean and variance of a row by a solution without it.
    """
    noise, nu = problem.likelihood.values()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        variance = variances / (1.0 - variances * w)
        mean = f - observed_variances / share * alpha
        proper = (share > 0.0) & np.isfinite(mean) & (variance > 0.0) & np.isfinite(variance)
        linear = proper & (shifts <= MAX_RELATIVE_SHIFT * np.sqrt(nu * noise) * share)
    mean, variance = np.where(proper, mean, f), np.where(proper, variance, np.maximum(variances, 0.0))
    for i in np.flatnonzero(~linear):
        try:
            mean[i], variance[i] = solved_without(int(i))
        except (NotConverged, NotPositiveDefinite):
            continue  # the first approximation stays
    return mean, variance


def student_evidence(
    provider: SolverProvider, K: Array, y: Array, likelihood: StudentT, gradient: bool, *, observed: bool = False
) -> Evidence:
    """Evidence of numbers y under f ~ N(0, K) (see `Provider.__call__`), with the expected or observed curvature."""
    (noise, nu), weights = likelihood.values(), likelihood.row_weights(len(y))
    expected = likelihood.expected_curvature(len(y))
    status, n_factor, residual, log_z, state, R = core.solve(
        K, y, weights, nu, noise, provider.tol, provider.max_iter, gradient, observed, expected
    )
    raise_for_status(provider, status, n_factor, residual, K)
    f, alpha, w, variances = (state[part] for part in (row.LATENT, row.ALPHA, row.CURVATURE, row.VARIANCE))
    refuse_lost_digits(provider, alpha, w, np.diagonal(K), n_factor)
    log_z += likelihood.log_constant() * float(weights.sum())
    dlik = np.empty(0)
    if gradient and observed:
        dlik = likelihood.laplace_gradient(y, f, variances, state[row.SHIFT])
    elif gradient:
        dlik = likelihood.expected_laplace_gradient(y, f, variances)
    problem = StudentProblem(provider, y, likelihood, observed)
    observed_w = w if observed else state[row.OBSERVED]
    posterior = StudentPosterior(f, alpha, w, variances, None if gradient else R, observed_w, problem, K)
    return Evidence(log_z, R if gradient else None, dlik, posterior, n_factor - 1, residual)
