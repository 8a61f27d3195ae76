"""Compiled mean-field equations for given cavity variances, and the TAP iteration (Opper & Winther 2000).

Symbols as in `hmcgp.evidence.ep.site_state`.  Given the cavity variances Λ = v, the means satisfy x = a(γ, Λ) with
γ = Kx - Λx.  Newton's step for these n equations is δx = (I + wK)⁻¹ r with w = U/(1 - UΛ), r = (a - x)/(1 - UΛ): thus
δm = Kδx = S r and δx = r - w δm.  TAP alternates between these and 1/Λ_i = 1/S_ii - w_i.
"""

import math

import numpy as np

from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.site_algebra import posterior_covariance
from hmcgp.evidence.status import NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array

_MAX_HALVINGS = 12
_MAX_CHORDS = 30  # steps with one factor
_DIVERGED = 1e6  # times the best residual, from which the iteration does not recover


@compiled_inside
def mean_residual(state: Array) -> float:
    """√Σ (a - x)² v; infinite where a moment failed."""
    total = 0.0
    for i in range(state.shape[1]):
        difference = state[site.SLOPE, i] - state[site.ALPHA, i]
        total += difference**2 / state[site.CAVITY_PRECISION, i] + 0.0 * state[site.MATCHED_PRECISION, i]
    return np.inf if math.isnan(total) else math.sqrt(total)


@compiled_inside
def _newton_step(y: Array, kind: int, flip: float, S: Array, state: Array, residual: float) -> float:
    """Move the means by Newton's step with the S and w at hand, halved until the residual falls; returns the residual.

    Nothing moves where no step lowers it.
    """
    n = y.shape[0]
    for i in range(n):
        state[site.RESIDUAL, i] = (state[site.SLOPE, i] - state[site.ALPHA, i]) / state[site.VARIANCE_RATIO, i]
        state[site.KEPT_ALPHA, i], state[site.KEPT_MEAN, i] = state[site.ALPHA, i], state[site.MEAN, i]
    symmetric_times(S, state[site.RESIDUAL], state[site.MEAN_STEP])
    step = 1.0
    for _ in range(_MAX_HALVINGS):
        for i in range(n):
            alpha_step = state[site.RESIDUAL, i] - state[site.PRECISION, i] * state[site.MEAN_STEP, i]
            state[site.ALPHA, i] = state[site.KEPT_ALPHA, i] + step * alpha_step
            state[site.MEAN, i] = state[site.KEPT_MEAN, i] + step * state[site.MEAN_STEP, i]
        site.update_moments(kind, flip, y, state, state[site.CAVITY_PRECISION])
        now = mean_residual(state)
        if now < residual:
            return now
        step *= 0.5
    for i in range(n):
        state[site.ALPHA, i], state[site.MEAN, i] = state[site.KEPT_ALPHA, i], state[site.KEPT_MEAN, i]
    site.update_moments(kind, flip, y, state, state[site.CAVITY_PRECISION])
    return residual


@compiled_inside
def solve_means(y: Array, kind: int, flip: float, S: Array, state: Array, goal: float) -> float:
    """Solve for the means at fixed cavity variances, as far as one factor leads; returns their residual."""
    residual = mean_residual(state)
    for _ in range(_MAX_CHORDS):
        before, residual = residual, _newton_step(y, kind, flip, S, state, residual)
        if residual <= goal or not residual < 0.5 * before:
            break
    return residual


@compiled_inside
def _move_precisions(state: Array, damping: float) -> None:
    """Move the site precisions towards those that match the moments, and keep where they were."""
    for i in range(state.shape[1]):
        state[site.KEPT_PRECISION, i] = state[site.PRECISION, i]
        state[site.PRECISION, i] += damping * (state[site.MATCHED_PRECISION, i] - state[site.PRECISION, i])


@compiled_inside
def _halve_step(state: Array, from_sites: bool) -> None:
    """Move the sites half of the way back to those last kept, or to none at the start."""
    for i in range(state.shape[1]):
        w = 0.5 * (state[site.PRECISION, i] + state[site.KEPT_PRECISION, i])
        state[site.PRECISION, i] = w
        state[site.ETA, i] = 0.5 * state[site.ETA, i] if from_sites else state[site.ALPHA, i] + w * state[site.MEAN, i]


@compiled_inside
def iterate_tap(
    K: Array, y: Array, kind: int, flip: float, tol: float, max_iter: int, work: Array, S: Array, state: Array,
    order: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Solve for cavity variances and means in turn; returns status, factorisations, residual and log|I + K diag w|."""
    residual, best, damping, from_sites = np.inf, np.inf, 1.0, True
    state[site.KEPT_PRECISION, :] = 0.0
    for n_factor in range(1, max_iter + 1):
        proper, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)
        good = False
        if proper:
            residual, rounding, good = site.evaluate(K, y, kind, flip, S, state, from_sites)
            if good and residual <= max(tol, rounding):
                return site.final_status(rounding), n_factor, residual, log_det
        elif state[site.PRECISION].min() >= 0.0:
            return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
        if not good:
            damping *= 0.5
            if damping < 1e-3:
                break
            _halve_step(state, from_sites)
            continue
        if residual > _DIVERGED * best:
            break
        damping = max(0.7 * damping, 0.1) if residual > best else min(1.1 * damping, 1.0)
        best, from_sites = min(best, residual), False
        solve_means(y, kind, flip, S, state, 0.1 * min(residual, 1.0) * residual)
        _move_precisions(state, damping)
    return NOT_CONVERGED, n_factor, residual, np.inf
