"""Warm-up that all chains share: find the mode, walk from it, and keep every evaluation.

The highest of the candidates of `samplers.start` that are well apart are climbed, loosely.  The curvature at the top
gives the first metric and starts around it.  Chains then make a few draws at a time; after each round they share one
metric and one step size, learnt from the draws of all.  Two rounds do, unless most proposals were rejected: whether the
points suffice is asked of the surrogate, by draws from it.

Where searches end at several maxima that all matter, the surrogate is given up: its chains would not move between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.interrupts import StopFlag
from hmcgp.runtime.parallel import run_tasks
from hmcgp.runtime.random import restore_generator
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import (
    Tuning,
    Welford,
    balanced_covariance,
    build_schedule,
    init_dual_average,
    init_welford,
    update_welford,
)
from hmcgp.samplers.ascent import Optimum, climb, hessian
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.integrators import State, init
from hmcgp.samplers.metric import as_metric
from hmcgp.samplers.scouting import highest_apart, scout
from hmcgp.samplers.start import SLACK, first_start
from hmcgp.samplers.surrogate.points import Points, Recorded
from hmcgp.samplers.trace import SurrogateInfo, stat_dtype

CLIMBS = 4  # searches for the mode, at most
CLIMB_ITERATIONS = 50
CLIMB_SLOPE, CLIMB_GAIN = 0.02, 1e-5  # a search stops where the gradient, or the relative gain of a step, is so small
SAME_TOP = 9.0  # squared Mahalanobis distance beyond which an end is another maximum
SMALLEST_SHARE = 1e-3  # of the probability, by Laplace's approximation, of another maximum that matters
ROUND = 8  # draws of each chain between two exchanges
ROUNDS, MOST_ROUNDS = 2, 5
ACCEPTED = 0.5  # least acceptance rate of the last round
WIDER = 1.2  # starts of chains are drawn from so much wider a Gaussian than the curvature says
WIDEST = 4.0  # variance of the first metric, at most, in units of the candidates'


class Walk(NamedTuple):
    """Draws of one chain in one round."""

    positions: Array  # (m, d)
    scores: Array  # (m, d), gradients there
    stats: NDArray[np.void]  # (m,)
    points: Points
    gradients: int
    state: State
    step_size: float
    stream: Mapping[str, Any]


def climb_recorded(density: LogDensity, start: State) -> tuple[Optimum, Points]:
    """Climb from a state, loosely, and return the evaluations on the way."""
    recorded = Recorded(density)
    return climb(recorded, start, CLIMB_ITERATIONS, gtol=CLIMB_SLOPE, ftol=CLIMB_GAIN), recorded.points


def curvature(density: LogDensity, state: State) -> tuple[Array, Points]:
    """Return the precision -H at a state, and the evaluations that it took."""
    recorded = Recorded(density)
    return -hessian(recorded, state), recorded.points


def walk(
    density: LogDensity, stream: Mapping[str, Any], state: State, covariance: Array, step_size: float | None, draws: int
) -> Walk:
    """Make some draws by HMC with a given metric; the step size is adapted."""
    recorded, rng, sampler = Recorded(density), restore_generator(stream), HMC(metric=covariance)
    if step_size is None:
        tuning = sampler.init_tuning(recorded, rng, state, draws)
    else:
        metric, dual = as_metric(covariance, len(covariance)), init_dual_average(step_size, stretch=1.0)
        tuning = Tuning(step_size, metric, build_schedule(draws), 0, dual)
    positions, scores = np.empty((draws, len(state.position))), np.empty((draws, len(state.position)))
    stats = np.zeros(draws, dtype=stat_dtype(SurrogateInfo))
    for i in range(draws):
        state, info = sampler.build_step(recorded, tuning)(rng, state)
        tuning = sampler.adapt(recorded, rng, tuning, state, info)
        positions[i], scores[i] = state.position, state.grad
        stats[i] = (*info, info.lp)  # it followed the density itself
    found = recorded.points, recorded.evaluations, state, tuning.step_size, rng.bit_generator.state
    return Walk(positions, scores, stats, *found)


class Search(NamedTuple):
    """Where the density is highest."""

    tops: list[State]  # the highest first
    precision: Array  # -H there, (d, d)
    several: bool
    parts: list[Points]
    values: int
    gradients: int


def find_tops(density: LogDensity, rng: np.random.Generator, n_workers: int, stop: StopFlag) -> Search:
    """Search for maxima from several candidates, and measure the curvature at the highest."""
    candidates = scout(density, rng, n_workers, stop)
    starts = highest_apart(density, candidates, CLIMBS) or [first_start(density, rng)]
    ends = run_tasks([(climb_recorded, (density, start)) for start in starts], n_workers, stop)
    tops = sorted((optimum.state for optimum, _ in ends), key=lambda state: -state.logdensity)
    scale = np.std([state.position for state in candidates], axis=0)
    [(H, points)] = run_tasks([(curvature, (density, tops[0]))], 1, stop)
    precision = usable_precision(H, scale)
    others = [top for top in tops[1:] if _apart(top, tops[0], precision)]
    found = run_tasks([(curvature, (density, top)) for top in others], n_workers, stop)
    masses = [_log_mass(top, usable_precision(H, scale)) for top, (H, _) in zip(others, found, strict=True)]
    several = bool(np.sum(np.exp(np.array(masses) - _log_mass(tops[0], precision))) > SMALLEST_SHARE)
    parts = [points, *(part for _, part in ends), *(part for _, part in found)]
    gradients = len(starts) + sum(optimum.evaluations for optimum, _ in ends) + 2 * density.n_dim * (1 + len(others))
    return Search(tops, precision, several, parts, len(candidates), gradients)


def usable_precision(H: Array, scale: Array) -> Array:
    """Return a precision that is positive: no direction is wider than WIDEST variances of the candidates."""
    unit = np.outer(scale, scale)
    if not np.isfinite(H).all():
        return np.diag(1.0 / scale**2)
    w, V = np.linalg.eigh(H * unit)
    return np.asarray((V * np.maximum(w, 1.0 / WIDEST)) @ V.T / unit)


def _apart(top: State, highest: State, precision: Array) -> bool:
    r = top.position - highest.position
    return bool(r @ precision @ r > SAME_TOP)


def _log_mass(top: State, precision: Array) -> float:
    """Return the logarithm of the integral over a maximum, by Laplace's approximation, up to a constant."""
    return float(top.logdensity - 0.5 * np.linalg.slogdet(precision)[1])


def start_around(
    density: LogDensity, stream: Mapping[str, Any], top: State, factor: Array
) -> tuple[State, Points, Any]:
    """Return a state drawn around the top, not hopelessly below it, with its evaluations and the random stream."""
    recorded, rng = Recorded(density), restore_generator(stream)
    floor, width, state = top.logdensity - density.n_dim - SLACK, WIDER, top
    for _ in range(20):
        state = init(recorded, top.position + width * factor @ rng.standard_normal(density.n_dim), top.carry)
        if state.logdensity >= floor:
            break
        width *= 0.7
    else:
        state = top
    return state, recorded.points, rng.bit_generator.state


class Chains(NamedTuple):
    """Chains of warm-up between two rounds."""

    states: list[State]
    streams: list[Mapping[str, Any]]
    walks: list[list[Walk]]  # by round, then by chain
    covariance: Array
    step_size: float | None


def begin_chains(
    density: LogDensity, search: Search, streams: list[Mapping[str, Any]], n_workers: int, stop: StopFlag
) -> tuple[Chains, list[Points]]:
    """Start one chain per random stream around the highest maximum."""
    covariance = np.linalg.inv(search.precision)
    covariance = 0.5 * (covariance + covariance.T)
    factor = np.linalg.cholesky(covariance)
    calls = [(start_around, (density, stream, search.tops[0], factor)) for stream in streams]
    found = run_tasks(calls, n_workers, stop)
    chains = Chains([state for state, _, _ in found], [stream for _, _, stream in found], [], covariance, None)
    return chains, [points for _, points, _ in found]


def next_round(density: LogDensity, chains: Chains, n_workers: int, stop: StopFlag) -> Chains:
    """Let every chain make some draws, and learn from those of all."""
    calls = [
        (walk, (density, stream, state, chains.covariance, chains.step_size, ROUND))
        for stream, state in zip(chains.streams, chains.states, strict=True)
    ]
    walks = run_tasks(calls, n_workers, stop)
    rounds = [*chains.walks, walks]
    step_size = exp(np.mean([log(w.step_size) for w in walks]))
    states, streams = [w.state for w in walks], [w.stream for w in walks]
    return Chains(states, streams, rounds, pooled_covariance(rounds), step_size)


def finished(chains: Chains) -> bool:
    """Whether warm-up has made its rounds, and moved in the last one."""
    if len(chains.walks) < ROUNDS:
        return False
    accepted = np.mean([w.stats["acceptance_rate"] for w in chains.walks[-1]])
    return bool(accepted >= ACCEPTED) or len(chains.walks) >= MOST_ROUNDS


def pooled_covariance(rounds: list[list[Walk]]) -> Array:
    """Return the metric learnt from draws and scores of all chains, without the first round if there are more."""
    kept = [w for walks in rounds[1:] or rounds for w in walks]
    d = kept[0].positions.shape[1]
    draws, scores = (
        _pooled([getattr(w, name) for w in kept], init_welford(d, dense=True)) for name in ("positions", "scores")
    )
    return balanced_covariance(draws, scores)


def _pooled(parts: list[Array], state: Welford) -> Welford:
    for row in np.concatenate(parts):
        state = update_welford(state, row)
    return state
