"""Compiled Newton iteration to the mode of p(f | y), and the derivative of the Laplace evidence.

Symbols as in `hmcgp.evidence.laplace`.  A pair (α, f = Kα) is carried; with r = g - α, the gradient of Ψ, Newton's
step is

    δα = r - √W B⁻¹ √W K r,   δf = K δα = (K⁻¹ + W)⁻¹ r,   and   r'δf = |δf|² in the metric of the Hessian.

The square root of r'δf, Newton's decrement, is the norm of the gradient on which the iteration stops: it is the only
scale on which one tolerance is right for a prior variance of 1e-6 and of 1e8.

A factorisation of B costs n³/3, a step with a factor at hand 4n².  So each factor is used again at the next f
(a chord step), for as long as that is expected to be cheaper than a new one.
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.newton import (
    HALVINGS,
    accelerate,
    accept,
    attempt,
    copy,
    dot,
    fill,
    largest_variance,
    newton_step,
    scale_row,
    size,
    slack,
)
from hmcgp.evidence.rounding import (
    LEFT_NATS,
    LOST_NATS,
    NATS,
    ROUNDED_AWAY,
    drift_of_f,
    left_to_do,
    rounding_of_mode,
    sensitivities,
)
from hmcgp.evidence.status import CONVERGED, GOING_ON, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.likelihoods.number_slopes import has_parameters
from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, first_guess, likelihood_terms, log_constant
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_CACHED = 1200
_REPAIRS = 3  # of f = Kα
_APART = -2  # verdict on an iterate, besides the status of the solver
_SHORT = 1e-3  # a step of f over which W hardly changes
_SURE = 0.1  # relative change of W over a step that raises Ψ, whatever rounding makes of the difference


@compiled_inside
def psi_at(y: Array, kind: int, alpha: Array, f: Array, state: Array) -> float:
    """Ψ at (alpha, f), leaving the likelihood's terms there in `state`."""
    log_p = likelihood_terms(
        kind, y, state[row.FIRST], state[row.SECOND], f, state[row.WEIGHT], state[row.LOG_P], state[row.SLOPE],
        state[row.CURVATURE], state[row.THIRD_RATIO],
    )  # fmt: skip
    return log_p - 0.5 * dot(alpha, f)


@compiled_inside
def _factor(K: Array, state: Array, L: Array) -> bool:
    """Leave L' with LL' = B = I + √W K √W, at the current W, in the upper triangle of L; False where there is none."""
    root_w = state[row.ROOT_CURVATURE]
    for i in range(K.shape[0]):
        root_w[i] = math.sqrt(state[row.CURVATURE, i])
    for i in range(K.shape[0]):
        scale_row(root_w[i], K[i, i:], root_w[i:], L[i, i:])
        L[i, i] += 1.0
    return lapack.cholesky_upper_inplace(L)


@compiled_inside
def _direction(K: Array, L: Array, state: Array) -> float:
    """Newton direction at the current iterate; returns the decrement."""
    for i in range(state.shape[1]):
        state[row.RESIDUAL, i] = state[row.SLOPE, i] - state[row.ALPHA, i]
    newton_step(K, L, state[row.ROOT_CURVATURE], state[row.RESIDUAL], state[row.STEP_ALPHA], state[row.STEP_LATENT])
    return math.sqrt(max(dot(state[row.RESIDUAL], state[row.STEP_LATENT]), 0.0))


@compiled_inside
def _is_sure(state: Array) -> bool:
    """Whether W where the step leads, whose terms are at hand, is about that of the factor the step was made with."""
    for i in range(state.shape[1]):
        w = state[row.ROOT_CURVATURE, i] ** 2
        if not abs(state[row.CURVATURE, i] - w) <= _SURE * w:
            return False
    return True


@compiled_inside
def ascend(y: Array, kind: int, state: Array, psi: float, scale: float, halvings: int) -> tuple[bool, float]:
    """Take the step, halved while Ψ falls by more than rounding; on failure the iterate stays as it was.

    A step over which W hardly changes is taken as it is: large counts are sums of large terms, y f and exp f, whose
    rounding would hide that Ψ rises.
    """
    least = psi - slack(state, psi, scale)
    step = 1.0
    for _ in range(halvings + 1):
        attempt(state, step)
        psi_try = psi_at(y, kind, state[row.TRIAL_ALPHA], state[row.TRIAL_LATENT], state)
        if psi_try >= least or (step == 1.0 and psi_try > -np.inf and _is_sure(state)):
            accept(state)
            return True, psi_try
        step *= 0.5
    return False, psi_at(y, kind, state[row.ALPHA], state[row.LATENT], state)


@compiled_inside
def tolerance(tol: float, scale: float, state: Array) -> float:
    """The decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √ΣW."""
    return max(tol, EPS * scale * size(state[row.ALPHA]) * math.sqrt(size(state[row.CURVATURE])))


@compiled_inside
def bound(state: Array) -> float:
    """√Σ r²/W, never below the decrement since (K⁻¹ + W)⁻¹ <= W⁻¹: convergence seen without solving for it."""
    total = 0.0
    for i in range(state.shape[1]):
        r = state[row.SLOPE, i] - state[row.ALPHA, i]
        total += r * r / state[row.CURVATURE, i]  # inf or NaN where w underflows: then the decrement itself decides
    return math.sqrt(total)


@compiled_inside
def _chords(
    K: Array, y: Array, kind: int, L: Array, state: Array, psi: float, decrement: float, scale: float, tol: float
) -> float:
    """Steps with an old factor, until converged or a new factor would pay; returns Ψ."""
    # a factorisation in steps (measured: while K and L fit into the cache, and beyond), and the two that follow it
    n = K.shape[0]
    patience = 2.0 + (n / 35.0 if n < _CACHED else n / 170.0)
    first = True
    while not bound(state) <= tolerance(tol, scale, state):
        last, decrement = decrement, _direction(K, L, state)
        accelerate(state, first)
        first = False
        moved, psi = ascend(y, kind, state, psi, scale, 0)
        target = tolerance(tol, scale, state)
        if not moved or decrement <= target:
            return psi
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(target / decrement) < (patience + 1.0) * math.log(rate):
                return psi
    return psi


@compiled_inside
def _warm_step(K: Array, y: Array, kind: int, L: Array, state: Array) -> float:
    """One Newton step from f alone, α = b - √W B⁻¹ √W K b with b = W f + g; returns Ψ.

    A mode found under another K has no α under this one.
    """
    for i in range(state.shape[1]):
        state[row.RESIDUAL, i] = state[row.CURVATURE, i] * state[row.LATENT, i] + state[row.SLOPE, i]
    newton_step(K, L, state[row.ROOT_CURVATURE], state[row.RESIDUAL], state[row.ALPHA], state[row.LATENT])
    return psi_or_zero(y, kind, state)


@compiled_inside
def psi_or_zero(y: Array, kind: int, state: Array) -> float:
    """Ψ at the iterate; where that lies below Ψ(0), the start was useless and the iterate is put to 0."""
    psi = psi_at(y, kind, state[row.ALPHA], state[row.LATENT], state)
    fill(state[row.TRIAL_LATENT], 0.0)
    at_zero = likelihood_terms(
        kind, y, state[row.FIRST], state[row.SECOND], state[row.TRIAL_LATENT], state[row.WEIGHT], state[row.LOG_P],
        state[row.STEP_ALPHA], state[row.STEP_LATENT], state[row.TRIAL_ALPHA],
    )  # fmt: skip
    if psi >= at_zero:
        return psi
    fill(state[row.ALPHA], 0.0)
    fill(state[row.LATENT], 0.0)
    return psi_at(y, kind, state[row.ALPHA], state[row.LATENT], state)


@compiled_inside
def _guess(K: Array, y: Array, kind: int, state: Array) -> bool:
    """Begin from `terms.first_guess`; False where the likelihood has none."""
    for i in range(y.shape[0]):
        state[row.TRIAL_LATENT, i] = K[i, i]
    return first_guess(kind, y, state[row.FIRST], state[row.SECOND], state[row.TRIAL_LATENT], state[row.LATENT])


@compiled_inside
def _constants(y: Array, kind: int, state: Array) -> float:
    """Parts of log p that do not depend on f, with the weights of their rows."""
    total = 0.0
    for i in range(y.shape[0]):
        total += state[row.WEIGHT, i] * log_constant(kind, y[i], state[row.SECOND, i])
    return total


@compiled_inside
def _judge(
    K: Array, y: Array, kind: int, L: Array, state: Array, scale: float, tol: float, before: float, repairs: int
) -> tuple[int, float]:
    """Whether a fresh factor shows this iterate to be the mode, `before` being the decrement at the last one.

    Returns CONVERGED; NOT_CONVERGED where rounding eats the answer; _APART where f is not Kα, which is left in
    state[TRIAL_LATENT]; or GOING_ON, the direction being at hand.  Then Newton's decrement, or a bound on it; where
    rounding eats the answer, what rounding makes of it.
    """
    target, decrement = tolerance(tol, scale, state), bound(state)
    solved = not decrement <= target
    if solved:
        decrement = _direction(K, L, state)
        if not decrement <= target:
            return GOING_ON, decrement
    total, spread, root_sum = sensitivities(K, state)
    left = decrement * spread
    if not (left <= LEFT_NATS and decrement * math.sqrt(scale) <= _SHORT):
        if not solved:
            decrement = _direction(K, L, state)
        left = left_to_do(K, state)
        if not (left <= LEFT_NATS or decrement > 0.5 * before):
            return GOING_ON, decrement
    error, drift = EPS * scale * size(state[row.WEIGHT]), 0.0  # of δf = Kδα by eps |K||r|₁, in every step
    bounded = kind in (LOGISTIC, PROBIT)  # |r| <= ω, or hardly more
    if not (bounded and error <= _SHORT and error * (0.5 * size(state[row.ALPHA]) + total) <= NATS):
        drift = drift_of_f(K, state)
        if drift > NATS and repairs < _REPAIRS:
            return _APART, decrement
    rounding = rounding_of_mode(K, y, kind, L, state, scale, total + root_sum * spread)
    lost = max(rounding, max(left, drift) / LOST_NATS)
    return (CONVERGED, decrement) if lost <= 1.0 else (NOT_CONVERGED, ROUNDED_AWAY * lost)


@compiled_inside
def _gradient_inplace(K: Array, L: Array, state: Array, parameters: bool) -> None:
    """Overwrite the factor L by G = ½(αα' - R + ug' + gu'), where α = g at the mode.

    Leaves S_ii W_i in state[SHARE] and, where the likelihood has parameters, Sc = Ku in state[SHIFT].
    """
    n = K.shape[0]
    g, root_w = state[row.SLOPE], state[row.ROOT_CURVATURE]
    lapack.inverse_from_cholesky_inplace(L)  # B⁻¹
    c, t, u = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        # c = ½ s d3 with s = (1 - B⁻¹_ii)/W_i: written so that W_i cancels, and may underflow
        state[row.SHARE, i] = 1.0 - L[i, i]
        c[i] = 0.5 * (1.0 - L[i, i]) * state[row.THIRD_RATIO, i]
    lapack.symmetric_upper_times(K, c, t)
    for i in range(n):
        t[i] *= root_w[i]
    lapack.symmetric_times(L, t, u)
    for i in range(n):
        u[i] = c[i] - root_w[i] * u[i]
    if parameters:
        lapack.symmetric_upper_times(K, u, state[row.SHIFT])
    for i in range(n):
        u[i] += 0.5 * g[i]  # u + ½g: αα' + ug' + gu' = (u + ½g)g' + g(u + ½g)'
    for i in range(n):
        ui, gi, root, out = u[i], g[i], root_w[i], L[i]
        for j in range(i + 1):
            out[j] = 0.5 * (ui * g[j] + gi * u[j] - root * out[j] * root_w[j])
    lapack.mirror_lower(L)


@compiled_inside
def begin(
    K: Array, y: Array, numbers: Array, weights: Array, kind: int, start: Array, warm: bool
) -> tuple[Array, float, bool]:
    """State at the start, `start` if warm, else a first guess or 0; Ψ there; and whether it has an f without α."""
    state = np.zeros((row.ROWS, y.shape[0]))
    copy(weights, state[row.WEIGHT])
    copy(numbers[0], state[row.FIRST])
    copy(numbers[1], state[row.SECOND])
    if warm:
        copy(start, state[row.LATENT])
    else:
        warm = _guess(K, y, kind, state)
    return state, psi_at(y, kind, state[row.ALPHA], state[row.LATENT], state), warm


@compiled_inside
def search(
    K: Array, y: Array, kind: int, state: Array, psi: float, warm: bool, tol: float, max_iter: int, gradient: bool
) -> tuple[int, int, float, float, Array]:
    """Find the mode from the iterate in `state`, of which α is unknown if warm; evidence and, if asked for, gradient.

    Returns as `solve` does, without the state.
    """
    L, scale, decrement, before, repairs = np.empty_like(K), largest_variance(K), np.inf, np.inf, 0
    for n_factor in range(1, max_iter + 1):
        if not _factor(K, state, L):
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, L
        if warm and n_factor == 1:
            psi = _warm_step(K, y, kind, L, state)
        else:
            verdict, decrement = _judge(K, y, kind, L, state, scale, tol, before, repairs)
            if verdict == CONVERGED:
                log_z = psi - 0.5 * lapack.log_determinant(L) + _constants(y, kind, state)
                lapack.mirror_upper(L)
                if gradient:
                    _gradient_inplace(K, L, state, has_parameters(kind))
                return CONVERGED, n_factor, decrement, log_z, L
            if verdict == NOT_CONVERGED:
                break
            if verdict == _APART:
                copy(state[row.TRIAL_LATENT], state[row.LATENT])
                psi, before, repairs = psi_at(y, kind, state[row.ALPHA], state[row.LATENT], state), np.inf, repairs + 1
                continue
            before = decrement
            moved, psi = ascend(y, kind, state, psi, scale, HALVINGS)
            if not moved:
                break
        psi = _chords(K, y, kind, L, state, psi, decrement, scale, tol)
    return NOT_CONVERGED, n_factor, decrement, psi, L


@compiled
def solve(
    K: Array, y: Array, numbers: Array, weights: Array, kind: int, start: Array, warm: bool, tol: float, max_iter: int,
    gradient: bool,
) -> tuple[int, int, float, float, Array, Array]:  # fmt: skip
    """Find the mode, from `start` if warm, else from a first guess or 0; log evidence and, if asked for, its gradient.

    One call, so that a thread lets go of the interpreter lock once per evaluation.

    A small decrement ends the iteration where the step left would not change log|B| either, or rounding keeps the
    decrement from falling.  Then f = Kα, of which both sides were only added to, is made true again where they have
    come apart, and the answer is held against what rounding can do to it.

    Returns status, factorisations and Newton's decrement, or a bound on it (where the answer drowns in rounding, the
    decrement of that); log Z, where the status is CONVERGED; the iterate at the mode; and G where the gradient was
    asked for, else the factor L of B in the lower triangle, and L' in the upper one.
    """
    state, psi, warm = begin(K, y, numbers, weights, kind, start, warm)
    status, n_factor, decrement, log_z, L = search(K, y, kind, state, psi, warm, tol, max_iter, gradient)
    return status, n_factor, decrement, log_z, state, L
