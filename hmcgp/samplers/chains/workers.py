"""Running chains on workers: in turns on threads, in rounds on processes or a cluster.

On threads, every worker takes the chain that has waited longest, runs it for a moment, and puts it back: when a run is
stopped early, by Ctrl-C or at its time limit, all chains have about the same number of draws.  Records are shared, so
nothing is lost.

On processes or a cluster, chains run in rounds.  Each round sends out the snapshots of the chains and takes back the
draws made since; a lost worker loses its part of one round, which a cluster then runs again elsewhere.  Draws of a
chain depend on its snapshot alone, so they are the same bit for bit in all cases.
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
from hmcgp.runtime.interrupts import Deadline, deferred_interrupts, working_for
from hmcgp.runtime.parallel import run_tasks
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.chain import ChainTask, Run, run_chain
from hmcgp.samplers.chains.record import Record, Snapshot

TURN = 0.5  # seconds for which a thread runs a chain before it takes the next
FIRST_ROUND, ROUND = 1.0, 5.0  # seconds of a round: the first one short, to show progress soon


def share_chains(run: Run, tick: Callable[[], None]) -> Callable[[], None]:
    """Return the function that every thread runs; with fewer threads than chains, chains take turns."""
    waiting = deque(chain for chain in zip(run.tasks, run.records, strict=True) if not chain[1].finished)
    seconds = TURN if len(waiting) > run.n_workers else inf

    def take_turns() -> None:
        while waiting and not run.stop.is_set():
            try:
                task, record = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            run_chain(task, record, run.stop, tick, seconds)
            if not record.finished:
                waiting.append((task, record))

    return take_turns


def run_in_rounds(run: Run, tick: Callable[[], None]) -> None:
    """Run chains on the workers of `joblib.parallel_config`; `tick` is called after each round.

    Raises `WorkersLost` if processes died or could not be given their work; the records then hold the rounds before.
    """
    seconds = FIRST_ROUND
    while not (run.stop.is_set() or run.finished):
        chains = [chain for chain in zip(run.tasks, run.records, strict=True) if not chain[1].finished]
        limits = (seconds, run.stop.remaining)
        calls = [(run_segment, (task, record.snapshot, *record.length, *limits)) for task, record in chains]
        try:
            segments = run_tasks(calls, run.n_workers)
        except Exception as error:
            raise WorkersLost(_what_happened(error)) from error
        for (_, record), segment in zip(chains, segments, strict=True):
            record.fill(segment.positions, segment.stats, segment.snapshot)
            if segment.error is not None:
                record.error = segment.error
                run.stop.set()
        tick()
        seconds = ROUND


class WorkersLost(HmcgpError):
    """Raised when processes died or could not be given their work."""


def _what_happened(error: Exception) -> str:
    what = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
    if "pickle" in what.lower() or "serialize" in what.lower():
        return (
            f"the model cannot be sent to other processes ({what}). Classes and functions that it uses must be "
            "defined at the top level of an importable module; or let chains run in threads, without parallel_config"
        )
    # a client that the user closed refuses new work, and cancels what it waits for
    if "Client is closed" in str(error) or type(error).__name__ in ("CancelledError", "FutureCancelledError"):
        return f"the client of the dask cluster was closed before sampling had ended ({what}): keep it open until then"
    if any(word in type(error).__name__ for word in ("KilledWorker", "TerminatedWorker", "BrokenProcess")):
        return f"sampling lost its workers ({what}), perhaps for want of memory"
    return f"sampling lost its workers ({what})"


class Segment(NamedTuple):
    """Draws that a worker has made, and the snapshot after the last of them."""

    positions: Array  # (m, n_dim)
    stats: NDArray[np.void]  # (m,)
    snapshot: Snapshot
    error: Exception | None


def run_segment(
    task: ChainTask, snapshot: Snapshot, tune: int, draws: int, seconds: float, remaining: float
) -> Segment:
    """Continue a chain for some seconds, of those that remain to the run, in a worker that has only its arguments."""
    record = Record(tune, draws, task.density.n_dim, task.sampler.info, snapshot)
    with deferred_interrupts():
        stop = Deadline(remaining)
        with working_for(stop):
            run_chain(task, record, stop, lambda: None, seconds)
    rows = slice(snapshot.done, record.count)
    return Segment(record.positions[rows], record.stats[rows], record.snapshot, _portable(record.error))


def _portable(error: Exception | None) -> Exception | None:
    """Return the error, or one of the same text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return HmcgpError(f"{type(error).__name__}: {error}")
    return error
