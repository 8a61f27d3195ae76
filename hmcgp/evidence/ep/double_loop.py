"""Compiled expectation propagation by a double loop that cannot cycle: Newton's method on Φ.

Symbols as in `hmcgp.evidence.ep.double_loop_inner`.  At the minimum of J, the gradient of Φ in (h, t) is the difference
between the moments of f and f² under the Gaussians (h, t) and under q, and its second derivatives are

    H = Cs - P,   P = (Cq⁻¹ + Cr⁻¹)⁻¹ = Cr - Cr(Cq + Cr)⁻¹Cr

with C the covariances of f and f² under these Gaussians, q and the tilted distributions: Cs and Cr couple only the two
parameters of one row.  H need not be positive definite; the steps are those of Hθ = Cs - (1 - θ)P, where θ grows when Φ
does not fall.  Instead of θ = 1, (h, t) moves to the marginals of q, which can only lower Φ: the double loop as
published; or part of the way, where cavities would become improper.  If (h, t) moves by δ, the moments of q move by Pδ,
and the sites by δ - Cr⁻¹Pδ.

For a row that counts k times, all this holds of kδ, with Cs/k and Cr/k for Cs and Cr.
"""

import math

import numpy as np

from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.double_loop_inner import (
    COV_F_F2,
    DIFF_F,
    DIFF_F2,
    OUTER_ETA,
    OUTER_PRECISION,
    VAR_F,
    VAR_F2,
    inner_objective,
    minimise_inner,
)
from hmcgp.evidence.ep.log_evidence import evidence_at_solution
from hmcgp.evidence.ep.parallel_sweeps import MAX_WARM_RESIDUAL
from hmcgp.evidence.ep.site_algebra import posterior_covariance
from hmcgp.evidence.status import NOT_CONVERGED
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.lapack import cholesky_inplace, cholesky_solve_inplace, inverse_from_cholesky_inplace
from hmcgp.runtime.typing import Array

_FIRST_GOAL = 1e-3  # decrement of J in the first inner problem
_MIN_THETA = 0.05  # θ of the first step after one that failed
_MIN_CAVITY = 0.1  # fraction of its cavity precisions that a move to the marginals of q leaves
_STALLED = 10.0  # where Newton's method stalls, so many times the expected rounding count as rounding


@compiled_inside
def _outer_value(outer: Array, state: Array, inner: float) -> float:
    """Φ, given the minimum `inner` of J; infinite where that is."""
    total = 0.0
    for i in range(outer.shape[1]):
        h, t = outer[OUTER_ETA, i], outer[OUTER_PRECISION, i]
        total += state[site.COPIES, i] * (0.5 * h * h / t - 0.5 * math.log(t))
    return total - inner if inner < np.inf else np.inf


@compiled_inside
def _outer_moments(outer: Array, S: Array, state: Array, gaussian: Array) -> float:
    """Fill `gaussian` with Cs/k and the moments of q less those of the Gaussians (h, t), f measured from m.

    Returns the largest difference, in units of the standard deviations and variances of q.
    """
    size = 0.0
    for i in range(S.shape[0]):
        h, t, k = outer[OUTER_ETA, i], outer[OUTER_PRECISION, i], state[site.COPIES, i]
        v, d = 1.0 / t, h / t - state[site.MEAN, i]
        gaussian[VAR_F, i], gaussian[COV_F_F2, i] = v / k, 2.0 * d * v / k
        gaussian[VAR_F2, i] = (2.0 * v * v + 4.0 * d * d * v) / k
        gaussian[DIFF_F, i], gaussian[DIFF_F2, i] = -d, S[i, i] - v - d * d
        size = max(size, abs(d) / math.sqrt(S[i, i]), abs(v / S[i, i] - 1.0))
    return size


@compiled_inside
def _curvature_factor(S: Array, tilted: Array, gaussian: Array, theta: float, H: Array) -> bool:
    """Overwrite H, of shape (2n, 2n), by the Cholesky factor of Hθ; False where there is none.

    The two parameters of a row are next to each other.
    """
    n = S.shape[0]
    for i in range(n):
        for j in range(i + 1):
            H[2 * i, 2 * j], H[2 * i, 2 * j + 1] = S[i, j], 0.0
            H[2 * i + 1, 2 * j], H[2 * i + 1, 2 * j + 1] = 0.0, 2.0 * S[i, j] * S[i, j]
        H[2 * i, 2 * i] += tilted[VAR_F, i]
        H[2 * i + 1, 2 * i] += tilted[COV_F_F2, i]
        H[2 * i + 1, 2 * i + 1] += tilted[VAR_F2, i]
    if not cholesky_inplace(H):
        return False
    inverse_from_cholesky_inplace(H)
    rest = 1.0 - theta
    for i in range(n):
        H[2 * i, 2 * i + 1] = H[2 * i + 1, 2 * i]
        for j in range(i + 1):  # Cr(Cq + Cr)⁻¹Cr, a block of two by two at a time
            k2, cross, v = tilted[VAR_F, i], tilted[COV_F_F2, i], tilted[VAR_F2, i]
            p, q, r, t = H[2 * i, 2 * j], H[2 * i, 2 * j + 1], H[2 * i + 1, 2 * j], H[2 * i + 1, 2 * j + 1]
            p, q, r, t = k2 * p + cross * r, k2 * q + cross * t, cross * p + v * r, cross * q + v * t
            k2, cross, v = tilted[VAR_F, j], tilted[COV_F_F2, j], tilted[VAR_F2, j]
            H[2 * i, 2 * j], H[2 * i, 2 * j + 1] = rest * (p * k2 + q * cross), rest * (p * cross + q * v)
            H[2 * i + 1, 2 * j], H[2 * i + 1, 2 * j + 1] = rest * (r * k2 + t * cross), rest * (r * cross + t * v)
        H[2 * i, 2 * i] += gaussian[VAR_F, i] - rest * tilted[VAR_F, i]
        H[2 * i + 1, 2 * i] += gaussian[COV_F_F2, i] - rest * tilted[COV_F_F2, i]
        H[2 * i + 1, 2 * i + 1] += gaussian[VAR_F2, i] - rest * tilted[VAR_F2, i]
    return cholesky_inplace(H)


@compiled_inside
def _outer_step(outer: Array, S: Array, state: Array, tilted: Array, gaussian: Array, theta: float, H: Array) -> bool:
    """Move (h, t), and the sites with it; False, and nothing moves, where Hθ is not positive definite."""
    if not _curvature_factor(S, tilted, gaussian, theta, H):
        return False
    n = S.shape[0]
    step = np.empty(2 * n)
    for i in range(n):
        step[2 * i], step[2 * i + 1] = gaussian[DIFF_F, i], gaussian[DIFF_F2, i]
    cholesky_solve_inplace(H, step)
    for i in range(n):
        p, P = step[2 * i], step[2 * i + 1]
        # Pδ = (Cs - Hθ)δ/(1 - θ)
        first = (gaussian[VAR_F, i] * p + gaussian[COV_F_F2, i] * P - gaussian[DIFF_F, i]) / (1.0 - theta)
        second = (gaussian[COV_F_F2, i] * p + gaussian[VAR_F2, i] * P - gaussian[DIFF_F2, i]) / (1.0 - theta)
        det = tilted[VAR_F, i] * tilted[VAR_F2, i] - tilted[COV_F_F2, i] * tilted[COV_F_F2, i]
        site_p = p - (tilted[VAR_F2, i] * first - tilted[COV_F_F2, i] * second) / det
        site_P = P - (tilted[VAR_F, i] * second - tilted[COV_F_F2, i] * first) / det
        outer[OUTER_ETA, i] += (p - 2.0 * state[site.MEAN, i] * P) / state[site.COPIES, i]
        outer[OUTER_PRECISION, i] -= 2.0 * P / state[site.COPIES, i]
        state[site.ETA, i] += site_p - 2.0 * state[site.MEAN, i] * site_P
        state[site.PRECISION, i] -= 2.0 * site_P
    return True


@compiled_inside
def _advance(outer: Array, S: Array, state: Array, tilted: Array, gaussian: Array, theta: float, H: Array) -> float:
    """Move (h, t), and the sites with it, with the first θ from here on whose Hθ is positive definite; returns θ."""
    while theta < 1.0 and not _outer_step(outer, S, state, tilted, gaussian, theta, H):
        theta = max(4.0 * theta, _MIN_THETA)
    if theta >= 1.0:
        part = 1.0
        for i in range(S.shape[0]):
            cavity = outer[OUTER_PRECISION, i] - state[site.PRECISION, i] / state[site.COPIES, i]
            move = 1.0 / S[i, i] - outer[OUTER_PRECISION, i]
            if cavity + move < _MIN_CAVITY * cavity:
                part = min(part, (_MIN_CAVITY - 1.0) * cavity / move)
        for i in range(S.shape[0]):
            outer[OUTER_ETA, i] += part * (state[site.MEAN, i] / S[i, i] - outer[OUTER_ETA, i])
            outer[OUTER_PRECISION, i] += part * (1.0 / S[i, i] - outer[OUTER_PRECISION, i])
    return min(theta, 1.0)


@compiled_inside
def _set_start(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, work: Array, S: Array, state: Array,
    order: Array, outer: Array,
) -> None:  # fmt: skip
    """Set the sites to `start` if that is close to a solution, else to none; (h, t) are the marginals of q."""
    finite = warm and site.warm_start(start, False, state)
    if finite and posterior_covariance(K, state[site.PRECISION], order, work, S)[0]:
        residual, _, good = site.evaluate(K, y, kind, flip, S, state, True)
        if good and residual < MAX_WARM_RESIDUAL:
            for i in range(y.shape[0]):
                outer[OUTER_ETA, i], outer[OUTER_PRECISION, i] = state[site.MEAN, i] / S[i, i], 1.0 / S[i, i]
            return
    for i in range(y.shape[0]):
        state[site.ETA, i], state[site.PRECISION, i] = 0.0, 0.0
        outer[OUTER_ETA, i], outer[OUTER_PRECISION, i] = 0.0, 1.0 / K[i, i]


@compiled_inside
def _relaxed(theta: float) -> float:
    """θ of the next step, after one that lowered Φ."""
    if theta == 1.0:
        return 0.5
    return 0.2 * theta if theta > 1e-3 else 0.0


@compiled_inside
def _minimise_outer(
    K: Array, y: Array, kind: int, flip: float, tol: float, max_iter: int, work: Array, S: Array, state: Array,
    order: Array, outer: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Minimise Φ from (h, t) and the sites in `state`; returns as `parallel_sweeps.sweep_in_parallel`."""
    n = y.shape[0]
    tilted, gaussian = np.empty((5, n)), np.empty((5, n))
    B, H = np.empty_like(K), np.empty((2 * n, 2 * n))
    kept, lowest = np.empty((4, n)), np.inf
    n_factor, residual, goal, theta = 0, np.inf, _FIRST_GOAL, 1.0
    while n_factor < max_iter:
        inner, used = minimise_inner(
            K, y, kind, flip, outer, goal, max_iter - n_factor, work, S, state, order, tilted, B
        )
        n_factor += used
        value = _outer_value(outer, state, inner)
        if value < np.inf and (theta == 1.0 or value <= lowest + 1e-10 * max(abs(value), 1.0)):
            before = residual
            residual, rounding, good = site.evaluate(K, y, kind, flip, S, state, True)
            noise = rounding if residual < 0.5 * before else _STALLED * rounding
            if good and residual <= max(tol, noise):
                _, log_det = posterior_covariance(K, state[site.PRECISION], order, work, S)  # restores A⁻¹ in `work`
                return site.final_status(rounding), n_factor + 1, residual, log_det
            lowest = value
            kept[0], kept[1], kept[2:] = state[site.ETA], state[site.PRECISION], outer
            theta = _relaxed(theta)
        elif theta == 1.0:
            break
        else:
            state[site.ETA], state[site.PRECISION], outer[:] = kept[0], kept[1], kept[2:]
            inner_objective(K, y, kind, flip, outer, work, S, state, order, tilted)
            n_factor += 1
            theta = max(4.0 * theta, _MIN_THETA)
        size = _outer_moments(outer, S, state, gaussian)
        goal = min(goal, max(1e-4 * size * size, 1e-23))
        theta = _advance(outer, S, state, tilted, gaussian, theta, H)
    return NOT_CONVERGED, n_factor, residual, np.inf


@compiled
def solve(
    K: Array, y: Array, weights: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int,
    gradient: bool,
) -> tuple[int, int, float, float, float, Array, Array]:  # fmt: skip
    """Solve for the sites, behind a probit or a step; arguments and returns as of `sweeps.solve`."""
    n = y.shape[0]
    state, order, outer = site.new_state(weights), np.empty(n, dtype=np.int64), np.empty((2, n))
    work, S = np.empty_like(K), np.empty_like(K)
    _set_start(K, y, kind, flip, start, warm, work, S, state, order, outer)
    status, n_factor, residual, log_det = _minimise_outer(K, y, kind, flip, tol, max_iter, work, S, state, order, outer)
    log_z, dflip = evidence_at_solution(y, kind, flip, status, log_det, gradient, work, S, state, order)
    return status, n_factor, residual, log_z, dflip, state, S
