"""Compiled prior and posterior covariances of contrasts between the latent values of several classes.

Row i of class y has a site for every other class j, at the contrast h_ij = u_i + f_yi - f_ji with u_i ~ N(0, 1).  Sites
are numbered i (C - 1) + p, where p counts the other classes upwards.  Under the prior, with every K_c at rows i, k,

    cov(h_ij, h_kl) = [i = k] + [y_i = y_k] K_{y_i} + [j = l] K_j - [y_i = l] K_{y_i} - [j = y_k] K_j.

Under q, with the precisions w of the sites, let a_ij = w_ij for j ≠ y_i and a_{i,y_i} = 1, b = a/Σ_c a.  As a function
of f_i alone the sites of row i have the precision diag a - aa'/Σa, that of a softmax with a in the place of π, so that
the C + 1 factors, n x n, of `hmcgp.evidence.laplace.softmax` serve, with E_c and M as there.  Given f, h_ij is
Σ_c b_ic f_c - f_j but for a constant and for noise of variance 1/Σa; with

    F_c = K_c - K_c E_c K_c = (1 - B_c⁻¹)/(√a_c √a_c'),   t_ij = column i of M⁻¹√a_j B_j⁻¹/√a_j - M'/Σa,

    cov(h_ij, h_kl) = [i = k]/Σa + t_ij't_kl + Σ_c (b_ic - [c = j])(b_kc - [c = l]) F_c(i, k).

That is 3n³/2 for each class, and ½(C - 1)²n³ for the products of the t, where an inverse of order (C - 1)n would cost
(C - 1)³n³.  The determinant is |I + cov(h, h) diag w| = |M|² Π_c |B_c|, with the prior covariance.
"""

import math

import numpy as np

from hmcgp.evidence.laplace.softmax_algebra import factor
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.lapack import add_gram, mirror_lower, triangular_solve_inplace
from hmcgp.runtime.typing import Array

_MIN_PRECISION = 1e-12  # of a, or a K_c: a smaller one has no effect, and 1/√a would magnify rounding


@compiled_inside
def other_class(p: int, own: int) -> int:
    """Class of site p of a row of class `own`."""
    return p if p < own else p + 1


@compiled_inside
def _site_of_class(c: int, own: int) -> int:
    """Site of class c != own, in a row of class `own`."""
    return c if c < own else c - 1


@compiled_inside
def _prior_covariance(noise: float, own: int, j: int, own2: int, m: int, K_own: float, K_j: float) -> float:
    """cov(h_ij, h_kl) of rows of the classes own, own2 against the classes j, m; K_own and K_j at these rows."""
    value = noise
    if own == own2:
        value += K_own
    elif own == m:
        value -= K_own
    if j == m:
        value += K_j
    elif j == own2:
        value -= K_j
    return value


@compiled
def prior_of_contrasts(K: Array, y: Array, n_classes: int) -> Array:
    """Prior covariance of h, of shape (n (C - 1), n (C - 1)), in the lower triangle over zeros.

    K, of shape (k, n, n), holds lower triangles, one for all classes or one for each.
    """
    n, others, k = y.shape[0], n_classes - 1, K.shape[0]
    out = np.zeros((n * others, n * others))
    for i in range(n):
        own = int(y[i])
        for p in range(others):
            j = other_class(p, own)
            row = out[i * others + p]
            for i2 in range(i + 1):
                own2, noise = int(y[i2]), 1.0 if i2 == i else 0.0
                K_own, K_j = K[own % k, i, i2], K[j % k, i, i2]
                for q in range(others if i2 < i else p + 1):
                    row[i2 * others + q] = _prior_covariance(noise, own, j, own2, other_class(q, own2), K_own, K_j)
    return out


@compiled
def precisions_by_class(K: Array, y: Array, w: Array) -> Array:
    """Site precisions a, class after class, of shape (C n,)."""
    n, k = y.shape[0], K.shape[0]
    others = w.shape[0] // n
    a = np.empty((others + 1) * n)
    for i in range(n):
        own = int(y[i])
        for c in range(others + 1):
            if c == own:
                a[c * n + i] = 1.0
            else:
                site = w[i * others + _site_of_class(c, own)]
                a[c * n + i] = max(site, _MIN_PRECISION / max(K[c % k, i, i], 1.0))
    return a


@compiled_inside
def _class_variances(K: Array, B_inverse: Array, a: Array, root: Array, F: Array) -> None:
    """Fill F, of shape (n,), with the diagonal of F_c; B_inverse has both triangles, K the lower one."""
    n = F.shape[0]
    for i in range(n):
        if a[i] * K[i, i] >= 1.0:
            F[i] = (1.0 - B_inverse[i, i]) / a[i]
            continue
        total = 0.0  # 1 - B⁻¹ would cancel: √a B⁻¹ √a⁻¹ K instead
        for j in range(n):
            total += B_inverse[i, j] * root[j] * (K[i, j] if j <= i else K[j, i])
        F[i] = total / root[i]


@compiled_inside
def _coupling_vectors(A: Array, M: Array, root: Array, total: Array, y: Array) -> Array:
    """Vectors t, as columns, of shape (n, n (C - 1)).  A has both triangles of B_c⁻¹, root is of shape (C, n)."""
    n_classes, n = A.shape[0], A.shape[1]
    others = n_classes - 1
    Q, T = np.empty((n, n)), np.empty((n, n * others))
    for c in range(n_classes):
        for i in range(n):
            for j in range(n):
                Q[i, j] = root[c, i] * A[c, i, j]
        triangular_solve_inplace(M, Q, False)
        for k in range(n):
            for i in range(n):
                own = int(y[i])
                if c != own:
                    prior = M[i, k] / total[i] if i >= k else 0.0
                    T[k, i * others + _site_of_class(c, own)] = Q[k, i] / root[c, i] - prior
    return T


@compiled_inside
def _add_class_covariances(A: Array, a: Array, root: Array, total: Array, F: Array, y: Array, S: Array) -> None:
    """Add [i = k]/Σa + Σ_c (b_ic - [c = j])(b_kc - [c = l]) F_c(i, k) to the lower triangle of S; F has diagonals."""
    n_classes, n = a.shape
    others = n_classes - 1
    F_ik = np.empty(n_classes)
    for i in range(n):
        for i2 in range(i + 1):
            base = 1.0 / total[i] if i2 == i else 0.0
            for c in range(n_classes):
                F_ik[c] = F[c, i] if i2 == i else -A[c, i, i2] / (root[c, i] * root[c, i2])
                base += a[c, i] * a[c, i2] / (total[i] * total[i2]) * F_ik[c]
            for p in range(others):
                j = other_class(p, int(y[i]))
                first = base - a[j, i2] / total[i2] * F_ik[j]
                row = S[i * others + p]
                for q in range(others if i2 < i else p + 1):
                    m = other_class(q, int(y[i2]))
                    value = first - a[m, i] / total[i] * F_ik[m]
                    if j == m:
                        value += F_ik[j]
                    row[i2 * others + q] += value


@compiled_inside
def posterior_of_contrasts(K: Array, y: Array, w: Array, work: Array, S: Array) -> tuple[bool, float]:
    """Fill S with the covariance of h under q, both triangles; returns success and log|I + cov(h, h) diag w|.

    No w may be negative.  `work`, of shape ((C + 1) n, n), is overwritten by B_c⁻¹, both triangles, class after class,
    and M, the lower triangle.
    """
    n, k = y.shape[0], K.shape[0]
    n_classes = w.shape[0] // n + 1
    A, M = work[: n_classes * n].reshape((n_classes, n, n)), work[n_classes * n :]
    flat = precisions_by_class(K, y, w)
    root = np.empty((n_classes, n))
    positive, half = factor(K, flat, root.reshape(-1), A, M, False)
    if not positive:
        return False, np.inf
    a, F, total = flat.reshape((n_classes, n)), np.empty((n_classes, n)), np.zeros(n)
    for c in range(n_classes):
        mirror_lower(A[c])
        _class_variances(K[c % k], A[c], a[c], root[c], F[c])
        for i in range(n):
            total[i] += a[c, i]
    add_gram(1.0, _coupling_vectors(A, M, root, total, y), S, 0.0)
    _add_class_covariances(A, a, root, total, F, y, S)
    mirror_lower(S)
    return math.isfinite(half), 2.0 * half
