"""Compiled expectation propagation that cannot cycle, outer part: Newton's method on Φ.

Symbols as in `hmcgp.evidence.ep.inner_problem`.  At the minimum of J, the gradient of Φ in (h, t) is the difference of
the moments of f and f² under the Gaussians (h, t) and under q, and its second derivatives are

    H = Cs - P,   P = (Cq⁻¹ + Cr⁻¹)⁻¹ = Cr - Cr(Cq + Cr)⁻¹Cr

with C the covariances of f and f² under these Gaussians, q and the tilted distributions: Cs and Cr couple nothing but
the two parameters of one row.  H need not be positive definite; the steps are those of Hθ = Cs - (1 - θ)P, where θ
grows when Φ does not fall.  Instead of θ = 1, (h, t) moves to the marginals of q, which can only lower Φ: the double
loop as published; or part of the way, where cavities would become improper.  The moments of q move by Pδ, and the sites
by δ - Cr⁻¹Pδ, if (h, t) moves by δ.

Where a row counts k times, all this holds of kδ, with Cs/k and Cr/k in the place of Cs and Cr.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.inner_problem import CROSS, K2, V, energy, minimise
from hmcgp.evidence.ep.parallel_sweeps import FAR, ROUNDED_AWAY
from hmcgp.evidence.ep.site_algebra import covariance
from hmcgp.evidence.ep.solve import finish
from hmcgp.evidence.ep.state import COPIES, ETA, MEAN, W, blank, evaluate, warm_start
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import cholesky_inplace, cholesky_solve_inplace, inverse_from_cholesky_inplace
from hmcgp.runtime.typing import Array

__all__ = ["solve"]

_GOAL = 1e-3  # decrement of J at first
_LEAST = 0.05  # least θ of a step that is to be safer
_ROOM = 0.1  # a move to the marginals of q leaves so much of the cavity precisions
_STALLED = 10.0  # times the rounding expected is taken for rounding where Newton's method stalls


@compiled
def _outer_value(s: Array, a: Array, inner: float) -> float:
    """Φ, where J has its minimum `inner`; infinite where that is."""
    total = 0.0
    for i in range(s.shape[1]):
        total += a[COPIES, i] * (0.5 * s[0, i] * s[0, i] / s[1, i] - 0.5 * math.log(s[1, i]))
    return total - inner if inner < np.inf else np.inf


@compiled
def _gaussians(s: Array, S: Array, a: Array, g: Array) -> float:
    """Fill g with Cs/k (three rows) and the moments of q less those of the Gaussians s (two), f measured from m.

    Returns the largest difference, in units of the spread of q.
    """
    size = 0.0
    for i in range(S.shape[0]):
        v, d, k = 1.0 / s[1, i], s[0, i] / s[1, i] - a[MEAN, i], a[COPIES, i]
        g[0, i], g[1, i], g[2, i] = v / k, 2.0 * d * v / k, (2.0 * v * v + 4.0 * d * d * v) / k
        g[3, i], g[4, i] = -d, S[i, i] - v - d * d
        size = max(size, abs(d) / math.sqrt(S[i, i]), abs(v / S[i, i] - 1.0))
    return size


@compiled
def _curvature(S: Array, c: Array, g: Array, theta: float, H: Array) -> bool:
    """Overwrite H, of shape (2n, 2n), by the Cholesky factor of Hθ; False where there is none.

    The two parameters of a row are next to each other.
    """
    n = S.shape[0]
    for i in range(n):
        for j in range(i + 1):
            H[2 * i, 2 * j], H[2 * i, 2 * j + 1] = S[i, j], 0.0
            H[2 * i + 1, 2 * j], H[2 * i + 1, 2 * j + 1] = 0.0, 2.0 * S[i, j] * S[i, j]
        H[2 * i, 2 * i] += c[K2, i]
        H[2 * i + 1, 2 * i] += c[CROSS, i]
        H[2 * i + 1, 2 * i + 1] += c[V, i]
    if not cholesky_inplace(H):
        return False
    inverse_from_cholesky_inplace(H)
    rest = 1.0 - theta
    for i in range(n):
        H[2 * i, 2 * i + 1] = H[2 * i + 1, 2 * i]
        for j in range(i + 1):  # Cr(Cq + Cr)⁻¹Cr, a block of two by two at a time
            k2, cross, v = c[K2, i], c[CROSS, i], c[V, i]
            p, q, r, t = H[2 * i, 2 * j], H[2 * i, 2 * j + 1], H[2 * i + 1, 2 * j], H[2 * i + 1, 2 * j + 1]
            p, q, r, t = k2 * p + cross * r, k2 * q + cross * t, cross * p + v * r, cross * q + v * t
            k2, cross, v = c[K2, j], c[CROSS, j], c[V, j]
            H[2 * i, 2 * j], H[2 * i, 2 * j + 1] = rest * (p * k2 + q * cross), rest * (p * cross + q * v)
            H[2 * i + 1, 2 * j], H[2 * i + 1, 2 * j + 1] = rest * (r * k2 + t * cross), rest * (r * cross + t * v)
        H[2 * i, 2 * i] += g[0, i] - rest * c[K2, i]
        H[2 * i + 1, 2 * i] += g[1, i] - rest * c[CROSS, i]
        H[2 * i + 1, 2 * i + 1] += g[2, i] - rest * c[V, i]
    return cholesky_inplace(H)


@compiled
def _outer_step(s: Array, S: Array, a: Array, c: Array, g: Array, theta: float, H: Array) -> bool:
    """Move s, and the sites with it; nothing moves, and False is returned, where Hθ is not positive definite."""
    if not _curvature(S, c, g, theta, H):
        return False
    n = S.shape[0]
    step = np.empty(2 * n)
    for i in range(n):
        step[2 * i], step[2 * i + 1] = g[3, i], g[4, i]
    cholesky_solve_inplace(H, step)
    for i in range(n):
        p, P = step[2 * i], step[2 * i + 1]
        first = (g[0, i] * p + g[1, i] * P - g[3, i]) / (1.0 - theta)  # Pδ = (Cs - Hθ)δ/(1 - θ)
        second = (g[1, i] * p + g[2, i] * P - g[4, i]) / (1.0 - theta)
        det = c[K2, i] * c[V, i] - c[CROSS, i] * c[CROSS, i]
        site_p = p - (c[V, i] * first - c[CROSS, i] * second) / det
        site_P = P - (c[K2, i] * second - c[CROSS, i] * first) / det
        s[0, i] += (p - 2.0 * a[MEAN, i] * P) / a[COPIES, i]
        s[1, i] -= 2.0 * P / a[COPIES, i]
        a[ETA, i] += site_p - 2.0 * a[MEAN, i] * site_P
        a[W, i] -= 2.0 * site_P
    return True


@compiled
def _advance(s: Array, S: Array, a: Array, c: Array, g: Array, theta: float, H: Array) -> float:
    """Move s, and the sites with it, by the first θ from here on with a positive definite Hθ; returns that."""
    while theta < 1.0 and not _outer_step(s, S, a, c, g, theta, H):
        theta = max(4.0 * theta, _LEAST)
    if theta >= 1.0:
        part = 1.0
        for i in range(S.shape[0]):
            cavity, move = s[1, i] - a[W, i] / a[COPIES, i], 1.0 / S[i, i] - s[1, i]
            if cavity + move < _ROOM * cavity:
                part = min(part, (_ROOM - 1.0) * cavity / move)
        for i in range(S.shape[0]):
            s[0, i] += part * (a[MEAN, i] / S[i, i] - s[0, i])
            s[1, i] += part * (1.0 / S[i, i] - s[1, i])
    return min(theta, 1.0)


@compiled
def _begin(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, work: Array, S: Array, a: Array, order: Array,
    s: Array,
) -> None:  # fmt: skip
    """Sites and s to begin with: those of the start if they are close to a solution, else none, and the prior."""
    if warm and warm_start(start, False, a) and covariance(K, a[W], order, work, S)[0]:
        residual, _, good = evaluate(K, y, kind, flip, S, a, True)
        if good and residual < FAR:
            for i in range(y.shape[0]):
                s[0, i], s[1, i] = a[MEAN, i] / S[i, i], 1.0 / S[i, i]
            return
    for i in range(y.shape[0]):
        a[ETA, i], a[W, i], s[0, i], s[1, i] = 0.0, 0.0, 0.0, 1.0 / K[i, i]


@compiled
def _iterate(
    K: Array, y: Array, kind: int, flip: float, tol: float, max_iter: int, work: Array, S: Array, a: Array,
    order: Array, s: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Minimise Φ from s and the sites in `a`; as `hmcgp.evidence.ep.parallel_sweeps.iterate`."""
    n = y.shape[0]
    c, g = np.empty((5, n)), np.empty((5, n))
    B, H = np.empty_like(K), np.empty((2 * n, 2 * n))
    kept, lowest = np.empty((4, n)), np.inf
    n_factor, residual, goal, theta = 0, np.inf, _GOAL, 1.0
    while n_factor < max_iter:
        inner, used = minimise(K, y, kind, flip, s, goal, max_iter - n_factor, work, S, a, order, c, B)
        n_factor += used
        value = _outer_value(s, a, inner)
        if value < np.inf and (theta == 1.0 or value <= lowest + 1e-10 * max(abs(value), 1.0)):
            before = residual
            residual, rounding, good = evaluate(K, y, kind, flip, S, a, True)
            noise = rounding if residual < 0.5 * before else _STALLED * rounding
            if good and residual <= max(tol, noise):
                _, log_det = covariance(K, a[W], order, work, S)  # minimise() has overwritten `work`
                return (CONVERGED if rounding <= ROUNDED_AWAY else NOT_CONVERGED), n_factor + 1, residual, log_det
            lowest = value
            kept[0], kept[1], kept[2:] = a[ETA], a[W], s
            theta = 0.5 if theta == 1.0 else 0.2 * theta if theta > 1e-3 else 0.0
        elif theta == 1.0:
            break
        else:
            a[ETA], a[W], s[:] = kept[0], kept[1], kept[2:]
            energy(K, y, kind, flip, s, work, S, a, order, c)
            n_factor += 1
            theta = max(4.0 * theta, _LEAST)
        size = _gaussians(s, S, a, g)
        goal = min(goal, max(1e-4 * size * size, 1e-23))
        theta = _advance(s, S, a, c, g, theta, H)
    return NOT_CONVERGED, n_factor, residual, np.inf


@compiled
def solve(
    K: Array, y: Array, weights: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int,
    gradient: bool,
) -> tuple[int, int, float, float, float, Array, Array]:  # fmt: skip
    """Solve for the sites, behind a probit or a step; arguments and returns as of `hmcgp.evidence.ep.solve.solve`."""
    n = y.shape[0]
    a, order, s = blank(weights), np.empty(n, dtype=np.int64), np.empty((2, n))
    work, S = np.empty_like(K), np.empty_like(K)
    _begin(K, y, kind, flip, start, warm, work, S, a, order, s)
    status, n_factor, residual, log_det = _iterate(K, y, kind, flip, tol, max_iter, work, S, a, order, s)
    log_z, dflip = -np.inf, 0.0
    if status == CONVERGED:
        log_z, dflip = finish(y, kind, flip, log_det, gradient, work, S, a, order)
    return status, n_factor, residual, log_z, dflip, a, S
