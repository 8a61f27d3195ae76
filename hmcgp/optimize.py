"""The maximum of the posterior density (MAP), from several starts.

The density is that of the unconstrained parameters u, Jacobian included: the one that the samplers see.  Its
maximum is not the maximum of the density of the natural parameters; for log-normal priors it is the one that treats
log θ as the parameter, as Barber & Williams (1997) do.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from hmcgp._checks import check_count
from hmcgp._parallel import StopFlag, resolve_n_jobs, run_tasks
from hmcgp._random import RandomStateLike, spawn_generators
from hmcgp._typing import Array
from hmcgp.errors import HmcgpError, InvalidInput
from hmcgp.samplers.chain import find_start
from hmcgp.samplers.integrators import State, init
from hmcgp.samplers.trace import Info, Trace
from hmcgp.target import Target

GRADIENT_TOLERANCE = 1e-4  # largest component of the gradient at what is called an optimum


class MapResult(NamedTuple):
    """The best optimum found, and how the others compare."""

    position: Array  # (n_dim,), unconstrained
    parameters: Array  # (n_dim,), natural
    logdensity: float  # of u
    names: list[str]
    evaluations: int  # over all restarts
    converged: bool  # whether the gradient vanishes at the best optimum
    restarts: Array  # (n_restarts,), log density reached from each start
    carry: object  # warm start for evaluations near the optimum


class _Optimum(NamedTuple):
    state: State
    evaluations: int


class _Objective:
    """-log p(u) and its gradient, for a minimiser; remembers the best state and hands the carry on."""

    def __init__(self, target: Target, start: State, stop: StopFlag) -> None:
        self.target, self.best, self.last, self.stop = target, start, start, stop
        self.evaluations = 1
        # above anything the descent accepts, and near enough for the line search to interpolate
        self.penalty = -start.logdensity + max(100.0, abs(start.logdensity))

    def __call__(self, u: Array) -> tuple[float, Array]:
        if self.stop.is_set():
            raise HmcgpError("stopped, because another restart failed or the run was interrupted.")
        if np.array_equal(u, self.last.position):
            return -self.last.logdensity, -self.last.grad  # the start is known
        state = init(self.target, u, self.last.carry)
        self.evaluations += 1
        if state.logdensity == -inf:
            return self.penalty, np.zeros_like(u)
        self.last = state
        if state.logdensity > self.best.logdensity:
            self.best = state
        return -state.logdensity, -state.grad


def find_map(
    target: Target,
    *,
    n_restarts: int = 5,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
    start: Array | None = None,
    maxiter: int = 200,
) -> MapResult:
    """Find the maximum of the density of the unconstrained parameters by L-BFGS, from several starts.

    Parameters
    ----------
    target : Target
        The log density, with its gradient.
    n_restarts : int
        Number of starts, drawn by `target.initial`, each from its own stream.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed of the starts; start i is the same whatever their number.
    n_jobs : int, optional
        Workers, as in `hmcgp.samplers.sample`.
    start : ndarray of shape (n_dim,), optional
        Unconstrained point that takes the place of the first start.
    maxiter : int
        Most L-BFGS iterations per start.

    Returns
    -------
    MapResult
        The best over all starts.
    """
    check_count("n_restarts", n_restarts, 1)
    check_count("maxiter", maxiter, 1)
    if start is not None and np.shape(start) != (target.n_dim,):
        raise InvalidInput(f"'start' must have shape ({target.n_dim},); got {np.shape(start)}.")
    starts = [None if start is None else np.asarray(start, dtype=float), *[None] * (n_restarts - 1)]
    stop = StopFlag()
    rngs = spawn_generators(random_state, n_restarts)
    calls = [(_climb, (target, rng, u, maxiter, stop)) for rng, u in zip(rngs, starts, strict=True)]
    try:
        optima: list[_Optimum] = run_tasks(calls, resolve_n_jobs(n_jobs, n_restarts))
    finally:
        stop.set()  # Ctrl-C or an error: the other threads end at their next evaluation
    return _best(target, optima)


def _climb(target: Target, rng: np.random.Generator, start: Array | None, maxiter: int, stop: StopFlag) -> _Optimum:
    first = find_start(target, rng, start)
    objective = _Objective(target, first, stop)
    # stops on the gradient; ftol only ends what rounding keeps from getting there
    minimize(
        objective,
        first.position,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": maxiter, "maxfun": 20 * maxiter, "gtol": 0.1 * GRADIENT_TOLERANCE, "ftol": 1e-15},
    )
    return _Optimum(objective.best, objective.evaluations)


def _best(target: Target, optima: list[_Optimum]) -> MapResult:
    best = max(optima, key=lambda optimum: optimum.state.logdensity).state
    return MapResult(
        position=best.position,
        parameters=target.constrain(best.position),
        logdensity=best.logdensity,
        names=list(target.names),
        evaluations=sum(optimum.evaluations for optimum in optima),
        converged=bool(np.max(np.abs(best.grad)) <= GRADIENT_TOLERANCE),
        restarts=np.array([optimum.state.logdensity for optimum in optima]),
        carry=best.carry,
    )


def point_trace(result: MapResult, seconds: float = 0.0) -> Trace:
    """Dress an optimum up as a trace of one draw, so that whatever takes draws takes it.

    Parameters
    ----------
    result : MapResult
        The optimum.
    seconds : float, default=0.0
        How long it took to find.

    Returns
    -------
    Trace
        One chain of one draw by the sampler "map", without warm-up.
    """
    u = result.position[None, None, :]  # (1, 1, n_dim)
    info = Info(
        lp=result.logdensity,
        acceptance_rate=1.0,
        step_size=0.0,
        n_steps=result.evaluations,
        energy=-result.logdensity,
        energy_error=0.0,
        diverging=False,
        solver_iterations=0,
        solver_residual=0.0,
        not_positive_definite=0,
        not_converged=0,
    )
    stats = {name: np.array([[value]]) for name, value in info._asdict().items()}
    return Trace(
        draws=result.parameters[None, None, :],
        unconstrained=u,
        stats=stats,
        names=result.names,
        sampler="map",
        sampling_time=seconds,
        interrupted=False,
        warmup_draws=u[:, :0],
        warmup_unconstrained=u[:, :0],
        warmup_stats={name: value[:, :0] for name, value in stats.items()},
        inv_metric=np.zeros((1, len(result.names))),
    )
