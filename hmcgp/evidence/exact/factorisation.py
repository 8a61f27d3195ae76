"""Compiled evidence of Gaussian-process regression; symbols as in `hmcgp.evidence.exact`."""

import math

import numpy as np

from hmcgp.evidence.newton import dot
from hmcgp.evidence.rounding import LOST_NATS
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS, LOG_2PI
from hmcgp.runtime.typing import Array

LOST = 1e3 * EPS  # pivots this far below the diagonal of C are made of rounding
LOST_SHARE = 1e-6  # of log Z, which rounding may eat besides LOST_NATS: beyond, it is noise


@compiled
def factor(K: Array, noise: Array, L: Array) -> bool:
    """Lower Cholesky factor of C = K + diag noise; False where C is not positive definite to working precision.

    L_ii² is the variance of y_i given y_1 … y_(i-1), at least its noise in exact arithmetic.  Rounding in C changes it
    by a few units of eps C_ii: a factor whose smallest pivot is of that size exists by luck.
    """
    n = K.shape[0]
    largest = 0.0
    for i in range(n):
        row, out = K[i], L[i]
        for j in range(i):
            out[j] = row[j]
        L[i, i] = K[i, i] + noise[i]
        largest = max(largest, L[i, i])
    if not lapack.cholesky_inplace(L):
        return False
    smallest = np.inf
    for i in range(n):
        smallest = min(smallest, L[i, i] * L[i, i])
    return smallest > LOST * largest  # False for NaN and for an infinite diagonal


@compiled
def rounding_of_fit(K: Array, noise: Array, alpha: Array) -> float:
    """Bound on the rounding of ½ Σ y'α, for α of shape (n, k).

    Entries of C are known to a relative eps, and a factor of it is that of a matrix as far away (backward error).
    A change E of C changes ½ y'C⁻¹y by -½ α'Eα; with |E_ij| <= eps |C_ij| <= eps √(C_ii C_jj) that is at most
    ½ eps (Σ |α_i| √C_ii)².
    """
    total = 0.0
    for a in range(alpha.shape[1]):
        size = 0.0
        for i in range(alpha.shape[0]):
            size += abs(alpha[i, a]) * math.sqrt(K[i, i] + noise[i])
        total += size * size
    return 0.5 * EPS * total


@compiled
def is_known(log_z: float, rounding: float) -> bool:
    """Whether log Z is known to LOST_NATS + LOST_SHARE |log Z|; False for NaN and inf."""
    return math.isfinite(log_z) and rounding <= LOST_NATS + LOST_SHARE * abs(log_z)


@compiled_inside
def _rounding_of_determinant(K: Array, noise: Array, L: Array) -> float:
    """Rounding of Σ log L_ii: the pivot L_ii² is a difference of numbers of the size of C_ii."""
    total = 0.0
    for i in range(K.shape[0]):
        total += (K[i, i] + noise[i]) / (L[i, i] * L[i, i])
    return 0.5 * EPS * total


@compiled_inside
def gradient_inplace(inverse: Array, alpha: Array) -> None:
    """Overwrite C⁻¹, or an estimate of it, by G = ½(αα' - C⁻¹); only the lower triangle is read."""
    for i in range(inverse.shape[0]):
        a, out = alpha[i], inverse[i]
        for j in range(i + 1):
            out[j] = 0.5 * (a * alpha[j] - out[j])
    lapack.mirror_lower(inverse)


@compiled
def solve(K: Array, y: Array, noise: Array, gradient: bool) -> tuple[bool, float, Array, Array]:
    """Log evidence and, if asked for, its gradient, in one call that lets go of the interpreter lock.

    Returns whether C is positive definite and log Z `is_known`, without which the rest means nothing; log Z; α = C⁻¹y;
    and G with the gradient, else the factor of C in the lower triangle.
    """
    n = y.shape[0]
    L = np.empty_like(K)
    alpha = y.copy()
    if not factor(K, noise, L):
        return False, -np.inf, alpha, L
    lapack.cholesky_solve_inplace(L, alpha)
    log_z = -0.5 * (dot(y, alpha) + lapack.log_determinant(L) + n * LOG_2PI)
    rounding = rounding_of_fit(K, noise, alpha.reshape(n, 1)) + _rounding_of_determinant(K, noise, L)
    if not is_known(log_z, rounding):
        return False, log_z, alpha, L
    if gradient:
        lapack.inverse_from_cholesky_inplace(L)
        gradient_inplace(L, alpha)
    return True, log_z, alpha, L


@compiled
def columns_gradient_inplace(inverse: Array, alpha: Array) -> None:
    """Overwrite C⁻¹, or an estimate of it, by G = ½(Σ_a α_a α_a' - k C⁻¹), for α of shape (n, k)."""
    k = alpha.shape[1]
    for i in range(inverse.shape[0]):
        for j in range(i + 1):
            total = 0.0
            for a in range(k):
                total += alpha[i, a] * alpha[j, a]
            inverse[i, j] = 0.5 * (total - k * inverse[i, j])
    lapack.mirror_lower(inverse)


@compiled
def solve_columns(K: Array, Y: Array, noise: Array, gradient: bool) -> tuple[bool, float, Array, Array]:
    """As `solve`, for k columns of targets, each N(0, C), of shape (n, k): one factor serves all of them."""
    n, k = Y.shape
    L = np.empty_like(K)
    alpha = Y.copy()
    if not factor(K, noise, L):
        return False, -np.inf, alpha, L
    lapack.triangular_solve_inplace(L, alpha, False)
    lapack.triangular_solve_inplace(L, alpha, True)
    log_z = -0.5 * (dot(Y.reshape(-1), alpha.reshape(-1)) + k * (lapack.log_determinant(L) + n * LOG_2PI))
    rounding = rounding_of_fit(K, noise, alpha) + k * _rounding_of_determinant(K, noise, L)
    if not is_known(log_z, rounding):
        return False, log_z, alpha, L
    if gradient:
        lapack.inverse_from_cholesky_inplace(L)
        columns_gradient_inplace(L, alpha)
    return True, log_z, alpha, L
