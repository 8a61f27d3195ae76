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
from hmcgp.numerics.density import Evaluation, LogDensity
from hmcgp.runtime.interrupts import defer_interrupts
from hmcgp.runtime.typing import Array
from hmcgp.samplers.metric import velocity

FAR = 1e100


class State(NamedTuple):
    """What the next step needs: where the chain is, and what is known there."""

    position: Array  # (n_dim,), unconstrained
    logdensity: float
    grad: Array  # (n_dim,)
    carry: object = None  # warm start for the density's next evaluation


def init(density: LogDensity, position: Array, carry: object = None) -> State:
    """Evaluate the density at a position.

    Parameters
    ----------
    density : LogDensity
        The log density.
    position : ndarray of shape (n_dim,)
        Unconstrained coordinates.
    carry : object, optional
        Warm start from an earlier evaluation.

    Returns
    -------
    State
    """
    position = np.array(position, dtype=float)
    return _move(position, evaluate(density, position, carry), carry)


@defer_interrupts
def evaluate(density: LogDensity, position: Array, carry: object) -> Evaluation:
    """Evaluate the density, and hold it to its contract: finite or -inf.

    A position that has left the world (NaN, or so far out that squares overflow) is -inf without asking the density.
    """
    if not hypot(*position.tolist()) < FAR:
        return Evaluation(-inf, np.zeros_like(position), carry)
    evaluation = density.evaluate(position, carry)
    if not evaluation.logdensity < inf:  # True for NaN too
        raise HmcgpError(
            f"'evaluate' returned log density {evaluation.logdensity} at u = {position}; "
            "it must be finite, or -inf where it cannot be computed."
        )
    return evaluation


def leapfrog(
    density: LogDensity, state: State, momentum: Array, step_size: float, inv_mass: Array | None = None
) -> tuple[State, Array, Evaluation]:
    """Take one leapfrog step; nothing passed in is changed.

    Parameters
    ----------
    density : LogDensity
        The log density.
    state : State
        Where to start; its carry is the warm start of the evaluation at the new position.
    momentum : ndarray of shape (n_dim,)
        Momentum p at the start.
    step_size : float
        e; a negative one walks backwards.
    inv_mass : None, ndarray of shape (n_dim,) or (n_dim, n_dim)
        S; None is the identity.

    Returns
    -------
    state : State
        At the new position.  Where the log density is -inf it keeps the last good carry.
    momentum : ndarray of shape (n_dim,)
        Momentum at the new position.
    evaluation : Evaluation
        What the evaluation there took.
    """
    half = 0.5 * step_size
    momentum = momentum + half * state.grad
    position = state.position + step_size * velocity(inv_mass, momentum)
    evaluation = evaluate(density, position, state.carry)
    return _move(position, evaluation, state.carry), momentum + half * evaluation.grad, evaluation


def _move(position: Array, evaluation: Evaluation, last_carry: object) -> State:
    carry = evaluation.carry if evaluation.logdensity > -inf else last_carry
    return State(position, evaluation.logdensity, evaluation.grad, carry)
