"""Draws from a surrogate by HMC, and the log density at them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.density import NOT_CONVERGED, NOT_POSITIVE_DEFINITE, Evaluation, LogDensity
from hmcgp.runtime.interrupts import Deadline, StopFlag, Stopped
from hmcgp.runtime.parallel import run_tasks
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.chain import ChainTask, run_chain
from hmcgp.samplers.chains.record import Record, Snapshot
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.integrators import evaluate
from hmcgp.samplers.surrogate.gaussian_process import Surrogate
from hmcgp.samplers.surrogate.points import Points
from hmcgp.samplers.trace import Info

TUNE = 60  # warm-up draws on a surrogate, for the step size
THINNING = 6  # trajectories for one draw: where an input may or may not matter, two leave draws alike (crabs)
GROUP = 8  # draws whose log density one task computes
SOLVER = ("solver_iterations", "solver_residual", "not_positive_definite", "not_converged")  # statistics
EXCLUDED = 700.0  # nats below the surrogate, where the log density failed: a weight of 0


class SurrogateDensity:
    """A surrogate, flattened to g/T, as the log density of whitened coordinates."""

    def __init__(self, surrogate: Surrogate, temperature: float) -> None:
        self.surrogate, self.temperature = surrogate, temperature
        self.n_dim = len(surrogate.points)
        self.names = [f"z{j}" for j in range(self.n_dim)]

    def evaluate(self, u: Array, carry: object = None, gradient: bool = True) -> Evaluation:
        """Log density and gradient at u."""
        value, grad = self.surrogate.predict(u)
        return Evaluation(value / self.temperature, grad / self.temperature)

    def constrain(self, u: Array) -> Array:
        """Return u."""
        return u

    def initial(self, rng: np.random.Generator) -> Array:
        """Draw from the mean function of the process."""
        return rng.standard_normal(self.n_dim)


class Drawn(NamedTuple):
    """Draws of one chain from a surrogate."""

    u: Array  # (m, d)
    stats: NDArray[np.void]  # (m,), of which lp is the surrogate's
    stream: Mapping[str, Any]


def draw_chain(surrogate: Surrogate, temperature: float, stream: Mapping[str, Any], start: Array, draws: int) -> Drawn:
    """Draw by HMC from a surrogate of some temperature."""
    z = surrogate.whitening.whiten(start[None])[0]
    task = ChainTask(SurrogateDensity(surrogate, temperature), HMC(metric=np.ones(len(z))), z)
    record = Record(TUNE, THINNING * draws, len(z), Info, Snapshot(0, stream))
    run_chain(task, record, Deadline(), lambda: None)
    if record.error is not None:
        raise record.error
    if not record.finished:
        raise Stopped
    kept = slice(TUNE + THINNING - 1, None, THINNING)
    return Drawn(surrogate.whitening.restore(record.positions[kept]), record.stats[kept], record.snapshot.stream)


class Values(NamedTuple):
    """The log density at several draws."""

    logdensity: Array  # (m,), -inf where it failed
    grad: Array  # (m, d), NaN where it was not asked for
    solver: Array  # (m, 4), SOLVER


def evaluate_group(density: LogDensity, u: Array, carry: object, gradient: bool) -> Values:
    """Evaluate at several positions, each warm from one and the same state: their order does not matter."""
    out = Values(np.empty(len(u)), np.full(u.shape, np.nan), np.empty((len(u), 4)))
    for i, position in enumerate(u):
        _, found = evaluate(density, position, carry, gradient)
        if found.failure:
            _, found = evaluate(density, position, None, gradient)
        out.logdensity[i] = found.logdensity
        failures = found.failure == NOT_POSITIVE_DEFINITE, found.failure == NOT_CONVERGED
        out.solver[i] = (found.solver_iterations, found.solver_residual, *failures)
        if gradient and found.logdensity > -inf:
            out.grad[i] = found.grad
    return out


def evaluate_all(
    density: LogDensity, u: Array, carry: object, gradient: bool, n_workers: int, stop: StopFlag
) -> Values:
    """Evaluate at positions of shape (m, d), in parallel."""
    groups = [u[i : i + GROUP] for i in range(0, len(u), GROUP)]
    found = run_tasks([(evaluate_group, (density, group, carry, gradient)) for group in groups], n_workers, stop)
    return Values(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def as_points(u: Array, values: Values) -> Points:
    """Return the positions at which the log density and its gradient were found."""
    known = np.isfinite(values.logdensity) & np.isfinite(values.grad).all(axis=1)
    return Points(u[known], values.logdensity[known], values.grad[known])
