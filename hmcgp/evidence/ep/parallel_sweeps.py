"""Compiled expectation propagation: parallel sweeps, each followed by a quasi-Newton correction without factorisation.

Symbols as in `hmcgp.evidence.ep.state`.

One sweep factorises at w, n³ operations with S, and then solves a model of these equations to second order in the
change of w, at n² operations a step: only the cavity precisions are approximated,

    τ_i(w + δ) = τ_i + Σ_{j≠i} (S_ij/S_ii)² δ_j + O(δ²)          (exact in δ_i, and for perfectly correlated sites)

while moments are exact, and the mean moves by Newton's step with the S at hand, δm = S r, δx = r - w δm,
r = (a - x)/(1 - Uv).  This fixed point is accelerated by Anderson's method.  The error of a sweep is the square of that
of the one before: three or four sweeps, against dozens of plain ones.

Where that does not lower the residual, plain sweeps (η, w) += β(η̂ - η, ŵ - w) with adaptive damping β follow, twice as
many each time, before it is tried again; sites with an improper cavity (τ <= 0) are left alone in these.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.anderson import anderson_weights
from hmcgp.evidence.ep.class_contrasts import posterior_of_differences
from hmcgp.evidence.ep.site_algebra import covariance
from hmcgp.evidence.ep.state import (
    BEST_W,
    BEST_X,
    COPIES,
    DM,
    DW,
    MEAN,
    MODEL_TAU,
    S_DIAG,
    TAU,
    W_HAT,
    A,
    D,
    Q,
    R,
    W,
    X,
    accept,
    evaluate,
    moments,
    plain_sweep,
)
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled
from hmcgp.runtime.typing import Array

ROUNDED_AWAY = 1e-4  # a residual that rounding alone may make, beyond which the answer is noise
_MEMORY = 6  # of Anderson's method
_INNER = 40  # steps with one factor
_SHRINK = 0.05  # the model of a cavity precision is not believed below this fraction
_PROGRESS = 0.9  # a correction must lower the residual at least to this fraction
FAR = 3.0  # a warm start with a larger residual is not better than a cold one,
_WARM = 30  # nor is one that takes longer: three or four are usual


@compiled
def _products(S: Array, r: Array, delta: Array, Sr: Array, SSd: Array) -> None:
    """S r and (S∘S)δ in one pass through the symmetric S, as sums of its rows."""
    n = r.shape[0]
    for i in range(n):
        Sr[i] = 0.0
        SSd[i] = 0.0
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


@compiled
def _model_step(S: Array, a: Array, now: Array) -> float:
    """One fixed-point step of the model, from its moments; returns the largest component of the scaled step.

    Fills `now`, of length 8n: the point (x, m, τ), its step, and the step of (m, τ) in units of √S_ii and τ_ii.
    """
    n = a.shape[1]
    for i in range(n):
        a[R, i] = (a[A, i] - a[X, i]) / a[D, i]
        a[DW, i] = a[W_HAT, i] - a[W, i]
    _products(S, a[R], a[DW], a[DM], a[Q])
    size = 0.0
    for i in range(n):
        s = a[S_DIAG, i]
        tau = a[TAU, i] + (a[Q, i] / s / s - a[DW, i] / a[COPIES, i])
        now[i], now[n + i], now[2 * n + i] = a[X, i], a[MEAN, i], a[MODEL_TAU, i]
        now[3 * n + i] = a[R, i] - a[W, i] * a[DM, i]
        now[4 * n + i] = a[DM, i]
        now[5 * n + i] = max(tau, _SHRINK * a[TAU, i]) - a[MODEL_TAU, i]
        now[6 * n + i] = now[4 * n + i] / math.sqrt(s)
        now[7 * n + i] = now[5 * n + i] / a[TAU, i]
        size = max(size, abs(now[6 * n + i]), abs(now[7 * n + i]))
    return size


@compiled
def _move(a: Array, now: Array, differences: Array) -> None:
    """Take the step in `now`, accelerated by the differences of those before."""
    n = a.shape[1]
    c = anderson_weights(differences[:, 6 * n :], now[6 * n :])
    step = now[3 * n : 6 * n].copy()
    for k in range(c.shape[0]):
        for i in range(3 * n):
            step[i] -= c[k] * (differences[k, i] + differences[k, 3 * n + i])
    for i in range(n):
        a[X, i] += step[i]
        a[MEAN, i] += step[n + i]
        a[MODEL_TAU, i] = max(a[MODEL_TAU, i] + step[2 * n + i], _SHRINK * a[TAU, i])


@compiled
def _correct(y: Array, kind: int, flip: float, S: Array, a: Array, residual: float, tol: float) -> None:
    """Solve the model at the factor at hand, and leave the solution in X and W."""
    n = y.shape[0]
    target = max(1e-2 * tol, 0.1 * min(residual, 1.0) * residual)
    now, before, differences = np.empty(8 * n), np.empty(8 * n), np.empty((_MEMORY, 8 * n))
    for i in range(n):
        a[MODEL_TAU, i] = a[TAU, i]
    best = np.inf
    for it in range(_INNER):
        size = _model_step(S, a, now)
        if size < best:
            best = size
            for i in range(n):
                a[BEST_X, i], a[BEST_W, i] = a[X, i], a[W_HAT, i]
        if not (size > target and size < 100.0 * best):
            break
        for i in range(8 * n if it > 0 else 0):
            differences[(it - 1) % _MEMORY, i] = now[i] - before[i]
        for i in range(8 * n):
            before[i] = now[i]
        _move(a, now, differences[: min(it, _MEMORY)])
        if not moments(kind, flip, y, a, a[MODEL_TAU]):
            break
    for i in range(n):
        a[X, i], a[W, i] = a[BEST_X, i], a[BEST_W, i]


@compiled
def _posterior(
    K: Array, w: Array, order: Array, work: Array, S: Array, K_classes: Array, classes: Array
) -> tuple[bool, float]:
    """Fill S, the covariance of q; returns whether it is one, and log|I + KW|."""
    if K_classes.size > 0:
        return posterior_of_differences(K_classes, classes, w, work, S)
    return covariance(K, w, order, work, S)


@compiled
def iterate(
    K: Array, y: Array, kind: int, flip: float, warm: bool, tol: float, max_iter: int, work: Array, S: Array, a: Array,
    order: Array, K_classes: Array, classes: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweeps from the sites in `a` until converged; returns status, factorisations, residual and log|I + KW|.

    Where `K_classes` is not empty, sites are those of `hmcgp.evidence.ep.class_contrasts`, K their prior covariance.
    """
    corrected, plain_left, patience, damping = False, 0, 2, 0.8
    accepted, from_sites = np.inf, True
    residual, budget = np.inf, min(max_iter, _WARM) if warm else max_iter
    for n_factor in range(1, budget + 1):
        proper, log_det = _posterior(K, a[W], order, work, S, K_classes, classes)
        good = False
        if proper:
            residual, rounding, good = evaluate(K, y, kind, flip, S, a, from_sites)
            if good and residual <= max(tol, rounding):
                return (CONVERGED if rounding <= ROUNDED_AWAY else NOT_CONVERGED), n_factor, residual, log_det
        if n_factor == 1 and warm and not (good and residual < FAR):
            return NOT_CONVERGED, n_factor, residual, log_det
        if corrected and not (good and residual < _PROGRESS * accepted):
            plain_sweep(a, damping)  # the correction failed: from where it began
            corrected, from_sites = False, True
            plain_left, patience = patience - 1, 2 * patience
            continue
        if not proper:
            if a[W].min() >= 0.0:  # A = I + ρKρ is positive definite if K is
                return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
            if not damping > 1e-6:
                return NOT_CONVERGED, n_factor, residual, log_det
            damping *= 0.5  # a plain sweep that went too far
            plain_sweep(a, damping)
            continue
        if not corrected and accepted < np.inf:
            damping = min(1.2 * damping, 0.8) if residual < accepted else max(0.7 * damping, 0.1)
        accept(a)
        accepted = residual
        corrected = good and plain_left == 0
        from_sites = not corrected
        if corrected:
            _correct(y, kind, flip, S, a, residual, tol)
        else:
            plain_left = max(plain_left - 1, 0)
            plain_sweep(a, damping)
    return NOT_CONVERGED, budget, residual, np.inf
