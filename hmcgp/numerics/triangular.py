"""Products of few rows with triangular matrices, of which only the triangles are read.

All of them add up in the same order: results are the same, to the last bit, however a triangle is stored.
"""

from __future__ import annotations

import numpy as np

from hmcgp.numerics.compiled import compiled, compiled_inside, compiled_with_lock
from hmcgp.runtime.typing import Array


@compiled_inside
def _add_multiple(a: float, x: Array, out: Array) -> None:
    """Add a x to out, both of one length."""
    for j in range(x.shape[0]):
        out[j] += a * x[j]


@compiled_inside
def _squared_length(g: Array) -> float:
    """|g|², summed up in float64."""
    total = 0.0
    for j in range(g.shape[0]):
        total += float(g[j]) * float(g[j])
    return total


@compiled_with_lock
def squared_lengths(K: Array, F: Array, lower: bool) -> Array:
    """|k'F|² for each row k of K, of shape (m, n), in the precision of F, which is lower or upper triangular.

    For a single row this takes half the time of BLAS, and reads half of F.
    """
    m, n = K.shape
    out, g = np.empty(m), np.empty(n, dtype=F.dtype)
    for r in range(m):
        g[:] = 0.0
        k = K[r].astype(F.dtype)
        for i in range(n):
            begin, end = (0, i + 1) if lower else (i, n)
            _add_multiple(k[i], F[i, begin:end], g[begin:end])
        out[r] = _squared_length(g)
    return out


@compiled_with_lock
def inner_products(K: Array, a: Array) -> Array:
    """Inner product k'a for each row k of K, of shape (m, n)."""
    out = np.empty(K.shape[0])
    for r in range(K.shape[0]):
        total = 0.0
        for i in range(K.shape[1]):
            total += K[r, i] * a[i]
        out[r] = total
    return out


def packed(F: Array, lower: bool) -> Array:
    """Rows of the triangle of F one after the other, of shape (n(n + 1)/2,)."""
    return F[np.tri(len(F), dtype=bool) if lower else ~np.tri(len(F), k=-1, dtype=bool)]


@compiled
def packed_squared_lengths(K: Array, F: Array, lower: bool) -> Array:
    """|k'F_s|² for each row k of K[s], of shape (S, m, n), and the triangle F[s] (`packed`), as (S, m).

    Triangles are read from end to end, in half to a third of the time of as many square matrices that are not in
    cache.
    """
    S, m, n = K.shape
    out, g = np.empty((S, m)), np.empty(n, dtype=F.dtype)
    for s in range(S):
        for r in range(m):
            g[:] = 0.0
            k, at = K[s, r].astype(F.dtype), 0
            for i in range(n):
                begin, end = (0, i + 1) if lower else (i, n)
                _add_multiple(k[i], F[s, at : at + end - begin], g[begin:end])
                at += end - begin
            out[s, r] = _squared_length(g)
    return out
