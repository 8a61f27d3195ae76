"""Compiled Newton iteration to the mode of p(f | y) of several classes.

Symbols as in `evidence.laplace.softmax`.  Arrays over classes and rows are flat, class after class; the rows of an
iterate are those of `mode_rows`, with ωπ in place of W where the factors are concerned.  A pair (α, f = Kα) is
carried; with r = g - α, the gradient of Ψ, Newton's step is δα = (I + WK)⁻¹ r, δf = K δα = (K⁻¹ + W)⁻¹ r
(`softmax_algebra`).  The square root of r'δf, Newton's decrement, is the norm of the gradient on which the
iteration stops.  Where Σ_c r_c = 0, as it is after every full step, r'W⁺r = Σ r²/ωπ bounds it from above.

Factors cost n³ per class, a step with factors at hand 6n².  So each set is used again (chord steps, accelerated
by Anderson's method) for as long as that is expected to be cheaper than a new one.
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.anderson import anderson_weights
from hmcgp.evidence.laplace.softmax_algebra import factor, gradient, solve_newton
from hmcgp.evidence.laplace.softmax_terms import log_joint
from hmcgp.evidence.newton import HALVINGS, accept, attempt, copy, dot, fill, size, slack
from hmcgp.evidence.rounding import LOST_NATS, NATS, ROUNDED_AWAY, left_to_do_of_classes, rounding_of_classes
from hmcgp.evidence.status import CONVERGED, GOING_ON, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_MEMORY = 5  # chord steps that are combined with the next
_PATIENCE = 40.0  # steps rather than new factors, whose price is 20 steps and some steps after (measured: n = 190)


@compiled_inside
def _ascend(y: Array, state: Array, psi: float, scale: float, halvings: int) -> tuple[float, float]:
    """Take the step, halved while Ψ falls by more than rounding; returns its length, 0 where none was taken, and Ψ."""
    least = psi - slack(state, psi, scale)
    step = 1.0
    for _ in range(halvings + 1):
        attempt(state, step)
        psi_try = log_joint(y, state[row.TRIAL_ALPHA], state[row.TRIAL_LATENT], state)
        if psi_try >= least:
            accept(state)
            return step, psi_try
        step *= 0.5
    return 0.0, log_joint(y, state[row.ALPHA], state[row.LATENT], state)


@compiled_inside
def _tolerance(tol: float, scale: float, state: Array) -> float:
    """The decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √(2 tr W), since W <= 2 diag W."""
    return max(tol, EPS * scale * size(state[row.ALPHA]) * math.sqrt(2.0 * size(state[row.CURVATURE])))


@compiled_inside
def _gradient(state: Array) -> float:
    """Leave r = g - α in a; returns √Σ r²/ωπ, never below Newton's decrement."""
    total = 0.0
    for k in range(state.shape[1]):
        state[row.RESIDUAL, k] = state[row.SLOPE, k] - state[row.ALPHA, k]
        # inf or NaN where π underflows: then the decrement itself decides
        total += state[row.RESIDUAL, k] * state[row.RESIDUAL, k] / (state[row.WEIGHT, k] * state[row.PROBABILITY, k])
    return math.sqrt(total)


@compiled_inside
def _warm_step(K: Array, y: Array, A: Array, M: Array, state: Array) -> float:
    """One Newton step from f alone, α = (I + W K)⁻¹ (W f + g); returns Ψ.

    A mode found under another K has no α under this one.  Where the step lands below Ψ(0), the start was useless and
    the iterate is put to 0.
    """
    n = y.shape[0]
    for i in range(n):
        mean = 0.0
        for k in range(i, state.shape[1], n):
            mean += state[row.PROBABILITY, k] * state[row.LATENT, k]
        for k in range(i, state.shape[1], n):
            p = state[row.WEIGHT, k] * state[row.PROBABILITY, k]
            state[row.RESIDUAL, k] = p * (state[row.LATENT, k] - mean) + state[row.SLOPE, k]
    solve_newton(K, A, M, state[row.ROOT_CURVATURE], state[row.RESIDUAL], state[row.ALPHA], state[row.LATENT])
    psi = log_joint(y, state[row.ALPHA], state[row.LATENT], state)
    if psi >= -size(state[row.WEIGHT, :n]) * math.log(state.shape[1] / n):  # Ψ(0)
        return psi
    fill(state[row.ALPHA], 0.0)
    fill(state[row.LATENT], 0.0)
    return log_joint(y, state[row.ALPHA], state[row.LATENT], state)


@compiled_inside
def _accelerate(state: Array, memory: Array, n_before: int) -> None:
    """Turn a chord direction δ into δ - Σ c_k (moved + δ - δ_last)_k, c minimising |δf - Σ c_k (δf - δf_last)_k|.

    Anderson's method over the last steps, of which `n_before` were made.  `memory`, of shape (3, _MEMORY, C n), holds
    the differences of δf, and those by which α and f are corrected.
    """
    if n_before > 0:
        slot = (n_before - 1) % _MEMORY
        change, jump_alpha, jump_f = memory[0, slot], memory[1, slot], memory[2, slot]
        for k in range(state.shape[1]):
            change[k] = state[row.STEP_LATENT, k] - state[row.LAST_STEP_LATENT, k]
            jump_alpha[k] = state[row.MOVED_ALPHA, k] + state[row.STEP_ALPHA, k] - state[row.LAST_STEP_ALPHA, k]
            jump_f[k] = state[row.MOVED_LATENT, k] + change[k]
    copy(state[row.STEP_ALPHA], state[row.LAST_STEP_ALPHA])
    copy(state[row.STEP_LATENT], state[row.LAST_STEP_LATENT])
    c = anderson_weights(memory[0, : min(n_before, _MEMORY)], state[row.STEP_LATENT])
    for j in range(c.shape[0]):
        for k in range(state.shape[1]):
            state[row.STEP_ALPHA, k] -= c[j] * memory[1, j, k]
            state[row.STEP_LATENT, k] -= c[j] * memory[2, j, k]
    copy(state[row.STEP_ALPHA], state[row.MOVED_ALPHA])
    copy(state[row.STEP_LATENT], state[row.MOVED_LATENT])


@compiled_inside
def _newton_decrement(K: Array, A: Array, M: Array, state: Array) -> float:
    """Leave Newton's step for the residual at hand in `state`; returns its decrement √(r'δf)."""
    solve_newton(K, A, M, state[row.ROOT_CURVATURE], state[row.RESIDUAL], state[row.STEP_ALPHA], state[row.STEP_LATENT])
    square = dot(state[row.RESIDUAL], state[row.STEP_LATENT])
    return math.sqrt(square) if square >= 0.0 else np.inf  # only rounding makes it negative


@compiled_inside
def _is_mode(decrement: float, before: float, target: float, tol: float, left: float) -> bool:
    """Whether fresh factors show the mode: by tol, or by what rounding makes where that is no longer halved."""
    stalled = tol < target and 0.5 * before < decrement
    return decrement <= target and (stalled or (decrement <= 10.0 * tol and left <= NATS))


@compiled_inside
def _is_rounding(decrement: float, target: float, tol: float) -> bool:
    """Whether a step is so short that its difference to the one before is mostly rounding."""
    return tol < target and decrement <= 10.0 * target


@compiled_inside
def _new_factors_pay(decrement: float, last: float, earlier: float, target: float, tol: float) -> bool:
    """Whether to make new factors after a step of this decrement, given those of the two steps before it."""
    if decrement <= tol or 0.5 * last < decrement <= target or decrement == np.inf:
        return True
    if not earlier < np.inf:
        return False
    rate = math.sqrt(decrement / earlier)  # convergence is linear, over two steps
    return rate >= 1.0 or math.log(target / decrement) < _PATIENCE * math.log(rate)


@compiled_inside
def _stuck(fresh: bool, within_rounding: bool) -> int:
    """Status where no step leads up: old factors may be to blame, fresh ones are not."""
    if not fresh:
        return GOING_ON
    return CONVERGED if within_rounding else NOT_CONVERGED


@compiled_inside
def _steps(
    K: Array, y: Array, A: Array, M: Array, state: Array, psi: float, scale: float, tol: float, fresh: bool,
    before: float,
) -> tuple[int, float, float, float, float]:  # fmt: skip
    """Steps with the factors at hand, `fresh` ones of this very f, until converged or new factors would pay.

    A decrement that only rounding excuses is accepted where it is no longer halved: by the next step with old factors,
    by the next set (`before`: the decrement at which the last one was made).  Where K is large, it still moves f; one
    that rounding does not excuse is no end while the step would change log|B|.

    Returns the status, CONVERGED if the first step was not even needed, NOT_CONVERGED where fresh factors led nowhere,
    else GOING_ON; `before`, the decrement, the change of log|B| by the next step, where CONVERGED, and Ψ.
    """
    memory, n_before, earlier, last = np.empty((3, _MEMORY, state.shape[1])), 0, np.inf, np.inf
    while True:
        target = _tolerance(tol, scale, state)
        decrement = _gradient(state)
        if decrement <= tol:
            fill(state[row.STEP_LATENT], 0.0)
            left = left_to_do_of_classes(K, state, decrement)
            if left <= NATS:
                return CONVERGED if fresh else GOING_ON, before, decrement, left, psi
        decrement = _newton_decrement(K, A, M, state)
        if target > ROUNDED_AWAY:
            return NOT_CONVERGED, before, target, np.inf, psi
        left = left_to_do_of_classes(K, state, 0.0)
        if fresh:
            if _is_mode(decrement, before, target, tol, left):
                return CONVERGED, before, decrement, left, psi
            before = decrement
        if _is_rounding(decrement, target, tol):
            n_before = 0
        _accelerate(state, memory, n_before)
        step, psi = _ascend(y, state, psi, scale, HALVINGS if fresh else 0)
        if step == 0.0:
            return _stuck(fresh, decrement <= target), before, decrement, left, psi
        if _new_factors_pay(decrement, last, earlier, target, tol):
            return GOING_ON, before, decrement, left, psi
        n_before = n_before + 1 if step == 1.0 else 0
        fresh, earlier, last = False, last, decrement


@compiled_inside
def _largest_variance(K: Array) -> float:
    """Largest prior variance of all classes."""
    scale = 0.0
    for k in range(K.shape[0]):
        for i in range(K.shape[1]):
            scale = max(scale, K[k, i, i])
    return scale


@compiled_inside
def _factor(K: Array, A: Array, M: Array, state: Array, alike: bool) -> tuple[bool, float]:
    """Factors at the current π (see `softmax_algebra.factor`)."""
    for k in range(state.shape[1]):
        state[row.RESIDUAL, k] = state[row.WEIGHT, k] * state[row.PROBABILITY, k]
    return factor(K, state[row.RESIDUAL], state[row.ROOT_CURVATURE], A, M, alike)


@compiled_inside
def _verify(K: Array, scale: float, state: Array, decrement: float, left: float) -> tuple[int, float]:
    """Status and residual of a mode: NOT_CONVERGED, with the decrement of rounding, where rounding eats the answer."""
    lost = max(rounding_of_classes(K, scale, state), left / LOST_NATS)
    return (CONVERGED, decrement) if lost <= 1.0 else (NOT_CONVERGED, ROUNDED_AWAY * lost)


@compiled_inside
def find_mode(
    K: Array, y: Array, start: Array, warm: bool, A: Array, M: Array, state: Array, tol: float, max_iter: int
) -> tuple[int, int, float, float]:
    """Find the mode (from `start` if warm, else from 0), and leave the factors in A and M, the iterate in `state`.

    Returns status, factorisations, Newton's decrement at the mode, or a bound on it, and log Z, where CONVERGED.
    """
    scale = _largest_variance(K)
    log_root = 0.0  # ½ Σ log ω, by which ½ log|I + WK| differs from what the factors give
    for i in range(y.shape[0]):
        log_root += 0.5 * math.log(state[row.WEIGHT, i])
    if warm:
        copy(start, state[row.LATENT])
    psi, before, decrement = log_joint(y, state[row.ALPHA], state[row.LATENT], state), np.inf, np.inf
    fresh = not warm  # a warm step leaves the f of the first factors
    alike = fresh and K.shape[0] == 1
    for n_factor in range(1, max_iter + 1):
        positive, half_log_det = _factor(K, A, M, state, alike)
        if not positive:
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi
        if not fresh:
            psi = _warm_step(K, y, A, M, state)
        status, before, decrement, left, psi = _steps(K, y, A, M, state, psi, scale, tol, fresh, before)
        fresh, alike = True, False
        if status == CONVERGED:
            status, decrement = _verify(K, scale, state, decrement, left)
        if status != GOING_ON:
            return status, n_factor, decrement, psi - half_log_det + log_root
    return NOT_CONVERGED, max_iter, decrement, psi


@compiled
def solve(
    K: Array, y: Array, weights: Array, n_classes: int, start: Array, warm: bool, tol: float, max_iter: int,
    with_gradient: bool,
) -> tuple[int, int, float, float, Array, Array, Array, Array]:  # fmt: skip
    """Mode, log evidence and, if asked for, its gradient, in one call that lets go of the interpreter lock.

    Returns as `find_mode`, the iterate, of shape (ROWS, C n), B_c⁻¹, (C, n, n), and M, in lower triangles, and the
    gradient, empty where it was not asked for.
    """
    n = y.shape[0]
    state, A, M = np.zeros((row.ROWS, n_classes * n)), np.empty((n_classes, n, n)), np.empty((n, n))
    for c in range(n_classes):
        copy(weights, state[row.WEIGHT, c * n : (c + 1) * n])
    status, n_factor, residual, log_z = find_mode(K, y, start, warm, A, M, state, tol, max_iter)
    dK = gradient(K, A, M, state) if with_gradient and status == CONVERGED else np.empty((0, 0, 0))
    return status, n_factor, residual, log_z, state, A, M, dK
