"""Compiled expectation propagation: solution, log evidence and derivatives in one call.

At the solution (`hmcgp.evidence.ep.state` has the symbols), with R = (K + diag(w)⁻¹)⁻¹,

    log Z = Σ k_i log Ẑ_i - ½ Σ x_i μ_i + ½ Σ k_i log(1 + w_i v_i/k_i) - ½ log|I + K diag w|,    G = ½(xx' - R)

which is the usual formula with η = x + w m put in.  It is stationary in the sites: an error of theirs enters squared.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.evidence.ep.parallel_sweeps import iterate
from hmcgp.evidence.ep.powers import flip_slope_power
from hmcgp.evidence.ep.sequential_sweeps import iterate_sequentially
from hmcgp.evidence.ep.site_algebra import gradient_inplace, response
from hmcgp.evidence.ep.state import COPIES, LOG_Z, MEAN, MU, POWER, S_DIAG, TAU, W, X, blank, cold_start, warm_start
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED
from hmcgp.numerics.compiled import compiled
from hmcgp.runtime.typing import Array

__all__ = ["finish", "log_evidence", "solve"]

_PATIENCE = 60  # sweeps after which label noise is left to `hmcgp.evidence.ep.double_loop`


@compiled
def log_evidence(a: Array, log_det: float) -> float:
    """Log Z at the state `a`."""
    total = -0.5 * log_det
    for i in range(a.shape[1]):
        k = a[COPIES, i]
        total += k * a[LOG_Z, i] - 0.5 * a[X, i] * a[MU, i] + 0.5 * k * math.log1p(a[W, i] / k / a[TAU, i])
    return total


@compiled
def flip_derivative(kind: int, flip: float, y: Array, a: Array) -> float:
    """∂ log Z/∂ε = Σ k_i ∂ log Ẑ_i/∂ε, which is Σ (1 - 2Φ(z_i))/Ẑ_i where all weights are 1."""
    total = 0.0
    for i in range(y.shape[0]):
        total += a[COPIES, i] * flip_slope_power(kind, flip, a[POWER, i], y[i], a[MU, i], 1.0 / a[TAU, i])
    return total


@compiled
def leave_copies_out(a: Array) -> None:
    """Turn the cavities, which leave one copy of a row out, into those without all of its copies."""
    for i in range(a.shape[1]):
        if a[COPIES, i] != 1.0:
            a[TAU, i] = 1.0 / a[S_DIAG, i] - a[W, i]
            a[MU, i] = a[MEAN, i] - a[X, i] / a[TAU, i]


@compiled
def finish(
    y: Array, kind: int, flip: float, log_det: float, gradient: bool, work: Array, S: Array, a: Array, order: Array
) -> tuple[float, float]:
    """Log evidence and its derivative in the flip rate at the solution `a`; S becomes G or R (see `solve`)."""
    log_z, dflip = log_evidence(a, log_det), flip_derivative(kind, flip, y, a)
    leave_copies_out(a)
    response(a[W], order, work, S)
    if gradient:
        gradient_inplace(a[X], S)
    return log_z, dflip


@compiled
def attempts(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int, sequential: bool,
    work: Array, S: Array, a: Array, order: Array, K_classes: Array, classes: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweeps from `start` if warm; where that leads nowhere, once more from the prior.

    Returns status, factorisations, residual and log|I + KW|, and leaves the state in `a`, its covariance in S.
    `K_classes` and `classes` are those of `evidence.ep.class_contrasts`, empty where K itself is to be factorised.
    """
    status, n_factor, residual, log_det = NOT_CONVERGED, 0, np.inf, np.inf
    budget = max_iter if flip == 0.0 else min(max_iter, _PATIENCE)
    for attempt in range(0 if warm else 1, 2):
        if attempt == 0:
            if not warm_start(start, flip == 0.0, a):
                continue
        else:
            cold_start(K, y, kind, flip, a)
        if sequential:
            status, used, residual, log_det = iterate_sequentially(
                K, y, kind, flip, attempt == 0, tol, budget, work, S, a, order
            )
        else:
            status, used, residual, log_det = iterate(
                K, y, kind, flip, attempt == 0, tol, budget, work, S, a, order, K_classes, classes
            )
        n_factor += used
        if status == CONVERGED:
            break
    return status, n_factor, residual, log_det


@compiled
def solve(
    K: Array, y: Array, weights: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int,
    sequential: bool, gradient: bool,
) -> tuple[int, int, float, float, float, Array, Array]:  # fmt: skip
    """Solve for the sites by sweeps, from `start` if warm; where that leads nowhere, once more from the prior.

    Returns
    -------
    status, n_factor : int
    residual : float
    log_z, dflip : float
        Log evidence and its derivative in the flip rate, where the status is CONVERGED.
    a : ndarray of shape (ROWS, n)
        The state.
    R : ndarray of shape (n, n)
        G where the gradient was asked for, else R = (K + diag(w)⁻¹)⁻¹.
    """
    n = y.shape[0]
    a, order = blank(weights), np.empty(n, dtype=np.int64)
    work, S = np.empty_like(K), np.empty_like(K)
    status, n_factor, residual, log_det = attempts(
        K, y, kind, flip, start, warm, tol, max_iter, sequential, work, S, a, order, np.empty((0, 0, 0)), y
    )
    if status != CONVERGED:
        return status, n_factor, residual, -np.inf, 0.0, a, S
    log_z, dflip = finish(y, kind, flip, log_det, gradient, work, S, a, order)
    return status, n_factor, residual, log_z, dflip, a, S
