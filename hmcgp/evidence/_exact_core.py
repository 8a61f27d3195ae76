"""Compiled evidence of Gaussian-process regression; symbols as in `hmcgp.evidence.exact`."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hmcgp._typing import Array
from hmcgp.linalg import (
    cholesky_inplace,
    cholesky_solve_inplace,
    inverse_from_cholesky_inplace,
    log_determinant,
    mirror_lower,
)

_LOG_2PI = 1.8378770664093453
_LOST = 1e3 * 2.2e-16  # pivots this far below the diagonal of C are made of rounding


@njit(cache=True, nogil=True, error_model="numpy")
def factor(K: Array, noise: float, L: Array) -> bool:
    """Lower Cholesky factor of C = K + noise I; False where C is not positive definite to working precision.

    L_ii² is the variance of y_i given y_1 … y_(i-1), at least `noise` in exact arithmetic.  Rounding in C changes it by
    a few units of eps C_ii: a factor whose smallest pivot is of that size exists by luck.
    """
    n = K.shape[0]
    largest = 0.0
    for i in range(n):
        for j in range(i):
            L[i, j] = K[i, j]
        L[i, i] = K[i, i] + noise
        largest = max(largest, L[i, i])
    if not cholesky_inplace(L):
        return False
    smallest = np.inf
    for i in range(n):
        smallest = min(smallest, L[i, i] * L[i, i])
    return smallest > _LOST * largest  # False for NaN and for an infinite diagonal


@njit(cache=True, nogil=True, error_model="numpy")
def _gradient_inplace(L: Array, alpha: Array) -> float:
    """Overwrite the factor L by G = ½(αα' - C⁻¹); returns its trace."""
    inverse_from_cholesky_inplace(L)
    trace = 0.0
    for i in range(L.shape[0]):
        for j in range(i + 1):
            L[i, j] = 0.5 * (alpha[i] * alpha[j] - L[i, j])
        trace += L[i, i]
    mirror_lower(L)
    return trace


@njit(cache=True, nogil=True, error_model="numpy")
def solve(K: Array, y: Array, noise: float, gradient: bool) -> tuple[bool, float, Array, float, Array]:
    """Log evidence and, if asked for, its gradient, in one call that lets go of the interpreter lock.

    Returns
    -------
    positive_definite : bool
        Where False, the rest means nothing.
    log_z : float
    alpha : ndarray of shape (n,)
        C⁻¹ y.
    dnoise : float
        ∂ log Z/∂noise, 0 where no gradient was asked for.
    L : ndarray of shape (n, n)
        G where the gradient was asked for, else the factor of C in the lower triangle.
    """
    n = y.shape[0]
    L = np.empty_like(K)
    alpha = y.copy()
    if not factor(K, noise, L):
        return False, -np.inf, alpha, 0.0, L
    cholesky_solve_inplace(L, alpha)
    fit = 0.0
    for i in range(n):
        fit += y[i] * alpha[i]
    log_z = -0.5 * (fit + log_determinant(L) + n * _LOG_2PI)
    dnoise = _gradient_inplace(L, alpha) if gradient else 0.0
    return math.isfinite(log_z), log_z, alpha, dnoise, L
