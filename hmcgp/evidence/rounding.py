"""Compiled bounds on what is left to do, and on what rounding may have done, at a mode of Laplace's approximation.

Symbols as in `hmcgp.evidence.laplace`, of several classes as in its `softmax`.  Nothing here asks how a sum happened to
be rounded: the same answers are refused on every processor.
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.newton import newton_step, size
from hmcgp.likelihoods.terms import LOGISTIC, ORDINAL, PROBIT, likelihood_terms, most_curved
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import symmetric_upper_times
from hmcgp.runtime.typing import Array

ROUNDED_AWAY = 1e-3  # a decrement that rounding alone may make, beyond which the answer is noise
NATS = 1e-6  # of log Z, by which f ≠ Kα may make an iterate wrong that is called the mode
LEFT_NATS = 1e-8  # of log|B|, which the step not taken would change
LOST_NATS = 0.1  # of log Z, by a bound on rounding that is some tens of times what rounding does: beyond, it is noise
TINY = 1e-300


@compiled_inside
def sensitivities(K: Array, state: Array) -> tuple[float, float, float]:
    """Leave c = -½ ∂ log|B|/∂f in state[SENSITIVITY], for 1 - B⁻¹_ii its bound K_ii W_i/(1 + K_ii W_i).

    Returns |c|₁; Σ |c_i| √S_ii, with S_ii <= K_ii/(1 + K_ii W_i), by which a step of decrement 1 changes log|B| at
    most; and Σ √W.
    """
    total, spread, root_sum = 0.0, 0.0, 0.0
    for i in range(state.shape[1]):
        ratio = K[i, i] * state[row.CURVATURE, i]
        state[row.SENSITIVITY, i] = 0.5 * ratio / (1.0 + ratio) * state[row.THIRD_RATIO, i]
        total += abs(state[row.SENSITIVITY, i])
        spread += abs(state[row.SENSITIVITY, i]) * math.sqrt(K[i, i] / (1.0 + ratio))
        root_sum += math.sqrt(state[row.CURVATURE, i])
    return total, spread, root_sum


@compiled_inside
def left_to_do(K: Array, state: Array) -> float:
    """Bound on the change of log|B| by the step at hand: where K is large, even one of a tiny decrement may matter.

    Where the step is long, c may be larger at its end: there W <= W exp(|δf d log W/df|), and W may have underflowed.
    """
    total = 0.0
    for i in range(state.shape[1]):
        change = abs(state[row.THIRD_RATIO, i] * state[row.STEP_LATENT, i])
        ratio = min(K[i, i] * max(state[row.CURVATURE, i], TINY) * math.exp(min(change, 700.0)), 1e300)
        total += 0.5 * ratio / (1.0 + ratio) * change
    return total


@compiled_inside
def drift_of_f(K: Array, state: Array) -> float:
    """Leave Kα in state[TRIAL_LATENT]; return the nats by which log Z changes if f is put to it."""
    symmetric_upper_times(K, state[row.ALPHA], state[row.TRIAL_LATENT])
    total = 0.0
    for i in range(state.shape[1]):
        state[row.STEP_LATENT, i] = state[row.TRIAL_LATENT, i] - state[row.LATENT, i]
        total += 0.5 * abs(state[row.ALPHA, i] * state[row.STEP_LATENT, i])
    return total + left_to_do(K, state)


@compiled_inside
def _largest_weights(y: Array, kind: int, state: Array, error: float) -> float:
    """Σ W where every f is moved by up to `error` to make it largest: at f as it is, W may have underflowed."""
    if kind == ORDINAL:
        return size(state[row.WEIGHT])  # W <= ω
    for i in range(state.shape[1]):
        f, peak = state[row.LATENT, i], most_curved(kind, y[i], state[row.FIRST, i], state[row.SECOND, i])
        state[row.TRIAL_LATENT, i] = f + min(max(peak - f, -error), error)
    likelihood_terms(
        kind, y, state[row.FIRST], state[row.SECOND], state[row.TRIAL_LATENT], state[row.WEIGHT], state[row.LOG_P],
        state[row.LAST_STEP_ALPHA], state[row.LAST_STEP_LATENT], state[row.TRIAL_ALPHA],
    )  # fmt: skip
    return size(state[row.LAST_STEP_LATENT])


@compiled_inside
def rounding_of_mode(K: Array, y: Array, kind: int, L: Array, state: Array, scale: float, implicit: float) -> float:
    """Bound on the rounding of the answer, as a multiple of what is tolerated.

    The entries of K are known to a relative eps, so that e = eps |K| |α|₁ is the error of f = Kα, however a processor
    rounds.  Two of its consequences are bounded: the decrement e √ΣW, and the error of log Z, eps Σ |G_ij K_ij| with
    G = ∂ log Z/∂K,

        e (½|α|₁ + |u|₁) + ½ eps ΣWK,    u = (I + WK)⁻¹ c.

    `implicit` is a bound on |u|₁; where it does not do, u is computed.
    """
    # equal at the mode; but the start, α = 0, may be the mode already
    alpha = max(size(state[row.ALPHA]), size(state[row.SLOPE]))
    error = EPS * scale * alpha
    if not error < np.inf:
        return np.inf
    trace = 0.0
    for i in range(state.shape[1]):
        trace += state[row.CURVATURE, i] * K[i, i]
    nats = 0.5 * (error * alpha + EPS * trace)
    if nats + error * implicit > LOST_NATS:
        u = state[row.STEP_ALPHA]
        newton_step(K, L, state[row.ROOT_CURVATURE], state[row.SENSITIVITY], u, state[row.STEP_LATENT])
        implicit = size(u)
    nats += error * implicit
    decrement = error * math.sqrt(size(state[row.WEIGHT]))  # of labels W <= ω
    if decrement > ROUNDED_AWAY or kind not in (LOGISTIC, PROBIT):
        decrement = error * math.sqrt(_largest_weights(y, kind, state, error))
    return max(nats / LOST_NATS, decrement / ROUNDED_AWAY)


@compiled_inside
def rounding_of_classes(K: Array, scale: float, state: Array) -> float:
    """Bound on the rounding of the answer, as a multiple of what is tolerated.

    The two bounds of `rounding_of_mode`, without the part of log Z that comes by way of the mode.  An
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


@compiled_inside
def left_to_do_of_classes(K: Array, state: Array, decrement: float) -> float:
    """Change of log|B| by the step at hand: where K is large, even a step of tiny decrement may change it.

    With a range of d over the classes of a row, a step changes its log π(1 - π) by 2d at most (as in
    `left_to_do`).  Where no step is at hand but its decrement, d <= 2 √K_ii times that.
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
