"""Compiled expectation propagation by sweeps: solution, log evidence and derivatives (symbols as in `site_state`)."""

import numpy as np

from hmcgp.evidence.ep.log_evidence import evidence_at_solution
from hmcgp.evidence.ep.parallel_sweeps import sweep_in_parallel
from hmcgp.evidence.ep.sequential_sweeps import sweep_sequentially
from hmcgp.evidence.ep.site_state import cold_start, new_state, warm_start
from hmcgp.evidence.status import CONVERGED, NOT_CONVERGED
from hmcgp.numerics.compiled import compiled
from hmcgp.runtime.typing import Array

_MAX_NOISY_SWEEPS = 60  # after which label noise is left to `hmcgp.evidence.ep.double_loop`


@compiled
def sweep(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int, sequential: bool,
    work: Array, S: Array, state: Array, order: Array, K_classes: Array, classes: Array,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweep until the sites converge: from `start` if warm and, where that fails, from the prior.

    Returns status, factorisations, residual and log|I + K diag w|; `state` and its covariance S are overwritten.
    `K_classes` and `classes` are those of `hmcgp.evidence.ep.class_contrasts`, empty where K itself is factorised.
    """
    status, n_factor, residual, log_det = NOT_CONVERGED, 0, np.inf, np.inf
    budget = max_iter if flip == 0.0 else min(max_iter, _MAX_NOISY_SWEEPS)
    for from_prior in range(0 if warm else 1, 2):
        if from_prior:
            cold_start(K, y, kind, flip, state)
        elif not warm_start(start, flip == 0.0, state):
            continue
        if sequential:
            status, used, residual, log_det = sweep_sequentially(
                K, y, kind, flip, not from_prior, tol, budget, work, S, state, order
            )
        else:
            status, used, residual, log_det = sweep_in_parallel(
                K, y, kind, flip, not from_prior, tol, budget, work, S, state, order, K_classes, classes
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
    """Sites by sweeps, their log evidence and its derivatives.

    Returns status, factorisations and residual; log Z and its derivative in the flip rate, where the status is
    CONVERGED; `state`; and G with the gradient, else R = (K + diag(w)⁻¹)⁻¹.
    """
    n = y.shape[0]
    state, order = new_state(weights), np.empty(n, dtype=np.int64)
    work, S = np.empty_like(K), np.empty_like(K)
    status, n_factor, residual, log_det = sweep(
        K, y, kind, flip, start, warm, tol, max_iter, sequential, work, S, state, order, np.empty((0, 0, 0)), y
    )
    log_z, dflip = evidence_at_solution(y, kind, flip, status, log_det, gradient, work, S, state, order)
    return status, n_factor, residual, log_z, dflip, state, S
