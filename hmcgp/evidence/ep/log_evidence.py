"""Log evidence of compiled expectation propagation, and its derivatives, at the solution.

With R = (K + diag(w)⁻¹)⁻¹ and the symbols of `hmcgp.evidence.ep.site_state`,

    log Z = Σ k_i log Ẑ_i - ½ Σ x_i μ_i + ½ Σ k_i log(1 + w_i v_i/k_i) - ½ log|I + K diag w|,    G = ½(xx' - R),

the usual formula with η = x + w m inserted.  It is stationary in the sites: their errors enter squared.
"""

import math

import numpy as np

from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.power_moments import flip_slope_power
from hmcgp.evidence.ep.response_moments import number_slopes
from hmcgp.evidence.ep.site_algebra import gradient_inplace, pseudo_target_precision
from hmcgp.evidence.status import CONVERGED
from hmcgp.likelihoods.terms import log_constant
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.runtime.typing import Array


@compiled
def log_evidence(state: Array, log_det: float) -> float:
    """Log Z, with log_det = log|I + K diag w|."""
    total = -0.5 * log_det
    for i in range(state.shape[1]):
        k, w, tau = state[site.COPIES, i], state[site.PRECISION, i], state[site.CAVITY_PRECISION, i]
        x, mu = state[site.ALPHA, i], state[site.CAVITY_MEAN, i]
        total += k * state[site.LOG_Z, i] - 0.5 * x * mu + 0.5 * k * math.log1p(w / k / tau)
    return total


@compiled_inside
def flip_derivative(kind: int, flip: float, y: Array, state: Array) -> float:
    """∂ log Z/∂ε = Σ k_i ∂ log Ẑ_i/∂ε, which is Σ (1 - 2Φ(z_i))/Ẑ_i where all weights are 1."""
    total = 0.0
    for i in range(y.shape[0]):
        k, mu, v = state[site.COPIES, i], state[site.CAVITY_MEAN, i], 1.0 / state[site.CAVITY_PRECISION, i]
        total += k * flip_slope_power(kind, flip, state[site.POWER, i], y[i], mu, v)
    return total


@compiled_inside
def constants_and_slopes(kind: int, y: Array, numbers: Array, state: Array) -> float:
    """Leave the derivatives of log Z in the numbers of the rows in `state`, and return the constants of log p."""
    total = 0.0
    for i in range(y.shape[0]):
        k, power, mu, v = (
            state[site.COPIES, i],
            state[site.POWER, i],
            state[site.CAVITY_MEAN, i],
            1.0 / state[site.CAVITY_PRECISION, i],
        )
        of_a, of_b = number_slopes(kind, power, y[i], numbers[0, i], numbers[1, i], mu, v)
        state[site.FIRST_SLOPE, i], state[site.SECOND_SLOPE, i] = k * of_a, k * of_b
        total += k * power * log_constant(kind, y[i], numbers[1, i])
    return total


@compiled_inside
def leave_copies_out(state: Array) -> None:
    """Turn the cavities, which leave one copy of a row out, into those without all of its copies."""
    for i in range(state.shape[1]):
        if state[site.COPIES, i] != 1.0:
            state[site.CAVITY_PRECISION, i] = 1.0 / state[site.VARIANCE, i] - state[site.PRECISION, i]
            state[site.CAVITY_MEAN, i] = state[site.MEAN, i] - state[site.ALPHA, i] / state[site.CAVITY_PRECISION, i]


@compiled
def evidence_at_solution(
    y: Array, kind: int, flip: float | None, status: int, log_det: float, gradient: bool, work: Array, S: Array,
    state: Array, order: Array, numbers: Array | None = None,
) -> tuple[float, float]:  # fmt: skip
    """Log evidence and its derivative in the flip rate, where CONVERGED; S becomes G, or R without the gradient.

    Where labels are not flipped, `flip` is None, and the derivative 0.  With `numbers` of the rows, the derivatives in
    these are left in `state`.
    """
    if status != CONVERGED:
        return -np.inf, 0.0
    log_z, dflip = log_evidence(state, log_det), 0.0
    if flip is not None:  # decided when this is compiled
        dflip = flip_derivative(kind, flip, y, state)
    if numbers is not None:
        log_z += constants_and_slopes(kind, y, numbers, state)
    leave_copies_out(state)
    pseudo_target_precision(state[site.PRECISION], order, work, S)
    if gradient:
        gradient_inplace(state[site.ALPHA], S)
    return log_z, dflip
