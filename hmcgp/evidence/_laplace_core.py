"""Compiled Newton iteration to the mode of p(f | y), and the derivative of the Laplace evidence.

Symbols as in `hmcgp.evidence.laplace`.  A pair (α, f = Kα) is carried; with r = g - α the gradient of Ψ, the Newton step is

    δα = r - √W B⁻¹ √W K r,   δf = K δα = (K⁻¹ + W)⁻¹ r,   and   r'δf = |δf|² in the metric of the Hessian.

The square root of r'δf, Newton's decrement, is the norm of the gradient on which the iteration stops: it is the only scale
on which the same tolerance is right for a prior variance of 1e-6 and of 1e8.

A factorisation of B costs n³/3, a step with a factor at hand 4n².  So each factor is used again, at f further on (a chord step),
for as long as that is expected to be cheaper than a new one.
"""

from __future__ import annotations

import math

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


@njit(cache=True, nogil=True, error_model="numpy")
def _factor(K: Array, root_w: Array, L: Array) -> bool:
    """Lower Cholesky factor of B = I + √W K √W."""
    n = K.shape[0]
    for i in range(n):
        for j in range(i + 1):
            L[i, j] = root_w[i] * K[i, j] * root_w[j]
        L[i, i] += 1.0
    return cholesky_inplace(L)


@njit(cache=True, nogil=True, error_model="numpy")
def _direction(K: Array, L: Array, root_w: Array, residual: Array, dalpha: Array, df: Array) -> float:
    """Newton direction for a gradient of Ψ, by the factor at hand; returns r'δf."""
    symmetric_times(K, residual, df)
    for i in range(df.shape[0]):
        dalpha[i] = root_w[i] * df[i]
    cholesky_solve_inplace(L, dalpha)
    for i in range(df.shape[0]):
        dalpha[i] = residual[i] - root_w[i] * dalpha[i]
    symmetric_times(K, dalpha, df)
    return max(np.dot(residual, df), 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _ascend(
    kind: int,
    y: Array,
    alpha: Array,
    f: Array,
    dalpha: Array,
    df: Array,
    terms: Array,
    psi: float,
    slack: float,
    halvings: int,
) -> tuple[bool, float]:
    """Step along (dalpha, df), halved while Ψ falls; on success alpha, f and the likelihood terms are the new ones."""
    alpha_new, f_new = np.empty_like(alpha), np.empty_like(f)
    step = 1.0
    for _ in range(halvings + 1):
        for i in range(f.shape[0]):
            alpha_new[i] = alpha[i] + step * dalpha[i]
            f_new[i] = f[i] + step * df[i]
        psi_new = likelihood_terms(kind, y, f_new, terms[0], terms[1], terms[2], terms[3]) - 0.5 * np.dot(
            alpha_new, f_new
        )
        if psi_new >= psi - slack:
            alpha[:] = alpha_new
            f[:] = f_new
            return True, psi_new
        step *= 0.5
    likelihood_terms(kind, y, f, terms[0], terms[1], terms[2], terms[3])
    return False, psi


@njit(cache=True, nogil=True, error_model="numpy")
def find_mode(
    K: Array, y: Array, kind: int, f: Array, warm: bool, L: Array, tol: float, max_iter: int
) -> tuple[int, int, float, float, Array, Array, Array]:
    """Move f to the mode (from f if warm, else from 0) and leave in L the factor of B there.

    Returns
    -------
    status, n_factor, decrement, psi : int, int, float, float
    alpha, root_w : ndarrays of shape (n,)
    terms : ndarray of shape (4, n)
        Log likelihood, g, w and ratio of the third derivative to w, at the mode.
    """
    n = y.shape[0]
    terms = np.empty((4, n))
    g, w = terms[1], terms[2]
    alpha, root_w, residual, dalpha, df = np.zeros(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    scale = 0.0  # largest prior variance, for the rounding error of Kα
    for i in range(n):
        scale = max(scale, K[i, i])
    chords = 2.0 + n / 35.0  # steps that cost as much as a factorisation and the steps after it, roughly

    psi_cold = likelihood_terms(kind, y, np.zeros(n), terms[0], g, w, terms[3])
    psi, decrement, n_factor = psi_cold, np.inf, 0
    if warm:
        likelihood_terms(kind, y, f, terms[0], g, w, terms[3])
    else:
        f[:] = 0.0
    while n_factor < max_iter:
        n_factor += 1
        for i in range(n):
            root_w[i] = math.sqrt(w[i])
        if not _factor(K, root_w, L):
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, alpha, root_w, terms
        if warm:
            # Newton step written for f alone: α = b - √W B⁻¹ √W K b, b = W f + g.  No α belongs to a mode found under another K.
            for i in range(n):
                residual[i] = w[i] * f[i] + g[i]
            _direction(K, L, root_w, residual, alpha, f)
            psi = likelihood_terms(kind, y, f, terms[0], g, w, terms[3]) - 0.5 * np.dot(alpha, f)
            warm = False
            if not psi >= psi_cold:  # a useless start: begin from 0
                alpha[:] = 0.0
                f[:] = 0.0
                psi = likelihood_terms(kind, y, f, terms[0], g, w, terms[3])
                continue
            decrement = np.inf
        else:
            for i in range(n):
                residual[i] = g[i] - alpha[i]
            decrement = math.sqrt(_direction(K, L, root_w, residual, dalpha, df))
            size = np.sum(np.abs(alpha))
            floor = max(tol, _EPS * scale * size * math.sqrt(np.sum(w)))  # Kα is no more exact than that
            if decrement <= floor:
                return CONVERGED, n_factor, decrement, psi, alpha, root_w, terms
            slack = 1e-13 * abs(psi) + 4.0 * _EPS * scale * size * size
            moved, psi = _ascend(kind, y, alpha, f, dalpha, df, terms, psi, slack, _HALVINGS)
            if not moved:
                return NOT_CONVERGED, n_factor, decrement, psi, alpha, root_w, terms
        while True:  # chord steps
            for i in range(n):
                residual[i] = g[i] - alpha[i]
            last, decrement = decrement, math.sqrt(_direction(K, L, root_w, residual, dalpha, df))
            size = np.sum(np.abs(alpha))
            floor = max(tol, _EPS * scale * size * math.sqrt(np.sum(w)))
            slack = 1e-13 * abs(psi) + 4.0 * _EPS * scale * size * size
            moved, psi = _ascend(kind, y, alpha, f, dalpha, df, terms, psi, slack, 0)
            if not moved or decrement <= floor:
                break
            if last < np.inf:
                rate = decrement / last
                ahead = decrement * rate  # what the decrement should be now
                if rate >= 1.0 or ahead <= 0.1 * floor or math.log(floor / ahead) < chords * math.log(rate):
                    break
    return NOT_CONVERGED, n_factor, decrement, psi, alpha, root_w, terms


@njit(cache=True, nogil=True, error_model="numpy")
def log_determinant(L: Array) -> float:
    """Log |B| from its Cholesky factor."""
    total = 0.0
    for i in range(L.shape[0]):
        total += math.log(L[i, i])
    return 2.0 * total


@njit(cache=True, nogil=True, error_model="numpy")
def gradient_inplace(K: Array, L: Array, root_w: Array, terms: Array) -> None:
    """Overwrite the factor L by G = ½(αα' - R + ug' + gu'), where α = g at the mode."""
    n = K.shape[0]
    g, ratio = terms[1], terms[3]
    inverse_from_cholesky_inplace(L)  # B⁻¹
    c, t, u = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        # c = ½ s d3 with s = (1 - B⁻¹_ii)/W_i: written so that W_i cancels, and may underflow
        c[i] = 0.5 * (1.0 - L[i, i]) * ratio[i]
    symmetric_times(K, c, t)
    for i in range(n):
        t[i] *= root_w[i]
    symmetric_times(L, t, u)
    for i in range(n):
        u[i] = c[i] - root_w[i] * u[i]
    for i in range(n):
        # αα' + ug' + gu' = g (½g + u)' + (½g + u) g'
        for j in range(i + 1):
            R = root_w[i] * L[i, j] * root_w[j]
            L[i, j] = 0.5 * (g[i] * (0.5 * g[j] + u[j]) + (0.5 * g[i] + u[i]) * g[j] - R)
    mirror_lower(L)
