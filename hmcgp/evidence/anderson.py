"""Compiled Anderson acceleration of a fixed point u ← u + f(u), with a memory of a few steps.

With Δu_k, Δf_k the differences of successive points and of their steps, the next step is

    f - Σ c_k (Δu_k + Δf_k),    c minimising |f - Σ c_k Δf_k|

(Anderson 1965; Walker & Ni 2011): on a linear problem, GMRES in disguise.
"""

import math

import numpy as np

from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.interpolation import solve_small
from hmcgp.numerics.sums import dot
from hmcgp.runtime.typing import Array

_RIDGE = 1e-13  # of columns of unit length


@compiled_inside
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
    solve_small(gram, c)
    for i in range(k):
        c[i] *= scale[i]
    return c


@compiled
def _weights(changes: Array, last: Array) -> Array:
    return anderson_weights(changes, last)


def accelerated(points: list[Array], steps: list[Array]) -> Array:
    """Where to go from the last of some points, of which plain steps are known."""
    there = points[-1] + steps[-1]
    if len(points) > 1:
        changes = np.diff(np.array(steps), axis=0)
        there = there - _weights(changes, steps[-1]) @ (np.diff(np.array(points), axis=0) + changes)
    return np.asarray(there)
