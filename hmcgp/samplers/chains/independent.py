"""Chains that do not know of each other.

Chain c has its own random stream, the c-th child of the seed, so its draws do not depend on how many chains there
are or on how many workers run them.  A run that ends early keeps its draws; an error in one chain stops them all.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from math import inf
from numbers import Real
from typing import NamedTuple

from hmcgp.errors import CheckpointWarning, InvalidInput, warn_user
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.interrupts import Deadline
from hmcgp.runtime.memory import check_memory
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks, shares_memory
from hmcgp.runtime.random import RandomStateLike, spawn_generators
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.assembly import assemble
from hmcgp.samplers.chains.chain import ChainTask, Run, Sampler
from hmcgp.samplers.chains.checkpoint import Checkpoint
from hmcgp.samplers.chains.forecast import announce
from hmcgp.samplers.chains.record import Record, Snapshot
from hmcgp.samplers.chains.recording import Recording
from hmcgp.samplers.chains.workers import run_in_rounds, share_chains
from hmcgp.samplers.start import as_starts
from hmcgp.samplers.trace import Trace, stat_dtype


class Settings(NamedTuple):
    """Arguments of `sample` that say how long to run, and where."""

    draws: int
    tune: int
    chains: int
    n_jobs: int | None
    progressbar: bool
    max_time: float | None


def sample_chains(
    density: LogDensity,
    sampler: Sampler,
    settings: Settings,
    random_state: RandomStateLike,
    start: Array | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Trace:
    """Draw by chains that do not know of each other (arguments as of `sample`)."""
    run = prepare(density, sampler, settings, random_state, start)
    store = None if checkpoint is None else Checkpoint(checkpoint, run)
    with store or nullcontext():
        if store is not None:
            store.open(seeded=random_state is not None)
        announce(run, settings.max_time, progressbar=settings.progressbar, resumable=store is not None)
        with Recording(run, store, progressbar=settings.progressbar) as recording:
            # until all are finished or stopped; draws and errors are written to their records
            if shares_memory():
                run_tasks([(share_chains(run, recording.tick), ())] * run.n_workers, run.n_workers, run.stop)
            else:
                run_in_rounds(run, recording.tick)
    if store is not None and store.error is not None:
        warn_user(f"the checkpoint could not be written: {store.error}.", CheckpointWarning)
    path = None if store is None else store.path
    return assemble(run, recording.seconds, recording.failure, settings.max_time, path)


def prepare(
    density: LogDensity,
    sampler: Sampler,
    settings: Settings,
    random_state: RandomStateLike,
    start: Array | None = None,
) -> Run:
    """Check the arguments of `sample`, and return its chains with empty records."""
    draws, tune, chains = settings[:3]
    sampler.check(density.n_dim, tune)
    stop = Deadline(check_seconds("max_time", settings.max_time))
    n_workers = resolve_n_jobs(settings.n_jobs, chains)
    # coordinates thrice (recorded, stacked, natural), statistics twice
    bytes_per_draw = 3 * 8 * density.n_dim + 2 * stat_dtype(sampler.info).itemsize
    check_memory(density, n_workers, draws=chains * (tune + draws), bytes_per_draw=bytes_per_draw)
    tasks = [ChainTask(density, sampler, u) for u in as_starts(start, chains, density.n_dim)]
    streams = [rng.bit_generator.state for rng in spawn_generators(random_state, chains)]
    records = [Record(tune, draws, density.n_dim, sampler.info, Snapshot(0, stream)) for stream in streams]
    return Run(tasks, records, stop, n_workers)


def check_seconds(name: str, value: float | None) -> float:
    """Return a time limit in seconds, infinite for None."""
    if value is None:
        return inf
    if not (isinstance(value, Real) and not isinstance(value, bool) and value > 0.0):
        raise InvalidInput(f"'{name}' must be a positive number of seconds, or None; got {value!r}.")
    return float(value)
