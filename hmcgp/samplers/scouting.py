"""Starts of searches, chosen by their log density among many candidates."""

from __future__ import annotations

from math import inf

import numpy as np

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.interrupts import StopFlag
from hmcgp.runtime.parallel import run_tasks
from hmcgp.samplers.integrators import State, init
from hmcgp.samplers.start import draw_positions, evaluate_candidates

APART = 0.5  # least root mean square distance between two starts, in interquartile ranges of the candidates


def scout(density: LogDensity, rng: np.random.Generator, n_workers: int, stop: StopFlag | None = None) -> list[State]:
    """Return candidates with their log densities, in the same order whatever the number of workers."""
    parts = np.array_split(draw_positions(density, rng), n_workers)
    found = run_tasks([(evaluate_candidates, (density, part)) for part in parts], n_workers, stop)
    return [candidate for part in found for candidate in part]


def highest_apart(density: LogDensity, candidates: list[State], count: int) -> list[State]:
    """Return the states at the highest candidates that are well apart, at most `count`."""
    states: list[State] = []
    lower, upper = np.quantile([c.position for c in candidates], [0.25, 0.75], axis=0)
    width = np.maximum(upper - lower, np.finfo(float).tiny)
    for candidate in sorted(candidates, key=lambda c: -c.logdensity):
        if len(states) >= count or candidate.logdensity == -inf:
            break
        distances = [np.sqrt(np.mean(((candidate.position - state.position) / width) ** 2)) for state in states]
        if all(distance > APART for distance in distances):
            state = init(density, candidate.position, candidate.carry)
            if state.logdensity > -inf:  # else the gradient failed where the value did not
                states.append(state)
    return states
