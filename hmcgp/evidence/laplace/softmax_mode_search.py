"""Compiled Newton iteration to the mode of p(f | y) of several classes.

Symbols as in `evidence.laplace.softmax`.  Arrays over classes and rows are flat, class after class; the rows of an
iterate are those of `newton`, with ωπ in place of W where the factors are concerned.  A pair (α, f = Kα) is
carried; with r = g - α, the gradient of Ψ, Newton's step is δα = (I + WK)⁻¹ r, δf = K δα = (K⁻¹ + W)⁻¹ r
(`softmax_algebra`).  The square root of r'δf, Newton's decrement, is the norm of the gradient on which the
iteration stops.  Where Σ_c r_c = 0, as it is after every full step, r'W⁺r = Σ r²/ωπ bounds it from above.

Factors cost n³ per class, a step with factors at hand 6n².  So each set is used again (chord steps, accelerated
by Anderson's method) for as long as that is expected to be cheaper than a new one.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.anderson import anderson_weights
from hmcgp.evidence.laplace.softmax_algebra import PI, factor, gradient, solve_newton
from hmcgp.evidence.newton import (
    ALPHA,
    D_ALPHA,
    D_F,
    EPS,
    HALVINGS,
    LAST_D_ALPHA,
    LAST_D_F,
    MOVED_ALPHA,
    MOVED_F,
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
    size,
    slack,
)
from hmcgp.evidence.rounding import LOST_NATS, ROUNDED_AWAY, TINY
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.exponential import exp_nonpositive
from hmcgp.runtime.typing import Array

_MEMORY = 5  # chord steps that are combined with the next
_PATIENCE = 40.0  # steps rather than new factors, whose price is 20 steps and some steps after (measured: n = 190)


@compiled
def _slopes(pi: Array, weights: Array, norm: Array, g: Array, w: Array) -> None:
    """Divide π by its norms, and leave g, without the observed classes, and W's diagonal."""
    n = norm.shape[0]
    for c in range(0, pi.shape[0], n):
        for i in range(n):
            k = c + i
            pi[k] /= norm[i]
            g[k] = -weights[k] * pi[k]
            w[k] = weights[k] * pi[k] * (1.0 - pi[k])


@compiled
def _psi(y: Array, alpha: Array, f: Array, a: Array) -> float:
    """Ψ = Σ ω log π_yi - ½ α'f, leaving π, g and W's diagonal at f in a."""
    n, end = y.shape[0], f.shape[0]
    first = np.zeros(n, dtype=np.int64)  # class of the largest f
    top, norm, x = f[:n].copy(), np.zeros(n), np.empty(end)
    for c in range(n, end, n):
        for i in range(n):
            if f[c + i] > top[i]:
                top[i], first[i] = f[c + i], c
    for c in range(0, end, n):
        for i in range(n):
            x[c + i] = f[c + i] - top[i]
    exp_nonpositive(x, a[PI], 1.0)
    for c in range(0, end, n):
        for i in range(n):
            norm[i] += a[PI, c + i]
    _slopes(a[PI], a[WEIGHT], norm, a[G], a[W])
    total = 0.0
    for i in range(n):
        own, k = int(y[i]) * n + i, first[i] + i
        weight, log_p = a[WEIGHT, i], x[own] - math.log(norm[i])
        a[G, own] += weight
        if norm[i] < 2.0:  # π_k > ½: 1 - π_k by its own sum, not as a difference
            rest = 0.0
            for j in range(i, end, n):
                rest += a[PI, j] if j != k else 0.0
            a[W, k] = weight * a[PI, k] * rest
            if k == own:
                a[G, k] = weight * rest
                log_p = math.log1p(-rest)  # log π without its own rounding: steps that gain 1e-18 are compared
        total += weight * log_p
    return total - 0.5 * dot(alpha, f)


@compiled
def _ascend(y: Array, a: Array, psi: float, scale: float, halvings: int) -> tuple[float, float]:
    """Take the step, halved while Ψ falls by more than rounding; returns its length, 0 where none was taken, and Ψ."""
    least = psi - slack(a, psi, scale)
    step = 1.0
    for _ in range(halvings + 1):
        attempt(a, step)
        psi_try = _psi(y, a[TRY_ALPHA], a[TRY_F], a)
        if psi_try >= least:
            accept(a)
            return step, psi_try
        step *= 0.5
    return 0.0, _psi(y, a[ALPHA], a[F], a)


@compiled
def _tolerance(tol: float, scale: float, a: Array) -> float:
    """The decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √(2 tr W), since W <= 2 diag W."""
    return max(tol, EPS * scale * size(a[ALPHA]) * math.sqrt(2.0 * size(a[W])))


@compiled
def _rounding(K: Array, scale: float, a: Array) -> float:
    """What rounding may have done to the answer, as a multiple of what is tolerated.

    The two bounds of `rounding.rounding_of_mode`, without the part of log Z that comes by way of the mode.  An
    error e of every f changes log π(1 - π) by 2e at most, and from what may have underflowed to ¼ at most.
    """
    alpha = max(size(a[ALPHA]), size(a[G]))  # equal at the mode; but the start, α = 0, may be the mode already
    error = EPS * scale * alpha
    if not error < np.inf:
        return np.inf
    n, growth = K.shape[1], math.exp(min(2.0 * error, 700.0))
    weights, trace = 0.0, 0.0
    for k in range(a.shape[1]):
        i = k % n
        weights += min(0.25 * a[WEIGHT, k], max(a[W, k], TINY) * growth)
        trace += a[W, k] * K[min(k // n, K.shape[0] - 1), i, i]
    nats = 0.5 * (error * alpha + EPS * trace)
    return max(nats / LOST_NATS, error * math.sqrt(2.0 * weights) / ROUNDED_AWAY)


@compiled
def _gradient(a: Array) -> float:
    """Leave r = g - α in a; returns √Σ r²/ωπ, never below Newton's decrement."""
    total = 0.0
    for k in range(a.shape[1]):
        a[R, k] = a[G, k] - a[ALPHA, k]
        # inf or NaN where π underflows: then the decrement itself decides
        total += a[R, k] * a[R, k] / (a[WEIGHT, k] * a[PI, k])
    return math.sqrt(total)


@compiled
def _warm_step(K: Array, y: Array, A: Array, M: Array, a: Array) -> float:
    """One Newton step from f alone, α = (I + W K)⁻¹ (W f + g); returns Ψ.

    A mode found under another K has no α under this one.  Where the step lands below Ψ(0), the start was useless and
    the iterate is put to 0.
    """
    n = y.shape[0]
    for i in range(n):
        mean = 0.0
        for k in range(i, a.shape[1], n):
            mean += a[PI, k] * a[F, k]
        for k in range(i, a.shape[1], n):
            a[R, k] = a[WEIGHT, k] * a[PI, k] * (a[F, k] - mean) + a[G, k]
    solve_newton(K, A, M, a[ROOT_W], a[R], a[ALPHA], a[F])
    psi = _psi(y, a[ALPHA], a[F], a)
    if psi >= -size(a[WEIGHT, :n]) * math.log(a.shape[1] / n):  # Ψ(0)
        return psi
    fill(a[ALPHA], 0.0)
    fill(a[F], 0.0)
    return _psi(y, a[ALPHA], a[F], a)


@compiled
def _accelerate(a: Array, memory: Array, n_before: int) -> None:
    """Turn a chord direction δ into δ - Σ c_k (moved + δ - δ_last)_k, c minimising |δf - Σ c_k (δf - δf_last)_k|.

    Anderson's method over the last steps, of which `n_before` were made.  `memory`, of shape (3, _MEMORY, C n), holds
    the differences of δf, and those by which α and f are corrected.
    """
    if n_before > 0:
        slot = (n_before - 1) % _MEMORY
        change, jump_alpha, jump_f = memory[0, slot], memory[1, slot], memory[2, slot]
        for k in range(a.shape[1]):
            change[k] = a[D_F, k] - a[LAST_D_F, k]
            jump_alpha[k] = a[MOVED_ALPHA, k] + a[D_ALPHA, k] - a[LAST_D_ALPHA, k]
            jump_f[k] = a[MOVED_F, k] + change[k]
    copy(a[D_ALPHA], a[LAST_D_ALPHA])
    copy(a[D_F], a[LAST_D_F])
    c = anderson_weights(memory[0, : min(n_before, _MEMORY)], a[D_F])
    for j in range(c.shape[0]):
        for k in range(a.shape[1]):
            a[D_ALPHA, k] -= c[j] * memory[1, j, k]
            a[D_F, k] -= c[j] * memory[2, j, k]
    copy(a[D_ALPHA], a[MOVED_ALPHA])
    copy(a[D_F], a[MOVED_F])


@compiled
def _steps(
    K: Array, y: Array, A: Array, M: Array, a: Array, psi: float, scale: float, tol: float, fresh: bool, before: float
) -> tuple[int, float, float, float]:
    """Steps with the factors at hand, `fresh` ones of this very f, until converged or new factors would pay.

    A decrement that only rounding excuses is accepted where it is no longer halved: by the next step with old factors,
    by the next set (`before`: the decrement at which the last one was made).  Where K is large, it still moves f.

    Returns
    -------
    status : int
        CONVERGED if the first step was not even needed; NOT_CONVERGED where fresh factors led nowhere; else -1.
    before, decrement, psi : float
    """
    memory, n_before, earlier, last = np.empty((3, _MEMORY, a.shape[1])), 0, np.inf, np.inf
    while True:
        target = _tolerance(tol, scale, a)
        decrement = _gradient(a)
        if decrement <= tol:
            return CONVERGED if fresh else -1, before, decrement, psi
        solve_newton(K, A, M, a[ROOT_W], a[R], a[D_ALPHA], a[D_F])
        square = dot(a[R], a[D_F])
        decrement = math.sqrt(square) if square >= 0.0 else np.inf  # only rounding makes it negative
        if target > ROUNDED_AWAY:
            return NOT_CONVERGED, before, target, psi
        if fresh:
            if decrement <= target and (decrement <= 10.0 * tol or 0.5 * before < decrement):
                return CONVERGED, before, decrement, psi
            before = decrement
        if tol < target and decrement <= 10.0 * target:
            n_before = 0  # differences of such steps are mostly rounding
        _accelerate(a, memory, n_before)
        step, psi = _ascend(y, a, psi, scale, HALVINGS if fresh else 0)
        if step == 0.0:
            ended = CONVERGED if decrement <= target else NOT_CONVERGED
            return ended if fresh else -1, before, decrement, psi
        if decrement <= tol or 0.5 * last < decrement <= target or decrement == np.inf:
            return -1, before, decrement, psi
        if earlier < np.inf:
            rate = math.sqrt(decrement / earlier)  # convergence is linear, over two steps
            if rate >= 1.0 or math.log(target / decrement) < _PATIENCE * math.log(rate):
                return -1, before, decrement, psi
        n_before = n_before + 1 if step == 1.0 else 0
        fresh, earlier, last = False, last, decrement


@compiled
def find_mode(
    K: Array, y: Array, start: Array, warm: bool, A: Array, M: Array, a: Array, tol: float, max_iter: int
) -> tuple[int, int, float, float]:
    """Find the mode (from `start` if warm, else from 0), and leave the factors there in A and M, the iterate in a.

    Returns
    -------
    status, n_factor : int
    residual : float
        Newton's decrement at the mode, or a bound on it.
    log_z : float
        Log evidence, where the status is CONVERGED.
    """
    scale = 0.0  # largest prior variance
    for k in range(K.shape[0]):
        for i in range(K.shape[1]):
            scale = max(scale, K[k, i, i])
    log_root = 0.0  # ½ Σ log ω, by which ½ log|I + WK| differs from what the factors give
    for i in range(y.shape[0]):
        log_root += 0.5 * math.log(a[WEIGHT, i])
    if warm:
        copy(start, a[F])
    psi, before, decrement = _psi(y, a[ALPHA], a[F], a), np.inf, np.inf
    for n_factor in range(1, max_iter + 1):
        first = n_factor == 1
        for k in range(a.shape[1]):
            a[R, k] = a[WEIGHT, k] * a[PI, k]
        positive, half_log_det = factor(K, a[R], a[ROOT_W], A, M, first and not warm and K.shape[0] == 1)
        if not positive:
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi
        if warm and first:
            psi = _warm_step(K, y, A, M, a)
        fresh = not (warm and first)
        status, before, decrement, psi = _steps(K, y, A, M, a, psi, scale, tol, fresh, before)
        if status == CONVERGED:
            rounding = _rounding(K, scale, a)
            if not rounding <= 1.0:
                status, decrement = NOT_CONVERGED, ROUNDED_AWAY * rounding
        if status >= 0:
            return status, n_factor, decrement, psi - half_log_det + log_root
    return NOT_CONVERGED, max_iter, decrement, psi


@compiled
def solve(
    K: Array, y: Array, weights: Array, n_classes: int, start: Array, warm: bool, tol: float, max_iter: int,
    with_gradient: bool,
) -> tuple[int, int, float, float, Array, Array, Array, Array]:  # fmt: skip
    """Mode, log evidence and, if asked for, its gradient, in one call that lets go of the interpreter lock.

    Returns
    -------
    status, n_factor, residual, log_z
        As by `find_mode`.
    a : ndarray of shape (ROWS, C n)
        The iterate at the mode.
    A : ndarray of shape (C, n, n)
        B_c⁻¹, in the lower triangles.
    M : ndarray of shape (n, n)
        In the lower triangle.
    dK : ndarray of the shape of K
        With the gradient; else empty.
    """
    n = y.shape[0]
    a, A, M = np.zeros((ROWS, n_classes * n)), np.empty((n_classes, n, n)), np.empty((n, n))
    for c in range(n_classes):
        copy(weights, a[WEIGHT, c * n : (c + 1) * n])
    status, n_factor, residual, log_z = find_mode(K, y, start, warm, A, M, a, tol, max_iter)
    dK = gradient(K, A, M, a) if with_gradient and status == CONVERGED else np.empty((0, 0, 0))
    return status, n_factor, residual, log_z, a, A, M, dK
