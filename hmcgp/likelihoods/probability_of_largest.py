"""Probability of each of C Gaussian variables to be the largest, by quasi-Monte Carlo (Genz 1992, JCGS 1).

    p_c = P(g_c > g_j for all j ≠ c),   g ~ N(m, S) in C dimensions

The C - 1 differences d_j = g_j - g_c have means -b, b_j = m_c - m_j, and a covariance with Cholesky factor L.  One by
one they are confined to d_j < 0, given those before, the least likely first: with uniform u_1, …, u_{C-2},

    e_1 = Φ(b_1/L_11),   t_k = Φ⁻¹(u_k e_k),   e_{k+1} = Φ((b_{k+1} - Σ_{l<=k} L_{k+1,l} t_l)/L_{k+1,k+1}),

p_c is the average of Π e_k: smooth in u whatever the scale of S, and right in relative terms where it is tiny.  One
scrambled Sobol sequence of N_POINTS points with a fixed seed serves every row: results are reproducible, and a row's
does not depend on the rows beside it.  Two classes need no points.

Largest error in p, and in Σ p before rows are made to sum to 1, over 40 random (m, S), against 128 times as many points
of another scrambling, by the size of S:

               1               10              1000
    C = 3    6e-7  1e-6      2e-6  2e-6      2e-5  2e-5
    C = 6    3e-5  7e-5      2e-4  4e-4      5e-4  4e-4
    C = 10   1e-4  5e-4      5e-4  6e-4      2e-3  2e-3
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from hmcgp.runtime.typing import Array

N_POINTS = 2**10
_SEED = 19920101
_TINY = 1e-300  # Φ⁻¹(0) is infinite
_CHUNK = 2**18  # numbers per temporary array: they stay in the second-level cache


@cache
def uniform_points(n_dim: int, n_points: int = N_POINTS, seed: int = _SEED) -> Array:
    """Scrambled Sobol points, of shape (n_dim, n_points)."""
    return np.ascontiguousarray(qmc.Sobol(n_dim, rng=np.random.default_rng(seed)).random(n_points).T)


def probability_of_largest(mean: Array, covariance: Array, points: Array | None = None) -> Array:
    """Probability of each component to be the largest, for a mean of shape (m, C) and a covariance of (m, C, C).

    The points are in the unit cube, by default `uniform_points(C - 2)`.  Rows sum to 1 as nearly as the integrals are
    accurate.
    """
    m, n_classes = mean.shape
    points = uniform_points(max(n_classes - 2, 1)) if points is None else points
    out = np.empty((m, n_classes))
    size = max(_CHUNK // points.shape[1], 1)
    for c in range(n_classes):
        contrast = np.delete(np.eye(n_classes), c, axis=0)  # (C - 1, C): d = contrast g
        contrast[:, c] = -1.0
        for begin in range(0, m, size):
            rows = slice(begin, begin + size)
            out[rows, c] = _all_negative(-mean[rows] @ contrast.T, contrast @ covariance[rows] @ contrast.T, points)
    return out


def _all_negative(b: Array, covariance: Array, points: Array) -> Array:
    """P(d < b in all components), d ~ N(0, covariance), of shape (m,)."""
    order = np.argsort(b / np.sqrt(np.einsum("mjj->mj", covariance)), axis=1)
    b = np.take_along_axis(b, order, axis=1)
    sorted_rows = np.take_along_axis(covariance, order[:, :, None], axis=1)
    L = np.linalg.cholesky(np.take_along_axis(sorted_rows, order[:, None, :], axis=2))
    e = ndtr(b[:, :1] / L[:, 0, :1])
    p, t = e, np.empty((b.shape[1] - 1, len(b), points.shape[1]))
    for k in range(1, b.shape[1]):
        t[k - 1] = ndtri(np.maximum(points[k - 1] * e, _TINY))
        e = ndtr((b[:, k, None] - np.einsum("ml,lmp->mp", L[:, k, :k], t[:k])) / L[:, k, k, None])
        p = p * e
    return np.asarray(p.mean(axis=1))
