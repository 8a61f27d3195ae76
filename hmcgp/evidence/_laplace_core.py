"""Compiled Newton iteration to the mode of p(f | y), and the derivative of the Laplace evidence.

Symbols as in `hmcgp.evidence.laplace`.  A pair (α, f = Kα) is carried; with r = g - α, the gradient of Ψ, Newton's
step is

    δα = r - √W B⁻¹ √W K r,   δf = K δα = (K⁻¹ + W)⁻¹ r,   and   r'δf = |δf|² in the metric of the Hessian.

The square root of r'δf, Newton's decrement, is the norm of the gradient on which the iteration stops: it is the only
scale on which one tolerance is right for a prior variance of 1e-6 and of 1e8.

A factorisation of B costs n³/3, a step with a factor at hand 4n².  So each factor is used again at the next f
(a chord step), for as long as that is expected to be cheaper than a new one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hmcgp._likelihood_core import likelihood_terms
from hmcgp._typing import Array
from hmcgp.evidence._newton_core import (
    ALPHA,
    D_ALPHA,
    D_F,
    EPS,
    HALVINGS,
    LAST_D_ALPHA,
    LAST_D_F,
    LOG_P,
    MOVED_ALPHA,
    MOVED_F,
    RATIO,
    ROOT_W,
    ROWS,
    TRY_ALPHA,
    TRY_F,
    WEIGHT,
    F,
    G,
    R,
    W,
    accept,
    attempt,
    copy,
    dot,
    fill,
    newton_step,
    size,
    slack,
)
from hmcgp.evidence._rounding_core import (
    LOST_NATS,
    NATS,
    ROUNDED_AWAY,
    drift_of_f,
    left_to_do,
    rounding_of_mode,
    sensitivities,
)
from hmcgp.evidence._solver import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.linalg import (
    cholesky_inplace,
    inverse_from_cholesky_inplace,
    log_determinant,
    mirror_lower,
    symmetric_times,
)

_CACHED = 1200
_REPAIRS = 3  # of f = Kα
_ON, _APART = -1, -2  # verdicts on an iterate, besides the status of the solver
_SHORT = 1e-3  # a step of f over which W hardly changes


@njit(cache=True, nogil=True, error_model="numpy")
def _psi(y: Array, kind: int, alpha: Array, f: Array, a: Array) -> float:
    """Ψ at (alpha, f), leaving the likelihood's terms there in a."""
    return likelihood_terms(kind, y, f, a[WEIGHT], a[LOG_P], a[G], a[W], a[RATIO]) - 0.5 * dot(alpha, f)


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(K: Array, a: Array, L: Array) -> bool:
    """Lower Cholesky factor of B = I + √W K √W at the current W."""
    n = K.shape[0]
    root_w = a[ROOT_W]
    for i in range(n):
        root_w[i] = math.sqrt(a[W, i])
    for i in range(n):
        for j in range(i + 1):
            L[i, j] = root_w[i] * K[i, j] * root_w[j]
        L[i, i] += 1.0
    return cholesky_inplace(L)


@njit(cache=True, nogil=True, error_model="numpy")
def _direction(K: Array, L: Array, a: Array) -> float:
    """Newton direction at the current iterate; returns the decrement."""
    for i in range(a.shape[1]):
        a[R, i] = a[G, i] - a[ALPHA, i]
    newton_step(K, L, a[ROOT_W], a[R], a[D_ALPHA], a[D_F])
    return math.sqrt(max(dot(a[R], a[D_F]), 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _ascend(y: Array, kind: int, a: Array, psi: float, scale: float, halvings: int) -> tuple[bool, float]:
    """Take the step, halved while Ψ falls by more than rounding; on failure the iterate stays as it was."""
    least = psi - slack(a, psi, scale)
    step = 1.0
    for _ in range(halvings + 1):
        attempt(a, step)
        psi_try = _psi(y, kind, a[TRY_ALPHA], a[TRY_F], a)
        if psi_try >= least:
            accept(a)
            return True, psi_try
        step *= 0.5
    return False, _psi(y, kind, a[ALPHA], a[F], a)


@njit(cache=True, nogil=True, error_model="numpy")
def _tolerance(tol: float, scale: float, a: Array) -> float:
    """The decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √ΣW."""
    return max(tol, EPS * scale * size(a[ALPHA]) * math.sqrt(size(a[W])))


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(a: Array) -> float:
    """√Σ r²/W, never below the decrement since (K⁻¹ + W)⁻¹ <= W⁻¹: convergence seen without solving for it."""
    total = 0.0
    for i in range(a.shape[1]):
        r = a[G, i] - a[ALPHA, i]
        total += r * r / a[W, i]  # inf or NaN where w underflows: then the decrement itself decides
    return math.sqrt(total)


@njit(cache=True, nogil=True, error_model="numpy")
def accelerate(a: Array, first: bool) -> None:
    """Turn a chord direction δ into s = δ - θ(moved + δ - δ_last), θ = <δ, δ - δ_last>/|δ - δ_last|².

    Chord steps shrink mostly along one eigenvector; the secant (Anderson's method with one step of memory) removes it.
    """
    dot, square = 0.0, 0.0
    for i in range(a.shape[1]):
        change = a[D_F, i] - a[LAST_D_F, i]
        dot += a[D_F, i] * change
        square += change * change
    theta = 0.0 if first or square == 0.0 else dot / square
    for i in range(a.shape[1]):
        step_alpha = a[D_ALPHA, i] - theta * (a[MOVED_ALPHA, i] + a[D_ALPHA, i] - a[LAST_D_ALPHA, i])
        step_f = a[D_F, i] - theta * (a[MOVED_F, i] + a[D_F, i] - a[LAST_D_F, i])
        a[LAST_D_ALPHA, i], a[LAST_D_F, i] = a[D_ALPHA, i], a[D_F, i]
        a[D_ALPHA, i], a[D_F, i] = step_alpha, step_f
        a[MOVED_ALPHA, i], a[MOVED_F, i] = step_alpha, step_f


@njit(cache=True, nogil=True, error_model="numpy")
def _chords(
    K: Array, y: Array, kind: int, L: Array, a: Array, psi: float, decrement: float, scale: float, tol: float
) -> float:
    """Steps with an old factor, until converged or a new factor would pay; returns Ψ."""
    # a factorisation in steps (measured: while K and L fit into the cache, and beyond), and the two that follow it
    n = K.shape[0]
    patience = 2.0 + (n / 35.0 if n < _CACHED else n / 170.0)
    first = True
    while not _bound(a) <= _tolerance(tol, scale, a):
        last, decrement = decrement, _direction(K, L, a)
        accelerate(a, first)
        first = False
        moved, psi = _ascend(y, kind, a, psi, scale, 0)
        target = _tolerance(tol, scale, a)
        if not moved or decrement <= target:
            return psi
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(target / decrement) < (patience + 1.0) * math.log(rate):
                return psi
    return psi


@njit(cache=True, nogil=True, error_model="numpy")
def _warm_step(K: Array, y: Array, kind: int, L: Array, a: Array) -> float:
    """One Newton step from f alone, α = b - √W B⁻¹ √W K b with b = W f + g; returns Ψ.

    A mode found under another K has no α under this one.  Where the step lands below Ψ(0), the start was useless and
    the iterate is put to 0.
    """
    for i in range(a.shape[1]):
        a[R, i] = a[W, i] * a[F, i] + a[G, i]
    newton_step(K, L, a[ROOT_W], a[R], a[ALPHA], a[F])
    psi = _psi(y, kind, a[ALPHA], a[F], a)
    fill(a[TRY_F], 0.0)
    if psi >= likelihood_terms(kind, y, a[TRY_F], a[WEIGHT], a[LOG_P], a[D_ALPHA], a[D_F], a[TRY_ALPHA]):
        return psi
    fill(a[ALPHA], 0.0)
    fill(a[F], 0.0)
    return _psi(y, kind, a[ALPHA], a[F], a)


@njit(cache=True, nogil=True, error_model="numpy")
def _judge(
    K: Array, y: Array, kind: int, L: Array, a: Array, scale: float, tol: float, before: float, repairs: int
) -> tuple[int, float]:
    """Whether a fresh factor shows this iterate to be the mode, `before` being the decrement at the last one.

    Returns
    -------
    verdict : int
        CONVERGED; NOT_CONVERGED where rounding eats the answer; _APART where f is not Kα, which is left in a[TRY_F];
        or _ON, the direction being at hand.
    decrement : float
        Newton's, or a bound on it; where rounding eats the answer, what rounding makes of it.
    """
    target, decrement = _tolerance(tol, scale, a), _bound(a)
    solved = not decrement <= target
    if solved:
        decrement = _direction(K, L, a)
        if not decrement <= target:
            return _ON, decrement
    total, spread, root_sum = sensitivities(K, a)
    left = decrement * spread
    if not (left <= NATS and decrement * math.sqrt(scale) <= _SHORT):
        if not solved:
            decrement = _direction(K, L, a)
        left = left_to_do(K, a)
        if not (left <= NATS or decrement > 0.5 * before):
            return _ON, decrement
    error, drift = EPS * scale * size(a[WEIGHT]), 0.0  # of δf = Kδα by eps |K||r|₁, in every step
    if not (error <= _SHORT and error * (0.5 * size(a[ALPHA]) + total) <= NATS):
        drift = drift_of_f(K, a)
        if drift > NATS and repairs < _REPAIRS:
            return _APART, decrement
    rounding = rounding_of_mode(K, y, kind, L, a, scale, total + root_sum * spread)
    lost = max(rounding, max(left, drift) / LOST_NATS)
    return (CONVERGED, decrement) if lost <= 1.0 else (NOT_CONVERGED, ROUNDED_AWAY * lost)


@njit(cache=True, nogil=True, error_model="numpy")
def find_mode(
    K: Array, y: Array, weights: Array, kind: int, start: Array, warm: bool, L: Array, tol: float, max_iter: int
) -> tuple[int, int, float, float, Array]:
    """Find the mode (from `start` if warm, else from 0) and leave in L the factor of B there.

    A small decrement ends the iteration where the step left would not change log|B| either, or rounding keeps the
    decrement from falling.  Then f = Kα, of which both sides were only added to, is made true again where they have
    come apart, and the answer is held against what rounding can do to it.

    Returns
    -------
    status, n_factor : int
    residual : float
        Newton's decrement at the mode, or a bound on it; where the answer drowns in rounding, the decrement of that.
    log_z : float
        Log evidence, where the status is CONVERGED.
    a : ndarray of shape (ROWS, n)
        The iterate at the mode.
    """
    n = y.shape[0]
    a = np.zeros((ROWS, n))
    scale = 0.0  # largest prior variance
    for i in range(n):
        scale = max(scale, K[i, i])
    copy(weights, a[WEIGHT])
    if warm:
        copy(start, a[F])
    psi, decrement, before, repairs = _psi(y, kind, a[ALPHA], a[F], a), np.inf, np.inf, 0
    for n_factor in range(1, max_iter + 1):
        if not _factor(K, a, L):
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, a
        if warm and n_factor == 1:
            psi = _warm_step(K, y, kind, L, a)
        else:
            verdict, decrement = _judge(K, y, kind, L, a, scale, tol, before, repairs)
            if verdict == CONVERGED:
                return CONVERGED, n_factor, decrement, psi - 0.5 * log_determinant(L), a
            if verdict == NOT_CONVERGED:
                return NOT_CONVERGED, n_factor, decrement, psi, a
            if verdict == _APART:
                copy(a[TRY_F], a[F])
                psi, before, repairs = _psi(y, kind, a[ALPHA], a[F], a), np.inf, repairs + 1
                continue
            before = decrement
            moved, psi = _ascend(y, kind, a, psi, scale, HALVINGS)
            if not moved:
                return NOT_CONVERGED, n_factor, decrement, psi, a
        psi = _chords(K, y, kind, L, a, psi, decrement, scale, tol)
    return NOT_CONVERGED, max_iter, decrement, psi, a


@njit(cache=True, nogil=True, error_model="numpy")
def _gradient_inplace(K: Array, L: Array, a: Array) -> None:
    """Overwrite the factor L by G = ½(αα' - R + ug' + gu'), where α = g at the mode."""
    n = K.shape[0]
    g, root_w = a[G], a[ROOT_W]
    inverse_from_cholesky_inplace(L)  # B⁻¹
    c, t, u = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        # c = ½ s d3 with s = (1 - B⁻¹_ii)/W_i: written so that W_i cancels, and may underflow
        c[i] = 0.5 * (1.0 - L[i, i]) * a[RATIO, i]
    symmetric_times(K, c, t)
    for i in range(n):
        t[i] *= root_w[i]
    symmetric_times(L, t, u)
    for i in range(n):
        u[i] = c[i] - root_w[i] * u[i] + 0.5 * g[i]  # u + ½g: αα' + ug' + gu' = (u + ½g)g' + g(u + ½g)'
    for i in range(n):
        for j in range(i + 1):
            L[i, j] = 0.5 * (u[i] * g[j] + g[i] * u[j] - root_w[i] * L[i, j] * root_w[j])
    mirror_lower(L)


@njit(cache=True, nogil=True, error_model="numpy")
def solve(
    K: Array, y: Array, weights: Array, kind: int, start: Array, warm: bool, tol: float, max_iter: int, gradient: bool
) -> tuple[int, int, float, float, Array, Array]:
    """Mode, log evidence and, if asked for, its gradient: `find_mode`, then `_gradient_inplace`.

    One call, so that a thread lets go of the interpreter lock once per evaluation.

    Returns
    -------
    status, n_factor, residual, log_z, a
        As by `find_mode`.
    L : ndarray of shape (n, n)
        G where the gradient was asked for, else the factor of B in the lower triangle.
    """
    L = np.empty_like(K)
    status, n_factor, residual, log_z, a = find_mode(K, y, weights, kind, start, warm, L, tol, max_iter)
    if gradient and status == CONVERGED:
        _gradient_inplace(K, L, a)
    return status, n_factor, residual, log_z, a, L
