"""Compiled products with the rows of a tall matrix V, of shape (n, m), block by block so that a block stays in cache.

Every result is a sum over rows, or belongs to one row: blocks of rows can be dealt with anywhere, in any number.
"""

import math

import numpy as np

from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import (
    _LEFT,
    _PLAIN,
    _TRANSPOSED,
    _UPPER,
    _dtrsm,
    _ref,
    add_gram,
    cholesky_solve_inplace,
    mirror_lower,
)
from hmcgp.runtime.typing import Array

_ROWS = 256  # of a block: 400 kB for m = 200


@compiled
def solve_rows_inplace(L: Array, V: Array, transposed: bool) -> None:
    """Overwrite every row v of V by L^-1 v, or by L^-T v if `transposed`, for a lower triangular L."""
    m, n = np.int32(V.shape[1]), np.int32(V.shape[0])  # BLAS sees the columns v of V', and L' as its "U"
    form = _PLAIN if transposed else _TRANSPOSED
    _dtrsm(
        _ref(_LEFT), _ref(_UPPER), _ref(form), _ref(_PLAIN), _ref(m), _ref(n),
        _ref(1.0), L.ctypes, _ref(m), V.ctypes, _ref(m),
    )  # fmt: skip


@compiled
def add_weighted_gram(V: Array, s: Array, out: Array) -> None:
    """Add Σ_i s_i v_i v_i', for s of either sign, to a symmetric `out` of shape (m, m)."""
    n, m = V.shape
    block = np.empty((_ROWS, m))
    for sign in (1.0, -1.0):
        filled = 0
        for i in range(n):
            if sign * s[i] > 0.0 or (s[i] != s[i] and sign > 0.0):  # NaN goes through
                root = math.sqrt(sign * s[i])
                for j in range(m):
                    block[filled, j] = root * V[i, j]
                filled += 1
            if filled == _ROWS or (i == n - 1 and filled > 0):
                add_gram(sign, block[:filled], out)
                filled = 0
    mirror_lower(out)


@compiled
def solved_squares(L: Array, V: Array) -> Array:
    """|L^-1 v_i|² of every row of V."""
    n, m = V.shape
    out = np.empty(n)
    for start in range(0, n, _ROWS):
        block = V[start : start + _ROWS].copy()
        solve_rows_inplace(L, block, False)
        for i in range(block.shape[0]):
            total = 0.0
            for j in range(m):
                total += block[i, j] * block[i, j]
            out[start + i] = total
    return out


@compiled
def solve_inplace(L: Array, x: Array) -> None:
    """Overwrite the vector x, of shape (m,), by (L L')^-1 x."""
    cholesky_solve_inplace(L, x)
