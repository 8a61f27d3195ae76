"""Compiled expectation propagation, one site after the other (Rasmussen & Williams 2006, Algorithm 3.5).

Each site is updated at the marginal that the sites before it have changed, and changes S by a rank-one update,

    S ← S - δw/(1 + δw S_ii) s s',   m ← m + (δη - δw m_i)/(1 + δw S_ii) s,    s = column i of S,

2n³ operations a sweep out of reach of level-3 BLAS.  After each sweep S is recomputed against rounding.  A site with an
improper cavity, or whose change would leave S improper, is skipped until the next sweep.  Symbols as in
`hmcgp.evidence.ep.site_state`.
"""

import math

import numpy as np

from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.response_moments import tilted_row
from hmcgp.evidence.ep.site_algebra import posterior_covariance
from hmcgp.evidence.status import NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array


@compiled_inside
def _sweep(y: Array, kind: int, flip: float, damping: float, S: Array, state: Array, numbers: Array | None) -> None:
    """Update every site once, and the mean and S with it."""
    n = y.shape[0]
    column = np.empty(n)
    for i in range(n):
        s, k = S[i, i], state[site.COPIES, i]
        tau = 1.0 / s - state[site.PRECISION, i] / k
        if not (s > 0.0 and tau > 0.0):
            continue
        mu = (state[site.MEAN, i] / s - state[site.ETA, i] / k) / tau
        _, slope, U = tilted_row(kind, flip, state[site.POWER, i], y, numbers, i, mu, 1.0 / tau)
        d = 1.0 - U / tau
        if not (d > 0.0 and math.isfinite(slope)):
            continue
        dw = damping * (k * U / d - state[site.PRECISION, i])
        deta = damping * (k * (slope + mu * U) / d - state[site.ETA, i])
        grown = 1.0 + dw * s
        if not grown > 0.0:
            continue
        state[site.PRECISION, i] += dw
        state[site.ETA, i] += deta
        mean_i = state[site.MEAN, i]
        for j in range(n):
            column[j] = S[i, j]
        for j in range(n):
            state[site.MEAN, j] += (deta - dw * mean_i) / grown * column[j]
            factor = dw / grown * column[j]
            for k in range(n):
                S[j, k] -= factor * column[k]


@compiled
def sweep_sequentially(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int, work: Array,
    S: Array, state: Array, order: Array, numbers: Array | None,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweep until converged, from `start` if warm, else from sites that say nothing (see `parallel_sweeps`)."""
    if not site.begin(K, y, kind, flip, start, warm, state, numbers):
        return NOT_CONVERGED, 0, np.inf, np.inf
    if not warm:
        state[site.ETA, :], state[site.PRECISION, :] = 0.0, 0.0
    residual, best, damping = np.inf, np.inf, 1.0
    for n_factor in range(1, max_iter + 1):
        proper, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)
        if not proper:
            if n_factor == 1:
                return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
            damping *= 0.5
            site.restore_sites(state)
            continue
        residual, rounding, good = site.evaluate(K, y, kind, flip, S, state, True, numbers)
        if good and residual <= max(tol, rounding):
            return site.final_status(rounding), n_factor, residual, log_det
        if good:
            damping = max(0.8 * damping, 0.1) if residual > best else min(1.1 * damping, 1.0)
            best = min(best, residual)
        site.keep_sites(state)
        symmetric_times(S, state[site.ETA], state[site.MEAN])
        _sweep(y, kind, flip, damping, S, state, numbers)
    return NOT_CONVERGED, max_iter, residual, np.inf
