"""Compiled derivatives of log p, g and log w in the two numbers a and b of a row, and of Laplace's evidence in them.

Symbols as in `terms`.  Of the negative binomial, in b, without what `terms.log_constant` leaves out,

    ∂ log p = -log(1 + e^x) - g/b,     ∂g = w/b - t,     ∂ log w = 1/(y + b) - (1 - 2t)/b;

of ordered levels, with a and b for a - f and b - f,

    ∂_a log p = -q_a,     ∂_a g = q_a(g - a),     ∂_a w = q_a(b q_b - a(q_a - a) - 1) + 2g ∂_a g,
    ∂_b log p = q_b,      ∂_b g = q_b(b - g),     ∂_b w = q_b(a q_a - b(q_b + b) + 1) + 2g ∂_b g.

Poisson's and binomial rows have no parameters: a and b are given.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.likelihoods.terms import NEGATIVE_BINOMIAL, ORDINAL, row_terms
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.runtime.typing import Array


@compiled_inside
def has_parameters(kind: int) -> bool:
    """Whether the likelihood has parameters, on which the numbers of its rows depend."""
    return kind in (NEGATIVE_BINOMIAL, ORDINAL)


@compiled_inside
def _hazards(low: float, high: float, f: float, log_p: float) -> tuple[float, float, float, float]:
    """Distances a - f and b - f, 0 where they are infinite, and q_a and q_b."""
    a, b, q_a, q_b = 0.0, 0.0, 0.0, 0.0
    if low > -math.inf:
        a = low - f
        q_a = math.exp(-0.5 * a * a - HALF_LOG_2PI - log_p)
    if high < math.inf:
        b = high - f
        q_b = math.exp(-0.5 * b * b - HALF_LOG_2PI - log_p)
    return a, b, q_a, q_b


@compiled_inside
def log_p_slopes(kind: int, a: float, b: float, f: float, log_p: float, g: float) -> tuple[float, float]:
    """Derivatives of log p in a and in b, without constants, from log p and g."""
    if kind == ORDINAL:
        _, _, q_a, q_b = _hazards(a, b, f, log_p)
        return -q_a, q_b
    x = f + a - math.log(b)
    return g, -max(x, 0.0) - math.log1p(math.exp(-abs(x))) - g / b


@compiled
def laplace_slopes(kind: int, y: Array, numbers: Array, f: Array, weights: Array, share: Array, shift: Array) -> Array:
    """Derivatives of Laplace's log evidence in the numbers of the rows, of shape (2, n), from terms at the mode f.

    `share` and `shift`, of shape (n,), are S_ii W_i and (S c)_i (see `evidence.laplace`).  Of likelihoods without
    parameters, zeros.
    """
    out = np.zeros((2, y.shape[0]))
    if not has_parameters(kind):
        return out
    for i in range(y.shape[0]):
        a, b = numbers[0, i], numbers[1, i]
        log_p, g, w, odds = row_terms(kind, y[i], a, b, f[i])
        if kind == NEGATIVE_BINOMIAL:  # odds = 2t - 1
            slope = log_p_slopes(kind, a, b, f[i], log_p, g)[1]
            out[1, i] = weights[i] * (slope + shift[i] * (w / b - 0.5 * (1.0 + odds)))
            out[1, i] -= 0.5 * share[i] * (1.0 / (y[i] + b) + odds / b)
        else:
            a, b, q_a, q_b = _hazards(a, b, f[i], log_p)
            dg_a, dg_b = q_a * (g - a), q_b * (b - g)
            dw_a = q_a * (b * q_b - a * (q_a - a) - 1.0) + 2.0 * g * dg_a
            dw_b = q_b * (a * q_a - b * (q_b + b) + 1.0) + 2.0 * g * dg_b
            out[0, i] = weights[i] * (shift[i] * dg_a - q_a) - 0.5 * share[i] * dw_a / w
            out[1, i] = weights[i] * (shift[i] * dg_b + q_b) - 0.5 * share[i] * dw_b / w
    return out
