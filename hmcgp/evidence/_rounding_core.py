"""Compiled bounds on what is left to do, and on what rounding may have done, at a mode of Laplace's approximation.

Symbols as in `hmcgp.evidence.laplace`, iterates as in `_newton_core`.  Nothing here asks how a sum happened to be
rounded: the same answers are refused on every processor.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hmcgp._likelihood_core import LOGISTIC, likelihood_terms
from hmcgp._typing import Array
from hmcgp.evidence._newton_core import (
    ALPHA,
    D_ALPHA,
    D_F,
    EPS,
    LAST_D_ALPHA,
    LAST_D_F,
    LOG_P,
    RATIO,
    ROOT_W,
    TRY_ALPHA,
    TRY_F,
    WEIGHT,
    C,
    F,
    G,
    W,
    newton_step,
    size,
)
from hmcgp.linalg import symmetric_times

ROUNDED_AWAY = 1e-3  # a decrement that rounding alone may make, beyond which the answer is noise
NATS = 1e-6  # of log Z, by which an iterate may be wrong that is called the mode
LOST_NATS = 0.1  # of log Z, by a bound on rounding that is some tens of times what rounding does: beyond, it is noise
TINY = 1e-300


@njit(cache=True, nogil=True, error_model="numpy")
def sensitivities(K: Array, a: Array) -> tuple[float, float, float]:
    """Leave c = -½ ∂ log|B|/∂f in a[C], for 1 - B⁻¹_ii its bound K_ii W_i/(1 + K_ii W_i).

    Returns
    -------
    size : float
        |c|₁.
    spread : float
        Σ |c_i| √S_ii, with S_ii <= K_ii/(1 + K_ii W_i): a step of decrement 1 changes log|B| by that at most.
    root_sum : float
        Σ √W.
    """
    total, spread, root_sum = 0.0, 0.0, 0.0
    for i in range(a.shape[1]):
        ratio = K[i, i] * a[W, i]
        a[C, i] = 0.5 * ratio / (1.0 + ratio) * a[RATIO, i]
        total += abs(a[C, i])
        spread += abs(a[C, i]) * math.sqrt(K[i, i] / (1.0 + ratio))
        root_sum += math.sqrt(a[W, i])
    return total, spread, root_sum


@njit(cache=True, nogil=True, error_model="numpy")
def left_to_do(K: Array, a: Array) -> float:
    """By how much the step at hand would change log|B|: where K is large, even one of a tiny decrement may.

    Where the step is long, c may be larger at its end: there W <= W exp(|δf d log W/df|), and W may have underflowed.
    """
    total = 0.0
    for i in range(a.shape[1]):
        change = abs(a[RATIO, i] * a[D_F, i])
        ratio = min(K[i, i] * max(a[W, i], TINY) * math.exp(min(change, 700.0)), 1e300)
        total += 0.5 * ratio / (1.0 + ratio) * change
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def drift_of_f(K: Array, a: Array) -> float:
    """Leave Kα in a[TRY_F]; return the nats by which log Z changes if f is put to it."""
    symmetric_times(K, a[ALPHA], a[TRY_F])
    total = 0.0
    for i in range(a.shape[1]):
        a[D_F, i] = a[TRY_F, i] - a[F, i]
        total += 0.5 * abs(a[ALPHA, i] * a[D_F, i])
    return total + left_to_do(K, a)


@njit(cache=True, nogil=True, error_model="numpy")
def _largest_weights(y: Array, kind: int, a: Array, error: float) -> float:
    """Σ W where every f is moved by up to `error` to make it largest: at f as it is, W may have underflowed."""
    for i in range(a.shape[1]):
        f = a[F, i]
        # W of a logistic falls with |f|, that of a probit with yf
        a[TRY_F, i] = math.copysign(max(abs(f) - error, 0.0), f) if kind == LOGISTIC else f - y[i] * error
    likelihood_terms(kind, y, a[TRY_F], a[WEIGHT], a[LOG_P], a[LAST_D_ALPHA], a[LAST_D_F], a[TRY_ALPHA])
    return size(a[LAST_D_F])


@njit(cache=True, nogil=True, error_model="numpy")
def rounding_of_mode(K: Array, y: Array, kind: int, L: Array, a: Array, scale: float, implicit: float) -> float:
    """What rounding may have done to the answer, as a multiple of what is tolerated.

    The entries of K are known to a relative eps, so that e = eps |K| |α|₁ is the error of f = Kα, however a processor
    rounds.  Two of its consequences are bounded: the decrement e √ΣW, and the error of log Z, eps Σ |G_ij K_ij| with
    G = ∂ log Z/∂K,

        e (½|α|₁ + |u|₁) + ½ eps ΣWK,    u = (I + WK)⁻¹ c.

    `implicit` is a bound on |u|₁; where it does not do, u is computed.
    """
    alpha = max(size(a[ALPHA]), size(a[G]))  # equal at the mode; but the start, α = 0, may be the mode already
    error = EPS * scale * alpha
    if not error < np.inf:
        return np.inf
    trace = 0.0
    for i in range(a.shape[1]):
        trace += a[W, i] * K[i, i]
    nats = 0.5 * (error * alpha + EPS * trace)
    if nats + error * implicit > LOST_NATS:
        newton_step(K, L, a[ROOT_W], a[C], a[D_ALPHA], a[D_F])
        implicit = size(a[D_ALPHA])
    nats += error * implicit
    decrement = error * math.sqrt(size(a[WEIGHT]))  # W <= ω
    if decrement > ROUNDED_AWAY:
        decrement = error * math.sqrt(_largest_weights(y, kind, a, error))
    return max(nats / LOST_NATS, decrement / ROUNDED_AWAY)
