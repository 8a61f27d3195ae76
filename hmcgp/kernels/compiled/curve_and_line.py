"""A squared exponential, a line and an offset in one compiled call, which saves passes over matrices, and Python."""

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
) -> tuple[Array, Array, Array, Array]:
    """Covariance K of the n rows of X, and what its pullback needs.

    That is the lower triangle of the covariance of the curve alone, the inputs divided by their length scales and the
    inputs as they are, both of shape (d, n).
    """
    Z, T = scaled_transpose(X, length_scale), scaled_transpose(X, np.ones(1))
    curve = lower_covariance(Z, variance)
    K = np.empty(curve.shape)
    add_inner_products(curve, T, slope, offset, K)
    return K, curve, Z, T


@compiled_with_lock
def pull_back(G: Array, curve: Array, Z: Array, T: Array, variance: float, length_scale: Array, n_slopes: int) -> Array:
    """Σ_ij G_ij ∂K_ij/∂θ for the variance, the length scales, the slopes and the offset, in this order.

    G is symmetric; only lower triangles are read.
    """
    n, n_scales = G.shape[0], length_scale.shape[0]
    out, below = np.zeros(2 + n_scales + n_slopes), np.empty(n)
    whole, squares = pull_back_curve(G, curve, Z)
    out[0] = whole / variance  # ∂K/∂variance = K/variance of the curve
    for k in range(Z.shape[0]):
        own = k if n_scales > 1 else 0
        out[1 + own] += squares[k] / length_scale[own]  # ∂K/∂ℓ_k = K (z_k - z'_k)²/ℓ_k
    out[1 + n_scales : -1] = pull_back_line(G, T, n_slopes == 1)
    diagonal = 0.0
    for i in range(n):
        below[i] = total(G[i, :i])
        diagonal += G[i, i]
    out[-1] = diagonal + 2.0 * total(below)
    return out
