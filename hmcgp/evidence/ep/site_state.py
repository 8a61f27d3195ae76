"""State of compiled expectation propagation: sites, cavities, moments and residual.

The Gaussian approximation is q(f) = N(m, S) with m = Kx and S = (K⁻¹ + diag w)⁻¹.  Its sites exp(η_i f - ½w_i f²) have
η = x + w m.  (The mean is Kx for any w, so that w can change without solving for x again.)  With

    cavity    τ_i = 1/v_i = 1/S_ii - w_i,    μ_i = m_i - v_i x_i
    moments   log Ẑ_i, a_i, U_i of the likelihood under the cavity (`hmcgp.evidence.ep.tilted_moments`)

the equations to solve are x = a and w = ŵ, ŵ = U/(1 - Uv).  The residual is dimensionless: |ŵ - w| S_ii, |a - x| √v.

A row of weight ω >= 1 is k = ω copies of itself, not necessarily a whole number of them (power EP; Minka 2004): a
cavity leaves one copy out.  All copies have the same site, and x, w, η, a and ŵ are k times those of one:

    τ = 1/S_ii - w/k,    μ = m - v x/k,    x = k a,    w = k U/(1 - Uv).

So rows and their copies have one solution.  A row of weight ω < 1 is one copy of p^ω (`power_moments`): a fraction
of a copy, k < 1, would remove more than its site, and the rest need not be a distribution.
"""

import math

import numpy as np

from hmcgp.evidence.ep.response_moments import tilted_row
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array

_MAX_ROUNDING = 1e-4  # where rounding alone may make a residual this large, the solution is noise

# Rows of the state, an array of shape (ROWS, n)
ALPHA, MEAN, PRECISION, ETA = 0, 1, 2, 3  # x and m; w and η of the sites
VARIANCE, CAVITY_PRECISION, CAVITY_MEAN = 4, 5, 6  # S_ii, τ and μ
LOG_Z, SLOPE, MATCHED_PRECISION, VARIANCE_RATIO = 7, 8, 9, 10  # log Ẑ, a, ŵ and 1 - Uv
KEPT_ETA, KEPT_PRECISION = 11, 12  # sites last accepted
GOAL_ETA, GOAL_PRECISION = 13, 14  # sites that match the moments there
BEST_ALPHA, BEST_PRECISION = 15, 16  # best solution of a model of the equations
RESIDUAL, MEAN_STEP, VARIANCE_DROP, MODEL_CAVITY, PRECISION_STEP = 17, 18, 19, 20, 21  # work space
COPIES, POWER = 22, 23  # k, and the power of p in each copy
ETA_STEP, KEPT_ALPHA, KEPT_MEAN = 24, 25, 26  # work space
FIRST_SLOPE, SECOND_SLOPE = 27, 28  # derivatives of log Z in the numbers of the row (`Likelihood.row_numbers`)
ROWS = 29


@compiled
def new_state(weights: Array) -> Array:
    """State of rows with these weights, zero elsewhere."""
    state = np.zeros((ROWS, weights.shape[0]))
    for i in range(weights.shape[0]):
        state[COPIES, i], state[POWER, i] = max(weights[i], 1.0), min(weights[i], 1.0)
    return state


@compiled_inside
def update_moments(
    kind: int, flip: float, y: Array, state: Array, cavity_precision: Array, numbers: Array | None = None
) -> bool:
    """Update cavity means and moments, at the given cavity precisions; False if a cavity or a moment is improper.

    `numbers`, of shape (2, n), belong to targets that are no labels (see `response_moments.tilted_row`).
    """
    good = True
    for i in range(y.shape[0]):
        tau = cavity_precision[i]
        v = 1.0 / tau
        if not (tau > 0.0 and v < np.inf):  # NaN fails too
            state[MATCHED_PRECISION, i] = np.nan
            good = False
            continue
        k = state[COPIES, i]
        mu = state[MEAN, i] - v * state[ALPHA, i] / k
        state[LOG_Z, i], slope, U = tilted_row(kind, flip, state[POWER, i], y, numbers, i, mu, v)
        ratio = 1.0 - U * v
        state[CAVITY_MEAN, i], state[SLOPE, i] = mu, k * slope
        state[MATCHED_PRECISION, i], state[VARIANCE_RATIO, i] = k * U / ratio, ratio
        if not (ratio > 0.0 and math.isfinite(state[SLOPE, i])):
            state[MATCHED_PRECISION, i] = np.nan
            good = False
    return good


@compiled_inside
def mean_from_sites(S: Array, state: Array) -> None:
    """Fill m = Sη and x = η - w m, S being the covariance of q."""
    symmetric_times(S, state[ETA], state[MEAN])
    for i in range(state.shape[1]):
        state[ALPHA, i] = state[ETA, i] - state[PRECISION, i] * state[MEAN, i]


@compiled_inside
def evaluate(
    K: Array, y: Array, kind: int, flip: float, S: Array, state: Array, from_sites: bool, numbers: Array | None = None
) -> tuple[float, float, bool]:
    """Update mean, cavities, moments and residual, S being the covariance of q.

    The mean follows from (η, w) where `from_sites` is true; else x is given, and η follows from (x, w).  Returns the
    residual, infinite where a cavity is improper; the residual that rounding in m = Kx and in S may make; and whether
    every cavity is proper.
    """
    n = y.shape[0]
    if from_sites:
        mean_from_sites(S, state)
    symmetric_times(K, state[ALPHA], state[MEAN])
    size, scale, stiff, swollen = 0.0, 0.0, 0.0, 1.0
    for i in range(n):
        x, w = state[ALPHA, i], state[PRECISION, i]
        if not from_sites:
            state[ETA, i] = x + w * state[MEAN, i]
        state[VARIANCE, i] = S[i, i]
        state[CAVITY_PRECISION, i] = 1.0 / S[i, i] - w / state[COPIES, i] if S[i, i] > 0.0 else -1.0
        size += abs(x)
        scale = max(scale, K[i, i])
        stiff = max(stiff, abs(w) * K[i, i])  # of the size of A in `site_algebra`, and
        swollen = max(swollen, 1.0 - w * S[i, i])  # of its inverse, which negative sites make large
    good = update_moments(kind, flip, y, state, state[CAVITY_PRECISION], numbers)
    residual, narrowest = 0.0, np.inf
    for i in range(n):
        if not math.isnan(state[MATCHED_PRECISION, i]):
            of_w = abs(state[MATCHED_PRECISION, i] - state[PRECISION, i]) * S[i, i]
            of_x = abs(state[SLOPE, i] - state[ALPHA, i]) / math.sqrt(state[CAVITY_PRECISION, i])
            residual = max(residual, of_w, of_x)
            narrowest = min(narrowest, S[i, i])
    if not good:
        residual = np.inf
    return residual, EPS * (scale * size / math.sqrt(narrowest) + stiff * swollen * swollen), good


@compiled_inside
def final_status(rounding: float) -> int:
    """CONVERGED, unless rounding alone may make a residual that is not small."""
    return CONVERGED if rounding <= _MAX_ROUNDING else NOT_CONVERGED


@compiled_inside
def keep_sites(state: Array) -> None:
    """Remember the sites, for `restore_sites`."""
    for i in range(state.shape[1]):
        state[KEPT_ETA, i], state[KEPT_PRECISION, i] = state[ETA, i], state[PRECISION, i]


@compiled_inside
def restore_sites(state: Array) -> None:
    """Go back to the sites last kept."""
    for i in range(state.shape[1]):
        state[ETA, i], state[PRECISION, i] = state[KEPT_ETA, i], state[KEPT_PRECISION, i]


@compiled_inside
def accept_sites(state: Array) -> None:
    """Keep the sites, and set the goal of each: the site that matches the moments, or itself if they are improper."""
    keep_sites(state)
    for i in range(state.shape[1]):
        w = state[MATCHED_PRECISION, i]
        if math.isnan(w):
            state[GOAL_ETA, i], state[GOAL_PRECISION, i] = state[ETA, i], state[PRECISION, i]
        else:
            state[GOAL_ETA, i] = state[SLOPE, i] / state[VARIANCE_RATIO, i] + state[CAVITY_MEAN, i] * w
            state[GOAL_PRECISION, i] = w


@compiled_inside
def plain_sweep(state: Array, damping: float) -> None:
    """Move the sites from where they were last kept to a fraction `damping` of the way to their goals."""
    for i in range(state.shape[1]):
        eta, w = state[KEPT_ETA, i], state[KEPT_PRECISION, i]
        state[ETA, i] = eta + damping * (state[GOAL_ETA, i] - eta)
        state[PRECISION, i] = w + damping * (state[GOAL_PRECISION, i] - w)


@compiled_inside
def cold_start(K: Array, y: Array, kind: int, flip: float, state: Array, numbers: Array | None = None) -> None:
    """Set each site as if its label were the only one: its cavity is the prior."""
    for i in range(y.shape[0]):
        _, slope, U = tilted_row(kind, flip, state[POWER, i], y, numbers, i, 0.0, K[i, i])
        d = (1.0 - U * K[i, i]) / state[COPIES, i]
        state[ETA, i], state[PRECISION, i] = slope / d, U / d
        state[KEPT_ETA, i], state[KEPT_PRECISION, i] = 0.0, 0.0
        state[GOAL_ETA, i], state[GOAL_PRECISION, i] = state[ETA, i], state[PRECISION, i]


@compiled_inside
def warm_start(start: Array, log_concave: bool, state: Array) -> bool:
    """Set the sites to `start`, (η, w) stacked; False if they are not finite."""
    n = state.shape[1]
    good = True
    for i in range(n):
        state[ETA, i], state[PRECISION, i] = start[i], start[n + i]
        if log_concave and state[PRECISION, i] < 0.0:  # an extrapolation may go too far
            state[PRECISION, i] = 0.0
        state[GOAL_ETA, i], state[GOAL_PRECISION, i] = state[ETA, i], state[PRECISION, i]
        good = good and math.isfinite(state[ETA, i]) and math.isfinite(state[PRECISION, i])
    keep_sites(state)
    return good


@compiled_inside
def begin(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, state: Array, numbers: Array | None = None
) -> bool:
    """Set the sites to `start` if warm, else as from the prior; False if they are not finite."""
    if warm:
        return warm_start(start, flip == 0.0, state)
    cold_start(K, y, kind, flip, state, numbers)
    return True
