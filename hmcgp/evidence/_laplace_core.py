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

from hmcgp._likelihood_core import LOGISTIC, likelihood_terms
from hmcgp._typing import Array
from hmcgp.evidence._solver import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.linalg import (
    cholesky_inplace,
    cholesky_solve_inplace,
    inverse_from_cholesky_inplace,
    log_determinant,
    mirror_lower,
    symmetric_times,
)

EPS = 2.2e-16
HALVINGS = 40
_CACHED = 1200
_SAFE_ROOT_W = 1e-4
ROUNDED_AWAY = 1e-3  # a decrement that rounding alone may make, beyond which the answer is noise
LOST_NATS = 0.1  # of log Z, by a bound on rounding that is some tens of times what rounding does: beyond, it is noise
_NATS = 1e-6  # of log Z, by which an iterate may be wrong that is called the mode
_REPAIRS = 3  # of f = Kα
_SHORT = 1e-3  # a step of f over which W hardly changes
TINY = 1e-300

# An iterate, with its work space, is one array `a` of shape (ROWS, n); its rows are
ALPHA, F = 0, 1  # α and f = Kα
LOG_P, G, W, RATIO = 2, 3, 4, 5  # the likelihood's terms at f (RATIO: third derivative divided by W)
ROOT_W = 6  # √W of the factor at hand
R, D_ALPHA, D_F = 7, 8, 9  # gradient of Ψ, and the step
TRY_ALPHA, TRY_F = 10, 11
LAST_D_ALPHA, LAST_D_F = 12, 13  # direction of the chord step before,
MOVED_ALPHA, MOVED_F = 14, 15  # and where it led
WEIGHT = 16  # by which a row's log likelihood is multiplied, so that LOG_P, G and W are of p^weight
C = 17  # -½ ∂ log|B|/∂f
ROWS = 18
# (a tuple of arrays would read better, and takes three times as long to compile)


# Plain loops where numpy has an expression: its slices and reductions take long to compile.


@njit(cache=True, nogil=True, error_model="numpy")
def fill(x: Array, value: float) -> None:
    for i in range(x.shape[0]):
        x[i] = value


@njit(cache=True, nogil=True, error_model="numpy")
def copy(x: Array, out: Array) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i]


@njit(cache=True, nogil=True, error_model="numpy")
def size(x: Array) -> float:
    """Σ |x_i|."""
    total = 0.0
    for i in range(x.shape[0]):
        total += abs(x[i])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def dot(x: Array, y: Array) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


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
def _solve(K: Array, L: Array, root_w: Array, r: Array, dalpha: Array, df: Array) -> None:
    """δα = r - √W x and δf = K δα, with x = B⁻¹ √W K r by the factor at hand.

    Also δf = W^-½ x, which saves a product with K, but magnifies the rounding of x where W is tiny.
    """
    symmetric_times(K, r, df)
    smallest = np.inf
    for i in range(r.shape[0]):
        dalpha[i] = root_w[i] * df[i]
        smallest = min(smallest, root_w[i])
    cholesky_solve_inplace(L, dalpha)
    if smallest > _SAFE_ROOT_W:
        for i in range(r.shape[0]):
            df[i] = dalpha[i] / root_w[i]
            dalpha[i] = r[i] - root_w[i] * dalpha[i]
    else:
        for i in range(r.shape[0]):
            dalpha[i] = r[i] - root_w[i] * dalpha[i]
        symmetric_times(K, dalpha, df)


@njit(cache=True, nogil=True, error_model="numpy")
def _direction(K: Array, L: Array, a: Array) -> float:
    """Newton direction at the current iterate; returns the decrement."""
    for i in range(a.shape[1]):
        a[R, i] = a[G, i] - a[ALPHA, i]
    _solve(K, L, a[ROOT_W], a[R], a[D_ALPHA], a[D_F])
    return math.sqrt(max(dot(a[R], a[D_F]), 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def slack(a: Array, psi: float, scale: float) -> float:
    """By how much rounding, of α'Kα above all, may make Ψ fall."""
    total = size(a[ALPHA])
    return 1e-13 * abs(psi) + 4.0 * EPS * scale * total * total


@njit(cache=True, nogil=True, error_model="numpy")
def attempt(a: Array, step: float) -> None:
    """Where the direction leads, as (TRY_ALPHA, TRY_F)."""
    for start, direction, end in ((ALPHA, D_ALPHA, TRY_ALPHA), (F, D_F, TRY_F)):
        x, d, out = a[start], a[direction], a[end]
        for i in range(a.shape[1]):
            out[i] = x[i] + step * d[i]


@njit(cache=True, nogil=True, error_model="numpy")
def accept(a: Array) -> None:
    """Go where was tried."""
    copy(a[TRY_ALPHA], a[ALPHA])
    copy(a[TRY_F], a[F])


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
    _solve(K, L, a[ROOT_W], a[R], a[ALPHA], a[F])
    psi = _psi(y, kind, a[ALPHA], a[F], a)
    fill(a[TRY_F], 0.0)
    if psi >= likelihood_terms(kind, y, a[TRY_F], a[WEIGHT], a[LOG_P], a[D_ALPHA], a[D_F], a[TRY_ALPHA]):
        return psi
    fill(a[ALPHA], 0.0)
    fill(a[F], 0.0)
    return _psi(y, kind, a[ALPHA], a[F], a)


@njit(cache=True, nogil=True, error_model="numpy")
def _sensitivities(K: Array, a: Array) -> tuple[float, float, float]:
    """Leave c = -½ ∂ log|B|/∂f in a[C], for 1 - B⁻¹_ii its bound K_ii W_i/(1 + K_ii W_i).

    Returns
    -------
    size : float
        |c|₁.
    spread : float
        Σ |c_i| √S_ii, with S_ii <= K_ii/(1 + K_ii W_i): a step of decrement 1 changes log|B| by that at most.
    root_sum : float
        Σ √W.
    """
    total, spread, root_sum = 0.0, 0.0, 0.0
    for i in range(a.shape[1]):
        ratio = K[i, i] * a[W, i]
        a[C, i] = 0.5 * ratio / (1.0 + ratio) * a[RATIO, i]
        total += abs(a[C, i])
        spread += abs(a[C, i]) * math.sqrt(K[i, i] / (1.0 + ratio))
        root_sum += math.sqrt(a[W, i])
    return total, spread, root_sum


@njit(cache=True, nogil=True, error_model="numpy")
def _left(K: Array, a: Array) -> float:
    """By how much the step at hand would change log|B|: where K is large, even one of a tiny decrement may.

    Where the step is long, c may be larger at its end: there W <= W exp(|δf d log W/df|), and W may have underflowed.
    """
    total = 0.0
    for i in range(a.shape[1]):
        change = abs(a[RATIO, i] * a[D_F, i])
        ratio = min(K[i, i] * max(a[W, i], TINY) * math.exp(min(change, 700.0)), 1e300)
        total += 0.5 * ratio / (1.0 + ratio) * change
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _drift(K: Array, a: Array) -> float:
    """Leave Kα in a[TRY_F]; return the nats by which log Z changes if f is put to it."""
    symmetric_times(K, a[ALPHA], a[TRY_F])
    total = 0.0
    for i in range(a.shape[1]):
        a[D_F, i] = a[TRY_F, i] - a[F, i]
        total += 0.5 * abs(a[ALPHA, i] * a[D_F, i])
    return total + _left(K, a)


@njit(cache=True, nogil=True, error_model="numpy")
def _largest_weights(y: Array, kind: int, a: Array, error: float) -> float:
    """Σ W where every f is moved by up to `error` to make it largest: at f as it is, W may have underflowed."""
    for i in range(a.shape[1]):
        f = a[F, i]
        # W of a logistic falls with |f|, that of a probit with yf
        a[TRY_F, i] = math.copysign(max(abs(f) - error, 0.0), f) if kind == LOGISTIC else f - y[i] * error
    likelihood_terms(kind, y, a[TRY_F], a[WEIGHT], a[LOG_P], a[LAST_D_ALPHA], a[LAST_D_F], a[TRY_ALPHA])
    return size(a[LAST_D_F])


@njit(cache=True, nogil=True, error_model="numpy")
def _rounding(K: Array, y: Array, kind: int, L: Array, a: Array, scale: float, implicit: float) -> float:
    """What rounding may have done to the answer, as a multiple of what is tolerated.

    The entries of K are known to a relative eps, so that e = eps |K| |α|₁ is the error of f = Kα, however a processor
    rounds.  Two of its consequences are bounded: the decrement e √ΣW, and the error of log Z, eps Σ |G_ij K_ij| with
    G = ∂ log Z/∂K,

        e (½|α|₁ + |u|₁) + ½ eps ΣWK,    u = (I + WK)⁻¹ c.

    `implicit` is a bound on |u|₁; where it does not do, u is computed.
    """
    alpha = max(size(a[ALPHA]), size(a[G]))  # equal at the mode; but the start, α = 0, may be the mode already
    error = EPS * scale * alpha
    if not error < np.inf:
        return np.inf
    trace = 0.0
    for i in range(a.shape[1]):
        trace += a[W, i] * K[i, i]
    nats = 0.5 * (error * alpha + EPS * trace)
    if nats + error * implicit > LOST_NATS:
        _solve(K, L, a[ROOT_W], a[C], a[D_ALPHA], a[D_F])
        implicit = size(a[D_ALPHA])
    nats += error * implicit
    decrement = error * math.sqrt(size(a[WEIGHT]))  # W <= ω
    if decrement > ROUNDED_AWAY:
        decrement = error * math.sqrt(_largest_weights(y, kind, a, error))
    return max(nats / LOST_NATS, decrement / ROUNDED_AWAY)


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
    steps = size(weights)  # of |r|₁, about: δf = Kδα is wrong by eps |K||r|₁
    for n_factor in range(1, max_iter + 1):
        if not _factor(K, a, L):
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, a
        if warm and n_factor == 1:
            psi = _warm_step(K, y, kind, L, a)
        else:
            target = _tolerance(tol, scale, a)
            decrement = _bound(a)
            solved = not decrement <= target
            if solved:
                decrement = _direction(K, L, a)
            settled = False
            if decrement <= target:
                total, spread, root_sum = _sensitivities(K, a)
                left = decrement * spread
                if not (left <= _NATS and decrement * math.sqrt(scale) <= _SHORT):
                    if not solved:
                        decrement = _direction(K, L, a)
                    left = _left(K, a)
                settled = left <= _NATS or decrement > 0.5 * before
                if settled:
                    error = EPS * scale * steps
                    apart = not (error <= _SHORT and error * (0.5 * size(a[ALPHA]) + total) <= _NATS)
                    drift = _drift(K, a) if apart else 0.0
                    if drift > _NATS and repairs < _REPAIRS:
                        copy(a[TRY_F], a[F])
                        psi, before, repairs = _psi(y, kind, a[ALPHA], a[F], a), np.inf, repairs + 1
                        continue
                    rounding = _rounding(K, y, kind, L, a, scale, total + root_sum * spread)
                    lost = max(rounding, left / LOST_NATS, drift / LOST_NATS)
                    if not lost <= 1.0:
                        return NOT_CONVERGED, n_factor, ROUNDED_AWAY * lost, psi, a
                    return CONVERGED, n_factor, decrement, psi - 0.5 * log_determinant(L), a
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
