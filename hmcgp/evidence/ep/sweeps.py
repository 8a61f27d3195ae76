"""Expectation propagation by sweeps: solution, log evidence and derivatives (symbols as in `site_state`).

The loops are compiled in parts, so that only those compile that are used: parallel or sequential sweeps, and of these
two classes or several.
"""

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence.ep.log_evidence import evidence_at_solution
from hmcgp.evidence.ep.parallel_sweeps import sweep_in_parallel
from hmcgp.evidence.ep.sequential_sweeps import sweep_sequentially
from hmcgp.evidence.ep.site_state import new_state
from hmcgp.evidence.status import CONVERGED
from hmcgp.runtime.typing import Array

_MAX_NOISY_SWEEPS = 60  # after which label noise is left to `hmcgp.evidence.ep.double_loop`


def sweep(
    K: Array, y: Array, kind: int, flip: float, start: Array, warm: bool, tol: float, max_iter: int, sequential: bool,
    work: Array, S: Array, state: Array, order: NDArray[np.int64], K_classes: Array | None = None,
    classes: Array | None = None, numbers: Array | None = None,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Sweep until the sites converge: from `start` if warm and, where that fails, from the prior.

    Returns status, factorisations, residual and log|I + K diag w|; `state` and its covariance S are overwritten.
    `K_classes` and `classes` are those of `hmcgp.evidence.ep.class_contrasts`, None where K itself is factorised.
    """
    n_factor = 0
    budget = max_iter if flip == 0.0 else min(max_iter, _MAX_NOISY_SWEEPS)
    for from_start in (True, False) if warm else (False,):
        if sequential:
            status, used, residual, log_det = sweep_sequentially(
                K, y, kind, flip, start, from_start, tol, budget, work, S, state, order, numbers
            )
        else:
            status, used, residual, log_det = sweep_in_parallel(
                K, y, kind, flip, start, from_start, tol, budget, work, S, state, order, K_classes, classes, numbers
            )
        n_factor += used
        if status == CONVERGED:
            break
    return status, n_factor, residual, log_det


def solve(
    K: Array, y: Array, weights: Array, kind: int, flip: float | None, start: Array, warm: bool, tol: float,
    max_iter: int, sequential: bool, gradient: bool, numbers: Array | None = None,
) -> tuple[int, int, float, float, float, Array, Array]:  # fmt: skip
    """Sites by sweeps, their log evidence and its derivatives; `flip` is None where labels are not flipped.

    `numbers` are those of `Likelihood.row_numbers`, None for labels.

    Returns status, factorisations and residual; log Z and its derivative in the flip rate, where the status is
    CONVERGED; `state`; and G with the gradient, else R = (K + diag(w)⁻¹)⁻¹.
    """
    state, order = new_state(weights), np.empty(len(y), dtype=np.int64)
    work, S = np.empty_like(K), np.empty_like(K)
    status, n_factor, residual, log_det = sweep(
        K, y, kind, flip or 0.0, start, warm, tol, max_iter, sequential, work, S, state, order, numbers=numbers
    )
    log_z, dflip = evidence_at_solution(y, kind, flip, status, log_det, gradient, work, S, state, order, numbers)
    return status, n_factor, residual, log_z, dflip, state, S
