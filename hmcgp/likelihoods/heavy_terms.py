"""Compiled terms of Student's t at latent values, and derivatives of Laplace's evidence in its parameters.

With r = y - f, q = νs², D = q + r², and E = (ν + 1)/D the precision of a Gaussian that touches p from below,

    log p = const. - ½(ν + 1) log(1 + r²/q),   g = E r,   w = E(q - r²)/D,   ∂³log p = -2E r(3q - r²)/D².
"""

from __future__ import annotations

import math

from hmcgp.numerics.compiled import compiled
from hmcgp.runtime.typing import Array


@compiled
def heavy_terms(
    nu: float, noise: float, y: Array, f: Array, weights: Array, log_p: Array, g: Array, w: Array, third: Array,
    pull: Array,
) -> float:  # fmt: skip
    """Fill log p, without its constant, g, w, third derivative and E of p^weight; returns the sum of log p."""
    q, total = nu * noise, 0.0
    for i in range(f.shape[0]):
        r = y[i] - f[i]
        D = q + r * r
        E = weights[i] * (nu + 1.0) / D
        log_p[i] = -0.5 * weights[i] * (nu + 1.0) * math.log1p(r * r / q)
        g[i], w[i], third[i], pull[i] = E * r, E * (q - r * r) / D, -2.0 * E * r * (3.0 * q - r * r) / (D * D), E
        total += log_p[i]
    return total


@compiled
def heavy_slopes(
    nu: float, noise: float, y: Array, f: Array, weights: Array, variances: Array, shift: Array
) -> tuple[float, float]:
    """Derivatives of Laplace's log evidence in s² and ν, constants aside, from S_ii and (Sc)_i at the mode f."""
    q, of_noise, of_freedom = nu * noise, 0.0, 0.0
    for i in range(f.shape[0]):
        r = y[i] - f[i]
        r2 = r * r
        D = q + r2
        bend = (nu + 1.0) * (3.0 * r2 - q) / (D * D * D)  # ∂w/∂q
        dg = -(nu + 1.0) * r / (D * D)  # ∂g/∂q
        dp = 0.5 * (nu + 1.0) * r2 / (q * D)  # ∂ log p/∂q
        dq = dp - 0.5 * variances[i] * bend + shift[i] * dg
        dnu = -0.5 * math.log1p(r2 / q) - 0.5 * variances[i] * (q - r2) / (D * D) + shift[i] * r / D
        of_noise += weights[i] * nu * dq
        of_freedom += weights[i] * (noise * dq + dnu)
    return of_noise, of_freedom
