"""Compiled loops of the neural-network kernel.

    K_ij = scale * asin(N_ij / sqrt(D_i D_j)),   D_i = 1 + N_ii

asin is taken as atan2(N_ij, sqrt(D_i D_j - N_ij²)), which stays accurate where its argument comes close to 1.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.numerics.compiled import compiled_inside, compiled_with_lock
from hmcgp.numerics.lapack import mirror_lower
from hmcgp.runtime.typing import Array


@compiled_inside
def _complement(a: float, b: float, c: float) -> float:
    """(1 + a)(1 + b) - c² as 1 + a + b + (ab - c²): a sum of nonnegative terms, by Cauchy and Schwarz."""
    return 1.0 + a + b + max(a * b - c * c, 0.0)


@compiled_with_lock
def covariance(N: Array, scale: float) -> Array:
    """Covariance matrix from the symmetric N of shape (n, n), of which the lower triangle is read."""
    n = N.shape[0]
    K, own = np.empty((n, n)), np.diag(N).copy()  # a row of K then reads contiguous memory only
    for i in range(n):
        for j in range(i + 1):
            K[i, j] = scale * math.atan2(N[i, j], math.sqrt(_complement(own[i], own[j], N[i, j])))
    mirror_lower(K)
    return K


@compiled_with_lock
def cross_covariance(N: Array, own: Array, own2: Array, scale: float) -> Array:
    """Covariance between two sets of rows, with N of shape (n, m) and the N_ii of each set."""
    K = np.empty(N.shape)
    for i in range(N.shape[0]):
        for j in range(N.shape[1]):
            K[i, j] = scale * math.atan2(N[i, j], math.sqrt(_complement(own[i], own2[j], N[i, j])))
    return K


@compiled_with_lock
def pull_back(G: Array, N: Array, scale: float) -> Array:
    """Adjoint of N, of shape (n, n): with dK_ij = scale (dN_ij - ½ N_ij (dN_ii/D_i + dN_jj/D_j)) / sqrt(D_i D_j - N²).

    G and N are symmetric and only their lower triangles are read; the result is symmetric.
    """
    n = N.shape[0]
    S, own, down = np.empty((n, n)), np.diag(N).copy(), np.zeros(n)
    for i in range(n):
        for j in range(i):
            S[i, j] = scale * G[i, j] / math.sqrt(_complement(own[i], own[j], N[i, j]))
            weight = S[i, j] * N[i, j]
            down[i] += weight
            down[j] += weight
    for i in range(n):
        S[i, i] = scale * G[i, i] / math.sqrt(1.0 + 2.0 * own[i])
        S[i, i] -= (down[i] + S[i, i] * own[i]) / (1.0 + own[i])
    mirror_lower(S)
    return S
