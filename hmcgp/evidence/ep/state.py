"""Compiled state of expectation propagation: sites, cavities, moments and residual.

The state is (x, w): q(f) = N(m, S) with m = Kx and S = (K⁻¹ + diag w)⁻¹, whose sites exp(η_i f - ½w_i f²) have
η = x + w m.  (For any w, the mean of these sites is Kx: so w can be moved without solving for x again.)  With

    cavity    τ_i = 1/v_i = 1/S_ii - w_i,    μ_i = m_i - v_i x_i
    moments   log Ẑ_i, a_i, U_i of the likelihood under it (`hmcgp.evidence.ep.tilted_moments`)

the equations to solve are x = a and w = ŵ, ŵ = U/(1 - Uv).  The residual is dimensionless: |ŵ - w| S_ii, |a - x| √v.

A row of weight ω >= 1 is k = ω copies of itself, as many as a fraction too (power EP; Minka 2004): a cavity leaves one
of them out.  All copies have the same site, and X, W, ETA, A and W_HAT are k times those of one:

    τ = 1/S_ii - w/k,    μ = m - v x/k,    x = k a,    w = k U/(1 - Uv).

So rows and their copies have one solution.  A weight below 1 makes one copy of p^ω (`hmcgp.evidence.ep.powers`):
part of a copy, k < 1, would leave more than its site out, and what is left need not be a distribution.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.powers import tilted_power
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array

# The state, with its work space, is one array `a` of shape (ROWS, n); its rows are
X, MEAN, W, ETA = 0, 1, 2, 3
S_DIAG, TAU, MU = 4, 5, 6  # variance of q, precision and mean of the cavity
LOG_Z, A, W_HAT, D = 7, 8, 9, 10  # moments; D = 1 - Uv
KEPT_ETA, KEPT_W, GOAL_ETA, GOAL_W = 11, 12, 13, 14  # the last sites that were accepted, and where they want to go
BEST_X, BEST_W = 15, 16
R, DM, Q, MODEL_TAU, DW = 17, 18, 19, 20, 21  # work space of the inner solver
COPIES, POWER = 22, 23  # k, and the power of p in each
ROWS = 24


@compiled
def blank(weights: Array) -> Array:
    """A state of rows with these weights, and of nothing else yet."""
    a = np.zeros((ROWS, weights.shape[0]))
    for i in range(weights.shape[0]):
        a[COPIES, i], a[POWER, i] = max(weights[i], 1.0), min(weights[i], 1.0)
    return a


@compiled
def moments(kind: int, flip: float, y: Array, a: Array, tau: Array) -> bool:
    """Fill cavity means and moments at (X, MEAN) and the cavity precisions tau; False if any is improper."""
    good = True
    for i in range(y.shape[0]):
        v = 1.0 / tau[i]
        if not (tau[i] > 0.0 and v < np.inf):  # NaN fails too
            a[W_HAT, i] = np.nan
            good = False
            continue
        k = a[COPIES, i]
        a[MU, i] = a[MEAN, i] - v * a[X, i] / k
        a[LOG_Z, i], slope, U = tilted_power(kind, flip, a[POWER, i], y[i], a[MU, i], v)
        a[A, i] = k * slope
        a[D, i] = 1.0 - U * v
        a[W_HAT, i] = k * U / a[D, i]
        if not (a[D, i] > 0.0 and math.isfinite(a[A, i])):
            a[W_HAT, i] = np.nan
            good = False
    return good


@compiled
def evaluate(
    K: Array, y: Array, kind: int, flip: float, S: Array, a: Array, from_sites: bool
) -> tuple[float, float, bool]:
    """Mean, cavities, moments and residual at the sites, S being their covariance.

    Returns
    -------
    residual : float
        Infinite where a cavity is improper.
    rounding : float
        The residual that rounding in m = Kx and in S may make.
    good : bool
        Whether every cavity is proper.
    """
    n = y.shape[0]
    if from_sites:
        symmetric_times(S, a[ETA], a[MEAN])
        for i in range(n):
            a[X, i] = a[ETA, i] - a[W, i] * a[MEAN, i]
    symmetric_times(K, a[X], a[MEAN])
    size, scale, stiff, swollen = 0.0, 0.0, 0.0, 1.0
    for i in range(n):
        if not from_sites:
            a[ETA, i] = a[X, i] + a[W, i] * a[MEAN, i]
        a[S_DIAG, i] = S[i, i]
        a[TAU, i] = 1.0 / S[i, i] - a[W, i] / a[COPIES, i] if S[i, i] > 0.0 else -1.0
        size += abs(a[X, i])
        scale = max(scale, K[i, i])
        stiff = max(stiff, abs(a[W, i]) * K[i, i])  # of the size of A, and
        swollen = max(swollen, 1.0 - a[W, i] * S[i, i])  # of its inverse, which negative sites make large
    good = moments(kind, flip, y, a, a[TAU])
    residual, narrowest = 0.0, np.inf
    for i in range(n):
        if a[W_HAT, i] == a[W_HAT, i]:
            of_w, of_x = abs(a[W_HAT, i] - a[W, i]) * S[i, i], abs(a[A, i] - a[X, i]) / math.sqrt(a[TAU, i])
            residual = max(residual, of_w, of_x)
            narrowest = min(narrowest, S[i, i])
    if not good:
        residual = np.inf
    return residual, EPS * (scale * size / math.sqrt(narrowest) + stiff * swollen * swollen), good


@compiled
def accept(a: Array) -> None:
    """Keep these sites, and note where each with a proper cavity wants to go."""
    for i in range(a.shape[1]):
        a[KEPT_ETA, i], a[KEPT_W, i] = a[ETA, i], a[W, i]
        if a[W_HAT, i] == a[W_HAT, i]:  # not NaN
            a[GOAL_W, i] = a[W_HAT, i]
            a[GOAL_ETA, i] = a[A, i] / a[D, i] + a[MU, i] * a[W_HAT, i]
        else:
            a[GOAL_W, i], a[GOAL_ETA, i] = a[W, i], a[ETA, i]


@compiled
def plain_sweep(a: Array, damping: float) -> None:
    """A damped plain sweep from the sites last accepted, in natural parameters."""
    for i in range(a.shape[1]):
        a[ETA, i] = a[KEPT_ETA, i] + damping * (a[GOAL_ETA, i] - a[KEPT_ETA, i])
        a[W, i] = a[KEPT_W, i] + damping * (a[GOAL_W, i] - a[KEPT_W, i])


@compiled
def cold_start(K: Array, y: Array, kind: int, flip: float, a: Array) -> None:
    """Sites as if each label were alone: its cavity is the prior."""
    for i in range(y.shape[0]):
        _, slope, U = tilted_power(kind, flip, a[POWER, i], y[i], 0.0, K[i, i])
        d = (1.0 - U * K[i, i]) / a[COPIES, i]
        a[ETA, i], a[W, i] = slope / d, U / d
        a[KEPT_ETA, i], a[KEPT_W, i], a[GOAL_ETA, i], a[GOAL_W, i] = 0.0, 0.0, a[ETA, i], a[W, i]


@compiled
def warm_start(start: Array, log_concave: bool, a: Array) -> bool:
    """Sites given as (η, w) stacked; False if they are not finite."""
    n = a.shape[1]
    good = True
    for i in range(n):
        a[ETA, i], a[W, i] = start[i], start[n + i]
        if log_concave and a[W, i] < 0.0:  # an extrapolation may go too far
            a[W, i] = 0.0
        a[KEPT_ETA, i], a[KEPT_W, i] = a[ETA, i], a[W, i]
        a[GOAL_ETA, i], a[GOAL_W, i] = a[ETA, i], a[W, i]
        good = good and math.isfinite(a[ETA, i]) and math.isfinite(a[W, i])
    return good
