"""Compiled expectation propagation by parallel sweeps, each followed by a quasi-Newton correction.

Symbols as in `hmcgp.evidence.ep.site_state`.

One sweep factorises at w, n³ operations with S, and then solves a model of the equations that is of second order in the
change of w, at n² operations a step.  Only the cavity precisions are approximated,

    τ_i(w + δ) = τ_i + Σ_{j≠i} (S_ij/S_ii)² δ_j + O(δ²)          (exact in δ_i, and for perfectly correlated sites)

while moments are exact, and the mean moves by Newton's step with the S at hand, δm = S r, δx = r - w δm,
r = (a - x)/(1 - Uv).  This fixed point is accelerated by Anderson's method.  The error of a sweep is the square of the
error of the one before: three or four sweeps suffice, against dozens of plain ones.

Where a correction does not lower the residual, plain sweeps (η, w) += β(η̂ - η, ŵ - w) with adaptive damping β follow,
twice as many each time, before the next correction; they leave sites with an improper cavity (τ <= 0) unchanged.
"""

import math

import numpy as np

from hmcgp.evidence.anderson import anderson_weights
from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.class_contrasts import posterior_of_contrasts
from hmcgp.evidence.ep.site_algebra import posterior_covariance
from hmcgp.evidence.newton import copy, fill
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.runtime.typing import Array

MAX_WARM_RESIDUAL = 3.0  # a warm start with a larger residual is no better than a cold one,
_MAX_WARM_SWEEPS = 30  # nor is one that takes longer: three or four are usual
_MAX_MODEL_STEPS = 40  # with one factor
_MEMORY = 6  # of Anderson's method
_MIN_CAVITY = 0.05  # fraction of a cavity precision below which its model is not trusted
_PROGRESS = 0.9  # a correction must lower the residual at least to this fraction
_MIN_DAMPING = 1e-6  # of a plain sweep


@compiled_inside
def _symmetric_products(S: Array, r: Array, delta: Array, Sr: Array, SSd: Array) -> None:
    """Fill S r and (S∘S)δ in one pass through the symmetric S, as sums of its rows."""
    n = r.shape[0]
    fill(Sr, 0.0)
    fill(SSd, 0.0)
    for j in range(0, n - 1, 2):  # two rows at a time, to load and store the sums half as often
        row, next_row, a, b, c, d = S[j], S[j + 1], r[j], r[j + 1], delta[j], delta[j + 1]
        for i in range(n):
            s, t = row[i], next_row[i]
            Sr[i] += s * a + t * b
            SSd[i] += s * s * c + t * t * d
    if n % 2 == 1:
        row, a, c = S[n - 1], r[n - 1], delta[n - 1]
        for i in range(n):
            Sr[i] += row[i] * a
            SSd[i] += row[i] * row[i] * c


@compiled_inside
def _model_step(S: Array, state: Array, now: Array) -> float:
    """Largest component of the scaled fixed-point step of the model, from its moments.

    Fills `now`, of length 8n: the point (x, m, τ), its step, and the step of (m, τ) in units of √S_ii and τ_i.
    """
    n = state.shape[1]
    for i in range(n):
        state[site.RESIDUAL, i] = (state[site.SLOPE, i] - state[site.ALPHA, i]) / state[site.VARIANCE_RATIO, i]
        state[site.PRECISION_STEP, i] = state[site.MATCHED_PRECISION, i] - state[site.PRECISION, i]
    _symmetric_products(
        S, state[site.RESIDUAL], state[site.PRECISION_STEP], state[site.MEAN_STEP], state[site.VARIANCE_DROP]
    )
    size = 0.0
    for i in range(n):
        s, tau = state[site.VARIANCE, i], state[site.CAVITY_PRECISION, i]
        model_tau = tau + (state[site.VARIANCE_DROP, i] / s / s - state[site.PRECISION_STEP, i] / state[site.COPIES, i])
        now[i], now[n + i], now[2 * n + i] = state[site.ALPHA, i], state[site.MEAN, i], state[site.MODEL_CAVITY, i]
        now[3 * n + i] = state[site.RESIDUAL, i] - state[site.PRECISION, i] * state[site.MEAN_STEP, i]
        now[4 * n + i] = state[site.MEAN_STEP, i]
        now[5 * n + i] = max(model_tau, _MIN_CAVITY * tau) - state[site.MODEL_CAVITY, i]
        now[6 * n + i] = now[4 * n + i] / math.sqrt(s)
        now[7 * n + i] = now[5 * n + i] / tau
        size = max(size, abs(now[6 * n + i]), abs(now[7 * n + i]))
    return size


@compiled_inside
def _accelerated_step(state: Array, now: Array, differences: Array) -> None:
    """Take the step in `now`, accelerated by the differences between earlier ones."""
    n = state.shape[1]
    c = anderson_weights(differences[:, 6 * n :], now[6 * n :])
    step = now[3 * n : 6 * n].copy()
    for k in range(c.shape[0]):
        for i in range(3 * n):
            step[i] -= c[k] * (differences[k, i] + differences[k, 3 * n + i])
    for i in range(n):
        state[site.ALPHA, i] += step[i]
        state[site.MEAN, i] += step[n + i]
        least = _MIN_CAVITY * state[site.CAVITY_PRECISION, i]
        state[site.MODEL_CAVITY, i] = max(state[site.MODEL_CAVITY, i] + step[2 * n + i], least)


@compiled_inside
def _correct(
    y: Array, kind: int, flip: float, S: Array, state: Array, residual: float, tol: float, numbers: Array | None
) -> None:
    """Move x and w to the solution of the model at the S at hand."""
    n = y.shape[0]
    goal = max(1e-2 * tol, 0.1 * min(residual, 1.0) * residual)
    now, before, differences = np.empty(8 * n), np.empty(8 * n), np.empty((_MEMORY, 8 * n))
    copy(state[site.CAVITY_PRECISION], state[site.MODEL_CAVITY])
    best = np.inf
    for it in range(_MAX_MODEL_STEPS):
        size = _model_step(S, state, now)
        if size < best:
            best = size
            copy(state[site.ALPHA], state[site.BEST_ALPHA])
            copy(state[site.MATCHED_PRECISION], state[site.BEST_PRECISION])
        if not goal < size < 100.0 * best:
            break
        for i in range(8 * n if it > 0 else 0):
            differences[(it - 1) % _MEMORY, i] = now[i] - before[i]
        copy(now, before)
        _accelerated_step(state, now, differences[: min(it, _MEMORY)])
        if not site.update_moments(kind, flip, y, state, state[site.MODEL_CAVITY], numbers):
            break
    copy(state[site.BEST_ALPHA], state[site.ALPHA])
    copy(state[site.BEST_PRECISION], state[site.PRECISION])


@compiled_inside
def _adapted(damping: float, corrected: bool, residual: float, before: float) -> float:
    """Damping of the next plain sweep: weaker if the last one lowered the residual, else stronger."""
    if corrected or not before < np.inf:  # the last sweep was not a plain one
        return damping
    return min(1.2 * damping, 0.8) if residual < before else max(0.7 * damping, 0.1)


@compiled_inside
def _improper_status(state: Array, damping: float) -> int:
    """Status where q is improper: CONVERGED where a shorter sweep may still make it proper.

    Without negative sites, A = I + ρKρ is positive definite if K is.
    """
    if state[site.PRECISION].min() >= 0.0:
        return NOT_POSITIVE_DEFINITE
    return CONVERGED if damping > _MIN_DAMPING else NOT_CONVERGED


@compiled_inside
def _falls_below(limit: float, residual: float, good: bool) -> bool:
    """Whether all cavities are proper, and the residual is below a limit."""
    return good and residual < limit


@compiled_inside
def _update(
    K: Array, y: Array, kind: int, flip: float, work: Array, S: Array, state: Array, order: Array,
    K_classes: Array | None, classes: Array | None, numbers: Array | None, from_sites: bool, residual: float,
) -> tuple[bool, float, bool, float, float]:  # fmt: skip
    """Update S and everything else that follows from the sites.

    Returns whether q is proper, log|I + K diag w|, whether all cavities are proper, too, and residual and rounding
    (`site_state.evaluate`); where q is improper, the residual given.
    """
    if K_classes is None:  # decided when this is compiled
        proper, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)
    else:
        proper, log_det = posterior_of_contrasts(K_classes, classes, state[site.PRECISION], work, S)
    if not proper:
        return False, log_det, False, residual, np.inf
    residual, rounding, good = site.evaluate(K, y, kind, flip, S, state, from_sites, numbers)
    return True, log_det, good, residual, rounding


@compiled
def sweep_in_parallel(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int, work: Array,
    S: Array, state: Array, order: Array, K_classes: Array | None, classes: Array | None, numbers: Array | None,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweep until converged, from `start` if warm, else from the prior.

    Returns status, factorisations, residual and log|I + K diag w|.  Unless `K_classes` is None, sites are those of
    `hmcgp.evidence.ep.class_contrasts`, K their prior covariance.  `numbers` as of `site_state.update_moments`.
    """
    if not site.begin(K, y, kind, flip, start, warm, state, numbers):
        return NOT_CONVERGED, 0, np.inf, np.inf
    corrected, plain_left, patience, damping = False, 0, 2, 0.8
    residual, accepted = np.inf, np.inf
    budget = min(max_iter, _MAX_WARM_SWEEPS) if warm else max_iter
    for n_factor in range(1, budget + 1):
        proper, log_det, good, residual, rounding = _update(
            K, y, kind, flip, work, S, state, order, K_classes, classes, numbers, not corrected, residual
        )
        if good and residual <= max(tol, rounding):
            return site.final_status(rounding), n_factor, residual, log_det
        if warm and n_factor == 1 and not _falls_below(MAX_WARM_RESIDUAL, residual, good):
            return NOT_CONVERGED, n_factor, residual, log_det
        if corrected and not _falls_below(_PROGRESS * accepted, residual, good):  # back to where the correction began
            corrected, plain_left, patience = False, patience - 1, 2 * patience
        elif proper:
            damping = _adapted(damping, corrected, residual, accepted)
            site.accept_sites(state)
            accepted, corrected, plain_left = residual, good and plain_left == 0, max(plain_left - 1, 0)
        else:  # a plain sweep went too far
            status = _improper_status(state, damping)
            if status != CONVERGED:
                return status, n_factor, residual, log_det
            damping *= 0.5
        if corrected:
            _correct(y, kind, flip, S, state, residual, tol, numbers)
        else:
            site.plain_sweep(state, damping)
    return NOT_CONVERGED, budget, residual, np.inf
