"""Climbing a log density by L-BFGS, and its curvature at the top."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State, init


class Optimum(NamedTuple):
    """The highest position of one search."""

    state: State
    evaluations: int
    stalled: bool = False  # whether the search ended before its last iteration


class Objective:
    """-log p(u) and its gradient, for a minimiser; keeps the best state, and passes the carry on."""

    def __init__(self, density: LogDensity, start: State) -> None:
        self.density, self.best, self.last = density, start, start
        self.evaluations = 1
        # larger than any value the minimiser accepts, and small enough for the line search to interpolate
        self.penalty = -start.logdensity + max(100.0, abs(start.logdensity))

    def __call__(self, u: Array) -> tuple[float, Array]:
        if np.array_equal(u, self.last.position):
            return -self.last.logdensity, -self.last.grad
        state = init(self.density, u, self.last.carry)
        self.evaluations += 1
        if state.logdensity == -inf:
            return self.penalty, np.zeros_like(u)
        self.last = state
        if state.logdensity > self.best.logdensity:
            self.best = state
        return -state.logdensity, -state.grad


def climb(density: LogDensity, start: State, maxiter: int, *, gtol: float, ftol: float = 1e-15) -> Optimum:
    """Return the end of a search from a state, which stops where the gradient vanishes to `gtol`.

    `ftol` is the relative gain of an iteration below which it stops too; by default only where rounding keeps the
    gradient from vanishing.
    """
    objective = Objective(density, start)
    stalled = descend(objective, maxiter, gtol=gtol, ftol=ftol)
    return Optimum(objective.best, objective.evaluations, stalled)


def descend(objective: Objective, maxiter: int, *, gtol: float, ftol: float = 1e-15) -> bool:
    """Minimise by L-BFGS; return whether it ended before its last iteration."""
    if objective.density.n_dim == 0:
        return False
    result = minimize(
        objective,
        objective.best.position,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": maxiter, "maxfun": 20 * maxiter, "gtol": gtol, "ftol": ftol},
    )
    return bool(result.status != 1)


def hessian(density: LogDensity, state: State, step: float = 1e-2) -> Array:
    """Return the second derivatives of the log density, by central differences of its gradient, in 2 n_dim evaluations.

    They are NaN where the log density is -inf on one side.  The default step is small compared with the prior, and
    large compared with the rounding of gradients.
    """
    rows = []
    for e in step * np.eye(density.n_dim):
        ahead, behind = (init(density, state.position + sign * e, state.carry) for sign in (1.0, -1.0))
        failed = min(ahead.logdensity, behind.logdensity) == -inf
        rows.append(np.full(density.n_dim, np.nan) if failed else (ahead.grad - behind.grad) / (2.0 * step))
    H = np.array(rows)
    return 0.5 * (H + H.T)
