"""Compiled Newton iteration to the mode of p(f | y) of several classes, and the derivative of its Laplace evidence.

Symbols as in `hmcgp.evidence.softmax`.  Arrays over classes and rows are flat, class after class; the rows of an
iterate are those of `_laplace_core`, with π in place of W where the factors are concerned.  A pair (α, f = Kα) is
carried; with r = g - α, the gradient of Ψ, and q_c = √π_c B_c⁻¹ r_c/√π_c = r_c - E_c K_c r_c, Newton's step is

    δα_c = q_c + E_c (Σ_a E_a)⁻¹ Σ_a (r_a - q_a),     δf = K δα = (K⁻¹ + W)⁻¹ r.

(r_c less E_c times K_c r_c would be a small difference of large numbers where K is large.)  The square root of r'δf,
Newton's decrement, is the norm of the gradient on which the iteration stops.  Where Σ_c r_c = 0, as it is after every
full step, r'W⁺r = Σ r²/π bounds it from above.

Factors are the C inverses B_c⁻¹ = (I + √π_c K_c √π_c)⁻¹, n³ each, and M.  A step with factors at hand costs 6n² per
class, so each set is used again (accelerated chord steps) for as long as that is expected to be cheaper than a new one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hmcgp._typing import Array
from hmcgp.evidence._laplace_core import (
    ALPHA,
    D_ALPHA,
    D_F,
    EPS,
    HALVINGS,
    ROOT_W,
    ROUNDED_AWAY,
    ROWS,
    TRY_ALPHA,
    TRY_F,
    F,
    G,
    R,
    W,
    accelerate,
    accept,
    attempt,
    copy,
    dot,
    fill,
    size,
    slack,
)
from hmcgp.evidence._solver import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.linalg import (
    add_gram,
    cholesky_inplace,
    cholesky_solve_inplace,
    inverse_from_cholesky_inplace,
    log_determinant,
    mirror_lower,
    symmetric_times,
    triangular_inverse_inplace,
    triangular_times_inplace,
)

PI = 2  # row of the iterate: class probabilities at f
_LEAST_ROOT = 1e-150  # of π, which underflows
_PATIENCE = 18.0  # the price of new factors, in steps (measured: n = 190 to 1000)


@njit(cache=True, nogil=True, error_model="numpy")
def _psi(y: Array, alpha: Array, f: Array, a: Array) -> float:
    """Ψ = Σ log π_yi - ½ α'f, leaving π, g and W's diagonal at f in a."""
    n = y.shape[0]
    n_classes = f.shape[0] // n
    total = 0.0
    for i in range(n):
        top = -np.inf
        for k in range(i, f.shape[0], n):
            top = max(top, f[k])
        norm = 0.0
        for k in range(i, f.shape[0], n):
            a[PI, k] = math.exp(f[k] - top)
            norm += a[PI, k]
        for c in range(n_classes):
            k = c * n + i
            rest = norm - a[PI, k]
            if a[PI, k] > 0.5 * norm:  # 1 - π by its own sum, not as a difference
                rest = 0.0
                for j in range(i, f.shape[0], n):
                    rest += a[PI, j] if j != k else 0.0
            own = c == int(y[i])
            a[G, k] = rest / norm if own else -a[PI, k] / norm
            a[W, k] = a[PI, k] / norm * (rest / norm)
            if own:  # log π without its own rounding: steps that gain 1e-18 are compared
                total += -math.log1p(rest / a[PI, k]) if a[PI, k] > rest else f[k] - top - math.log(norm)
        for k in range(i, f.shape[0], n):
            a[PI, k] /= norm
    return total - 0.5 * dot(alpha, f)


@njit(cache=True, nogil=True, error_model="numpy")
def factor(K: Array, pi: Array, roots: Array, A: Array, M: Array, alike: bool) -> tuple[bool, float]:
    """Leave B_c⁻¹ in the lower triangles of A, M in its own, √π in roots; returns success and ½ Σ log|B_c| + log|M|.

    `alike` says that all classes have the same π and K: one B serves them all.
    """
    n_classes, n = A.shape[0], A.shape[1]
    half = 0.0
    for k in range(pi.shape[0]):
        roots[k] = max(math.sqrt(pi[k]), _LEAST_ROOT)
    fill(M.reshape(-1), 0.0)
    for c in range(n_classes):
        B, root = A[c], roots[c * n : (c + 1) * n]
        if alike and c > 0:
            copy(A[0].reshape(-1), B.reshape(-1))
        else:
            prior = K[c % K.shape[0]]
            for i in range(n):
                for j in range(i + 1):
                    B[i, j] = root[i] * prior[i, j] * root[j]
                B[i, i] += 1.0
            if not cholesky_inplace(B):
                return False, 0.0
            term = 0.5 * log_determinant(B)
            half += term * n_classes if alike else term
            inverse_from_cholesky_inplace(B)
        for i in range(n):
            for j in range(i + 1):
                M[i, j] += root[i] * B[i, j] * root[j]
    if not cholesky_inplace(M):
        return False, 0.0
    half += 0.5 * log_determinant(M)
    return math.isfinite(half), half


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(K: Array, A: Array, M: Array, root: Array, r: Array, dalpha: Array, df: Array) -> None:
    """δα = (I + W K)⁻¹ r and δf = K δα, with the factors at hand."""
    n = M.shape[0]
    total, x, Ax = np.zeros(n), np.empty(n), np.empty(n)
    for c in range(A.shape[0]):
        first = c * n
        for i in range(n):
            x[i] = r[first + i] / root[first + i]
        symmetric_times(A[c], x, Ax)
        for i in range(n):
            dalpha[first + i] = root[first + i] * Ax[i]
            total[i] += r[first + i] - dalpha[first + i]
    cholesky_solve_inplace(M, total)
    for c in range(A.shape[0]):
        first = c * n
        for i in range(n):
            x[i] = root[first + i] * total[i]
        symmetric_times(A[c], x, Ax)
        for i in range(n):
            dalpha[first + i] += root[first + i] * Ax[i]
        symmetric_times(K[c % K.shape[0]], dalpha[first : first + n], df[first : first + n])


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def _tolerance(tol: float, scale: float, a: Array) -> float:
    """The decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √(2 tr W), since W <= 2 diag W."""
    return max(tol, EPS * scale * size(a[ALPHA]) * math.sqrt(2.0 * size(a[W])))


@njit(cache=True, nogil=True, error_model="numpy")
def _gradient(a: Array) -> float:
    """Leave r = g - α in a; returns √Σ r²/π, never below Newton's decrement."""
    total = 0.0
    for k in range(a.shape[1]):
        a[R, k] = a[G, k] - a[ALPHA, k]
        total += a[R, k] * a[R, k] / a[PI, k]  # inf or NaN where π underflows: then the decrement itself decides
    return math.sqrt(total)


@njit(cache=True, nogil=True, error_model="numpy")
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
            a[R, k] = a[PI, k] * (a[F, k] - mean) + a[G, k]
    _solve(K, A, M, a[ROOT_W], a[R], a[ALPHA], a[F])
    psi = _psi(y, a[ALPHA], a[F], a)
    if psi >= -n * math.log(a.shape[1] / n):  # Ψ(0)
        return psi
    fill(a[ALPHA], 0.0)
    fill(a[F], 0.0)
    return _psi(y, a[ALPHA], a[F], a)


@njit(cache=True, nogil=True, error_model="numpy")
def _steps(
    K: Array, y: Array, A: Array, M: Array, a: Array, psi: float, scale: float, tol: float, fresh: bool
) -> tuple[int, float, float]:
    """Steps with the factors at hand, `fresh` ones of this very f, until converged or new factors would pay.

    Returns
    -------
    status : int
        CONVERGED if the first step was not even needed; NOT_CONVERGED where fresh factors led nowhere; else -1.
    decrement, psi : float
    """
    plain, last = True, np.inf
    while True:
        target = _tolerance(tol, scale, a)
        decrement = _gradient(a)
        if decrement <= target:
            return CONVERGED if fresh else -1, decrement, psi
        _solve(K, A, M, a[ROOT_W], a[R], a[D_ALPHA], a[D_F])
        square = dot(a[R], a[D_F])
        decrement = math.sqrt(square) if square >= 0.0 else np.inf  # only rounding makes it negative
        if target > ROUNDED_AWAY:
            return NOT_CONVERGED, target, psi
        if decrement <= target and fresh:
            return CONVERGED, decrement, psi
        accelerate(a, plain)
        step, psi = _ascend(y, a, psi, scale, HALVINGS if fresh else 0)
        if step == 0.0:
            return NOT_CONVERGED if fresh else -1, decrement, psi
        if decrement <= target:
            return -1, decrement, psi
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(target / decrement) < _PATIENCE * math.log(rate):
                return -1, decrement, psi
        plain, fresh, last = step < 1.0, False, decrement


@njit(cache=True, nogil=True, error_model="numpy")
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
    if warm:
        copy(start, a[F])
    psi, decrement = _psi(y, a[ALPHA], a[F], a), np.inf
    for n_factor in range(1, max_iter + 1):
        first = n_factor == 1
        positive, half_log_det = factor(K, a[PI], a[ROOT_W], A, M, first and not warm and K.shape[0] == 1)
        if not positive:
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi
        if warm and first:
            psi = _warm_step(K, y, A, M, a)
        status, decrement, psi = _steps(K, y, A, M, a, psi, scale, tol, not (warm and first))
        if status >= 0:
            return status, n_factor, decrement, psi - half_log_det
    return NOT_CONVERGED, max_iter, decrement, psi


@njit(cache=True, nogil=True, error_model="numpy")
def _couple(A: Array, M: Array, M_inverse: Array, root: Array, V: Array, spread: Array) -> None:
    """Leave M⁻¹E of one class in V, and in spread π_c times what V gives to the variances of f_c - Σ_a π_a f_a.

    M holds M' above its diagonal.  With Q_c = M⁻¹√π_c B_c⁻¹: V_c K_c √π_c = M⁻¹√π_c - Q_c, whose sum over classes,
    weighted by √π, is M⁻¹ - M'.  What is left of class c without it is M'√π_c - Q_c.
    """
    n = A.shape[0]
    mirror_lower(A)
    for i in range(n):
        for j in range(n):
            V[i, j] = root[i] * A[i, j]
        spread[i] = 0.0
    triangular_times_inplace(M_inverse, V)
    for k in range(n):
        for i in range(k):
            spread[i] += V[k, i] * V[k, i]
            V[k, i] *= root[i]
        for i in range(k, n):
            x = M[k, i] * root[i] - V[k, i]  # M'√π_c - Q_c
            spread[i] += x * x
            V[k, i] *= root[i]


@njit(cache=True, nogil=True, error_model="numpy")
def gradient(K: Array, A: Array, M: Array, a: Array) -> Array:
    """G = ∂ log Z/∂K at the mode, one matrix per matrix in K.  Overwrites A above its diagonals."""
    n_classes, n = A.shape[0], A.shape[1]
    root, pi, spread, s, u = a[ROOT_W], a[PI], a[R], a[TRY_F], a[D_F]
    dK, M_inverse, V = np.zeros_like(K), np.empty_like(M), np.empty_like(M)
    for i in range(n):
        for j in range(i + 1):
            M_inverse[i, j] = M[i, j]
    triangular_inverse_inplace(M_inverse)
    mirror_lower(M)
    for c in range(n_classes):
        part = slice(c * n, (c + 1) * n)
        _couple(A[c], M, M_inverse, root[part], V, spread[part])
        add_gram(0.5, V, dK[c % K.shape[0]])
    for i in range(n):
        # S_i is the covariance of the deviations above, and of independent parts of variance (1 - B_c⁻¹)_ii/π_c
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
    _solve(K, A, M, root, s, u, a[TRY_ALPHA])
    for c in range(n_classes):
        G_c, B = dK[c % K.shape[0]], A[c]
        g, v, d = a[G, c * n : (c + 1) * n], u[c * n : (c + 1) * n], root[c * n : (c + 1) * n]
        for i in range(n):
            v[i] += 0.5 * g[i]  # gg' + ug' + gu' = (u + ½g)g' + g(u + ½g)'
        for i in range(n):
            for j in range(i + 1):
                G_c[i, j] += 0.5 * (v[i] * g[j] + g[i] * v[j] - d[i] * B[i, j] * d[j])
    for k in range(K.shape[0]):
        mirror_lower(dK[k])
    return dK


@njit(cache=True, nogil=True, error_model="numpy")
def solve(
    K: Array, y: Array, n_classes: int, start: Array, warm: bool, tol: float, max_iter: int, with_gradient: bool
) -> tuple[int, int, float, float, Array, Array, Array, Array]:
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
    status, n_factor, residual, log_z = find_mode(K, y, start, warm, A, M, a, tol, max_iter)
    dK = gradient(K, A, M, a) if with_gradient and status == CONVERGED else np.empty((0, 0, 0))
    return status, n_factor, residual, log_z, a, A, M, dK
