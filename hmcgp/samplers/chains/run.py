"""Draws from a log density by several chains.

Chain c has its own random stream, the c-th child of the seed, so its draws do not depend on how many chains there
are or on how many workers run them.  A run that ends early keeps its draws; an error in one chain stops them all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from math import inf
from numbers import Real
from typing import Self

from hmcgp.errors import CheckpointWarning, InvalidInput, warn_user
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_count, check_flag, lowered, name_among, refuse_class
from hmcgp.runtime.interrupts import Deadline, Stopped, deferred_interrupts, take_interrupt
from hmcgp.runtime.memory import check_memory
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks, shares_memory
from hmcgp.runtime.random import RandomStateLike, spawn_generators
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.assembly import assemble
from hmcgp.samplers.chains.chain import ChainTask, Run, Sampler
from hmcgp.samplers.chains.checkpoint import Checkpoint
from hmcgp.samplers.chains.forecast import forecast
from hmcgp.samplers.chains.progress import Progress
from hmcgp.samplers.chains.record import Record, Snapshot
from hmcgp.samplers.chains.workers import WorkersLost, run_in_rounds, share_chains
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.metropolis import Metropolis
from hmcgp.samplers.nuts import NUTS
from hmcgp.samplers.single_draw import only_draw
from hmcgp.samplers.start import as_starts
from hmcgp.samplers.trace import Trace, stat_dtype

SAMPLERS: dict[str, Callable[[], Sampler]] = {"nuts": NUTS, "hmc": HMC, "metropolis": Metropolis}
_OF_ESTIMATORS = {
    "map": "find_map(model)",
    "jumps": "sample(model, JumpingHMC(modes=find_modes(model)))",
}  # names that only estimators accept, and the call that does the same


def sample(
    density: LogDensity,
    sampler: str | Sampler = "hmc",
    *,
    draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
    progressbar: bool = True,
    start: Array | None = None,
    max_time: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Trace:
    """Draw from a density with several chains.

    Parameters
    ----------
    density : LogDensity
        The log density, with its gradient; a `Model` is one.
    sampler : str or Sampler
        "nuts", "hmc", "metropolis", or an instance with settings.
    draws : int
        Draws per chain to keep.
    tune : int
        Warm-up draws per chain, kept apart.
    chains : int
        Number of chains.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed.  The same one gives the same draws, bit for bit, whatever `n_jobs` and wherever the chains run.
    n_jobs : int, optional
        Workers.  None takes the number set by `joblib.parallel_config`, one inside another joblib worker, and otherwise
        all cores; never more than chains.  They are threads; inside `joblib.parallel_config(backend="loky")` they are
        processes, inside `backend="dask"` those of a cluster.  BLAS runs on one thread each meanwhile.
    progressbar : bool
        Show one bar for all chains, in a terminal or a notebook.
    start : ndarray of shape (n_dim,) or (chains, n_dim), optional
        Unconstrained starting position, of all chains or of each.  None draws one per chain, by `density.initial`.
    max_time : float, optional
        Seconds after which to stop with the draws so far.  A forecast of the whole running time, from one timed
        evaluation, is printed on stderr first (not with ``progressbar=False``).  Refused if too short for warm-up,
        unless there is a checkpoint to continue from.
    checkpoint : path-like, optional
        File (say "run.nc") to which the draws are written every ten seconds, or an existing folder for it.  The same
        call again, after a crash, `max_time` or Ctrl-C, continues from there and ends with the draws of an
        uninterrupted run.  With more `draws` or `chains` it extends a finished run.  Delete the file to start anew.
        A file of other data (rows in another order, other names of columns or classes) or of other settings is refused,
        and so is one that another run is using, in this or another process.

    Returns
    -------
    Trace
        If the run ended early (Ctrl-C, `max_time`, workers lost): the draws so far, with a warning, if there are any
        after warm-up.  A density without parameters (a model whose numbers are all fixed) has a single draw.

    Raises
    ------
    InvalidInput
        For wrong arguments, and for a run that needs clearly more memory than the machine has free.
    KeyboardInterrupt
        After Ctrl-C before there are draws to keep.  Ctrl-C acts at the next evaluation of the log density; a second
        one acts at once.
    """
    with deferred_interrupts():
        check_flag("progressbar", progressbar)
        if density.n_dim == 0:
            check_arguments(sampler, draws, tune, chains)
            return only_draw(density)
        run = prepare(density, sampler, draws, tune, chains, random_state, n_jobs, start, max_time)
        store = None if checkpoint is None else Checkpoint(checkpoint, run)
        with store or nullcontext():
            if store is not None:
                store.open(seeded=random_state is not None)
            if max_time is not None and not run.finished:
                outlook = forecast(run, max_time, resumable=store is not None)
                if progressbar:
                    print(outlook, file=sys.stderr, flush=True)
            with Recording(run, store, progressbar=progressbar) as recording:
                # until all are finished or stopped; draws and errors are written to their records
                if shares_memory():
                    run_tasks([(share_chains(run, recording.tick), ())] * run.n_workers, run.n_workers, run.stop)
                else:
                    run_in_rounds(run, recording.tick)
        if store is not None and store.error is not None:
            warn_user(f"the checkpoint could not be written: {store.error}.", CheckpointWarning)
        return assemble(run, recording.seconds, recording.failure, max_time, None if store is None else store.path)


def prepare(
    density: LogDensity,
    sampler: str | Sampler,
    draws: int,
    tune: int,
    chains: int,
    random_state: RandomStateLike,
    n_jobs: int | None,
    start: Array | None,
    max_time: float | None,
) -> Run:
    """Check the arguments of `sample`, and return its chains with empty records."""
    sampler = check_arguments(sampler, draws, tune, chains)
    sampler.check(density.n_dim, tune)
    stop = Deadline(check_seconds("max_time", max_time))
    n_workers = resolve_n_jobs(n_jobs, chains)
    # coordinates thrice (recorded, stacked, natural), statistics twice
    bytes_per_draw = 3 * 8 * density.n_dim + 2 * stat_dtype(sampler.info).itemsize
    check_memory(density, n_workers, draws=chains * (tune + draws), bytes_per_draw=bytes_per_draw)
    tasks = [ChainTask(density, sampler, u) for u in as_starts(start, chains, density.n_dim)]
    streams = [rng.bit_generator.state for rng in spawn_generators(random_state, chains)]
    records = [Record(tune, draws, density.n_dim, sampler.info, Snapshot(0, stream)) for stream in streams]
    return Run(tasks, records, stop, n_workers)


def check_arguments(sampler: str | Sampler, draws: int, tune: int, chains: int) -> Sampler:
    """Return the sampler, and raise InvalidInput unless the numbers of draws and chains are integers in range."""
    check_counts(draws=draws, tune=tune, chains=chains)
    return as_sampler(sampler)


class Recording:
    """Context in which chains run: shows progress, writes checkpoints, and keeps the event that ended it early."""

    def __init__(self, run: Run, store: Checkpoint | None, *, progressbar: bool) -> None:
        self._run, self._store = run, store
        self._begin = time.perf_counter()
        self._progress = Progress(run.records, enabled=progressbar)
        self.seconds = 0.0  # of this and of all earlier calls that share the checkpoint
        self.failure: BaseException | None = None  # KeyboardInterrupt or WorkersLost

    def __enter__(self) -> Self:
        return self

    def tick(self) -> None:
        """Redraw and write, where it is time."""
        self._progress.tick()
        if self._store is not None:
            self._store.tick()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._run.stop.set()
        self._progress.close()
        if self._store is not None:
            self._store.close()
        self.seconds = time.perf_counter() - self._begin if self._store is None else self._store.seconds
        if error is not None and not isinstance(error, (KeyboardInterrupt, WorkersLost, Stopped)):
            return False
        if take_interrupt():
            self.failure = KeyboardInterrupt()
        elif not isinstance(error, Stopped):
            self.failure = error
        return True


def as_sampler(sampler: str | Sampler) -> Sampler:
    """Return a sampler for a name or an instance."""
    refuse_class("sampler", sampler)
    if not isinstance(sampler, str) and hasattr(sampler, "build_step"):
        return sampler
    instead = _OF_ESTIMATORS.get(lowered(sampler) if isinstance(sampler, str) else "")
    if instead is not None:
        raise InvalidInput(f"sampler={sampler!r} is a setting of GPClassifier and GPRegressor. Here, call {instead}.")
    return SAMPLERS[name_among("sampler", sampler, SAMPLERS, " or a sampler with settings, such as HMC()")]()


def check_counts(*, draws: int, tune: int, chains: int) -> None:
    """Raise InvalidInput unless the numbers of draws and chains are integers in range."""
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1)):
        check_count(name, value, least)


def check_seconds(name: str, value: float | None) -> float:
    """Return a time limit in seconds, infinite for None."""
    if value is None:
        return inf
    if not (isinstance(value, Real) and not isinstance(value, bool) and value > 0.0):
        raise InvalidInput(f"'{name}' must be a positive number of seconds, or None; got {value!r}.")
    return float(value)
