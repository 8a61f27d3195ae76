"""Compiled loops of the linear kernel, Σ_k variance_k x_k x'_k, for square matrices.

A matrix product with so few columns would take two to three times as long.
"""

from __future__ import annotations

import numpy as np

from hmcgp.numerics.compiled import compiled_inside, compiled_with_lock
from hmcgp.numerics.lapack import mirror_lower
from hmcgp.numerics.sums import total
from hmcgp.runtime.typing import Array


@compiled_inside
def _slope(Z: Array, i: int, weight: Array, k: int) -> float:
    """Return weight_k z_ki; 0 beyond the last input."""
    return weight[k if weight.shape[0] > 1 else 0] * Z[k, i] if k < Z.shape[0] else 0.0


@compiled_with_lock
def add_inner_products(K: Array, Z: Array, weight: Array, offset: float, out: Array) -> None:
    """Write K_ij + offset + Σ_k weight_k z_ki z_kj into `out`, which may be K, for Z of shape (d, n).

    K is symmetric, and only its lower triangle is read.  There is one weight for all inputs, or one for each.
    """
    d, top = Z.shape[0], Z.shape[0] - 1
    for i in range(K.shape[0]):
        row, before = out[i], K[i]
        for j in range(i + 1):
            row[j] = before[j] + offset
        for k in range(0, d, 4):  # four inputs at a time, to load and store the row a quarter as often
            a, b = _slope(Z, i, weight, k), _slope(Z, i, weight, k + 1)
            c, e = _slope(Z, i, weight, k + 2), _slope(Z, i, weight, k + 3)
            p, q, r, s = Z[k], Z[min(k + 1, top)], Z[min(k + 2, top)], Z[min(k + 3, top)]
            for j in range(i + 1):
                row[j] += (a * p[j] + b * q[j]) + (c * r[j] + e * s[j])
    mirror_lower(out)


@compiled_with_lock
def pull_back(G: Array, Z: Array) -> Array:
    """Σ_ij G_ij z_ki z_kj for each input k, from the lower triangle of a symmetric G."""
    d, n = Z.shape
    columns, out = np.zeros((d, n)), np.zeros(d)  # Σ_i>j G_ij z_ki, then times z_kj
    none = np.zeros(n)
    for i in range(0, n, 2):  # two rows at a time, to load and store the sums half as often
        g, h, last = G[i], G[i + 1] if i + 1 < n else none, min(i + 1, n - 1)
        for k in range(d):
            column, a, b = columns[k], Z[k, i], Z[k, last]
            for j in range(i):
                column[j] += a * g[j] + b * h[j]
            if last > i:
                column[i] += b * h[i]
                out[k] += b * b * h[last]
            out[k] += a * a * g[i]
    for k in range(d):
        for j in range(n):
            columns[k, j] *= Z[k, j]
        out[k] += 2.0 * total(columns[k])
    return out
