"""Compiled bookkeeping of the differences between latent values of several classes.

Row i of class y has a site for every other class j, at h_ij = u_i + f_yi - f_ji with u_i ~ N(0, 1): sites are numbered
i (C - 1) + p, p counting the other classes upwards.  h = u + Bf, where B has a +1 and a -1 in each of its rows, so

    cov(h_ij, h_kl) = [i = k] + [y_i = y_k] K_{y_i} + [j = l] K_j - [y_i = l] K_{y_i} - [j = y_k] K_j     (all at i, k)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hmcgp._typing import Array
from hmcgp.linalg import mirror_lower


@njit(cache=True, nogil=True, error_model="numpy")
def covariance_of_differences(K: Array, y: Array, n_classes: int) -> Array:
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


@njit(cache=True, nogil=True, error_model="numpy")
def pull_back(G: Array, y: Array, out: Array) -> None:
    """Add to `out`, zeros of the shape of K above, what d log Z = Σ G dcov(h, h) gives for each K_c; G is symmetric."""
    n, k = y.shape[0], out.shape[0]
    others = G.shape[0] // n
    for i in range(n):
        a = int(y[i])
        for p in range(others):
            j = p if p < a else p + 1
            source = G[i * others + p]
            for i2 in range(i + 1):
                b = int(y[i2])
                to_a, to_j = 0.0, 0.0
                for q in range(others):
                    m = q if q < b else q + 1
                    value = source[i2 * others + q]
                    if a == b:
                        to_a += value
                    elif a == m:
                        to_a -= value
                    if j == m:
                        to_j += value
                    elif j == b:
                        to_j -= value
                out[a % k, i, i2] += to_a
                out[j % k, i, i2] += to_j
    for c in range(k):
        mirror_lower(out[c])
