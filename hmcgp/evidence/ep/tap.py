"""Compiled mean-field equations for given cavity variances, and the TAP iteration (Opper & Winther 2000).

Symbols as in `hmcgp.evidence.ep.state`.  Given the cavity variances Λ = v, the means obey x = a(γ, Λ),
γ = Kx - Λx.  Newton's step for these n equations is δx = (I + wK)⁻¹ r with w = U/(1 - UΛ), r = (a - x)/(1 - UΛ), and so
δm = Kδx = S r, δx = r - w δm.  TAP solves them in turn with 1/Λ_i = 1/S_ii - w_i.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.parallel_sweeps import ROUNDED_AWAY
from hmcgp.evidence.ep.site_algebra import covariance
from hmcgp.evidence.ep.state import BEST_X, DM, ETA, KEPT_W, MEAN, TAU, W_HAT, A, D, Q, R, W, X, evaluate, moments
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array

_HALVINGS = 12
_CHORDS = 30  # steps with one factor
_DIVERGED = 1e6  # times the best residual: it will not come back


@compiled
def mean_residual(a: Array) -> float:
    """√Σ (a - x)² v; infinite where a moment failed."""
    total = 0.0
    for i in range(a.shape[1]):
        total += (a[A, i] - a[X, i]) ** 2 / a[TAU, i] + 0.0 * a[W_HAT, i]
    return np.inf if math.isnan(total) else math.sqrt(total)


@compiled
def _newton(y: Array, kind: int, flip: float, S: Array, a: Array, residual: float) -> float:
    """One step of the means with the S and W at hand, halved while the residual does not fall; returns the residual.

    The residual that came in comes back where no step lowers it.
    """
    n = y.shape[0]
    for i in range(n):
        a[R, i] = (a[A, i] - a[X, i]) / a[D, i]
        a[BEST_X, i], a[Q, i] = a[X, i], a[MEAN, i]
    symmetric_times(S, a[R], a[DM])
    step = 1.0
    for _ in range(_HALVINGS):
        for i in range(n):
            a[X, i] = a[BEST_X, i] + step * (a[R, i] - a[W, i] * a[DM, i])
            a[MEAN, i] = a[Q, i] + step * a[DM, i]
        moments(kind, flip, y, a, a[TAU])
        now = mean_residual(a)
        if now < residual:
            return now
        step *= 0.5
    for i in range(n):
        a[X, i], a[MEAN, i] = a[BEST_X, i], a[Q, i]
    moments(kind, flip, y, a, a[TAU])
    return residual


@compiled
def solve_means(y: Array, kind: int, flip: float, S: Array, a: Array, goal: float) -> float:
    """Steps of the means, at fixed cavity variances, while one factor serves; returns their residual."""
    residual = mean_residual(a)
    for _ in range(_CHORDS):
        before, residual = residual, _newton(y, kind, flip, S, a, residual)
        if residual <= goal or not residual < 0.5 * before:
            break
    return residual


@compiled
def iterate_tap(
    K: Array, y: Array, kind: int, flip: float, tol: float, max_iter: int, work: Array, S: Array, a: Array, order: Array
) -> tuple[int, int, float, float]:
    """Cavity variances and means in turn; returns status, factorisations, residual and log|I + KW|."""
    residual, best, damping, from_sites = np.inf, np.inf, 1.0, True
    for i in range(y.shape[0]):
        a[KEPT_W, i] = 0.0
    for n_factor in range(1, max_iter + 1):
        proper, log_det = covariance(K, a[W], order, work, S)
        good = False
        if proper:
            residual, rounding, good = evaluate(K, y, kind, flip, S, a, from_sites)
            if good and residual <= max(tol, rounding):
                return (CONVERGED if rounding <= ROUNDED_AWAY else NOT_CONVERGED), n_factor, residual, log_det
        elif a[W].min() >= 0.0:
            return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
        if good and residual > _DIVERGED * best:
            break
        if not good:  # back half of the way
            damping = 0.5 * damping
            if damping < 1e-3:
                break
            for i in range(y.shape[0]):
                a[W, i] = 0.5 * (a[W, i] + a[KEPT_W, i])
                a[ETA, i] = a[X, i] + a[W, i] * a[MEAN, i] if not from_sites else 0.5 * a[ETA, i]
            continue
        from_sites = False
        damping = max(0.7 * damping, 0.1) if residual > best else min(1.1 * damping, 1.0)
        best = min(best, residual)
        solve_means(y, kind, flip, S, a, 0.1 * min(residual, 1.0) * residual)
        for i in range(y.shape[0]):
            a[KEPT_W, i] = a[W, i]
            a[W, i] += damping * (a[W_HAT, i] - a[W, i])
    return NOT_CONVERGED, n_factor, residual, np.inf
