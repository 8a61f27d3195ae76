"""Inner problem of the double loop: the sites, given the product of cavity and site of every row.

A double loop cannot cycle (Heskes & Zoeter 2002; Opper & Winther 2005).  Symbols as in `hmcgp.evidence.ep.site_state`.
Besides the sites (η, w) it has natural parameters (h, t) of one Gaussian for every row, the product of its cavity and
its site: the cavities are (h - η, t - w).  With log normalisers

    Q = ½η'Sη - ½log|I + K diag w|        T = Σ log Ẑ_i + ½(h_i - η_i)²/(t_i - w_i) - ½log(t_i - w_i)
    M = Σ ½h_i²/t_i - ½log t_i            Φ(h, t) = M - min J,   J(η, w) = Q + T

-log Z is a minimum of Φ.  J is convex, whatever the likelihood: its second derivatives are the covariances Cq + Cr of f
and f² under q and under the tilted distributions.  With f measured from m, and a site that changes by p f + P f²
(δw = -2P, δη = p + m δw), Newton's step is

    [S + diag κ₂     diag c       ] [p]   [d                ]     c = κ₃ + 2dκ₂
    [diag c          2S∘S + diag V] [P] = [κ₂ + d² - diag S ]     V = κ₄ + 2κ₂² + 4dκ₃ + 4d²κ₂

κ the cumulants of the tilted distributions, and d their mean less m.

A row that counts k times has the cavity (h - η/k, t - w/k); its terms of T and M count k times, and Cr/k replaces Cr.
"""

import math

import numpy as np

from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.power_moments import cumulants_power
from hmcgp.evidence.ep.site_algebra import posterior_covariance
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.runtime.typing import Array

_MAX_HALVINGS = 30
_NOISE = 1e-12  # decrement that rounding may make near the minimum

OUTER_ETA, OUTER_PRECISION = 0, 1  # rows of `outer`: h and t
# Rows of `tilted`: covariances of f and f² in the tilted distributions, each divided by k; differences of the means of
# f and f² between these and q
VAR_F, COV_F_F2, VAR_F2, DIFF_F, DIFF_F2 = 0, 1, 2, 3, 4


@compiled_inside
def inner_objective(
    K: Array, y: Array, kind: int, flip: float, outer: Array, work: Array, S: Array, state: Array, order: Array,
    tilted: Array,
) -> float:  # fmt: skip
    """J at the sites in `state`, infinite where q or a cavity is improper; updates S, the mean and `tilted`, (5, n)."""
    n = y.shape[0]
    for i in range(n):
        if not outer[OUTER_PRECISION, i] > state[site.PRECISION, i] / state[site.COPIES, i]:
            return np.inf
    proper, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)
    if not proper:
        return np.inf
    lapack.symmetric_times(S, state[site.ETA], state[site.MEAN])
    total = -0.5 * log_det
    for i in range(n):
        k = state[site.COPIES, i]
        h = outer[OUTER_ETA, i] - state[site.ETA, i] / k
        tau = outer[OUTER_PRECISION, i] - state[site.PRECISION, i] / k
        log_z, shift, k2, k3, k4 = cumulants_power(kind, flip, state[site.POWER, i], y[i], h / tau, 1.0 / tau)
        total += k * (log_z + 0.5 * h * h / tau - 0.5 * math.log(tau)) + 0.5 * state[site.ETA, i] * state[site.MEAN, i]
        d = h / tau + shift - state[site.MEAN, i]
        tilted[VAR_F, i], tilted[COV_F_F2, i] = k2 / k, (k3 + 2.0 * d * k2) / k
        tilted[VAR_F2, i] = (k4 + 2.0 * k2 * k2 + 4.0 * d * (k3 + d * k2)) / k
        tilted[DIFF_F, i], tilted[DIFF_F2, i] = d, k2 + d * d - S[i, i]
    return total if math.isfinite(total) else np.inf


@compiled_inside
def _newton_step(S: Array, state: Array, tilted: Array, A: Array, B: Array) -> float:
    """Fill ETA_STEP and PRECISION_STEP with Newton's step; returns the slope of J along it, or 1 if there is none.

    A and B are work space of shape (n, n).
    """
    n = S.shape[0]
    P, p = np.empty(n), state[site.ETA_STEP]
    for i in range(n):
        for j in range(i + 1):
            A[i, j] = S[i, j]
        A[i, i] += tilted[VAR_F, i]
    if not lapack.cholesky_inplace(A):
        return 1.0
    lapack.inverse_from_cholesky_inplace(A)
    lapack.symmetric_times(A, tilted[DIFF_F], P)
    for i in range(n):
        for j in range(i + 1):
            B[i, j] = 2.0 * S[i, j] * S[i, j] - tilted[COV_F_F2, i] * A[i, j] * tilted[COV_F_F2, j]
        B[i, i] += tilted[VAR_F2, i]
        P[i] = tilted[DIFF_F2, i] - tilted[COV_F_F2, i] * P[i]
    if not lapack.cholesky_inplace(B):
        return 1.0
    lapack.cholesky_solve_inplace(B, P)
    lapack.symmetric_times(A, tilted[DIFF_F] - tilted[COV_F_F2] * P, p)
    slope = 0.0
    for i in range(n):
        slope -= tilted[DIFF_F, i] * p[i] + tilted[DIFF_F2, i] * P[i]
        state[site.PRECISION_STEP, i] = -2.0 * P[i]
        state[site.ETA_STEP, i] = p[i] + state[site.MEAN, i] * state[site.PRECISION_STEP, i]
    return slope


@compiled_inside
def _step_from_kept(state: Array, step: float) -> None:
    """Move the sites from those last kept by a fraction of Newton's step."""
    for i in range(state.shape[1]):
        state[site.ETA, i] = state[site.KEPT_ETA, i] + step * state[site.ETA_STEP, i]
        state[site.PRECISION, i] = state[site.KEPT_PRECISION, i] + step * state[site.PRECISION_STEP, i]


@compiled_inside
def minimise_inner(
    K: Array, y: Array, kind: int, flip: float, outer: Array, goal: float, budget: int, work: Array, S: Array,
    state: Array, order: Array, tilted: Array, B: Array,
) -> tuple[float, int]:  # fmt: skip
    """Minimise J from the sites in `state`, by Newton's steps with halving, to a decrement of `goal`.

    Returns J, infinite where it was at the start, and the number of factorisations.
    """
    n = y.shape[0]
    value, used, before = inner_objective(K, y, kind, flip, outer, work, S, state, order, tilted), 1, np.inf
    while used < budget and value < np.inf:
        slope = _newton_step(S, state, tilted, work, B)
        if not (slope < 0.0 and (-slope > _NOISE or -slope < 0.5 * before)):
            break
        site.keep_sites(state)
        step, last = 1.0, value
        for _ in range(_MAX_HALVINGS):
            _step_from_kept(state, step)
            value, used = inner_objective(K, y, kind, flip, outer, work, S, state, order, tilted), used + 1
            if value <= last + 1e-4 * step * slope + 1e-14 * n * max(abs(last), 1.0):
                break
            step *= 0.5
        if -slope <= goal:
            break
        before = -slope
    return value, used
