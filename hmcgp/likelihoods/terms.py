"""Compiled log likelihoods of a label y = ±1 given its latent value f, with three derivatives.

With z = y f (and ' for d/df):

                   log p                g = log p'    w = -log p''   log p'''
    logistic   -log(1 + exp(-z))    y σ(-z)       σ(f) σ(-f)     w tanh(f/2)
    probit     log Φ(z)             y r           r h            y w (h - (1 - w)/h),   r = φ(z)/Φ(z), h = r + z

The third derivative is returned as its ratio to w, which stays bounded where w underflows.
For z < -5 the sum h = r + z cancels; there h comes from Laplace's continued fraction of Mills' ratio,
with t = -z:  h = 1/(t + 2/(t + 3/(t + ...))),  r = t + h.
"""

from __future__ import annotations

import math

from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.runtime.typing import Array

LOGISTIC, PROBIT, STEP = 0, 1, 2

_TAIL = -5.0  # below: continued fraction; above: erfc, whose cancellation in h costs at most 2 digits
_TERMS = 30  # converged to the last bit for t >= 5


@compiled_inside
def logistic_terms(y: float, f: float) -> tuple[float, float, float, float]:
    """Log likelihood, g, w and ratio of the third derivative to w."""
    e = math.exp(-abs(f))
    z = y * f
    log_p = min(z, 0.0) - math.log1p(e)
    g = y * ((e if z >= 0.0 else 1.0) / (1.0 + e))
    return log_p, g, e / (1.0 + e) ** 2, math.copysign((1.0 - e) / (1.0 + e), f)


@compiled_inside
def probit_terms(y: float, f: float) -> tuple[float, float, float, float]:
    """Log likelihood, g, w and ratio of the third derivative to w."""
    z = y * f
    if z < _TAIL:
        h = 0.0
        for k in range(_TERMS, 0, -1):
            h = k / (h - z)
        r = h - z
        log_p = -0.5 * z * z - HALF_LOG_2PI - math.log(r)
    else:
        cdf = 0.5 * math.erfc(-z * math.sqrt(0.5))
        log_p = math.log(cdf) if z < 0.0 else math.log1p(-0.5 * math.erfc(z * math.sqrt(0.5)))
        r = math.exp(-0.5 * z * z - HALF_LOG_2PI) / cdf
        h = r + z
    w = r * h
    return log_p, y * r, w, y * (h - (1.0 - w) / h)


@compiled
def likelihood_terms(
    kind: int, y: Array, f: Array, weights: Array, log_p: Array, g: Array, w: Array, ratio: Array
) -> float:
    """Fill log_p, g, w and ratio of p^weight at the latent values f, and return the sum of log_p."""
    total = 0.0
    for i in range(f.shape[0]):
        if kind == LOGISTIC:
            log_p[i], g[i], w[i], ratio[i] = logistic_terms(y[i], f[i])
        else:
            log_p[i], g[i], w[i], ratio[i] = probit_terms(y[i], f[i])
        log_p[i] *= weights[i]
        g[i] *= weights[i]
        w[i] *= weights[i]
        total += log_p[i]
    return total
