"""Compiled Anderson acceleration of a fixed point u ← u + f(u), with a memory of a few steps.

With Δu_k, Δf_k the differences of successive points and of their steps, the next step is

    f - Σ c_k (Δu_k + Δf_k),    c minimising |f - Σ c_k Δf_k|

(Anderson 1965; Walker & Ni 2011): on a linear problem, GMRES in disguise.
"""

import math

import numpy as np

from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.sums import dot
from hmcgp.runtime.typing import Array

_RIDGE = 1e-13  # of columns of unit length


@compiled
def _solve_small(A: Array, b: Array) -> None:
    """Overwrite b by A⁻¹b for a small positive definite A, which is overwritten by its Cholesky factor."""
    n = b.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            A[i, j] = math.sqrt(max(total, _RIDGE)) if i == j else total / A[j, j]
    for i in range(n):
        for k in range(i):
            b[i] -= A[i, k] * b[k]
        b[i] /= A[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= A[k, i] * b[k]
        b[i] /= A[i, i]


@compiled
def anderson_weights(changes: Array, last: Array) -> Array:
    """Weights c that minimise |last - Σ c_k changes_k|, by regularised normal equations; `changes` is (k, m)."""
    k = changes.shape[0]
    gram, c, scale = np.empty((k, k)), np.empty(k), np.empty(k)
    for i in range(k):
        square = dot(changes[i], changes[i])
        scale[i] = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
        for j in range(i):
            gram[i, j] = dot(changes[i], changes[j]) * scale[i] * scale[j]
        gram[i, i] = 1.0 + _RIDGE
        c[i] = dot(changes[i], last) * scale[i]
    _solve_small(gram, c)
    for i in range(k):
        c[i] *= scale[i]
    return c
