"""Compiled bounds on what is left to do, and on what rounding may have done, at a mode of several classes.

As `hmcgp.evidence.rounding` for two classes; symbols as in `hmcgp.evidence.laplace.softmax`.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.newton import size
from hmcgp.evidence.rounding import LOST_NATS, ROUNDED_AWAY, TINY
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array


@compiled
def rounding_of_mode(K: Array, scale: float, state: Array) -> float:
    """Bound on the rounding of the answer, as a multiple of what is tolerated.

    The two bounds of `rounding.rounding_of_mode`, without the part of log Z that comes by way of the mode.  An
    error e of every f changes log π(1 - π) by 2e at most, and from what may have underflowed to ¼ at most.
    """
    # equal at the mode; but the start, α = 0, may be the mode already
    alpha = max(size(state[row.ALPHA]), size(state[row.SLOPE]))
    error = EPS * scale * alpha
    if not error < np.inf:
        return np.inf
    n, growth = K.shape[1], math.exp(min(2.0 * error, 700.0))
    weights, trace = 0.0, 0.0
    for k in range(state.shape[1]):
        i = k % n
        weights += min(0.25 * state[row.WEIGHT, k], max(state[row.CURVATURE, k], TINY) * growth)
        trace += state[row.CURVATURE, k] * K[min(k // n, K.shape[0] - 1), i, i]
    nats = 0.5 * (error * alpha + EPS * trace)
    return max(nats / LOST_NATS, error * math.sqrt(2.0 * weights) / ROUNDED_AWAY)


@compiled
def left_to_do(K: Array, state: Array, decrement: float) -> float:
    """Change of log|B| by the step at hand: where K is large, even a step of tiny decrement may change it.

    With a range of d over the classes of a row, a step changes its log π(1 - π) by 2d at most (as in
    `rounding.left_to_do`).  Where no step is at hand but its decrement, d <= 2 √K_ii times that.
    """
    n, total = K.shape[1], 0.0
    for i in range(n):
        least, most = np.inf, -np.inf
        for k in range(i, state.shape[1], n):
            reach = decrement * math.sqrt(K[min(k // n, K.shape[0] - 1), i, i])
            least, most = min(least, state[row.STEP_LATENT, k] - reach), max(most, state[row.STEP_LATENT, k] + reach)
        growth = math.exp(min(2.0 * (most - least), 700.0))
        for k in range(i, state.shape[1], n):
            weight = min(0.25 * state[row.WEIGHT, k], max(state[row.CURVATURE, k], TINY) * growth)
            ratio = min(K[min(k // n, K.shape[0] - 1), i, i] * weight, 1e300)
            total += ratio / (1.0 + ratio) * (most - least)
    return total
