"""Compiled mean-field evidence: naive and TAP; symbols as in `hmcgp.evidence.ep.state`."""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.parallel_sweeps import ROUNDED_AWAY
from hmcgp.evidence.ep.site_algebra import covariance, response
from hmcgp.evidence.ep.solve import finish, flip_derivative
from hmcgp.evidence.ep.state import (
    COPIES,
    ETA,
    LOG_Z,
    MEAN,
    MU,
    TAU,
    W_HAT,
    D,
    W,
    X,
    blank,
    cold_start,
    moments,
    warm_start,
)
from hmcgp.evidence.ep.tap import iterate_tap, mean_residual, solve_means
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array


@compiled
def _iterate_naive(
    K: Array, y: Array, kind: int, flip: float, tol: float, max_iter: int, work: Array, S: Array, a: Array, order: Array
) -> tuple[int, int, float, float]:
    """Means at Λ_i = K_ii; as `hmcgp.evidence.ep.tap.iterate_tap`."""
    n = y.shape[0]
    residual, last, scale = np.inf, np.inf, 0.0
    for i in range(n):
        a[TAU, i] = 1.0 / K[i, i]
        scale = max(scale, K[i, i])
    for n_factor in range(1, max_iter + 1):
        proper, log_det = covariance(K, a[W], order, work, S)
        if not proper:
            if a[W].min() >= 0.0:
                return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
            for i in range(n):
                a[W, i] = max(a[W, i], 0.0)  # another direction, which the line search judges
            covariance(K, a[W], order, work, S)
        if n_factor == 1:
            _mean_from_sites(a, S)
        symmetric_times(K, a[X], a[MEAN])
        if not moments(kind, flip, y, a, a[TAU]):
            break
        rounding = 4.0 * EPS * math.sqrt(n * scale) * np.abs(a[X]).sum()  # norm of n errors of (Kx - Λx)/√v
        residual = mean_residual(a)
        solved = residual <= max(tol, rounding)
        if not solved:
            if not residual < last:
                break  # no step leads down
            last = residual
            solve_means(y, kind, flip, S, a, 0.1 * min(residual, 1.0) * residual)
        for i in range(n):
            a[W, i] = a[W_HAT, i]
        if solved and n_factor < max_iter:
            proper, log_det = covariance(K, a[W], order, work, S)  # what predictions need
            good = proper and rounding <= ROUNDED_AWAY
            return (CONVERGED if good else NOT_CONVERGED), n_factor + 1, residual, log_det
    return NOT_CONVERGED, n_factor, residual, np.inf


@compiled
def _naive_evidence(a: Array) -> float:
    """Log Z = Σ k_i log Z₀ - ½ Σ x_i γ_i."""
    log_z = 0.0
    for i in range(a.shape[1]):
        log_z += a[COPIES, i] * a[LOG_Z, i] - 0.5 * a[X, i] * a[MU, i]
    return log_z


@compiled
def _respond(a: Array, S: Array) -> None:
    """Cavities for leaving rows out: the others respond, 1/v_i = 1/S_ii - w_i, as they do not in γ and Λ."""
    for i in range(a.shape[1]):
        a[TAU, i] = 1.0 / S[i, i] - a[W, i]
        a[MU, i] = a[MEAN, i] - a[X, i] / a[TAU, i]


@compiled
def _naive_gradient(K: Array, a: Array, G: Array) -> None:
    """Fill G = ½(xx' - diag kU), with U = (1 - D)/Λ."""
    for i in range(a.shape[1]):
        for j in range(a.shape[1]):
            G[i, j] = 0.5 * a[X, i] * a[X, j]
        G[i, i] -= 0.5 * a[COPIES, i] * (1.0 - a[D, i]) / K[i, i]


@compiled
def _mean_from_sites(a: Array, S: Array) -> None:
    """X from the sites: (I + WK)⁻¹η = η - w Sη."""
    symmetric_times(S, a[ETA], a[MEAN])
    for i in range(a.shape[1]):
        a[X, i] = a[ETA, i] - a[W, i] * a[MEAN, i]


@compiled
def solve(
    K: Array, y: Array, weights: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int,
    naive: bool, gradient: bool,
) -> tuple[int, int, float, float, float, Array, Array]:  # fmt: skip
    """Solve the mean-field equations; arguments and returns as of `hmcgp.evidence.ep.solve.solve`."""
    n = y.shape[0]
    a, order = blank(weights), np.empty(n, dtype=np.int64)
    work, S = np.empty_like(K), np.empty_like(K)
    status, n_factor, residual, log_det = NOT_CONVERGED, 0, np.inf, np.inf
    for attempt in range(2):
        from_start = warm and attempt == 0
        if from_start:
            if not warm_start(start, flip == 0.0, a):
                continue
        else:
            cold_start(K, y, kind, flip, a)
        if naive:
            status, used, residual, log_det = _iterate_naive(K, y, kind, flip, tol, max_iter, work, S, a, order)
        else:
            status, used, residual, log_det = iterate_tap(K, y, kind, flip, tol, max_iter, work, S, a, order)
        n_factor += used
        if status == CONVERGED or not from_start:
            break
    if status != CONVERGED:
        return status, n_factor, residual, -np.inf, 0.0, a, S
    if not naive:
        log_z, dflip = finish(y, kind, flip, log_det, gradient, work, S, a, order)
        return status, n_factor, residual, log_z, dflip, a, S
    log_z, dflip = _naive_evidence(a), flip_derivative(kind, flip, y, a)
    _respond(a, S)
    if gradient:
        _naive_gradient(K, a, S)
    else:
        response(a[W], order, work, S)
    return status, n_factor, residual, log_z, dflip, a, S
