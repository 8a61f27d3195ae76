"""Compiled loops of the squared-exponential kernel: forward and pullback.

Inputs come divided by their length scales and transposed, Z of shape (d, n), so that the innermost loops run over
contiguous memory.  Differences are squared directly: the expansion |z|² + |z'|² - 2z'z would cancel for close points.

Functions of square matrices keep the interpreter lock: they are short beside an evidence, and every release is a chance
to wait for another chain.  (With releases, two chains at n = 80 in two threads took as long as one after another.)
"""

from __future__ import annotations

import numpy as np

from hmcgp.numerics.compiled import compiled, compiled_inside, compiled_with_lock
from hmcgp.numerics.exponential import exp_nonpositive
from hmcgp.numerics.lapack import mirror_lower
from hmcgp.numerics.sums import total
from hmcgp.runtime.typing import Array


@compiled_with_lock
def scaled_transpose(X: Array, length_scale: Array) -> Array:
    """Inputs divided by their length scales, transposed to (d, n)."""
    n, d = X.shape
    Z = np.empty((d, n))
    for k in range(d):
        inverse = 1.0 / length_scale[k if length_scale.shape[0] > 1 else 0]
        for i in range(n):
            Z[k, i] = X[i, k] * inverse
    return Z


@compiled_inside
def _row(Z: Array, i: int, Z2: Array, m: int, variance: float, work: Array, out: Array) -> None:
    """Row variance * exp(-½|z_i - z_j|²) of column i of Z and the first m columns of Z2."""
    for j in range(m):
        work[j] = 0.0
    for k in range(Z.shape[0]):
        a = Z[k, i]
        b = Z2[k]
        for j in range(m):
            work[j] -= 0.5 * (a - b[j]) * (a - b[j])
    exp_nonpositive(work[:m], out[:m], variance)


@compiled_with_lock
def covariance(Z: Array, variance: float) -> Array:
    """Covariance between the n columns of Z, of shape (n, n)."""
    K = lower_covariance(Z, variance)
    mirror_lower(K)
    return K


@compiled_inside
def lower_covariance(Z: Array, variance: float) -> Array:
    """Lower triangle of the covariance between the n columns of Z; nothing is written above it."""
    n = Z.shape[1]
    K, work = np.empty((n, n)), np.empty(n)
    for i in range(n):
        _row(Z, i, Z, i, variance, work, K[i])
        K[i, i] = variance
    return K


@compiled_with_lock
def pull_back(G: Array, K: Array, Z: Array) -> tuple[float, Array]:
    """Σ_ij G_ij K_ij, and Σ_ij G_ij K_ij (z_ik - z_jk)² for each input k.

    Both matrices are symmetric and only their lower triangles are read.  Sums run down the columns j first, which the
    compiler can vectorise as they stand; two rows at a time, to load and store them half as often.
    """
    d, n = Z.shape
    squares, columns = np.empty(d), np.zeros((d + 1, n))  # sums over i > j for each k, and without (z_ik - z_jk)²
    pair, plain, trace = np.zeros((2, n)), columns[d], 0.0
    for i in range(0, n, 2):
        m = min(i + 2, n)
        for r in range(2):
            s = pair[r]
            for j in range(min(i + r, n)):
                s[j] = G[i + r, j] * K[i + r, j] if i + r < n else 0.0
            if i + r < n:
                trace += G[i + r, i + r] * K[i + r, i + r]
        s, t = pair[0], pair[1]  # s[i] is 0 still
        for j in range(m - 1):
            plain[j] += s[j] + t[j]
        for k in range(d):
            b, column = Z[k], columns[k]
            a, c = b[i], b[m - 1]
            for j in range(m - 1):
                column[j] += s[j] * (a - b[j]) * (a - b[j]) + t[j] * (c - b[j]) * (c - b[j])
    for k in range(d):
        squares[k] = 2.0 * total(columns[k])
    return trace + 2.0 * total(plain), squares


@compiled
def cross_covariance(Z: Array, Z2: Array, variance: float) -> Array:
    """Covariance between the n columns of Z and the m columns of Z2, of shape (n, m), without the interpreter lock."""
    n, m = Z.shape[1], Z2.shape[1]
    K, work = np.empty((n, m)), np.empty(m)
    for i in range(n):
        _row(Z, i, Z2, m, variance, work, K[i])
    return K


@compiled
def cross_covariances(X: Array, X2: Array, variance: Array, length_scale: Array) -> Array:
    """Covariances between m rows of X and n of X2 for each variance and the length scales of it, of shape (S, m, n)."""
    K, work = np.empty((variance.shape[0], X.shape[0], X2.shape[0])), np.empty(X2.shape[0])
    for s in range(variance.shape[0]):
        Z, Z2 = scaled_transpose(X, length_scale[s]), scaled_transpose(X2, length_scale[s])
        for i in range(X.shape[0]):
            _row(Z, i, Z2, X2.shape[0], variance[s], work, K[s, i])
    return K


@compiled
def pull_back_cross(G: Array, W: Array, Z: Array, Z2: Array) -> tuple[float, Array]:
    """Σ_ij G_ij W_ij, and Σ_ij G_ij W_ij (z_ik - z2_jk)² for each input k, for G and W of shape (n, m)."""
    d, n, m = Z.shape[0], Z.shape[1], Z2.shape[1]
    columns, s, squares = np.zeros((d + 1, m)), np.empty(m), np.empty(d)  # sums over i, as in `pull_back`
    plain = columns[d]
    for i in range(n):
        for j in range(m):
            s[j] = G[i, j] * W[i, j]
            plain[j] += s[j]
        for k in range(d):
            a, b, column = Z[k, i], Z2[k], columns[k]
            for j in range(m):
                column[j] += s[j] * (a - b[j]) * (a - b[j])
    for k in range(d):
        squares[k] = total(columns[k])
    return total(plain), squares


@compiled_with_lock
def pull_back_inputs(G: Array, W: Array, Z: Array) -> Array:
    """Σ_j G_ij W_ij (z_ik - z_jk), of shape (d, n); of the symmetric matrices only the lower triangles are read."""
    d, n = Z.shape
    out, s, part = np.zeros((d, n)), np.empty(n), np.empty(n)
    for i in range(n):
        for j in range(i):
            s[j] = G[i, j] * W[i, j]
        for k in range(d):
            a, b, row = Z[k, i], Z[k], out[k]
            for j in range(i):
                part[j] = s[j] * (a - b[j])
                row[j] -= part[j]
            row[i] += total(part[:i])
    return out
