"""One chain: find a start, warm up, draw, and write everything down as it comes.

The record belongs to the caller, so that what a chain has done survives the chain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.integrators import State, init
from hmcgp.samplers.trace import AnyInfo, stat_dtype
from hmcgp.target import Target

Step: TypeAlias = Callable[[np.random.Generator, State], tuple[State, AnyInfo]]

ATTEMPTS = 100  # draws of a starting point before giving up


class Sampler(Protocol):
    """What a chain asks of a sampler; the settings of each step are a value, `Tuning`."""

    @property
    def name(self) -> str:
        """Short name, as users write it."""
        ...

    @property
    def info(self) -> type[AnyInfo]:
        """What each step reports; its fields are the columns of the statistics."""
        ...

    def check(self, n_dim: int, tune: int) -> None:
        """Raise InvalidInput for settings that do not fit."""
        ...

    def start_tuning(self, target: Target, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        """Return the settings of the first step."""
        ...

    def adapt(self, target: Target, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo) -> Tuning:
        """Return the settings of the next step, after one draw of warm-up."""
        ...

    def build_step(self, target: Target, tuning: Tuning) -> Step:
        """Return the transition with given settings."""
        ...


class Record:
    """What one chain has done so far; `count` grows last, so rows below it are always whole."""

    def __init__(self, tune: int, draws: int, n_dim: int, info: type[AnyInfo]) -> None:
        self.tune = tune
        self.positions: Array = np.empty((tune + draws, n_dim))
        self.stats = np.empty(tune + draws, dtype=stat_dtype(info))
        self.count = 0
        self.inv_metric: Array | None = None  # set at the end of warm-up
        self.error: Exception | None = None

    def add(self, state: State, info: AnyInfo) -> None:
        """Write one draw."""
        i = self.count
        self.positions[i] = state.position
        self.stats[i] = info
        self.count = i + 1

    @property
    def kept(self) -> int:
        """Draws after warm-up."""
        return max(self.count - self.tune, 0)

    @property
    def where(self) -> str:
        """Name the draw that the chain is at."""
        if self.inv_metric is None and self.count == 0:
            return "before its first draw"
        if self.count < self.tune:
            return f"at draw {self.count} of warm-up"
        return f"at draw {self.count - self.tune}"


class Control:
    """Lets a caller stop chains in other threads, and wait until they have."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._idle = threading.Condition()
        self._running = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the calling thread among the running."""
        with self._idle:
            self._running += 1
        try:
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def stop_and_wait(self) -> None:
        """Ask all chains to stop at their next draw; return when they have."""
        self.stop.set()
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0)


class ChainTask(NamedTuple):
    """One chain's share of a run."""

    target: Target
    sampler: Sampler
    rng: np.random.Generator
    start: Array | None  # None draws one from the target


def run_chain(task: ChainTask, record: Record, control: Control, tick: Callable[[], None]) -> None:
    """Run a chain into its record; an error is recorded there and stops the others."""
    with control.running():
        try:
            _run(task, record, control.stop, tick)
        except Exception as error:
            record.error = error
            control.stop.set()


def _run(task: ChainTask, record: Record, stop: threading.Event, tick: Callable[[], None]) -> None:
    target, sampler, rng, start = task
    if stop.is_set():
        return
    state = find_start(target, rng, start)
    tuning = sampler.start_tuning(target, rng, state, record.tune)
    while record.count < record.tune and not stop.is_set():
        state, info = sampler.build_step(target, tuning)(rng, state)
        tuning = sampler.adapt(target, rng, tuning, state, info)
        record.add(state, info)
        tick()
    record.inv_metric = tuning.metric.inv_mass
    step = sampler.build_step(target, tuning)
    for _ in range(len(record.stats) - record.tune):
        if stop.is_set():
            return
        state, info = step(rng, state)
        record.add(state, info)
        tick()


def find_start(target: Target, rng: np.random.Generator, start: Array | None) -> State:
    """Evaluate a start, or draw starts until one has a finite log density.

    Parameters
    ----------
    target : Target
        The log density, which also draws starting points.
    rng : Generator
        For `target.initial`.
    start : ndarray of shape (n_dim,), optional
        A start that the user gave.

    Returns
    -------
    State
    """
    if start is not None:
        state = init(target, start)
        if state.logdensity > -inf:
            return state
        raise InvalidInput(
            f"the log density is -inf at 'start' = {start} (unconstrained), so there is nowhere to go from there. "
            "Start elsewhere, or leave 'start' out."
        )
    for _ in range(ATTEMPTS):
        state = init(target, target.initial(rng))
        if state.logdensity > -inf:
            return state
    raise InvalidInput(
        f"the log density was -inf at all of {ATTEMPTS} random starting points: the covariance could not be factored, "
        "or the inner solver failed, wherever the prior puts weight. Check the priors for absurd scales, and the "
        "inputs if they are not standardised."
    )
