"""Compiled covariances of the differences between latent values of several classes, before and after the data.

Row i of class y has a site for every other class j, at h_ij = u_i + f_yi - f_ji with u_i ~ N(0, 1): sites are numbered
i (C - 1) + p, p counting the other classes upwards.  Beforehand, everything at rows i, k,

    cov(h_ij, h_kl) = [i = k] + [y_i = y_k] K_{y_i} + [j = l] K_j - [y_i = l] K_{y_i} - [j = y_k] K_j.

Under q, with the precisions w of the sites: let a_ij = w_ij for j ≠ y_i and a_{i,y_i} = 1, b = a/Σ_c a.  As a function
of f_i alone the sites of row i have the precision diag a - aa'/Σa, which is that of a softmax with a in the place of
π, so that the factors of `evidence.laplace.softmax` do, n x n and C + 1 of them, and E_c, M as there.  Given f, h_ij is
Σ_c b_ic f_c - f_j but for a constant and for noise of variance 1/Σa; with

    F_c = K_c - K_c E_c K_c = (1 - B_c⁻¹)/(√a_c √a_c'),   t_ij = column i of M⁻¹√a_j B_j⁻¹/√a_j - M'/Σa,

    cov(h_ij, h_kl) = [i = k]/Σa + t_ij't_kl + Σ_c (b_ic - [c = j])(b_kc - [c = l]) F_c(i, k).

That is 3n³/2 for each class, and ½(C - 1)²n³ for the products of the t, where an inverse of order (C - 1)n would cost
(C - 1)³n³.  Also |I + cov(h, h) diag w| = |M|² Π_c |B_c|, with the prior covariance.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.laplace.softmax_algebra import factor
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import gram_inplace, mirror_lower, triangular_solve_inplace
from hmcgp.runtime.typing import Array

_LEAST = 1e-12  # least a, or a K_c: where it is smaller the site has no say, and 1/√a would magnify rounding


@compiled
def prior_of_differences(K: Array, y: Array, n_classes: int) -> Array:
    """Prior covariance of h, of shape (n (C - 1), n (C - 1)), in the lower triangle over zeros.

    Parameters
    ----------
    K : ndarray of shape (k, n, n)
        Of all classes, or of each; only lower triangles are read.
    y : ndarray of shape (n,)
    n_classes : int
    """
    n, others, k = y.shape[0], n_classes - 1, K.shape[0]
    out = np.zeros((n * others, n * others))
    for i in range(n):
        a = int(y[i])
        for p in range(others):
            j = p if p < a else p + 1
            target = out[i * others + p]
            for i2 in range(i + 1):
                b = int(y[i2])
                K_a, K_j = K[a % k, i, i2], K[j % k, i, i2]
                for q in range(others if i2 < i else p + 1):
                    m = q if q < b else q + 1
                    value = 1.0 if i2 == i else 0.0
                    if a == b:
                        value += K_a
                    elif a == m:
                        value -= K_a
                    if j == m:
                        value += K_j
                    elif j == b:
                        value -= K_j
                    target[i2 * others + q] = value
    return out


@compiled
def precisions_by_class(K: Array, y: Array, w: Array) -> Array:
    """The a above, flat, class after class, of shape (C n,)."""
    n, k = y.shape[0], K.shape[0]
    others = w.shape[0] // n
    a = np.empty((others + 1) * n)
    for i in range(n):
        own = int(y[i])
        for c in range(others + 1):
            if c == own:
                a[c * n + i] = 1.0
            else:
                site = w[i * others + (c if c < own else c - 1)]
                a[c * n + i] = max(site, _LEAST / max(K[c % k, i, i], 1.0))
    return a


@compiled
def _spreads(K: Array, B_inverse: Array, a: Array, root: Array, F: Array) -> None:
    """Fill F, (n,), with the diagonal of F_c; B_inverse is whole, and of K the lower triangle."""
    n = F.shape[0]
    for i in range(n):
        if a[i] * K[i, i] >= 1.0:
            F[i] = (1.0 - B_inverse[i, i]) / a[i]
            continue
        total = 0.0  # 1 - B⁻¹ would cancel: √a B⁻¹ √a⁻¹ K instead
        for j in range(n):
            total += B_inverse[i, j] * root[j] * (K[i, j] if j <= i else K[j, i])
        F[i] = total / root[i]


@compiled
def _coupled(A: Array, M: Array, root: Array, total: Array, y: Array) -> Array:
    """The vectors t, as columns: of shape (n, n (C - 1)).  A holds all of B_c⁻¹, root is of shape (C, n)."""
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
                    T[k, i * others + (c if c < own else c - 1)] = Q[k, i] / root[c, i] - prior
    return T


@compiled
def posterior_of_differences(K: Array, y: Array, w: Array, work: Array, S: Array) -> tuple[bool, float]:
    """Fill S with the covariance of h under q, both triangles; returns success and log|I + cov(h, h) diag w|.

    Parameters
    ----------
    K : ndarray of shape (k, n, n)
    y : ndarray of shape (n,)
    w : ndarray of shape (n (C - 1),)
        Not negative.
    work : ndarray of shape ((C + 1) n, n)
        B_c⁻¹, whole, class after class, and M, its lower triangle, are left there.
    """
    n, k = y.shape[0], K.shape[0]
    others = w.shape[0] // n
    n_classes = others + 1
    A, M = work[: n_classes * n].reshape((n_classes, n, n)), work[n_classes * n :]
    flat = precisions_by_class(K, y, w)
    root = np.empty((n_classes, n))
    positive, half = factor(K, flat, root.reshape(-1), A, M, False)
    if not positive:
        return False, np.inf
    a, F, total = flat.reshape((n_classes, n)), np.empty((n_classes, n)), np.zeros(n)
    for c in range(n_classes):
        mirror_lower(A[c])
        _spreads(K[c % k], A[c], a[c], root[c], F[c])
        for i in range(n):
            total[i] += a[c, i]
    gram_inplace(_coupled(A, M, root, total, y), S)
    F_ik = np.empty(n_classes)
    for i in range(n):
        for i2 in range(i + 1):
            base = 1.0 / total[i] if i2 == i else 0.0
            for c in range(n_classes):
                F_ik[c] = F[c, i] if i2 == i else -A[c, i, i2] / (root[c, i] * root[c, i2])
                base += a[c, i] * a[c, i2] / (total[i] * total[i2]) * F_ik[c]
            for p in range(others):
                j = p if p < int(y[i]) else p + 1
                first = base - a[j, i2] / total[i2] * F_ik[j]
                s = i * others + p
                for q in range(others if i2 < i else p + 1):
                    m = q if q < int(y[i2]) else q + 1
                    value = first - a[m, i] / total[i] * F_ik[m]
                    if j == m:
                        value += F_ik[j]
                    S[s, i2 * others + q] += value
    mirror_lower(S)
    return math.isfinite(half), 2.0 * half
