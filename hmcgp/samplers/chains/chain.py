"""One chain: find a start, warm up, draw, and record every draw as it is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.interrupts import Deadline, Stopped, raise_if_interrupt
from hmcgp.runtime.random import restore_generator
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.chains.record import Record
from hmcgp.samplers.integrators import State
from hmcgp.samplers.start import find_start
from hmcgp.samplers.trace import AnyInfo, Step


class Sampler(Protocol):
    """Contract of a sampler; the settings of each step are a value, `Tuning`."""

    @property
    def name(self) -> str:
        """Short name, as users write it."""

    @property
    def info(self) -> type[AnyInfo]:
        """Type of the statistics of a step; its fields are their columns."""

    @property
    def usual_steps(self) -> float:
        """Typical number of evaluations per draw, for forecasts of the running time."""

    def check(self, n_dim: int, tune: int) -> None:
        """Raise InvalidInput for settings that do not fit the number of parameters or the length of warm-up."""

    def init_tuning(self, density: LogDensity, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        """Return the settings of the first step."""

    def adapt(
        self, density: LogDensity, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo
    ) -> Tuning:
        """Return the settings of the next step, learnt from one draw of warm-up."""

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        """Return the transition with given settings."""


class ChainTask(NamedTuple):
    """A chain to run: its log density, sampler and starting position."""

    density: LogDensity
    sampler: Sampler
    start: Array | None  # None: drawn by the density


class Run(NamedTuple):
    """Chains of one call of `sample`."""

    tasks: list[ChainTask]
    records: list[Record]  # one per task
    stop: Deadline
    n_workers: int

    @property
    def finished(self) -> bool:
        """Whether all chains have made all their draws."""
        return all(record.finished for record in self.records)


def run_chain(task: ChainTask, record: Record, stop: Deadline, tick: Callable[[], None], seconds: float = inf) -> None:
    """Continue a chain from the end of its record, to its last draw or the first that ends after some seconds.

    `tick` is called after each draw.  An error is stored in the record and stops the other chains by `stop`, which
    this thread must check (`working_for`).
    """
    pause = time.monotonic() + seconds
    density, sampler, start = task
    _, stream, state, tuning = record.snapshot
    try:
        rng = restore_generator(stream)
        if state is None or tuning is None:
            state = find_start(density, rng, start)
            tuning = sampler.init_tuning(density, rng, state, record.tune)
        step = sampler.build_step(density, tuning)
        while not record.finished:
            state, info = step(rng, state)
            if record.count < record.tune:
                tuning = sampler.adapt(density, rng, tuning, state, info)
                step = sampler.build_step(density, tuning)
            record.add(info, state, tuning, rng)
            tick()
            if time.monotonic() > pause:
                return
    except Stopped:  # the draw under way is dropped
        return
    except Exception as error:
        raise_if_interrupt(error)
        record.error = error
        stop.set()
