"""The leapfrog integrator of Hamiltonian dynamics.

    p <- p + e/2 grad log p(u)
    u <- u + e S p
    p <- p + e/2 grad log p(u)

Reversible (negate p and walk back), volume preserving, and wrong in the energy by O(e^2).
Neal (2011), MCMC using Hamiltonian dynamics, section 2.3.
"""

from __future__ import annotations

from math import hypot, inf
from typing import NamedTuple

import numpy as np

from hmcgp.errors import HmcgpError
from hmcgp.numerics.density import NOT_CONVERGED, NOT_POSITIVE_DEFINITE, Evaluation, LogDensity
from hmcgp.runtime.interrupts import check_interrupt
from hmcgp.runtime.typing import Array
from hmcgp.samplers.metric import velocity

FAR = 1e100


class State(NamedTuple):
    """Position of a chain, with the log density and gradient there."""

    position: Array  # (n_dim,), unconstrained
    logdensity: float
    grad: Array  # (n_dim,)
    carry: object = None  # speeds up the next evaluation of the log density


def evaluate(
    density: LogDensity, position: Array, carry: object = None, gradient: bool = True
) -> tuple[State, Evaluation]:
    """Evaluate a log density, unless the work of this thread is to stop, and check that it is finite or -inf.

    Positions that are NaN, or so far out that squares overflow, are -inf without an evaluation.  Where the log density
    is -inf, the state keeps the carry that was passed in.
    """
    check_interrupt()
    near = hypot(*position.tolist()) < FAR
    evaluation = density.evaluate(position, carry, gradient) if near else Evaluation(-inf, np.zeros_like(position))
    logdensity = evaluation.logdensity
    if not logdensity < inf:  # True for NaN too
        raise HmcgpError(
            f"'evaluate' returned log density {logdensity} at u = {position}; "
            "it must be finite, or -inf where it cannot be computed."
        )
    return State(position, logdensity, evaluation.grad, evaluation.carry if logdensity > -inf else carry), evaluation


def init(density: LogDensity, position: Array, carry: object = None) -> State:
    """Return the state at a position (arguments as of `evaluate`)."""
    return evaluate(density, np.array(position, dtype=float), carry)[0]


class Work(NamedTuple):
    """Statistics of the evaluations of one draw."""

    n_steps: int = 0
    solver_iterations: int = 0
    solver_residual: float = 0.0  # the largest
    not_positive_definite: int = 0  # failures
    not_converged: int = 0

    def plus(self, evaluation: Evaluation) -> Work:
        """Return the statistics with one more evaluation."""
        return Work(
            self.n_steps + 1,
            self.solver_iterations + evaluation.solver_iterations,
            max(self.solver_residual, evaluation.solver_residual),
            self.not_positive_definite + (evaluation.failure == NOT_POSITIVE_DEFINITE),
            self.not_converged + (evaluation.failure == NOT_CONVERGED),
        )


def leapfrog(
    density: LogDensity, state: State, momentum: Array, step_size: float, inv_mass: Array | None = None
) -> tuple[State, Array, Evaluation]:
    """Take one leapfrog step; nothing passed in is changed.

    Parameters
    ----------
    density : LogDensity
        The log density.
    state : State
        Where to start; its carry is handed to the evaluation at the new position.
    momentum : ndarray of shape (n_dim,)
        Momentum p at the start.
    step_size : float
        e; a negative one walks backwards.
    inv_mass : None, ndarray of shape (n_dim,) or (n_dim, n_dim)
        S; None is the identity.

    Returns
    -------
    state : State
        At the new position; where the log density is -inf it keeps the last good carry.
    momentum : ndarray of shape (n_dim,)
        Momentum at the new position.
    evaluation : Evaluation
        With the statistics of the solver there.
    """
    half = 0.5 * step_size
    momentum = momentum + half * state.grad
    position = state.position + step_size * velocity(inv_mass, momentum)
    end, evaluation = evaluate(density, position, state.carry)
    return end, momentum + half * end.grad, evaluation
