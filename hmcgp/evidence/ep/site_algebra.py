"""Compiled linear algebra of q(f) = N(Kx, S), S = (K⁻¹ + diag w)⁻¹, for site precisions w of either sign.

With ρ = √|w|, σ = sign(w) and positive sites put first,

    A = diag σ + ρKρ = M Σ M',   R = (K + diag(w)⁻¹)⁻¹ = ρA⁻¹ρ,   log|I + KW| = Σ log M_ii²,
    S_ij = (σ_i δ_ij - σ_i σ_j A⁻¹_ij)/(ρ_i ρ_j)

(`lapack.signed_cholesky_inplace`).  M exists where K⁻¹ + diag w is positive definite, and A is the B of Laplace's
approximation where no site is negative.  R is the precision of the pseudo-targets that sites stand for, 1/w their noise
variance.  Where |w_i| K_ii is small, 1 - σ_i A⁻¹_ii cancels, and the variance comes from S = σρ⁻¹A⁻¹ρK instead,
n² operations for all of them; where it vanishes, all of column i comes from S = K - K R K.
"""

import math

import numpy as np

from hmcgp.evidence.newton import scale_row
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.runtime.typing import Array

_TINY = 1e-10  # |w_i| K_ii below which (1 - A⁻¹_ii)/w_i has lost too many digits to be a variance


@compiled_inside
def _order_by_sign(w: Array, order: Array) -> int:
    """Fill `order` with the sites, those of negative precision last; returns the number of the others."""
    n_positive = 0
    for i in range(w.shape[0]):
        if not w[i] < 0.0:
            order[n_positive] = i
            n_positive += 1
    last = n_positive
    for i in range(w.shape[0]):
        if w[i] < 0.0:
            order[last] = i
            last += 1
    return n_positive


@compiled_inside
def _signed_factor(K: Array, w: Array, order: Array, n_positive: int, A: Array) -> bool:
    """Fill the lower triangle of A with the signed factor M of diag σ + ρKρ; False where q is improper."""
    n = w.shape[0]
    root = np.empty(n)
    for i in range(n):
        root[i] = math.sqrt(abs(w[i]))
    for i in range(n):
        a, out = order[i], A[i]
        if n_positive == n:
            scale_row(root[i], K[i, : i + 1], root, out)
            out[i] += 1.0
        else:
            for j in range(i + 1):
                b = order[j]
                out[j] = root[a] * (K[a, b] if a >= b else K[b, a]) * root[b]
            out[i] += 1.0 if i < n_positive else -1.0
    return lapack.signed_cholesky_inplace(A, n_positive)


@compiled_inside
def _pseudo_target_precision_times(A: Array, w: Array, order: Array, x: Array, out: Array) -> None:
    """Fill out = R x, from A⁻¹ in the lower triangle of A."""
    n = w.shape[0]
    t, u = np.empty(n), np.empty(n)
    for i in range(n):
        t[i] = math.sqrt(abs(w[order[i]])) * x[order[i]]
    lapack.symmetric_times(A, t, u)
    for i in range(n):
        out[order[i]] = math.sqrt(abs(w[order[i]])) * u[i]


@compiled_inside
def _fill_covariance(K: Array, w: Array, order: Array, n_positive: int, A: Array, S: Array) -> Array:
    """Fill S from A⁻¹, but for columns of sites that vanish; returns σ/ρ in the order of A, 0 where these are."""
    n = w.shape[0]
    root, inverse_root, product = np.empty(n), np.empty(n), np.zeros(n)  # ρ, σ/ρ and diag(A⁻¹ρK)
    for i in range(n):
        wi = w[order[i]]
        root[i] = math.sqrt(abs(wi))
        small = abs(wi) * K[order[i], order[i]] < _TINY
        inverse_root[i] = 0.0 if small else math.copysign(1.0 / root[i], wi)
    for i in range(n):
        a = order[i]
        for j in range(i):
            b = order[j]
            inverse, k = A[i, j], K[a, b] if a >= b else K[b, a]
            S[a, b] = S[b, a] = -inverse_root[i] * inverse_root[j] * inverse
            product[i] += inverse * root[j] * k
            product[j] += inverse * root[i] * k
    for i in range(n):
        a = order[i]
        if abs(w[a]) * K[a, a] < 1.0:
            S[a, a] = inverse_root[i] * (product[i] + A[i, i] * root[i] * K[a, a])
        else:
            S[a, a] = inverse_root[i] * inverse_root[i] * ((1.0 if i < n_positive else -1.0) - A[i, i])
    return inverse_root


@compiled_inside
def _fill_column(K: Array, A: Array, w: Array, order: Array, i: int, S: Array) -> None:
    """Fill row and column i of S = K - K R K."""
    n = w.shape[0]
    k, t, u = np.empty(n), np.empty(n), np.empty(n)
    for j in range(n):
        k[j] = K[i, j] if j <= i else K[j, i]
    _pseudo_target_precision_times(A, w, order, k, t)
    lapack.symmetric_times(K, t, u)
    for j in range(n):
        S[i, j] = S[j, i] = k[j] - u[j]


@compiled
def factor(K: Array, w: Array, order: Array, A: Array) -> tuple[bool, int, float]:
    """Leave M in the lower triangle of A; returns success, the number of sites not negative, and log|I + K diag w|.

    It fails where K⁻¹ + diag w is not positive definite.
    """
    n_positive = _order_by_sign(w, order)
    if not _signed_factor(K, w, order, n_positive, A):
        return False, n_positive, np.inf
    log_det = lapack.log_determinant(A)
    return math.isfinite(log_det), n_positive, log_det


@compiled
def respond(K: Array, w: Array, order: Array, n_positive: int, A: Array, r: Array) -> tuple[Array, Array]:
    """(I + WK)⁻¹r = r - R K r and S r = K(I + WK)⁻¹r, by the factor M in A."""
    n = w.shape[0]
    x, t = np.empty(n), np.empty(n)
    lapack.symmetric_times(K, r, t)
    for i in range(n):
        x[i] = math.sqrt(abs(w[order[i]])) * t[order[i]]
    lapack.signed_cholesky_solve_inplace(A, n_positive, x)
    alpha = r.copy()
    for i in range(n):
        alpha[order[i]] -= math.sqrt(abs(w[order[i]])) * x[i]
    lapack.symmetric_times(K, alpha, t)
    return alpha, t


@compiled
def covariance_from_factor(K: Array, w: Array, order: Array, n_positive: int, A: Array, S: Array) -> None:
    """Fill S, both triangles, from the factor M in A, and leave A⁻¹ in its place."""
    lapack.inverse_from_signed_cholesky_inplace(A, n_positive)
    inverse_root = _fill_covariance(K, w, order, n_positive, A, S)
    for i in range(w.shape[0]):
        if inverse_root[i] == 0.0:
            _fill_column(K, A, w, order, order[i], S)


@compiled
def posterior_covariance(K: Array, w: Array, order: Array, A: Array, S: Array) -> tuple[bool, float]:
    """Fill S, both triangles, and leave A⁻¹ in the lower triangle of A; returns success and log|I + K diag w|.

    It fails where K⁻¹ + diag w is not positive definite.
    """
    proper, n_positive, log_det = factor(K, w, order, A)
    if proper:
        covariance_from_factor(K, w, order, n_positive, A, S)
    return proper, log_det


@compiled_inside
def pseudo_target_precision(w: Array, order: Array, A: Array, R: Array) -> None:
    """Fill R = ρA⁻¹ρ, both triangles, from A⁻¹ in the lower triangle of A."""
    root = np.empty(w.shape[0])
    for i in range(w.shape[0]):
        root[i] = math.sqrt(abs(w[i]))
    for i in range(w.shape[0]):
        a = order[i]
        for j in range(i + 1):
            b = order[j]
            R[a, b] = R[b, a] = root[a] * A[i, j] * root[b]


@compiled_inside
def gradient_inplace(x: Array, R: Array) -> None:
    """Overwrite R by G = ½(xx' - R)."""
    for i in range(x.shape[0]):
        a, out = x[i], R[i]
        for j in range(x.shape[0]):
            out[j] = 0.5 * (a * x[j] - out[j])
