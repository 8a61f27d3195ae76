"""Several chains at once.

Chain c has its own random stream, the c-th child of the seed, so its draws do not depend on how many chains there
are or on how many workers run them.  A run that ends early keeps what there is; an error in one chain stops them all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import CheckpointWarning, HmcgpError, InterruptedWarning, InvalidInput, warn_user
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_count, check_flag, lowered, name_among, refuse_class
from hmcgp.runtime.interrupts import defer_interrupts, take_interrupt
from hmcgp.runtime.memory import check_memory
from hmcgp.runtime.parallel import resolve_n_jobs
from hmcgp.runtime.random import RandomStateLike, spawn_generators
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.chain import ChainTask, Control, Record, Sampler, Snapshot
from hmcgp.samplers.chains.checkpoint import Checkpoint, describe
from hmcgp.samplers.chains.forecast import forecast
from hmcgp.samplers.chains.progress import Progress
from hmcgp.samplers.chains.workers import WorkersLost, run_chains
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.metropolis import Metropolis
from hmcgp.samplers.nuts import NUTS
from hmcgp.samplers.trace import Trace, stat_dtype

SAMPLERS: dict[str, Callable[[], Sampler]] = {"nuts": NUTS, "hmc": HMC, "metropolis": Metropolis}
_OF_ESTIMATORS = {
    "map": "find_map(model)",
    "jumps": "sample(model, JumpingHMC(modes=find_modes(model)))",
}  # what only an estimator can do by a name, and what does it without one


@defer_interrupts
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
        The log density, with its gradient.
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
        Workers.  None takes what `joblib.parallel_config` sets, one inside another joblib worker, and otherwise
        all cores; never more than chains.  They are threads; inside `joblib.parallel_config(backend="loky")` they are
        processes, inside `backend="dask"` those of a cluster.  BLAS runs on one thread each meanwhile.
    progressbar : bool
        Show one bar for all chains, in a terminal or a notebook.
    start : ndarray of shape (n_dim,) or (chains, n_dim), optional
        Unconstrained starting point, of all chains or of each.  None draws one per chain from the density.
    max_time : float, optional
        Seconds after which to stop with the draws so far.  How long the run would take, by one timed evaluation, is
        said on stderr before it starts (not with ``progressbar=False``).  Refused if it cannot last for warm-up, unless
        there is a checkpoint to go on from.
    checkpoint : path-like, optional
        File (say "run.nc") to which the draws are written every ten seconds, or an existing folder for it.  The same
        call again, after a crash, `max_time` or Ctrl-C, goes on from there, and ends with the draws of a run that
        was never interrupted.  With more `draws` or `chains` it extends a finished run.  Delete the file to start anew.
        A file of other data (rows in another order, other names of columns or classes) or of other settings is refused,
        and so is one that another run is using, here or in another process.

    Returns
    -------
    Trace
        If the run ended early (Ctrl-C, `max_time`, workers lost): the draws so far, with a warning, if there are any
        after warm-up.

    Raises
    ------
    InvalidInput
        Among others, before it starts: for a run that needs clearly more memory than the machine has free.
    KeyboardInterrupt
        After Ctrl-C before there are draws to keep.  Ctrl-C acts at the next evaluation of the log density; a second
        one acts at once.
    """
    sampler = as_sampler(sampler)
    check_counts(draws=draws, tune=tune, chains=chains)
    check_flag("progressbar", progressbar)
    sampler.check(density.n_dim, tune)
    control = Control(check_seconds("max_time", max_time))
    n_workers = resolve_n_jobs(n_jobs, chains)
    check_memory(density, n_workers, draws=chains * (tune + draws), bytes_per_draw=bytes_per_draw(density, sampler))
    starts = as_starts(start, chains, density.n_dim)
    streams = [rng.bit_generator.state for rng in spawn_generators(random_state, chains)]
    records = [Record(tune, draws, density.n_dim, sampler.info, Snapshot(0, stream)) for stream in streams]
    tasks = [ChainTask(density, sampler, u) for u in starts]
    store = None
    with ExitStack() as held:  # the checkpoint, by this run
        if checkpoint is not None:
            store = held.enter_context(Checkpoint(checkpoint, records, describe(density, sampler, tune, starts)))
            store.open(tasks[0], seeded=random_state is not None)
        if max_time is not None and not all(record.finished for record in records):
            outlook = forecast(tasks[0], records, n_workers, max_time, resumable=store is not None)
            if progressbar:
                print(outlook, file=sys.stderr, flush=True)
        begin = time.perf_counter()
        failure = run(tasks, records, control, Progress(records, tune, enabled=progressbar), store, n_jobs)
    elapsed = time.perf_counter() - begin if store is None else store.seconds  # of all the calls that made this run
    if store is not None and store.error is not None:
        warn_user(f"the checkpoint could not be written: {store.error}.", CheckpointWarning)
    raise_first_error(records)
    chosen, n_kept = largest_block([r.kept for r in records])
    resume = "" if store is None else f" The same call goes on from {str(store.path)!r}."
    if n_kept == 0:
        if isinstance(failure, KeyboardInterrupt):
            raise failure
        where = f"at draw {max(record.count for record in records)} of {tune} of warm-up"
        raise HmcgpError(f"{explain(failure, max_time)}, {where}: there are no draws to keep.{resume}") from failure
    early = not all(record.finished for record in records)
    chosen_records = [records[c] for c in chosen]
    trace = assemble(density, sampler.name, chosen_records, n_kept, elapsed, interrupted=early)
    if take_interrupt():  # after the last draw: nothing is lost
        failure = KeyboardInterrupt()
    if early or failure is not None:
        warn_early(explain(failure, max_time), chosen, n_kept, chains, draws, resume)
    return trace


def run(
    tasks: list[ChainTask],
    records: list[Record],
    control: Control,
    progress: Progress,
    store: Checkpoint | None,
    n_jobs: int | None,
) -> BaseException | None:
    """Run chains into their records; return what ended the run before its time, if it was an event."""

    def tick() -> None:
        progress.tick()
        if store is not None:
            store.tick()

    failure: BaseException | None = None
    try:
        run_chains(tasks, records, control, tick, n_jobs)
    except KeyboardInterrupt as interrupt:
        failure = interrupt
    except WorkersLost as error:
        failure = error
    finally:
        control.stop.set()
        progress.close()
        if store is not None:
            store.close()
    return KeyboardInterrupt() if take_interrupt() else failure


def explain(failure: BaseException | None, max_time: float | None) -> str:
    """Say what ended a run early."""
    if failure is None:
        return f"sampling was stopped by max_time = {max_time:g} s"
    if isinstance(failure, KeyboardInterrupt):
        return "sampling was interrupted"
    return str(failure)


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
    """Refuse counts that are no counts."""
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1)):
        check_count(name, value, least)


def bytes_per_draw(density: LogDensity, sampler: Sampler) -> int:
    """Return what `assemble` holds of each draw: coordinates thrice (recorded, gathered, natural), statistics twice."""
    return 3 * 8 * density.n_dim + 2 * stat_dtype(sampler.info).itemsize


def check_seconds(name: str, value: float | None) -> float:
    """Return a limit in seconds; None is none."""
    if value is None:
        return inf
    if not (isinstance(value, Real) and not isinstance(value, bool) and value > 0.0):
        raise InvalidInput(f"'{name}' must be a positive number of seconds, or None; got {value!r}.")
    return float(value)


def as_starts(start: Array | None, chains: int, n_dim: int) -> list[Array | None]:
    """Return one starting point per chain, or None where the density shall draw it."""
    if start is None:
        return [None] * chains
    u = np.asarray(start, dtype=float)
    if u.shape not in ((n_dim,), (chains, n_dim)):
        raise InvalidInput(f"'start' must have shape ({n_dim},) or ({chains}, {n_dim}); got {u.shape}.")
    if not np.all(np.isfinite(u)):
        raise InvalidInput("'start' must be finite.")
    return list(np.broadcast_to(u, (chains, n_dim)))


def raise_first_error(records: list[Record]) -> None:
    """Raise the error of the first chain that has one, and say where it happened."""
    for c, record in enumerate(records):
        if record.error is not None:
            kind = InvalidInput if isinstance(record.error, InvalidInput) else HmcgpError
            what = f"{type(record.error).__name__}: {record.error}"
            if isinstance(record.error, InvalidInput) and record.count == 0:
                raise record.error  # the user's settings, not this chain's fate
            raise kind(f"chain {c} failed {record.where}: {what}") from record.error


def largest_block(kept: list[int]) -> tuple[list[int], int]:
    """Choose chains and a common length that keep most draws of unequal chains.

    Chains that waited for a thread have none or few; cutting all to the shortest would lose the rest.
    """
    lengths = sorted(kept, reverse=True)
    size, n_kept = max((n * (k + 1), n) for k, n in enumerate(lengths))
    return [c for c, n in enumerate(kept) if n >= n_kept] if size else [], n_kept


def warn_early(why: str, chosen: list[int], n_kept: int, chains: int, draws: int, resume: str) -> None:
    """Say what a run that ended early has kept."""
    left_out = sorted(set(range(chains)) - set(chosen))
    which = f" Chains {left_out} were left out: they had fewer draws." if left_out else ""
    warn_user(
        f"{why}: {n_kept} of {draws} draws were kept in each of {len(chosen)} of {chains} chains.{which}{resume}",
        InterruptedWarning,
    )


def assemble(
    density: LogDensity, name: str, records: list[Record], n_kept: int, elapsed: float, *, interrupted: bool
) -> Trace:
    """Gather the records of chains into a trace."""
    tune = records[0].tune
    positions = np.stack([r.positions[: tune + n_kept] for r in records])  # (chains, tune + draws, n_dim)
    natural = np.array([[density.constrain(u) for u in chain] for chain in positions]).reshape(positions.shape)
    stats = np.stack([r.stats[: tune + n_kept] for r in records])  # (chains, tune + draws), structured
    return Trace(
        draws=natural[:, tune:].copy(),
        unconstrained=positions[:, tune:].copy(),
        stats=_columns(stats[:, tune:]),
        names=list(density.names),
        sampler=name,
        sampling_time=elapsed,
        interrupted=interrupted,
        warmup_draws=natural[:, :tune].copy(),
        warmup_unconstrained=positions[:, :tune].copy(),
        warmup_stats=_columns(stats[:, :tune]),
        inv_metric=np.stack([r.snapshot.tuning.metric.inv_mass for r in records if r.snapshot.tuning is not None]),
    )


def _columns(stats: NDArray[np.void]) -> dict[str, NDArray[np.generic]]:
    return {name: stats[name].copy() for name in stats.dtype.names or ()}
