"""Compiled mean-field evidence, naive and TAP.  Symbols as in `hmcgp.evidence.ep.site_state`."""

import math

import numpy as np

from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.log_evidence import evidence_at_solution, flip_derivative
from hmcgp.evidence.ep.site_algebra import posterior_covariance, pseudo_target_precision
from hmcgp.evidence.ep.tap import iterate_tap, mean_residual, solve_means
from hmcgp.evidence.newton import copy
from hmcgp.evidence.rounding import LOST_NATS
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array


@compiled_inside
def _error_of_log_z(K: Array, state: Array, residual: float) -> float:
    """Bound on the effect of rounding, and of a residual, on log Z.

    Entries of K are known to a relative eps, and |K_ij| <= √K_ii √K_jj; the residual is in units of √K_ii.
    Labels that contradict each other leave large means of opposite signs, of which only the difference is determined.
    """
    total = 0.0
    for i in range(state.shape[1]):
        total += abs(state[site.ALPHA, i]) * math.sqrt(K[i, i])
    return (0.5 * EPS * total + residual) * total


@compiled_inside
def _clip_precisions(state: Array) -> None:
    """Put negative precisions of sites to 0."""
    for i in range(state.shape[1]):
        state[site.PRECISION, i] = max(state[site.PRECISION, i], 0.0)


@compiled_inside
def _iterate_naive(
    K: Array, y: Array, kind: int, flip: float, tol: float, max_iter: int, work: Array, S: Array, state: Array,
    order: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Solve for the means at Λ_i = K_ii; returns as `tap.iterate_tap`."""
    n = y.shape[0]
    residual, last, scale = np.inf, np.inf, 0.0
    for i in range(n):
        state[site.CAVITY_PRECISION, i] = 1.0 / K[i, i]
        scale = max(scale, K[i, i])
    for n_factor in range(1, max_iter + 1):
        proper, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)
        if not proper:
            if state[site.PRECISION].min() >= 0.0:
                return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
            _clip_precisions(state)  # another direction, which the line search judges
            posterior_covariance(K, state[site.PRECISION], order, work, S)
        if n_factor == 1:
            site.mean_from_sites(S, state)
        symmetric_times(K, state[site.ALPHA], state[site.MEAN])
        if not site.update_moments(kind, flip, y, state, state[site.CAVITY_PRECISION]):
            break
        rounding = 4.0 * EPS * math.sqrt(n * scale) * np.abs(state[site.ALPHA]).sum()  # norm of errors of (Kx - Λx)/√v
        residual = mean_residual(state)
        solved = residual <= tol or 0.5 * last <= residual <= rounding
        if not solved:
            if not residual < last:
                break  # no step leads down
            last = residual
            solve_means(y, kind, flip, S, state, 0.1 * min(residual, 1.0) * residual)
        copy(state[site.MATCHED_PRECISION], state[site.PRECISION])
        if solved and n_factor < max_iter:
            proper, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)  # what predictions need
            sound = proper and _error_of_log_z(K, state, residual) <= LOST_NATS
            return (site.final_status(rounding) if sound else NOT_CONVERGED), n_factor + 1, residual, log_det
    return NOT_CONVERGED, n_factor, residual, np.inf


@compiled_inside
def _naive_evidence(state: Array) -> float:
    """Log Z = Σ k_i log Z₀ - ½ Σ x_i γ_i."""
    log_z = 0.0
    for i in range(state.shape[1]):
        log_z += state[site.COPIES, i] * state[site.LOG_Z, i] - 0.5 * state[site.ALPHA, i] * state[site.CAVITY_MEAN, i]
    return log_z


@compiled_inside
def _leave_rows_out(state: Array, S: Array) -> None:
    """Set the cavities to leave-one-out predictions, 1/v_i = 1/S_ii - w_i, in which the other rows respond."""
    for i in range(state.shape[1]):
        state[site.CAVITY_PRECISION, i] = 1.0 / S[i, i] - state[site.PRECISION, i]
        state[site.CAVITY_MEAN, i] = state[site.MEAN, i] - state[site.ALPHA, i] / state[site.CAVITY_PRECISION, i]


@compiled_inside
def _naive_gradient(K: Array, state: Array, G: Array) -> None:
    """Fill G = ½(xx' - diag kU), with U = (1 - D)/Λ."""
    for i in range(state.shape[1]):
        for j in range(state.shape[1]):
            G[i, j] = 0.5 * state[site.ALPHA, i] * state[site.ALPHA, j]
        G[i, i] -= 0.5 * state[site.COPIES, i] * (1.0 - state[site.VARIANCE_RATIO, i]) / K[i, i]


@compiled
def solve(
    K: Array, y: Array, weights: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int,
    naive: bool, gradient: bool,
) -> tuple[int, int, float, float, float, Array, Array]:  # fmt: skip
    """Solve the mean-field equations; arguments and returns as of `sweeps.solve`."""
    n = y.shape[0]
    state, order = site.new_state(weights), np.empty(n, dtype=np.int64)
    work, S = np.empty_like(K), np.empty_like(K)
    status, n_factor, residual, log_det = NOT_CONVERGED, 0, np.inf, np.inf
    for attempt in range(2):
        from_start = warm and attempt == 0
        if from_start:
            if not site.warm_start(start, flip == 0.0, state):
                continue
        else:
            site.cold_start(K, y, kind, flip, state)
        if naive:
            status, used, residual, log_det = _iterate_naive(K, y, kind, flip, tol, max_iter, work, S, state, order)
        else:
            status, used, residual, log_det = iterate_tap(K, y, kind, flip, tol, max_iter, work, S, state, order)
        n_factor += used
        if status == CONVERGED or not from_start:
            break
    if status != CONVERGED or not naive:
        log_z, dflip = evidence_at_solution(y, kind, flip, status, log_det, gradient, work, S, state, order)
        return status, n_factor, residual, log_z, dflip, state, S
    log_z, dflip = _naive_evidence(state), flip_derivative(kind, flip, y, state)
    _leave_rows_out(state, S)
    if gradient:
        _naive_gradient(K, state, S)
    else:
        pseudo_target_precision(state[site.PRECISION], order, work, S)
    return status, n_factor, residual, log_z, dflip, state, S
