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
from typing import NamedTuple

import numpy as np
from numba import njit

from hmcgp._likelihood_core import likelihood_terms
from hmcgp._typing import Array
from hmcgp.linalg import (
    cholesky_inplace,
    cholesky_solve_inplace,
    inverse_from_cholesky_inplace,
    mirror_lower,
    symmetric_times,
)

CONVERGED, NOT_POSITIVE_DEFINITE, NOT_CONVERGED = 0, 1, 2

_EPS = 2.2e-16
_HALVINGS = 40
_CACHED = 1200


class Iterate(NamedTuple):
    """Where the iteration stands, and its work space; every array has shape (n,)."""

    alpha: Array
    f: Array  # K alpha
    log_p: Array
    g: Array
    w: Array
    ratio: Array  # third derivative of log p, divided by w
    root_w: Array  # of the factor at hand
    residual: Array  # r
    dalpha: Array
    df: Array
    alpha_try: Array
    f_try: Array
    last_dalpha: Array  # direction of the chord step before
    last_df: Array
    moved_alpha: Array  # where that step really led
    moved_f: Array


ROWS = len(Iterate._fields)
ALPHA, F, ROOT_W = 0, 1, 6  # rows of an iterate as one array, the form in which it leaves compiled code cheaply


@njit(cache=True, nogil=True, error_model="numpy")
def _iterate(a: Array) -> Iterate:
    """The rows of an array of shape (ROWS, n), by name."""
    return Iterate(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15])


@njit(cache=True, nogil=True, error_model="numpy")
def _psi(y: Array, kind: int, alpha: Array, f: Array, v: Iterate) -> float:
    """Ψ at (alpha, f), leaving the likelihood's terms there in v."""
    return likelihood_terms(kind, y, f, v.log_p, v.g, v.w, v.ratio) - 0.5 * np.dot(alpha, f)


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(K: Array, v: Iterate, L: Array) -> bool:
    """Lower Cholesky factor of B = I + √W K √W at the current W."""
    n = K.shape[0]
    for i in range(n):
        v.root_w[i] = math.sqrt(v.w[i])
    for i in range(n):
        for j in range(i + 1):
            L[i, j] = v.root_w[i] * K[i, j] * v.root_w[j]
        L[i, i] += 1.0
    return cholesky_inplace(L)


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(K: Array, L: Array, root_w: Array, r: Array, dalpha: Array, df: Array) -> None:
    """δα = r - √W B⁻¹ √W K r and δf = K δα, by the factor at hand."""
    symmetric_times(K, r, df)
    for i in range(r.shape[0]):
        dalpha[i] = root_w[i] * df[i]
    cholesky_solve_inplace(L, dalpha)
    for i in range(r.shape[0]):
        dalpha[i] = r[i] - root_w[i] * dalpha[i]
    symmetric_times(K, dalpha, df)


@njit(cache=True, nogil=True, error_model="numpy")
def _direction(K: Array, L: Array, v: Iterate) -> float:
    """Newton direction at the current iterate; returns the decrement."""
    for i in range(v.f.shape[0]):
        v.residual[i] = v.g[i] - v.alpha[i]
    _solve(K, L, v.root_w, v.residual, v.dalpha, v.df)
    return math.sqrt(max(np.dot(v.residual, v.df), 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _ascend(y: Array, kind: int, v: Iterate, psi: float, scale: float, halvings: int) -> tuple[bool, float]:
    """Take the step, halved while Ψ falls by more than rounding; on failure the iterate stays as it was."""
    size = np.sum(np.abs(v.alpha))
    slack = 1e-13 * abs(psi) + 4.0 * _EPS * scale * size * size  # rounding of α'Kα
    step = 1.0
    for _ in range(halvings + 1):
        for i in range(v.f.shape[0]):
            v.alpha_try[i] = v.alpha[i] + step * v.dalpha[i]
            v.f_try[i] = v.f[i] + step * v.df[i]
        psi_try = _psi(y, kind, v.alpha_try, v.f_try, v)
        if psi_try >= psi - slack:
            v.alpha[:] = v.alpha_try
            v.f[:] = v.f_try
            return True, psi_try
        step *= 0.5
    return False, _psi(y, kind, v.alpha, v.f, v)


@njit(cache=True, nogil=True, error_model="numpy")
def _tolerance(tol: float, scale: float, v: Iterate) -> float:
    """The decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √ΣW."""
    return max(tol, _EPS * scale * np.sum(np.abs(v.alpha)) * math.sqrt(np.sum(v.w)))


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(v: Iterate) -> float:
    """√Σ r²/W, never below the decrement since (K⁻¹ + W)⁻¹ <= W⁻¹: convergence seen without solving for it."""
    total = 0.0
    for i in range(v.f.shape[0]):
        r = v.g[i] - v.alpha[i]
        total += r * r / v.w[i]  # inf or NaN where w underflows: then the decrement itself decides
    return math.sqrt(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _accelerate(v: Iterate, first: bool) -> None:
    """Turn a chord direction δ into s = δ - θ(moved + δ - δ_last), θ = <δ, δ - δ_last>/|δ - δ_last|².

    Chord steps shrink mostly along one eigenvector; the secant (Anderson's method with one step of memory) removes it.
    """
    dot, square = 0.0, 0.0
    for i in range(v.f.shape[0]):
        change = v.df[i] - v.last_df[i]
        dot += v.df[i] * change
        square += change * change
    theta = 0.0 if first or square == 0.0 else dot / square
    for i in range(v.f.shape[0]):
        step_alpha = v.dalpha[i] - theta * (v.moved_alpha[i] + v.dalpha[i] - v.last_dalpha[i])
        step_f = v.df[i] - theta * (v.moved_f[i] + v.df[i] - v.last_df[i])
        v.last_dalpha[i], v.last_df[i] = v.dalpha[i], v.df[i]
        v.dalpha[i], v.df[i] = step_alpha, step_f
        v.moved_alpha[i], v.moved_f[i] = step_alpha, step_f


@njit(cache=True, nogil=True, error_model="numpy")
def _chords(
    K: Array, y: Array, kind: int, L: Array, v: Iterate, psi: float, decrement: float, scale: float, tol: float
) -> float:
    """Steps with an old factor, until converged or a new factor would pay; returns Ψ."""
    # what a factorisation costs, in steps (measured: while K and L fit into the cache, and beyond), and two that follow it
    n = K.shape[0]
    patience = 2.0 + (n / 35.0 if n < _CACHED else n / 170.0)
    first = True
    while not _bound(v) <= _tolerance(tol, scale, v):
        last, decrement = decrement, _direction(K, L, v)
        _accelerate(v, first)
        first = False
        moved, psi = _ascend(y, kind, v, psi, scale, 0)
        target = _tolerance(tol, scale, v)
        if not moved or decrement <= target:
            return psi
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(target / decrement) < (patience + 1.0) * math.log(rate):
                return psi
    return psi


@njit(cache=True, nogil=True, error_model="numpy")
def _warm_step(K: Array, y: Array, kind: int, L: Array, v: Iterate) -> float:
    """One Newton step from f alone, α = b - √W B⁻¹ √W K b with b = W f + g; returns Ψ.

    A mode found under another K has no α under this one.  Where the step lands below Ψ(0), the start was useless and
    the iterate is put to 0.
    """
    for i in range(v.f.shape[0]):
        v.residual[i] = v.w[i] * v.f[i] + v.g[i]
    _solve(K, L, v.root_w, v.residual, v.alpha, v.f)
    psi = _psi(y, kind, v.alpha, v.f, v)
    v.f_try[:] = 0.0
    if psi >= likelihood_terms(kind, y, v.f_try, v.log_p, v.dalpha, v.df, v.alpha_try):
        return psi
    v.alpha[:] = 0.0
    v.f[:] = 0.0
    return _psi(y, kind, v.alpha, v.f, v)


@njit(cache=True, nogil=True, error_model="numpy")
def find_mode(
    K: Array, y: Array, kind: int, start: Array, warm: bool, L: Array, tol: float, max_iter: int
) -> tuple[int, int, float, float, Array]:
    """Find the mode (from `start` if warm, else from 0) and leave in L the factor of B there.

    Returns
    -------
    status, n_factor : int
    residual : float
        Newton's decrement at the mode, or a bound on it.
    log_z : float
        Log evidence, where the status is CONVERGED.
    a : ndarray of shape (ROWS, n)
        The iterate at the mode.
    """
    n = y.shape[0]
    a = np.zeros((ROWS, n))
    v = _iterate(a)
    scale = 0.0  # largest prior variance
    for i in range(n):
        scale = max(scale, K[i, i])
    if warm:
        v.f[:] = start
    psi, decrement = _psi(y, kind, v.alpha, v.f, v), np.inf
    for n_factor in range(1, max_iter + 1):
        if not _factor(K, v, L):
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, a
        if warm and n_factor == 1:
            psi = _warm_step(K, y, kind, L, v)
        else:
            target = _tolerance(tol, scale, v)
            decrement = _bound(v)
            if not decrement <= target:
                decrement = _direction(K, L, v)
            if decrement <= target:
                return CONVERGED, n_factor, decrement, psi - 0.5 * _log_determinant(L), a
            moved, psi = _ascend(y, kind, v, psi, scale, _HALVINGS)
            if not moved:
                return NOT_CONVERGED, n_factor, decrement, psi, a
        psi = _chords(K, y, kind, L, v, psi, decrement, scale, tol)
    return NOT_CONVERGED, max_iter, decrement, psi, a


@njit(cache=True, nogil=True, error_model="numpy")
def _log_determinant(L: Array) -> float:
    """Log |B| from its Cholesky factor."""
    total = 0.0
    for i in range(L.shape[0]):
        total += math.log(L[i, i])
    return 2.0 * total


@njit(cache=True, nogil=True, error_model="numpy")
def gradient_inplace(K: Array, L: Array, a: Array) -> None:
    """Overwrite the factor L by G = ½(αα' - R + ug' + gu'), where α = g at the mode."""
    n = K.shape[0]
    v = _iterate(a)
    g, root_w = v.g, v.root_w
    inverse_from_cholesky_inplace(L)  # B⁻¹
    c, t, u = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        # c = ½ s d3 with s = (1 - B⁻¹_ii)/W_i: written so that W_i cancels, and may underflow
        c[i] = 0.5 * (1.0 - L[i, i]) * v.ratio[i]
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
