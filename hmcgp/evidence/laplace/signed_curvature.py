"""Compiled linear algebra of K⁻¹ + W where the curvature W is negative in a few rows.

With W⁺ what is positive of W, B = I + √W⁺ K √W⁺ = LL', and ρ, of shape (n, m), a column √|w_i| e_i for each of the m
negative rows,

    X = L⁻¹ √W⁺ K ρ,   Y = ρ - √W⁺ L⁻ᵀ X = (I + W⁺K)⁻¹ ρ,   T = I - ρ'Kρ + X'X = I - ρ'KY = CC',
    (K⁻¹ + W)⁻¹ = S⁺ + K Y T⁻¹ Y' K,   S⁺ = (K⁻¹ + W⁺)⁻¹,
    R = (K + W⁻¹)⁻¹ = √W⁺ B⁻¹ √W⁺ - Y T⁻¹ Y',   log|I + KW| = log|B| + log|T|.

T is positive definite where K⁻¹ + W is.  B is factorised in upper triangles, the faster ones, and no row is moved, so
that this costs n²m operations more than a factorisation with W⁺ alone.
"""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.newton import scale_row
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.runtime.typing import Array

IntArray: TypeAlias = NDArray[np.int64]

_SAFE = 1e-4  # √|w_i| above which δf_i comes from the solution x + Xz or z, without a product with K
_LOST = 1e-5  # |w_i| S_ii below which (w_i - R_ii)/w_i² has lost too many digits


@compiled_inside
def factor_positive(K: Array, weights: Array, state: Array, L: Array) -> bool:
    """Leave L' in the upper triangle of L, for what is positive of these weights; False where there is no factor."""
    root_w = state[row.ROOT_CURVATURE]
    for i in range(K.shape[0]):
        root_w[i] = math.sqrt(max(weights[i], 0.0))
    for i in range(K.shape[0]):
        scale_row(root_w[i], K[i, i:], root_w[i:], L[i, i:])
        L[i, i] += 1.0
    return lapack.cholesky_upper_inplace(L)


@compiled_inside
def negative_rows(w: Array) -> IntArray:
    """Numbers of the rows in which W is negative."""
    found, m = np.empty(w.shape[0], dtype=np.int64), 0
    for i in range(w.shape[0]):
        if w[i] < 0.0:
            found[m] = i
            m += 1
    return found[:m]


@compiled_inside
def factor_negative(K: Array, L: Array, state: Array, rows: IntArray) -> tuple[bool, Array, Array]:
    """X, of shape (n, m), and C in the lower triangle of an (m, m) array; False where T is not positive definite."""
    n, m = K.shape[0], rows.shape[0]
    root_w, root = state[row.ROOT_CURVATURE], state[row.ROOT_NEGATIVE]
    X, T = np.empty((n, m)), np.empty((m, m))
    for i in range(n):
        root[i] = 0.0
    for b in range(m):
        root[rows[b]] = math.sqrt(-state[row.CURVATURE, rows[b]])
    for b in range(m):
        j, rho = rows[b], root[rows[b]]
        for i in range(j):
            X[i, b] = root_w[i] * K[i, j] * rho
        for i in range(j, n):
            X[i, b] = root_w[i] * K[j, i] * rho
        for a in range(b, m):
            T[a, b] = -rho * K[j, rows[a]] * root[rows[a]]
        T[b, b] += 1.0
    if m == 0:
        return True, X, T
    lapack.triangular_upper_solve_inplace(L, X, False)
    lapack.add_gram(1.0, X, T)
    return lapack.cholesky_inplace(T), X, T


@compiled_inside
def responses_of_negative(L: Array, state: Array, X: Array, rows: IntArray) -> Array:
    """Y = ρ - √W⁺ L⁻ᵀ X, of shape (n, m)."""
    n, m = X.shape
    Y = X.copy()
    if m > 0:
        lapack.triangular_upper_solve_inplace(L, Y, True)
    for i in range(n):
        for b in range(m):
            Y[i, b] *= -state[row.ROOT_CURVATURE, i]
    for b in range(m):
        Y[rows[b], b] += state[row.ROOT_NEGATIVE, rows[b]]
    return Y


@compiled_inside
def respond(
    K: Array, L: Array, state: Array, X: Array, C: Array, rows: IntArray, r: Array, dalpha: Array, df: Array
) -> None:
    """δα = (I + WK)⁻¹ r and δf = K δα.

    With x = L⁻¹√W⁺K r and Tz = ρ'K r - X'x = ρ'S⁺r:  δα = r + ρz - √W⁺ L⁻ᵀ(x + Xz), and Wδf = r - δα.
    """
    (n, m), smallest = X.shape, np.inf
    root_w, root = state[row.ROOT_CURVATURE], state[row.ROOT_NEGATIVE]
    lapack.symmetric_upper_times(K, r, df)
    for i in range(n):
        dalpha[i] = root_w[i] * df[i]
        smallest = min(smallest, root_w[i] + root[i])
    lapack.forward_upper_inplace(L, dalpha)
    z = np.empty(m)
    for b in range(m):
        z[b] = root[rows[b]] * df[rows[b]]
    if m > 0:
        for i in range(n):
            for b in range(m):
                z[b] -= X[i, b] * dalpha[i]
        lapack.cholesky_solve_inplace(C, z)
        for i in range(n):
            for b in range(m):
                dalpha[i] += X[i, b] * z[b]
    lapack.backward_upper_inplace(L, dalpha)
    for i in range(n):
        df[i] = dalpha[i] / root_w[i]
        dalpha[i] = r[i] - root_w[i] * dalpha[i]
    for b in range(m):
        df[rows[b]] = z[b] / root[rows[b]]
        dalpha[rows[b]] = r[rows[b]] + root[rows[b]] * z[b]
    if not smallest > _SAFE:
        lapack.symmetric_upper_times(K, dalpha, df)


@compiled_inside
def log_determinant(L: Array, C: Array) -> float:
    """Log|I + KW|."""
    return lapack.log_determinant(L) + lapack.log_determinant(C)


@compiled_inside
def precision_inplace(K: Array, L: Array, state: Array, X: Array, C: Array, rows: IntArray) -> None:
    """Overwrite the factor by the lower triangle of R, and leave S_ii in state[VARIANCE]."""
    (n, m), root_w = X.shape, state[row.ROOT_CURVATURE]
    Y = responses_of_negative(L, state, X, rows)
    lapack.mirror_upper(L)
    lapack.inverse_from_cholesky_inplace(L)
    for i in range(n):
        for j in range(i + 1):
            L[i, j] *= root_w[i] * root_w[j]
    if m > 0:
        Z = np.empty((m, n))
        for i in range(n):
            for b in range(m):
                Z[b, i] = Y[i, b]
        lapack.triangular_solve_inplace(C, Z, False)
        lapack.add_gram(-1.0, Z, L)
    for i in range(n):
        w = state[row.CURVATURE, i]
        s = (w - L[i, i]) / (w * w)
        if not abs(w) * s > _LOST:
            s = _variance(K, L, state, i)
        state[row.VARIANCE, i] = s


@compiled_inside
def _variance(K: Array, R: Array, state: Array, i: int) -> float:
    """S_ii = K_ii - k'R k, by the lower triangle of R."""
    k, t = state[row.STEP_ALPHA], state[row.STEP_LATENT]
    for j in range(K.shape[0]):
        k[j] = K[i, j] if i <= j else K[j, i]
    lapack.symmetric_times(R, k, t)
    total = K[i, i]
    for j in range(K.shape[0]):
        total -= k[j] * t[j]
    return total


@compiled_inside
def expected_gradient_inplace(R: Array, state: Array) -> None:
    """Overwrite the lower triangle of R by G = ½(gg' - R), for a curvature that does not depend on f."""
    g = state[row.SLOPE]
    for i in range(R.shape[0]):
        for j in range(i + 1):
            R[i, j] = 0.5 * (g[i] * g[j] - R[i, j])


@compiled_inside
def gradient_inplace(K: Array, R: Array, state: Array) -> None:
    """Overwrite R by G = ½((u + ½g)g' + g(u + ½g)' - R), u = (I - RK)c; leaves Sc = Ku in state[SHIFT]."""
    n, g = K.shape[0], state[row.SLOPE]
    c, t, u = state[row.STEP_ALPHA], state[row.STEP_LATENT], state[row.TRIAL_ALPHA]
    for i in range(n):
        c[i] = 0.5 * state[row.VARIANCE, i] * state[row.THIRD, i]
    lapack.symmetric_upper_times(K, c, t)
    lapack.symmetric_times(R, t, u)
    for i in range(n):
        u[i] = c[i] - u[i]
    lapack.symmetric_upper_times(K, u, state[row.SHIFT])
    for i in range(n):
        u[i] += 0.5 * g[i]
    for i in range(n):
        for j in range(i + 1):
            R[i, j] = 0.5 * (u[i] * g[j] + g[i] * u[j] - R[i, j])
