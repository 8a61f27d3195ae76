"""Compiled Newton iteration whose linear systems are solved by conjugate gradients (Barber & Williams 1997, footnote).

Symbols as in `hmcgp.evidence.laplace`.  Newton's step δf from the last iterate f = Kα solves

    A δf = r,   A = K⁻¹ + W,   r = g - α,

which is the system A f_new = W f + g solved from the last iterate.  Conjugate gradients preconditioned by K, whose
directions are pairs (p, q = Kp), need neither K⁻¹ nor √W and one product with K, z = Kr, in every iteration:

    t = r'z/q'(p + Wq),   (δα, δf) += t (p, q),   r -= t (p + Wq),   (p, q) ← (r, z) + β (p, q),   β = r'z/r'z before.

Each iteration raises the quadratic model of Ψ that Newton's step maximises by ½t r'z, and r'z = r'Kr >= r'A⁻¹r bounds
what it has left to gain, the square of Newton's decrement; so does r'W⁻¹r.  Far from the mode, a step is solved only
as far as it can be trusted (an inexact Newton method).

From an f that was the mode under another K, of which α is not known under this one, the first system is solved from
(α, f) = (g, Kg): there α = g.

A product costs 2n² operations and reads K from memory, a factorisation n³/3 in the cache.  The mode is confirmed, and
log|B| and the gradient computed, with one factorisation; where many products have not led to the mode, factorisations
do (`mode_search.search`).
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.laplace.mode_search import ascend, begin, psi_or_zero, search, tolerance
from hmcgp.evidence.newton import HALVINGS, copy, dot, fill, largest_variance
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.lapack import symmetric_upper_times
from hmcgp.runtime.typing import Array

_PRODUCTS, _PRODUCTS_PER_ROW = 100, 0.2  # for the mode at most: beyond, factorisations are cheaper
_INEXACT = 0.1  # decrement that a step may leave over, relative to its own, or less: quadratically near the mode


@compiled_inside
def _left(state: Array, square: float) -> float:
    """Bound on r'A⁻¹r: the smaller of r'Kr, which is given, and r'W⁻¹r."""
    total = 0.0
    for i in range(state.shape[1]):
        total += state[row.RESIDUAL, i] ** 2 / state[row.CURVATURE, i]  # inf or NaN where W underflows
    return total if total < square else square


@compiled_inside
def _conjugate_gradients(K: Array, state: Array, target: float, most: int) -> tuple[int, float]:
    """Improve the step at hand, of residual r, until its decrement left is small; returns products and what it gained.

    That is the square of Newton's decrement, as far as the system was solved; 0 where there is nothing to solve.
    """
    r, z, w = state[row.RESIDUAL], state[row.TRIAL_LATENT], state[row.CURVATURE]
    p, q = state[row.LAST_STEP_ALPHA], state[row.LAST_STEP_LATENT]
    dalpha, df = state[row.STEP_ALPHA], state[row.STEP_LATENT]
    before, gained = np.inf, 0.0
    for products in range(1, most + 1):
        symmetric_upper_times(K, r, z)
        square, decrement = dot(r, z), math.sqrt(gained)
        enough = max(target, min(_INEXACT, decrement) * decrement)
        if not _left(state, square) > enough * enough:
            return products, gained
        beta, curvature = square / before, 0.0
        for i in range(state.shape[1]):
            p[i] = r[i] + beta * p[i]
            q[i] = z[i] + beta * q[i]
            curvature += q[i] * (p[i] + w[i] * q[i])
        if not curvature > 0.0:  # K is no covariance matrix, or not to rounding
            return products, gained
        t = square / curvature
        for i in range(state.shape[1]):
            dalpha[i] += t * p[i]
            df[i] += t * q[i]
            r[i] -= t * (p[i] + w[i] * q[i])
        before, gained = square, gained + t * square
    return most, gained


@compiled_inside
def _set_up(K: Array, state: Array, warm: bool) -> int:
    """Leave in `state` the step from which conjugate gradients start, and its residual; returns products."""
    for i in range(state.shape[1]):
        state[row.ROOT_CURVATURE, i] = math.sqrt(state[row.CURVATURE, i])
    if warm:  # not a step, but the next iterate itself: r = b - g - WKg, b = Wf + g
        copy(state[row.SLOPE], state[row.STEP_ALPHA])
        symmetric_upper_times(K, state[row.SLOPE], state[row.STEP_LATENT])
        for i in range(state.shape[1]):
            change = state[row.LATENT, i] - state[row.STEP_LATENT, i]
            state[row.RESIDUAL, i] = state[row.CURVATURE, i] * change
        return 1
    fill(state[row.STEP_ALPHA], 0.0)
    fill(state[row.STEP_LATENT], 0.0)
    for i in range(state.shape[1]):
        state[row.RESIDUAL, i] = state[row.SLOPE, i] - state[row.ALPHA, i]
    return 0


@compiled_inside
def _approach(
    K: Array, y: Array, kind: int, state: Array, psi: float, warm: bool, tol: float, max_iter: int
) -> tuple[int, int, float]:
    """Newton's steps by products, until converged or no longer promising; returns steps, products, and Ψ."""
    scale, products, most = largest_variance(K), 0, _PRODUCTS + int(_PRODUCTS_PER_ROW * y.shape[0])
    for steps in range(max_iter):
        products += _set_up(K, state, warm)
        used, gained = _conjugate_gradients(K, state, tolerance(tol, scale, state), most - products)
        products += used
        if warm:
            copy(state[row.STEP_ALPHA], state[row.ALPHA])
            copy(state[row.STEP_LATENT], state[row.LATENT])
            psi, warm = psi_or_zero(y, kind, state), False
            continue
        if gained == 0.0:
            return steps, products, psi
        moved, psi = ascend(y, kind, state, psi, scale, HALVINGS)
        if not moved or products >= most:
            return steps + 1, products, psi
    return max_iter, products, psi


@compiled
def solve(
    K: Array, y: Array, numbers: Array, weights: Array, kind: int, start: Array, warm: bool, tol: float, max_iter: int,
    gradient: bool,
) -> tuple[int, int, float, float, Array, Array, int, int]:  # fmt: skip
    """Find the mode as `mode_search.solve` does, with its arguments, by products with K as far as they lead.

    Returns as that does, steps by products being counted with the factorisations; then products and factorisations.
    """
    state, psi, warm = begin(K, y, numbers, weights, kind, start, warm)
    steps, products, psi = _approach(K, y, kind, state, psi, warm, tol, max_iter - 1)
    status, n_factor, decrement, log_z, L = search(
        K, y, kind, state, psi, warm and steps == 0, tol, max_iter - steps, gradient
    )
    return status, steps + n_factor, decrement, log_z, state, L, products, n_factor
