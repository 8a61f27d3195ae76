"""Compiled search for a maximum of Ψ behind Student's t, which is not log-concave.

Symbols as in `hmcgp.evidence.laplace.student_t`.  A line search costs next to nothing, since f = Kα is linear in α and
Ψ a sum over rows, and a step by a factor at hand little beside a new factor.  So the search is

    climb    conjugate gradients on Ψ (Polak & Ribière), preconditioned by K⁻¹ + E, or by K⁻¹ + W⁺ with what is
             positive of W, with a line search along each direction: Ψ never falls, and saddles are left quickly;
    Newton   where K⁻¹ + W is positive definite: a step with a line search, then steps with the factor at hand,
             accelerated as in `mode_search`, while a new factor would not pay.

It climbs from the regression in which every row counts in full, with the factor of that regression.
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.laplace import signed_curvature as signed
from hmcgp.evidence.laplace.signed_curvature import IntArray
from hmcgp.evidence.newton import (
    accelerate,
    accept,
    attempt,
    copy,
    dot,
    fill,
    largest_variance,
    newton_step,
    size,
    slack,
)
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.likelihoods.heavy_terms import heavy_terms
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_CLIMB = 16  # steps with one factor
_CLOSE = 0.03  # a decrement from which Newton's method is quicker
_LINE_STEPS, _EXACT = 6, 0.3  # trials along a line, and the share of the slope that may be left
_HALVINGS = 40
_SADDLE_STEPS = 60  # of the power method
_DRIFT = 10.0  # size of α, in units of the largest that a maximum can have, beyond which it is rounding


@compiled_inside
def _psi(y: Array, nu: float, noise: float, alpha: Array, f: Array, state: Array) -> float:
    """Ψ at (alpha, f), without constants, leaving the likelihood's terms there in `state`."""
    log_p = heavy_terms(
        nu, noise, y, f, state[row.WEIGHT], state[row.LOG_P], state[row.SLOPE], state[row.CURVATURE], state[row.THIRD],
        state[row.PULL],
    )  # fmt: skip
    return log_p - 0.5 * dot(alpha, f)


@compiled_inside
def _trial(y: Array, nu: float, noise: float, state: Array, step: float) -> tuple[float, float]:
    """Ψ, and its slope along the direction, where a step of this length leads."""
    attempt(state, step)
    psi = _psi(y, nu, noise, state[row.TRIAL_ALPHA], state[row.TRIAL_LATENT], state)
    slope = 0.0
    for i in range(y.shape[0]):
        slope += state[row.STEP_LATENT, i] * (state[row.SLOPE, i] - state[row.TRIAL_ALPHA, i])
    return psi, slope


@compiled_inside
def _next_step(step: float, low: float, high: float, slope: float, slope_low: float, slope_high: float) -> float:
    """Length of the next trial, the maximum lying between `low` and `high`; slopes are those at 0, low and high.

    By the secant, where the slope falls; that at a `high` where Ψ is too low is -∞.
    """
    if high == np.inf:
        fallen = (slope - slope_low) / slope
        return step * (min(max(1.0 / fallen, 1.5), 4.0) if fallen > 0.25 else 4.0)
    if slope_high > -np.inf:
        return low + min(max(slope_low / (slope_low - slope_high), 0.1), 0.9) * (high - low)
    return low + (0.5 if low > 0.0 else 0.3) * (high - low)


@compiled_inside
def _along_line(y: Array, nu: float, noise: float, state: Array, psi: float, scale: float) -> tuple[bool, float]:
    """Move along the direction in `state` to about where Ψ is largest; on failure the iterate stays as it was."""
    slope = 0.0
    for i in range(y.shape[0]):
        slope += state[row.STEP_LATENT, i] * (state[row.SLOPE, i] - state[row.ALPHA, i])
    least, best, best_step, step = psi - slack(state, psi, scale), -np.inf, 0.0, 1.0
    low, slope_low, high, slope_high = 0.0, slope, np.inf, -np.inf
    for k in range(_HALVINGS):
        there, slope_there = _trial(y, nu, noise, state, step)
        fine = there >= least  # NaN is not
        if fine and there >= best:
            best, best_step = there, step
        if best_step > 0.0 and (k >= _LINE_STEPS or (fine and abs(slope_there) <= _EXACT * slope)):
            break
        if fine and slope_there > 0.0:
            low, slope_low = step, slope_there
        else:
            high, slope_high = step, slope_there if fine else -np.inf
        step = _next_step(step, low, high, slope, slope_low, slope_high)
    if best_step == 0.0:
        return False, _psi(y, nu, noise, state[row.ALPHA], state[row.LATENT], state)
    if step != best_step:
        best, _ = _trial(y, nu, noise, state, best_step)
    accept(state)
    return True, best


@compiled_inside
def _climb(K: Array, y: Array, nu: float, noise: float, L: Array, state: Array, psi: float, scale: float) -> float:
    """Steps of conjugate gradients by the factor at hand; returns Ψ."""
    r, dalpha, df = state[row.RESIDUAL], state[row.STEP_ALPHA], state[row.STEP_LATENT]
    last, square = state[row.LAST_STEP_ALPHA], 0.0  # the gradient before, and its norm
    for k in range(_CLIMB):
        for i in range(y.shape[0]):
            r[i] = state[row.SLOPE, i] - state[row.ALPHA, i]
        newton_step(K, L, state[row.ROOT_CURVATURE], r, dalpha, df)
        before, square = square, dot(r, df)
        if not square > (_CLOSE * _CLOSE if k > 0 else 0.0):
            break
        if k > 0:
            beta = (square - dot(last, df)) / before
            along = square + beta * dot(r, state[row.MOVED_LATENT])
            if beta > 0.0 and along > 0.0:
                for i in range(y.shape[0]):
                    dalpha[i] += beta * state[row.MOVED_ALPHA, i]
                    df[i] += beta * state[row.MOVED_LATENT, i]
        copy(r, last)
        copy(dalpha, state[row.MOVED_ALPHA])
        copy(df, state[row.MOVED_LATENT])
        moved, psi = _along_line(y, nu, noise, state, psi, scale)
        if not moved:
            break
    return psi


@compiled_inside
def _leave_saddle(
    K: Array, y: Array, nu: float, noise: float, L: Array, state: Array, X: Array, rows: IntArray, psi: float
) -> tuple[bool, float]:
    """Step along KYv, v'Tv < 0, a direction in which Ψ bends upwards where it has no slope; False where Ψ falls."""
    (n, m), Y = X.shape, signed.responses_of_negative(L, state, X, rows)
    KY, v, Tv = np.empty((m, n)), np.empty(m), np.empty(m)
    for b in range(m):
        for i in range(n):
            state[row.STEP_ALPHA, i] = Y[i, b]
        lapack.symmetric_upper_times(K, state[row.STEP_ALPHA], KY[b])
        v[b] = 1.0 + 0.1 * b / m  # orthogonal to the vector wanted by accident only
    for _ in range(_SADDLE_STEPS):  # power method of ρ'S⁺ρ = I - T, which is positive definite
        for a in range(m):
            Tv[a] = 0.0
            for b in range(m):
                Tv[a] += state[row.ROOT_NEGATIVE, rows[a]] * KY[b, rows[a]] * v[b]
        length = math.sqrt(dot(Tv, Tv))
        for a in range(m):
            v[a] = Tv[a] / length
    fill(state[row.STEP_ALPHA], 0.0)
    fill(state[row.STEP_LATENT], 0.0)
    for b in range(m):
        for i in range(n):
            state[row.STEP_ALPHA, i] += Y[i, b] * v[b]
            state[row.STEP_LATENT, i] += KY[b, i] * v[b]
    step = 1.0
    for _ in range(_HALVINGS):
        for length in (step, -step):  # the slope may not be 0 quite
            there, _ = _trial(y, nu, noise, state, length)
            if there > psi + 1e-12 * abs(psi):
                accept(state)
                return True, there
        step *= 0.5
    return False, _psi(y, nu, noise, state[row.ALPHA], state[row.LATENT], state)


@compiled_inside
def _direction(K: Array, L: Array, state: Array, X: Array, C: Array, rows: IntArray) -> float:
    """Newton direction at the current iterate; returns the decrement."""
    for i in range(state.shape[1]):
        state[row.RESIDUAL, i] = state[row.SLOPE, i] - state[row.ALPHA, i]
    signed.respond(K, L, state, X, C, rows, state[row.RESIDUAL], state[row.STEP_ALPHA], state[row.STEP_LATENT])
    return math.sqrt(max(dot(state[row.RESIDUAL], state[row.STEP_LATENT]), 0.0))


@compiled_inside
def _target(tol: float, scale: float, state: Array) -> float:
    """Decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √Σ|W|."""
    return max(tol, EPS * scale * size(state[row.ALPHA]) * math.sqrt(size(state[row.CURVATURE])))


@compiled_inside
def _chords(
    K: Array, y: Array, nu: float, noise: float, L: Array, state: Array, X: Array, C: Array, rows: IntArray, psi: float,
    scale: float, tol: float,
) -> float:  # fmt: skip
    """Steps with an old factor, until converged or a new factor would pay; returns Ψ."""
    patience, last, first = 3.0 + y.shape[0] / 35.0, np.inf, True
    while True:
        decrement, enough = _direction(K, L, state, X, C, rows), 0.1 * _target(tol, scale, state)
        if decrement <= enough:
            return psi
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(enough / decrement) < patience * math.log(rate):
                return psi
        accelerate(state, first)
        least, first, last = psi - slack(state, psi, scale), False, decrement
        there, _ = _trial(y, nu, noise, state, 1.0)
        if not there >= least:
            return _psi(y, nu, noise, state[row.ALPHA], state[row.LATENT], state)
        accept(state)
        psi = there


@compiled_inside
def _regress(K: Array, y: Array, L: Array, state: Array) -> bool:
    """Put f to (K⁻¹ + E)⁻¹Ey and α to E(y - f), with the weights E at hand; False where B has no factor."""
    for i in range(y.shape[0]):
        state[row.RESIDUAL, i] = state[row.PULL, i] * y[i]
    if not signed.factor_positive(K, state[row.PULL], state, L):
        return False
    newton_step(K, L, state[row.ROOT_CURVATURE], state[row.RESIDUAL], state[row.ALPHA], state[row.LATENT])
    return True


@compiled_inside
def _regression(K: Array, y: Array, nu: float, noise: float, L: Array, state: Array) -> bool:
    """Begin where every row counts in full, as it would at its own target; False where B has no factor."""
    for i in range(y.shape[0]):
        state[row.PULL, i] = state[row.WEIGHT, i] * (nu + 1.0) / (nu * noise)
    return _regress(K, y, L, state)


@compiled_inside
def _has_drifted(nu: float, noise: float, state: Array) -> bool:
    """Whether α is far beyond the largest slope, ω(ν + 1)/(2√ν s): along null vectors of K, Ψ does not hold it back."""
    largest = size(state[row.WEIGHT]) * (nu + 1.0) / (2.0 * math.sqrt(nu * noise))
    return not size(state[row.ALPHA]) <= _DRIFT * largest


@compiled_inside
def _reweighted(K: Array, y: Array, nu: float, noise: float, L: Array, state: Array) -> bool:
    """Go on from the regression with the weights of the iterate; False where B has no factor."""
    _psi(y, nu, noise, state[row.ALPHA], state[row.LATENT], state)
    return _regress(K, y, L, state)


@compiled_inside
def _repair(K: Array, y: Array, nu: float, noise: float, state: Array) -> float:
    """Put f to Kα, of which both sides were only added to; returns Ψ."""
    lapack.symmetric_upper_times(K, state[row.ALPHA], state[row.LATENT])
    return _psi(y, nu, noise, state[row.ALPHA], state[row.LATENT], state)


@compiled_inside
def _advance(
    K: Array, y: Array, nu: float, noise: float, L: Array, state: Array, X: Array, C: Array, rows: IntArray,
    proper: bool, psi: float, scale: float, tol: float,
) -> tuple[int, float]:  # fmt: skip
    """Move on by the factor at hand or, where that leads nowhere, by that of E.

    Returns how many factors were made, -1 where one does not exist, and Ψ.
    """
    enough = psi + slack(state, psi, scale)
    if proper:
        moved, psi = _along_line(y, nu, noise, state, psi, scale)
        if moved:
            return 0, _chords(K, y, nu, noise, L, state, X, C, rows, psi, scale, tol)
    else:
        psi = _climb(K, y, nu, noise, L, state, psi, scale)
        if psi > enough:
            return 0, psi
        moved, psi = _leave_saddle(K, y, nu, noise, L, state, X, rows, psi)
        if moved:
            return 0, psi
    if not signed.factor_positive(K, state[row.PULL], state, L):
        return -1, psi
    return 1, _climb(K, y, nu, noise, L, state, psi, scale)


@compiled_inside
def _finish_expected(K: Array, expected: Array, L: Array, state: Array, gradient: bool) -> tuple[bool, float]:
    """Overwrite L by R of the expected curvature, or by G; returns whether B has a factor, and log|B|.

    The expected curvature moves to state[CURVATURE], the observed one to state[OBSERVED].
    """
    copy(state[row.CURVATURE], state[row.OBSERVED])
    copy(expected, state[row.CURVATURE])
    if not signed.factor_positive(K, expected, state, L):
        return False, np.inf
    log_det = lapack.log_determinant(L)
    rows = signed.negative_rows(expected)  # none
    signed.precision_inplace(K, L, state, np.empty((K.shape[0], 0)), np.empty((0, 0)), rows)
    if gradient:
        signed.expected_gradient_inplace(L, state)
    return True, log_det


@compiled
def solve(
    K: Array, y: Array, weights: Array, nu: float, noise: float, tol: float, max_iter: int, gradient: bool,
    observed: bool, expected: Array,
) -> tuple[int, int, float, float, Array, Array]:  # fmt: skip
    """Find a maximum of Ψ; log evidence, without constants, and, if asked for, its gradient.

    The determinant is of the observed curvature at the maximum, or of the `expected` one, of shape (n,).  Returns
    status, factorisations and Newton's decrement; log Z, where the status is CONVERGED; the iterate there; and G where
    the gradient was asked for, else R.
    """
    n, decrement = y.shape[0], np.inf
    state, L = np.zeros((row.ROWS, n)), np.empty_like(K)
    scale = largest_variance(K)
    copy(weights, state[row.WEIGHT])
    if not _regression(K, y, nu, noise, L, state):
        return NOT_POSITIVE_DEFINITE, 1, decrement, -np.inf, state, L
    psi = _psi(y, nu, noise, state[row.ALPHA], state[row.LATENT], state)
    psi = _climb(K, y, nu, noise, L, state, psi, scale)
    n_factor = 1
    while n_factor < max_iter:
        if _has_drifted(nu, noise, state):
            if not _reweighted(K, y, nu, noise, L, state):
                return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, state, L
            n_factor += 1
        n_factor, psi = n_factor + 1, _repair(K, y, nu, noise, state)
        if not signed.factor_positive(K, state[row.CURVATURE], state, L):
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, state, L
        rows = signed.negative_rows(state[row.CURVATURE])
        proper, X, C = signed.factor_negative(K, L, state, rows)
        if proper:
            decrement = _direction(K, L, state, X, C, rows)
            if decrement <= _target(tol, scale, state):
                if observed:
                    factored, log_det = True, signed.log_determinant(L, C)
                    signed.precision_inplace(K, L, state, X, C, rows)
                    if gradient:
                        signed.gradient_inplace(K, L, state)
                else:
                    factored, log_det = _finish_expected(K, expected, L, state, gradient)
                lapack.mirror_lower(L)
                status = CONVERGED if factored else NOT_POSITIVE_DEFINITE
                return status, n_factor, decrement, psi - 0.5 * log_det, state, L
        used, psi = _advance(K, y, nu, noise, L, state, X, C, rows, proper, psi, scale, tol)
        if used < 0:
            return NOT_POSITIVE_DEFINITE, n_factor, decrement, psi, state, L
        n_factor += used
    return NOT_CONVERGED, n_factor, decrement, psi, state, L
