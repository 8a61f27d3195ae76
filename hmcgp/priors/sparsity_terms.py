"""Compiled density of numbers whose scale is itself unknown: half-Cauchy given a global scale that is half-Cauchy.

The logarithm v of a half-Cauchy number of scale τ has the density sech(v - log τ)/π.  With log τ integrated out,

    p(v_1, …, v_d) = ∫ sech(w - w0)/π Π_k sech(v_k - w)/π dw,

by the trapezoidal rule, whose error falls exponentially with 1/h: the integrand is analytic, and as narrow as
1/sqrt(d + 1) at most.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.numerics.compiled import compiled_with_lock
from hmcgp.runtime.typing import Array

_DROP = 40.0  # the integrand is neglected where it is below e^-40 of its maximum


@compiled_with_lock
def log_density(v: Array, w0: float) -> tuple[float, Array]:
    """Log p(v) and its gradient."""
    d = v.shape[0]
    # outside all centres the integrand falls by e^-(d + 1) per unit, after a factor 2 each
    margin = _DROP / (d + 1.0) + math.log(2.0)
    lower, upper = min(v.min(), w0) - margin, max(v.max(), w0) + margin
    n = math.ceil((upper - lower) / min(0.3, 0.9 / math.sqrt(d + 1.0))) + 1
    h = (upper - lower) / (n - 1)
    f, slopes = np.empty(n), np.empty((n, d))
    for i in range(n):
        w = lower + i * h
        a = abs(w - w0)
        f[i] = -a - math.log1p(math.exp(-2.0 * a))
        product = 1.0
        for k in range(d):  # sech x = 2 e^-|x|/(1 + e^-2|x|)
            x = v[k] - w
            e = math.exp(-2.0 * abs(x))
            f[i] -= abs(x)
            product *= 1.0 + e
            slopes[i, k] = math.copysign((1.0 - e) / (1.0 + e), -x)  # -tanh x
            if product > 1e300:
                f[i] -= math.log(product)
                product = 1.0
        f[i] -= math.log(product)
    top = f.max()
    total, grad = 0.0, np.zeros(d)
    for i in range(n):
        weight = math.exp(f[i] - top)
        total += weight
        for k in range(d):
            grad[k] += weight * slopes[i, k]
    return top + math.log(h * total) + (d + 1.0) * math.log(2.0 / math.pi), grad / total
