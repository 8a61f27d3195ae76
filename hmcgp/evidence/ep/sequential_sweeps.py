"""Compiled expectation propagation, one site after the other (Rasmussen & Williams 2006, Algorithm 3.5).

Each site is refreshed with the marginal that all sites before it have already changed: a rank-one update of S,

    S ← S - δw/(1 + δw S_ii) s s',   m ← m + (δη - δw m_i)/(1 + δw S_ii) s,    s = column i of S,

2n³ operations a sweep that no level-3 BLAS can speed up, after which S is recomputed against rounding.  A site with an
improper cavity, or whose change would leave S improper, waits for the next sweep.  Symbols as in
`hmcgp.evidence.ep.state`.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.parallel_sweeps import ROUNDED_AWAY
from hmcgp.evidence.ep.powers import tilted_power
from hmcgp.evidence.ep.site_algebra import covariance
from hmcgp.evidence.ep.state import COPIES, ETA, KEPT_ETA, KEPT_W, MEAN, POWER, W, evaluate
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array


@compiled
def _sweep(y: Array, kind: int, flip: float, damping: float, S: Array, a: Array) -> None:
    """Refresh every site once; MEAN and S follow."""
    n = y.shape[0]
    column = np.empty(n)
    for i in range(n):
        s, k = S[i, i], a[COPIES, i]
        tau = 1.0 / s - a[W, i] / k
        if not (s > 0.0 and tau > 0.0):
            continue
        mu = (a[MEAN, i] / s - a[ETA, i] / k) / tau
        _, slope, U = tilted_power(kind, flip, a[POWER, i], y[i], mu, 1.0 / tau)
        d = 1.0 - U / tau
        if not (d > 0.0 and math.isfinite(slope)):
            continue
        dw = damping * (k * U / d - a[W, i])
        deta = damping * (k * (slope + mu * U) / d - a[ETA, i])
        grown = 1.0 + dw * s
        if not grown > 0.0:
            continue
        a[W, i] += dw
        a[ETA, i] += deta
        mean_i = a[MEAN, i]
        for j in range(n):
            column[j] = S[i, j]
        for j in range(n):
            a[MEAN, j] += (deta - dw * mean_i) / grown * column[j]
            factor = dw / grown * column[j]
            for k in range(n):
                S[j, k] -= factor * column[k]


@compiled
def iterate_sequentially(
    K: Array, y: Array, kind: int, flip: float, warm: bool, tol: float, max_iter: int, work: Array, S: Array, a: Array,
    order: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweeps from the sites in `a` (or from none) until converged; as `hmcgp.evidence.ep.parallel_sweeps.iterate`."""
    if not warm:
        for i in range(y.shape[0]):
            a[ETA, i], a[W, i] = 0.0, 0.0
    residual, best, damping = np.inf, np.inf, 1.0
    for n_factor in range(1, max_iter + 1):
        proper, log_det = covariance(K, a[W], order, work, S)
        if not proper:
            if n_factor == 1:
                return NOT_POSITIVE_DEFINITE, n_factor, residual, log_det
            damping *= 0.5
            for i in range(y.shape[0]):
                a[ETA, i], a[W, i] = a[KEPT_ETA, i], a[KEPT_W, i]
            continue
        residual, rounding, good = evaluate(K, y, kind, flip, S, a, True)
        if good and residual <= max(tol, rounding):
            return (CONVERGED if rounding <= ROUNDED_AWAY else NOT_CONVERGED), n_factor, residual, log_det
        if good:
            damping = max(0.8 * damping, 0.1) if residual > best else min(1.1 * damping, 1.0)
            best = min(best, residual)
        for i in range(y.shape[0]):
            a[KEPT_ETA, i], a[KEPT_W, i] = a[ETA, i], a[W, i]
        symmetric_times(S, a[ETA], a[MEAN])
        _sweep(y, kind, flip, damping, S, a)
    return NOT_CONVERGED, max_iter, residual, np.inf
