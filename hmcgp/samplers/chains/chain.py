"""One chain: find a start, warm up, draw, and write everything down as it comes.

The record belongs to the caller, so that what a chain has done survives the chain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import Evaluation, LogDensity
from hmcgp.runtime.interrupts import StopFlag, raise_if_interrupt
from hmcgp.runtime.random import restore_generator
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.integrators import State, init
from hmcgp.samplers.trace import AnyInfo, stat_dtype

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

    @property
    def usual_steps(self) -> float:
        """Evaluations of the density that a draw usually takes: for forecasts."""
        ...

    def check(self, n_dim: int, tune: int) -> None:
        """Raise InvalidInput for settings that do not fit."""
        ...

    def init_tuning(self, density: LogDensity, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        """Return the settings of the first step."""
        ...

    def adapt(
        self, density: LogDensity, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo
    ) -> Tuning:
        """Return the settings of the next step, after one draw of warm-up."""
        ...

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        """Return the transition with given settings."""
        ...


class Snapshot(NamedTuple):
    """Where a chain stands between two draws: all it needs to go on, bit for bit, here or elsewhere."""

    done: int  # draws so far, warm-up included
    stream: Mapping[str, Any]  # state of its random bit generator
    state: State | None = None  # None: not begun
    tuning: Tuning | None = None


class Record:
    """What one chain has done so far; the snapshot is set last, so rows below its count are always whole.

    Parameters
    ----------
    tune, draws : int
        Length of warm-up, and of what is kept.
    n_dim : int
        Number of coordinates.
    info : type
        What the sampler reports of each draw.
    snapshot : Snapshot
        Where the chain stands.
    """

    def __init__(self, tune: int, draws: int, n_dim: int, info: type[AnyInfo], snapshot: Snapshot) -> None:
        self.tune = tune
        self.total = tune + draws
        self.positions: Array = np.zeros((self.total, n_dim))
        self.stats = np.zeros(self.total, dtype=stat_dtype(info))
        self.snapshot = snapshot
        self.error: Exception | None = None

    @property
    def count(self) -> int:
        """Draws so far, warm-up included."""
        return self.snapshot.done

    @property
    def kept(self) -> int:
        """Draws after warm-up."""
        return max(self.count - self.tune, 0)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.count >= self.total

    @property
    def where(self) -> str:
        """Name the draw that the chain is at."""
        if self.snapshot.state is None:
            return "before its first draw"
        if self.count < self.tune:
            return f"at draw {self.count} of warm-up"
        return f"at draw {self.kept}"

    def add(self, info: AnyInfo, state: State, tuning: Tuning, rng: np.random.Generator) -> None:
        """Write one draw."""
        i = self.count
        self.positions[i] = state.position
        self.stats[i] = info
        self.snapshot = Snapshot(i + 1, rng.bit_generator.state, state, tuning)

    def fill(self, positions: Array, stats: NDArray[np.void], snapshot: Snapshot) -> None:
        """Write draws made elsewhere, the last of which the snapshot follows."""
        rows = slice(snapshot.done - len(positions), snapshot.done)
        self.positions[rows] = positions
        self.stats[rows] = stats
        self.snapshot = snapshot


class Stopped(Exception):
    """Ends a chain in the middle of a draw, which is dropped."""


class Control:
    """Stops chains in whatever threads.

    Parameters
    ----------
    max_time : float
        Seconds from now after which everything stops by itself.
    """

    def __init__(self, max_time: float = inf) -> None:
        self.stop = StopFlag()  # set by Ctrl-C too
        self.deadline = time.monotonic() + max_time

    @property
    def remaining(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether to stop: because someone said so, or because the time is up."""
        return self.stop.is_set() or time.monotonic() >= self.deadline


class Watched:
    """A density that stops the chain instead of starting an evaluation when the run is over.

    A draw may take hundreds of evaluations, and an evaluation seconds: nobody wants to wait for the end of a draw.
    """

    def __init__(self, density: LogDensity, control: Control) -> None:
        self._target, self._control = density, control
        self.n_dim, self.names = density.n_dim, density.names
        self.constrain, self.initial = density.constrain, density.initial

    def evaluate(self, u: Array, carry: object = None) -> Evaluation:
        """Evaluate the density, unless the run is over."""
        if self._control.over:
            raise Stopped
        return self._target.evaluate(u, carry)


class ChainTask(NamedTuple):
    """One chain's share of a run."""

    density: LogDensity
    sampler: Sampler
    start: Array | None  # None draws one from the density


def run_chain(
    task: ChainTask, record: Record, control: Control, tick: Callable[[], None], seconds: float = inf
) -> None:
    """Take a chain on from where its record ends, to its end or for some seconds.

    Parameters
    ----------
    task : ChainTask
        What to run.
    record : Record
        Where it stands, and where to write; an error is written there too, and stops the others.
    control : Control
        Stops it, at the next evaluation.
    tick : callable
        Called after each draw.
    seconds : float
        Pause at the first draw that ends after so long.
    """
    pause = time.monotonic() + seconds
    try:
        _run(task, record, control, tick, pause)
    except Stopped:
        pass
    except Exception as error:
        raise_if_interrupt(error)  # not this chain's fault
        record.error = error
        control.stop.set()


def _run(task: ChainTask, record: Record, control: Control, tick: Callable[[], None], pause: float) -> None:
    sampler, density = task.sampler, Watched(task.density, control)
    _, stream, state, tuning = record.snapshot
    rng = restore_generator(stream)
    if state is None or tuning is None:
        state = find_start(density, rng, task.start)
        tuning = sampler.init_tuning(density, rng, state, record.tune)
    while record.count < record.tune:
        state, info = sampler.build_step(density, tuning)(rng, state)
        tuning = sampler.adapt(density, rng, tuning, state, info)
        record.add(info, state, tuning, rng)
        tick()
        if time.monotonic() > pause:
            return
    step = sampler.build_step(density, tuning)
    while not record.finished:
        state, info = step(rng, state)
        record.add(info, state, tuning, rng)
        tick()
        if time.monotonic() > pause:
            return


def find_start(density: LogDensity, rng: np.random.Generator, start: Array | None) -> State:
    """Evaluate a start, or draw starts until one has a finite log density.

    Parameters
    ----------
    density : LogDensity
        The log density, which also draws starting points.
    rng : Generator
        For `density.initial`.
    start : ndarray of shape (n_dim,), optional
        A start that the user gave.

    Returns
    -------
    State
    """
    if start is not None:
        state = init(density, start)
        if state.logdensity > -inf:
            return state
        raise InvalidInput(
            f"the log density is -inf at 'start' = {start} (unconstrained), so there is nowhere to go from there. "
            "Start elsewhere, or leave 'start' out."
        )
    for _ in range(ATTEMPTS):
        state = init(density, density.initial(rng))
        if state.logdensity > -inf:
            return state
    raise InvalidInput(
        f"the log density was -inf at all of {ATTEMPTS} random starting points: the covariance could not be factored, "
        "or the inner solver failed, wherever the prior puts weight. Check the priors for absurd scales, and the "
        "inputs if they are not standardised."
    )
