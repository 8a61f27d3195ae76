"""Compiled linear algebra of several classes under Laplace's approximation: factors of I + WK, and ∂ log Z/∂K.

Symbols as in `evidence.laplace.softmax`, with p = ωπ; rows of the state as in `mode_rows`.  Factors are the C
inverses B_c⁻¹ = (I + √p_c K_c √p_c)⁻¹, n³ each, and M.  With q_c = √p_c B_c⁻¹ r_c/√p_c = r_c - E_c K_c r_c,

    x = (I + WK)⁻¹ r:   x_c = q_c + E_c t,   t = (Σ_a E_a)⁻¹ Σ_a (r_a - q_a).

(r_c less E_c times K_c r_c would be a small difference of large numbers where K is large.)  The gradient costs 2n³ per
class: M⁻¹E_c, and its product with itself.
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence import newton
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.runtime.typing import Array

_LEAST_ROOT = 1e-150  # of p, which underflows


@compiled
def factor(K: Array, p: Array, roots: Array, A: Array, M: Array, alike: bool) -> tuple[bool, float]:
    """Leave B_c⁻¹ in the lower triangles of A, M in its own, √p in roots; returns success and ½ Σ log|B_c| + log|M|.

    `alike` says that all classes have the same p and K: one B serves them all.
    """
    n_classes, n = A.shape[0], A.shape[1]
    half = 0.0
    for k in range(p.shape[0]):
        roots[k] = max(math.sqrt(p[k]), _LEAST_ROOT)
    newton.fill(M.reshape(-1), 0.0)
    for c in range(n_classes):
        B, root = A[c], roots[c * n : (c + 1) * n]
        if alike and c > 0:
            newton.copy(A[0].reshape(-1), B.reshape(-1))
        else:
            if not newton.factor_scaled(K[c % K.shape[0]], root, B):
                return False, 0.0
            term = 0.5 * lapack.log_determinant(B)
            half += term * n_classes if alike else term
            lapack.inverse_from_cholesky_inplace(B)
        for i in range(n):
            a, part, out = root[i], B[i], M[i]
            for j in range(i + 1):
                out[j] += a * part[j] * root[j]
    if not lapack.cholesky_inplace(M):
        return False, 0.0
    half += 0.5 * lapack.log_determinant(M)
    return math.isfinite(half), half


@compiled_inside
def solve_newton(K: Array, A: Array, M: Array, root: Array, r: Array, dalpha: Array, df: Array) -> None:
    """δα = (I + W K)⁻¹ r and δf = K δα, with the factors at hand.

    In exact arithmetic δf_c = t + (r_c - δα_c)/p_c, too; but an inverse is rounded by eps |B_c|, so that f would not be
    Kα to more than eps |B_c||K_c|, and no later step would mend it.
    """
    n = M.shape[0]
    total, x, Ax = np.zeros(n), np.empty(n), np.empty(n)
    for c in range(A.shape[0]):
        first = c * n
        for i in range(n):
            x[i] = r[first + i] / root[first + i]
        lapack.symmetric_times(A[c], x, Ax)
        for i in range(n):
            dalpha[first + i] = root[first + i] * Ax[i]
            total[i] += r[first + i] - dalpha[first + i]
    lapack.cholesky_solve_inplace(M, total)
    for c in range(A.shape[0]):
        first = c * n
        for i in range(n):
            x[i] = root[first + i] * total[i]
        lapack.symmetric_times(A[c], x, Ax)
        for i in range(n):
            dalpha[first + i] += root[first + i] * Ax[i]
        lapack.symmetric_times(K[c % K.shape[0]], dalpha[first : first + n], df[first : first + n])


@compiled_inside
def _couple(A: Array, M: Array, root: Array, weights: Array, V: Array, spread: Array) -> None:
    """Leave M⁻¹E of one class in V, and in spread p_c times what V gives to the variances of f_c - Σ_a π_a f_a.

    M holds M' above its diagonal.  With Q_c = M⁻¹√p_c B_c⁻¹, p = ωπ: V_c K_c = M⁻¹ - Q_c/√p_c, whose mean over classes,
    weighted by π, is M⁻¹ - M'/ω.  What is left of class c without it, times √p_c, is M'√p_c/ω - Q_c.
    """
    n = A.shape[0]
    share = np.empty(n)
    lapack.mirror_lower(A)
    for i in range(n):
        for j in range(n):
            V[i, j] = root[i] * A[i, j]
        spread[i], share[i] = 0.0, root[i] / weights[i]
    lapack.triangular_solve_inplace(M, V, False)
    for k in range(n):
        for i in range(k):
            spread[i] += V[k, i] * V[k, i]
        for i in range(k, n):
            x = M[k, i] * share[i] - V[k, i]  # M'√p_c/ω - Q_c
            spread[i] += x * x
        for i in range(n):
            V[k, i] *= root[i]


@compiled_inside
def gradient(K: Array, A: Array, M: Array, state: Array) -> Array:
    """G = ∂ log Z/∂K at the mode, one matrix per matrix in K.  Overwrites A above its diagonals."""
    n_classes, n = A.shape[0], A.shape[1]
    root, pi = state[row.ROOT_CURVATURE], state[row.PROBABILITY]
    spread, s, u = state[row.RESIDUAL], state[row.TRIAL_LATENT], state[row.STEP_LATENT]
    dK, V = np.zeros_like(K), np.empty_like(M)
    lapack.mirror_lower(M)
    for c in range(n_classes):
        part = slice(c * n, (c + 1) * n)
        _couple(A[c], M, root[part], state[row.WEIGHT, :n], V, spread[part])
        lapack.add_gram(0.5, V, dK[c % K.shape[0]])
    for i in range(n):
        # S_i is the covariance of the deviations above, and of independent parts of variance (1 - B_c⁻¹)_ii/ωπ_c
        total, inner = 0.0, 0.0
        for c in range(n_classes):
            k = c * n + i
            own = 1.0 - A[c, i, i]
            total += spread[k] + own
            inner += pi[k] * own
        for c in range(n_classes):
            k = c * n + i
            own = 1.0 - A[c, i, i]
            s[k] = -0.5 * (spread[k] + own - pi[k] * total - 2.0 * pi[k] * (own - inner))
    solve_newton(K, A, M, root, s, u, state[row.TRIAL_ALPHA])
    for c in range(n_classes):
        G_c, B = dK[c % K.shape[0]], A[c]
        g, v, d = state[row.SLOPE, c * n : (c + 1) * n], u[c * n : (c + 1) * n], root[c * n : (c + 1) * n]
        for i in range(n):
            v[i] += 0.5 * g[i]  # gg' + ug' + gu' = (u + ½g)g' + g(u + ½g)'
        for i in range(n):
            v_i, g_i, d_i, inverse, out = v[i], g[i], d[i], B[i], G_c[i]
            for j in range(i + 1):
                out[j] += 0.5 * (v_i * g[j] + g_i * v[j] - d_i * inverse[j] * d[j])
    for k in range(K.shape[0]):
        lapack.mirror_lower(dK[k])
    return dK
