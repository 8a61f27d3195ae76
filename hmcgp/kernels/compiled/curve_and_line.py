"""A squared exponential, a line and an offset in one compiled call, which saves passes over matrices, and Python.

The offset is the slope of an input that is 1 everywhere.  Pullbacks are those of the two terms: in a call of their own
they would be compiled once more, three seconds for a few microseconds.
"""

from __future__ import annotations

import numpy as np

from hmcgp.kernels.compiled.linear import add_inner_products
from hmcgp.kernels.compiled.stationary import lower_covariance, scaled_transpose
from hmcgp.numerics.compiled import compiled_with_lock
from hmcgp.runtime.typing import Array


@compiled_with_lock
def covariance(
    X: Array, variance: float, length_scale: Array, slope: Array, offset: float
) -> tuple[Array, Array, Array, Array]:
    """Covariance K of the n rows of X, and what its pullback needs.

    That is the lower triangle of the covariance of the curve alone, the inputs divided by their length scales, of shape
    (d, n), and the inputs as they are with a row of ones beneath, of shape (d + 1, n).
    """
    n, d = X.shape
    Z, T, weight = scaled_transpose(X, length_scale), np.ones((d + 1, n)), np.empty(d + 1)
    for k in range(d):
        weight[k] = slope[k if slope.shape[0] > 1 else 0]
        for i in range(n):
            T[k, i] = X[i, k]
    weight[d] = offset
    curve, K = lower_covariance(Z, variance), np.empty((n, n))
    add_inner_products(curve, T, weight, 0.0, K)
    return K, curve, Z, T
