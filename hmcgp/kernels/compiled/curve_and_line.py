"""A squared exponential, a line and an offset in one compiled call, which saves passes over matrices, and Python.

Inputs are those of `stationary`, divided by their length scales, z_k = x_k/ℓ_k; the line is written in them too,
Σ_k (v_k ℓ_k²) z_k z'_k.
"""

from __future__ import annotations

import numpy as np

from hmcgp.kernels.compiled.linear import add_inner_products
from hmcgp.kernels.compiled.linear import pull_back as pull_back_line
from hmcgp.kernels.compiled.stationary import lower_covariance, scaled_transpose
from hmcgp.kernels.compiled.stationary import pull_back as pull_back_curve
from hmcgp.numerics.compiled import compiled_with_lock
from hmcgp.numerics.sums import total
from hmcgp.runtime.typing import Array


@compiled_with_lock
def covariance(
    X: Array, variance: float, length_scale: Array, slope: Array, offset: float
) -> tuple[Array, Array, Array]:
    """Covariance K of the n rows of X, the lower triangle of that of the curve alone, and z of shape (d, n)."""
    Z = scaled_transpose(X, length_scale)
    weight = np.empty(Z.shape[0])
    for k in range(Z.shape[0]):
        scale = length_scale[k if length_scale.shape[0] > 1 else 0]
        weight[k] = slope[k if slope.shape[0] > 1 else 0] * scale * scale
    curve = lower_covariance(Z, variance)
    K = np.empty(curve.shape)
    add_inner_products(curve, Z, weight, offset, K)
    return K, curve, Z


@compiled_with_lock
def pull_back(G: Array, curve: Array, Z: Array, variance: float, length_scale: Array, slope: Array) -> Array:
    """Σ_ij G_ij ∂K_ij/∂θ for the variance, the length scales, the slopes and the offset, in this order.

    G is symmetric; only lower triangles are read.
    """
    n, d, scales, slopes = G.shape[0], Z.shape[0], length_scale.shape[0], slope.shape[0]
    out, below = np.zeros(2 + scales + slopes), np.empty(n)
    whole, squares = pull_back_curve(G, curve, Z)
    products = pull_back_line(G, Z, False)
    out[0] = whole / variance  # ∂K/∂variance = K/variance of the curve
    for k in range(d):
        own = k if scales > 1 else 0
        scale = length_scale[own]
        out[1 + own] += squares[k] / scale  # ∂K/∂ℓ_k = K (z_k - z'_k)²/ℓ_k
        out[1 + scales + (k if slopes > 1 else 0)] += products[k] * scale * scale  # ∂K/∂v_k = x_k x'_k
    diagonal = 0.0
    for i in range(n):
        below[i] = total(G[i, :i])
        diagonal += G[i, i]
    out[-1] = diagonal + 2.0 * total(below)
    return out
