"""Compiled log likelihoods of a target y given its latent value f, with three derivatives.

With z = y f (and ' for d/df), of labels:

                   log p                g = log p'    w = -log p''   log p'''
    logistic   -log(1 + exp(-z))    y σ(-z)       σ(f) σ(-f)     w tanh(f/2)
    probit     log Φ(z)             y r           r h            y w (h - (1 - w)/h),   r = φ(z)/Φ(z), h = r + z

Of labels y = ±1; of counts, levels and successes, with two numbers a and b for each row,

    Poisson            y η - e^η - log y!,   η = f + a                       g = y - e^η       w = e^η
    negative binomial  log Γ(y + b)/Γ(b)y! + y log t + b log(1 - t),         g = y - (y + b)t  w = (y + b)t(1 - t)
                       t = σ(x),  x = f + a - log b
    binomial           log C(b, y) + y η - b log(1 + e^η),   η = f + a       g = y - bσ(η)     w = bσ(η)σ(-η)
    ordinal            log P,   P = Φ(b - f) - Φ(a - f),  q_x = φ(x - f)/P   g = q_a - q_b     w = (b - f)q_b
                                                                                                  - (a - f)q_a + g²

The third derivative is returned as its ratio to w, which stays bounded where w underflows.  Parts of log p that do not
depend on f, such as log y!, are left to `log_constants`: solvers add them once.
For z < -5 the sum h = r + z cancels; there h comes from Laplace's continued fraction of Mills' ratio,
with t = -z:  h = 1/(t + 2/(t + 3/(t + ...))),  r = t + h.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.runtime.typing import Array

LOGISTIC, PROBIT, STEP = 0, 1, 2
POISSON, NEGATIVE_BINOMIAL, BINOMIAL, ORDINAL = 3, 4, 5, 6

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


@compiled_inside
def _softplus(x: float) -> float:
    """Log(1 + exp(x))."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@compiled_inside
def _sigmoid(x: float) -> float:
    e = math.exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@compiled_inside
def _successes(y: float, n: float, x: float) -> tuple[float, float, float, float]:
    """Terms of y log σ(x) + (n - y) log σ(-x)."""
    share = _sigmoid(x)
    w = n * share * _sigmoid(-x)
    log_p = -y * _softplus(-x) - (n - y) * _softplus(x)
    return log_p, y * _sigmoid(-x) - (n - y) * share, w, math.tanh(0.5 * x)


@compiled_inside
def _poisson_terms(y: float, log_rate: float) -> tuple[float, float, float, float]:
    rate = math.exp(log_rate)
    return y * log_rate - rate, y - rate, rate, -1.0


@compiled_inside
def log_constant(kind: int, y: float, b: float) -> float:
    """Part of log p that does not depend on f."""
    if kind == POISSON:
        return -math.lgamma(y + 1.0)
    if kind == BINOMIAL:
        return math.lgamma(b + 1.0) - math.lgamma(y + 1.0) - math.lgamma(b - y + 1.0)
    if kind == NEGATIVE_BINOMIAL:
        return math.lgamma(y + b) - math.lgamma(b) - math.lgamma(y + 1.0)
    return 0.0


@compiled
def log_constants(kind: int, y: Array, second: Array) -> Array:
    """Parts of log p that do not depend on f, of shape (n,)."""
    out = np.empty(y.shape[0])
    for i in range(y.shape[0]):
        out[i] = log_constant(kind, y[i], second[i])
    return out


@compiled_inside
def log_cdf(z: float) -> float:
    """Log Φ(z)."""
    if z >= 0.0:
        return math.log1p(-0.5 * math.erfc(z * math.sqrt(0.5)))
    if z >= _TAIL:
        return math.log(0.5 * math.erfc(-z * math.sqrt(0.5)))
    h = 0.0
    for k in range(_TERMS, 0, -1):
        h = k / (h - z)
    return -0.5 * z * z - HALF_LOG_2PI - math.log(h - z)


@compiled_inside
def ordinal_terms(low: float, high: float, f: float) -> tuple[float, float, float, float]:
    """Terms of log P, P = Φ(high - f) - Φ(low - f)."""
    if low == -math.inf:
        return probit_terms(-1.0, f - high)
    if high == math.inf:
        return probit_terms(1.0, f - low)
    a, b = low - f, high - f
    near, far = (b, a) if a + b < 0.0 else (-a, -b)  # of the mirrored interval, so that nothing cancels in 1 - Φ
    if near > _TAIL:
        log_p = math.log(0.5 * (math.erfc(-near * math.sqrt(0.5)) - math.erfc(-far * math.sqrt(0.5))))
    else:
        log_near = log_cdf(near)
        log_p = log_near + math.log(-math.expm1(log_cdf(far) - log_near))
    q_a = math.exp(-0.5 * a * a - HALF_LOG_2PI - log_p)
    q_b = math.exp(-0.5 * b * b - HALF_LOG_2PI - log_p)
    g = q_a - q_b
    w = max(b * q_b - a * q_a + g * g, 1e-300)
    third = (a * a - 1.0) * q_a - (b * b - 1.0) * q_b + 3.0 * g * w - g * g * g
    return log_p, g, w, third / w


@compiled_inside
def row_terms(kind: int, y: float, a: float, b: float, f: float) -> tuple[float, float, float, float]:
    """Log likelihood but for its constant, g, w and ratio of the third derivative to w, of one row."""
    if kind == LOGISTIC:
        return logistic_terms(y, f)
    if kind == PROBIT:
        return probit_terms(y, f)
    if kind == POISSON:
        return _poisson_terms(y, f + a)
    if kind == BINOMIAL:
        return _successes(y, b, f + a)
    if kind == NEGATIVE_BINOMIAL:
        return _successes(y, y + b, f + a - math.log(b))
    return ordinal_terms(a, b, f)


@compiled_inside
def most_curved(kind: int, y: float, a: float, b: float) -> float:
    """Latent value, perhaps infinite, at which w is largest; towards it w never falls.  Not of ordinal targets."""
    if kind == LOGISTIC:
        return 0.0
    if kind == PROBIT:
        return -y * math.inf
    if kind == BINOMIAL:
        return -a
    return math.inf if kind == POISSON else math.log(b) - a


@compiled
def first_guess(kind: int, y: Array, first: Array, second: Array, variances: Array, out: Array) -> bool:
    """Fill `out` with latent values from which Newton's method is quicker than from 0; False where 0 will do.

    Of counts the logarithm of their rate, z = log(y + ½) - a, drawn to 0 as far as a prior of these variances does if w
    is that at z: the first step of iteratively weighted least squares, whose weights are about right on average.
    """
    if kind not in (POISSON, NEGATIVE_BINOMIAL):
        return False
    for i in range(y.shape[0]):
        count = y[i] + 0.5
        w = count if kind == POISSON else count / (1.0 + count / second[i])
        out[i] = (math.log(count) - first[i]) * w * variances[i] / (1.0 + w * variances[i])
    return True


@compiled
def likelihood_terms(
    kind: int, y: Array, first: Array, second: Array, f: Array, weights: Array,
    log_p: Array, g: Array, w: Array, ratio: Array,
) -> float:  # fmt: skip
    """Fill log_p, g, w and ratio of p^weight at the latent values f, and return the sum of log_p, without constants.

    `first` and `second` are the numbers a and b of the rows (`Likelihood.row_numbers`).
    """
    total = 0.0
    for i in range(f.shape[0]):
        log_p[i], g[i], w[i], ratio[i] = row_terms(kind, y[i], first[i], second[i], f[i])
        log_p[i] *= weights[i]
        g[i] *= weights[i]
        w[i] *= weights[i]
        total += log_p[i]
    return total
