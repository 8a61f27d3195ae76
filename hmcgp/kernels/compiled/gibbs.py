"""Compiled loops of Gibbs's kernel.

    K_ij = variance * Π_k (2 r_ik r_jk/q_k)^½ * exp(-Σ_k (x_ik - x_jk)²/q_k),   q_k = r_ik² + r_jk²
    ∂log K_ij/∂log r_ik = ½ - r_ik²/q_k + 2 r_ik² (x_ik - x_jk)²/q_k²

Inputs X and length scales R come transposed, of shape (d, n).
"""

from __future__ import annotations

import numpy as np

from hmcgp.numerics.compiled import compiled_inside, compiled_with_lock
from hmcgp.numerics.exponential import exp_nonpositive
from hmcgp.numerics.lapack import mirror_lower
from hmcgp.numerics.sums import total
from hmcgp.runtime.typing import Array


@compiled_inside
def _row(
    X: Array, R: Array, i: int, X2: Array, R2: Array, m: int, variance: float, work: Array, factor: Array, out: Array
) -> None:
    for j in range(m):
        work[j] = 0.0
        factor[j] = 1.0
    for k in range(X.shape[0]):
        a, r = X[k, i], R[k, i]
        for j in range(m):
            inverse = 1.0 / (r * r + R2[k, j] * R2[k, j])
            work[j] -= (a - X2[k, j]) * (a - X2[k, j]) * inverse
            factor[j] *= 2.0 * r * R2[k, j] * inverse
    exp_nonpositive(work[:m], out[:m], variance)
    for j in range(m):
        out[j] *= np.sqrt(factor[j])


@compiled_with_lock
def covariance(X: Array, R: Array, X2: Array, R2: Array, variance: float, symmetric: bool) -> Array:
    """Covariance between the n columns of X and the m columns of X2, of shape (n, m); `symmetric` if they are equal."""
    n, m = X.shape[1], X2.shape[1]
    K, work, factor = np.empty((n, m)), np.empty(m), np.empty(m)
    for i in range(n):
        _row(X, R, i, X2, R2, i if symmetric else m, variance, work, factor, K[i])
        if symmetric:
            K[i, i] = variance
    if symmetric:
        mirror_lower(K)
    return K


@compiled_with_lock
def pull_back(G: Array, K: Array, X: Array, R: Array) -> Array:
    """Σ_ij G_ij ∂K_ij/∂log r_ik, of shape (d, n); of the symmetric matrices only the lower triangles are read."""
    d, n = X.shape
    out, s, own, Q = np.zeros((d, n)), np.empty(n), np.empty(n), R * R
    for i in range(n):
        for j in range(i):
            s[j] = 2.0 * G[i, j] * K[i, j]
        for k in range(d):
            a, r, x, q, row = X[k, i], Q[k, i], X[k], Q[k], out[k]
            for j in range(i):
                inverse = 1.0 / (r + q[j])
                slope = 2.0 * (a - x[j]) * (a - x[j]) * inverse * inverse - inverse
                own[j] = s[j] * (0.5 + r * slope)
                row[j] += s[j] * (0.5 + q[j] * slope)
            row[i] += total(own[:i])
    return out
