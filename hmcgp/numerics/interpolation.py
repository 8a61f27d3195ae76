"""Interpolation of solutions that were found at nearby points, as the start of an iteration to the next one.

With solutions s_i at points u_i, the most recent first, the start at u is Σ w_i s_i with weights of a radial basis:

    w = (Φ + νI)⁻¹φ,   Φ_ij = φ(|u_i - u_j|²) + c,   φ_i = φ(|u_i - u|²) + c,   φ(t) = exp(-t/(3 d)),

d the number of coordinates, c so large that the weights sum to 1 nearly, ν against rounding.  Along a straight path
this extrapolates; where the path turns, it knows the other directions from earlier points.  Nothing depends on it but
time.
"""

import math

import numpy as np

from hmcgp.numerics.compiled import compiled_inside, compiled_with_lock
from hmcgp.runtime.typing import Array

_WIDTH = 3.0  # of φ, per coordinate: √1.5 standard deviations for coordinates of unit scale
_CONSTANT = 100.0  # c
_NUGGET = 1e-6  # ν
_FLOOR = 1e-13  # of a squared pivot


@compiled_inside
def solve_small(A: Array, b: Array) -> None:
    """Overwrite b by A⁻¹b for a small positive definite A, which is overwritten by its Cholesky factor."""
    n = b.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            A[i, j] = math.sqrt(max(total, _FLOOR)) if i == j else total / A[j, j]
    for i in range(n):
        for k in range(i):
            b[i] -= A[i, k] * b[k]
        b[i] /= A[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= A[k, i] * b[k]
        b[i] /= A[i, i]


@compiled_inside
def _basis(x: Array, z: Array) -> float:
    """φ(|x - z|²) + c."""
    total = 0.0
    for k in range(x.shape[0]):
        total += (x[k] - z[k]) * (x[k] - z[k])
    return math.exp(-total / (_WIDTH * x.shape[0])) + _CONSTANT


@compiled_with_lock
def interpolate(points: Array, solutions: Array, u: Array) -> Array:
    """Solution expected at u, of shape (n,), from m solutions, of shape (m, n), at points of shape (m, d)."""
    m, n = solutions.shape
    gram, w, out = np.empty((m, m)), np.empty(m), np.zeros(n)
    for i in range(m):
        for j in range(i):
            gram[i, j] = _basis(points[i], points[j])
        gram[i, i] = 1.0 + _CONSTANT + _NUGGET
        w[i] = _basis(points[i], u)
    solve_small(gram, w)
    for i in range(m):
        solution = solutions[i]
        for j in range(n):
            out[j] += w[i] * solution[j]
    return out


def remember(points: Array, solutions: Array, u: Array, solution: Array, most: int) -> tuple[Array, Array]:
    """Points and solutions with one more, the first, and at most so many in all; nothing passed in is changed."""
    return np.concatenate([u[None], points[: most - 1]]), np.concatenate([solution[None], solutions[: most - 1]])
