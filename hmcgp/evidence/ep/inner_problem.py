"""Compiled expectation propagation that cannot cycle, inner part: sites for given cavity and site together.

A double loop (Heskes & Zoeter 2002; Opper & Winther 2005).  Symbols as in `hmcgp.evidence.ep.state`.  Besides the
sites (η, w) it has natural parameters (h, t) of one Gaussian for every row, site and cavity together: the cavities are
(h - η, t - w).  With log normalisers

    Q = ½η'Sη - ½log|I + K diag w|        T = Σ log Ẑ_i + ½(h_i - η_i)²/(t_i - w_i) - ½log(t_i - w_i)
    M = Σ ½h_i²/t_i - ½log t_i            Φ(h, t) = M - min J,   J(η, w) = Q + T

-log Z is a minimum of Φ.  J is convex, whatever the likelihood: its second derivatives are the covariances Cq + Cr of f
and f² under q and under the tilted distributions.  With f measured from m, where p f + P f² is what a site changes by
(δw = -2P, δη = p + m δw), Newton's step is

    [S + diag κ₂     diag c       ] [p]   [d                ]     c = κ₃ + 2dκ₂
    [diag c          2S∘S + diag V] [P] = [κ₂ + d² - diag S ]     V = κ₄ + 2κ₂² + 4dκ₃ + 4d²κ₂

κ the cumulants of the tilted distributions, and d their mean less m.

Where a row counts k times, cavities are (h - η/k, t - w/k), its terms of T and M count k times, and Cr is Cr/k.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.powers import cumulants_power
from hmcgp.evidence.ep.site_algebra import covariance
from hmcgp.evidence.ep.state import COPIES, DM, ETA, KEPT_ETA, KEPT_W, MEAN, POWER, R, W
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import (
    cholesky_inplace,
    cholesky_solve_inplace,
    inverse_from_cholesky_inplace,
    symmetric_times,
)
from hmcgp.runtime.typing import Array

_HALVINGS = 30
_NOISE = 1e-12  # a decrement that rounding may make, in the end
# rows of `c`: d; κ₂, the covariance c of f and f² and the variance V of f², each divided by k; and how much more f² is
# in the tilted distribution than in q
D, K2, CROSS, V, EXCESS = 0, 1, 2, 3, 4


@compiled
def energy(
    K: Array, y: Array, kind: int, flip: float, s: Array, work: Array, S: Array, a: Array, order: Array, c: Array
) -> float:
    """J at the sites in `a`, infinite where q or a cavity is improper; S, MEAN and the rows of c follow.

    `s` has h and t in its two rows.
    """
    n = y.shape[0]
    for i in range(n):
        if not s[1, i] > a[W, i] / a[COPIES, i]:
            return np.inf
    proper, log_det = covariance(K, a[W], order, work, S)
    if not proper:
        return np.inf
    symmetric_times(S, a[ETA], a[MEAN])
    total = -0.5 * log_det
    for i in range(n):
        k = a[COPIES, i]
        h, tau = s[0, i] - a[ETA, i] / k, s[1, i] - a[W, i] / k
        log_z, shift, k2, k3, k4 = cumulants_power(kind, flip, a[POWER, i], y[i], h / tau, 1.0 / tau)
        total += k * (log_z + 0.5 * h * h / tau - 0.5 * math.log(tau)) + 0.5 * a[ETA, i] * a[MEAN, i]
        d = h / tau + shift - a[MEAN, i]
        c[D, i], c[K2, i], c[CROSS, i] = d, k2 / k, (k3 + 2.0 * d * k2) / k
        c[V, i] = (k4 + 2.0 * k2 * k2 + 4.0 * d * (k3 + d * k2)) / k
        c[EXCESS, i] = k2 + d * d - S[i, i]
    return total if math.isfinite(total) else np.inf


@compiled
def _newton_step(S: Array, a: Array, c: Array, A: Array, B: Array) -> float:
    """Fill the rows R and DM of `a` with Newton's step of η and w; returns the slope of J along it, 1 if there is none.

    A and B are work space of shape (n, n).
    """
    n = S.shape[0]
    P, p = np.empty(n), a[R]
    for i in range(n):
        for j in range(i + 1):
            A[i, j] = S[i, j]
        A[i, i] += c[K2, i]
    if not cholesky_inplace(A):
        return 1.0
    inverse_from_cholesky_inplace(A)
    symmetric_times(A, c[D], P)
    for i in range(n):
        for j in range(i + 1):
            B[i, j] = 2.0 * S[i, j] * S[i, j] - c[CROSS, i] * A[i, j] * c[CROSS, j]
        B[i, i] += c[V, i]
        P[i] = c[EXCESS, i] - c[CROSS, i] * P[i]
    if not cholesky_inplace(B):
        return 1.0
    cholesky_solve_inplace(B, P)
    symmetric_times(A, c[D] - c[CROSS] * P, p)
    slope = 0.0
    for i in range(n):
        slope -= c[D, i] * p[i] + c[EXCESS, i] * P[i]
        a[DM, i] = -2.0 * P[i]
        a[R, i] = p[i] + a[MEAN, i] * a[DM, i]
    return slope


@compiled
def minimise(
    K: Array, y: Array, kind: int, flip: float, s: Array, goal: float, budget: int, work: Array, S: Array, a: Array,
    order: Array, c: Array, B: Array,
) -> tuple[float, int]:  # fmt: skip
    """Minimise J from the sites in `a`, by Newton's steps, halved where they lead up, to a decrement of `goal`.

    Returns J, infinite where it was at the start, and the number of factorisations.
    """
    n = y.shape[0]
    value, used, before = energy(K, y, kind, flip, s, work, S, a, order, c), 1, np.inf
    while used < budget and value < np.inf:
        slope = _newton_step(S, a, c, work, B)
        if not (slope < 0.0 and (-slope > _NOISE or -slope < 0.5 * before)):
            break
        for i in range(n):
            a[KEPT_ETA, i], a[KEPT_W, i] = a[ETA, i], a[W, i]
        step, last = 1.0, value
        for _ in range(_HALVINGS):
            for i in range(n):
                a[ETA, i] = a[KEPT_ETA, i] + step * a[R, i]
                a[W, i] = a[KEPT_W, i] + step * a[DM, i]
            value, used = energy(K, y, kind, flip, s, work, S, a, order, c), used + 1
            if value <= last + 1e-4 * step * slope + 1e-14 * n * max(abs(last), 1.0):
                break
            step *= 0.5
        if -slope <= goal:
            break
        before = -slope
    return value, used
