"""How chains share the workers.

In threads, every worker takes the chain that has waited longest, runs it for a moment, and puts it back: when a run is
stopped early, by Ctrl-C or by the clock, all chains have come equally far.  Records are shared, so nothing is lost.

In processes or on a cluster, chains run in rounds.  Each round sends out where the chains stand and takes back the
draws made since; what is lost with a worker is its part of a round, which a cluster then runs again elsewhere.  A
chain's draws depend on its snapshot alone, so they are the same bit for bit in all cases.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import HmcgpError
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks, shares_memory
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.chain import ChainTask, Control, Record, Snapshot, run_chain

SLICE = 0.5  # seconds for which a thread runs a chain before it takes the next
FIRST_ROUND, ROUND = 1.0, 5.0  # seconds of a round: the first one short, to show soon how it goes


def run_chains(
    tasks: list[ChainTask], records: list[Record], control: Control, tick: Callable[[], None], n_jobs: int | None
) -> None:
    """Run chains to their ends, or until they are stopped, wherever `joblib.parallel_config` says.

    Parameters
    ----------
    tasks, records : list
        One per chain; the records are written to.
    control : Control
        Stops the chains.
    tick : callable
        Called from time to time, at least once per draw in threads and once per round elsewhere.
    n_jobs : int, optional
        Number of workers.

    Raises
    ------
    WorkersLost
        When other processes died, or could not be given their work.  The records hold the rounds before.  Errors of
        the chains themselves are written to their records.
    """
    n_workers = resolve_n_jobs(n_jobs, len(tasks))
    if shares_memory():
        _in_threads(tasks, records, control, tick, n_workers)
    else:
        _in_rounds(tasks, records, control, tick, n_workers)


def _in_threads(
    tasks: list[ChainTask], records: list[Record], control: Control, tick: Callable[[], None], n_threads: int
) -> None:
    waiting = deque(c for c, record in enumerate(records) if not record.finished)
    seconds = SLICE if len(waiting) > n_threads else inf

    def work() -> None:
        while waiting and not control.over:
            try:
                c = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            run_chain(tasks[c], records[c], control, tick, seconds)
            if not records[c].finished:
                waiting.append(c)

    run_tasks([(work, ())] * n_threads, n_threads)


def _in_rounds(
    tasks: list[ChainTask], records: list[Record], control: Control, tick: Callable[[], None], n_workers: int
) -> None:
    seconds = FIRST_ROUND
    while not control.over:
        unfinished = [c for c, record in enumerate(records) if not record.finished]
        if not unfinished:
            return
        calls = [(run_segment, (tasks[c], *_standing(records[c]), seconds, control.remaining)) for c in unfinished]
        try:
            segments = run_tasks(calls, n_workers)
        except Exception as error:
            raise WorkersLost(_what_happened(error)) from error
        for c, segment in zip(unfinished, segments, strict=True):
            records[c].fill(segment.positions, segment.stats, segment.snapshot)
            if segment.error is not None:
                records[c].error = segment.error
                control.stop.set()
        tick()
        seconds = ROUND


class WorkersLost(HmcgpError):
    """Other processes died, or could not be given their work."""


def _what_happened(error: Exception) -> str:
    what = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
    if "pickle" in what.lower():
        return (
            f"the model cannot be sent to other processes ({what}). Classes and functions that it uses must be "
            "defined at the top level of an importable module; or let chains run in threads, without parallel_config"
        )
    if _is_closed_client(error):
        return f"the client of the dask cluster was closed before sampling had ended ({what}): keep it open until then"
    if any(word in type(error).__name__ for word in ("KilledWorker", "TerminatedWorker", "BrokenProcess")):
        return f"sampling lost its workers ({what}), perhaps for want of memory"
    return f"sampling lost its workers ({what})"


def _is_closed_client(error: Exception) -> bool:
    """Whether the user's own client ended the run: it refuses new work, and cancels what it waits for."""
    return "Client is closed" in str(error) or type(error).__name__ in ("CancelledError", "FutureCancelledError")


class Segment(NamedTuple):
    """The draws that a worker has made, and where they end."""

    positions: Array  # (m, n_dim)
    stats: NDArray[np.void]  # (m,)
    snapshot: Snapshot
    error: Exception | None


def _standing(record: Record) -> tuple[Snapshot, int, int]:
    return record.snapshot, record.tune, record.total - record.tune


def run_segment(
    task: ChainTask, snapshot: Snapshot, tune: int, draws: int, seconds: float, remaining: float
) -> Segment:
    """Take a chain on for some seconds, in a worker that has only its arguments.

    Parameters
    ----------
    task : ChainTask
        What to run.
    snapshot : Snapshot
        Where the chain stands.
    tune, draws : int
        Length of warm-up, and of what is kept.
    seconds : float
        Pause at the first draw that ends after so long.
    remaining : float
        Stop for good after so many seconds.

    Returns
    -------
    Segment
    """
    record = Record(tune, draws, task.density.n_dim, task.sampler.info, snapshot)
    run_chain(task, record, Control(remaining), lambda: None, seconds)
    rows = slice(snapshot.done, record.count)
    return Segment(record.positions[rows], record.stats[rows], record.snapshot, _portable(record.error))


def _portable(error: Exception | None) -> Exception | None:
    """Return the error, or one that says the same where it would not survive the way back."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return HmcgpError(f"{type(error).__name__}: {error}")
    return error
