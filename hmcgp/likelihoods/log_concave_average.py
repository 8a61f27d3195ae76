"""Compiled integrals of a log-concave likelihood times a Gaussian of its latent value.

    I = ∫ p(y | f)^ω N(f; m, v) df,  and mean, variance and averages under the density p^ω N/I

The logarithm of the integrand has its only maximum at f*.  Gauss-Legendre panels are laid to its right and left, until
the integrand has fallen by exp(-38): as wide as three standard deviations by its curvature ωw + 1/v where that is
largest in the panel, and not much wider than their distance to the points where p vanishes or has poles in the complex
plane (at ±iπ from where half of the trials succeed, at about ±2.8i from cut points), or to where exp(-ωe^η) begins to
fall.  For Poisson, binomial, negative binomial and ordinal targets with v from 1e-4 to 1e3 and counts up to 1e5, log I
is good to 1e-11, as measured.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.likelihoods.number_slopes import log_p_slopes
from hmcgp.likelihoods.terms import BINOMIAL, NEGATIVE_BINOMIAL, ORDINAL, POISSON, log_constant, row_terms
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.runtime.typing import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_DIGITS = 38.0  # nats by which the integrand has fallen where the last panel begins
_DEVIATIONS = 3.0  # of the integrand, in a panel
_MOST_PANELS = 400  # on each side
_STEPS, _HALVINGS = 100, 60  # of Newton's method
_SOLVED = 1e-6  # a step, in standard deviations: integrals hardly depend on where the panels begin


@compiled_inside
def _peak(kind: int, y: float, a: float, b: float, m: float, v: float, weight: float) -> tuple[float, float]:
    """Place f* of the maximum, and the logarithm of the integrand there, but for constants."""
    f = m
    log_p, g, w, _ = row_terms(kind, y, a, b, f)
    value = weight * log_p
    for _ in range(_STEPS):
        curvature = weight * w + 1.0 / v
        step = (weight * g - (f - m) / v) / curvature
        if abs(step) * math.sqrt(curvature) <= _SOLVED:
            break
        for _ in range(_HALVINGS):
            there = f + step
            log_p, g, w, _ = row_terms(kind, y, a, b, there)
            ahead = weight * log_p - 0.5 * (there - m) ** 2 / v
            if ahead >= value:  # NaN is not
                break
            step *= 0.5
        f, value = there, ahead
    return f, value


@compiled_inside
def _panel_width(kind: int, y: float, a: float, b: float, v: float, weight: float, x: float, side: float) -> float:
    """Width of the panel that begins at x and lies to the right of it (side = 1) or to the left (-1)."""
    width = _DEVIATIONS * math.sqrt(v)
    if kind == BINOMIAL:
        width = min(width, 2.5 + 0.7 * abs(x + a))
    elif kind == POISSON:
        width = min(width, 1.5 + 0.5 * max(-x - a - math.log(weight), 0.0))
    elif kind == NEGATIVE_BINOMIAL:
        width = min(width, 2.5 + 0.7 * abs(x + a - math.log(b)))
    elif kind == ORDINAL:
        width = min(width, 1.5 + 0.5 * min(abs(x - a), abs(x - b)))
    for end in (0.0, 1.0):
        for _ in range(_HALVINGS):
            w = row_terms(kind, y, a, b, x + end * side * width)[2]
            if not width * width * (weight * w + 1.0 / v) > _DEVIATIONS * _DEVIATIONS * (1.0 + 1e-9):
                break
            width *= 0.7 if end == 1.0 else _DEVIATIONS / math.sqrt(weight * w + 1.0 / v) / width
    return width


@compiled_inside
def tilted_integrals(
    kind: int, y: float, a: float, b: float, m: float, v: float, weight: float, slopes: bool
) -> tuple[float, float, float, float, float]:
    """Log I, without the constant of log p; mean less m, and variance, of p^ω N/I; averages of `log_p_slopes` under it.

    The averages, of derivatives of log p in the numbers a and b of the row, are 0 unless `slopes` is true.
    """
    peak, top = _peak(kind, y, a, b, m, v, weight)
    zeroth, first, second, slope_a, slope_b = 0.0, 0.0, 0.0, 0.0, 0.0
    for side in (1.0, -1.0):
        begin = peak
        for _ in range(_MOST_PANELS):
            half = 0.5 * _panel_width(kind, y, a, b, v, weight, begin, side)
            exponent = -math.inf
            for j in range(_NODES.size):
                d = begin + side * half * (1.0 + _NODES[j]) - peak
                f = peak + d
                log_p, g, _, _ = row_terms(kind, y, a, b, f)
                exponent = weight * log_p - 0.5 * (f - m) ** 2 / v - top
                mass = half * _WEIGHTS[j] * math.exp(exponent)
                zeroth += mass
                first += mass * d
                second += mass * d * d
                if slopes:
                    of_a, of_b = log_p_slopes(kind, a, b, f, log_p, g)
                    slope_a += mass * of_a
                    slope_b += mass * of_b
            begin += side * 2.0 * half
            if not exponent > -_DIGITS:
                break
    shift = first / zeroth
    log_i = top + math.log(zeroth) - 0.5 * math.log(v) - HALF_LOG_2PI
    return log_i, peak - m + shift, second / zeroth - shift * shift, slope_a / zeroth, slope_b / zeroth


@compiled
def log_concave_average(
    kind: int, y: Array, first: Array, second: Array, mean: Array, variance: Array, weights: Array
) -> Array:
    """Log I of every row, of shape (n,); all arguments but `kind`, the code of the likelihood, are of shape (n,)."""
    out = np.empty(y.shape[0])
    for i in range(y.shape[0]):
        v, weight = max(variance[i], 1e-300), weights[i]
        out[i] = tilted_integrals(kind, y[i], first[i], second[i], mean[i], v, weight, False)[0]
        out[i] += weight * log_constant(kind, y[i], second[i])
    return out
