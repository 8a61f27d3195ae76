"""A forecast of the running time, from one timed evaluation."""

from __future__ import annotations

import sys
import time

from hmcgp.errors import InvalidInput
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.progress import bars_are_shown
from hmcgp.runtime.random import restore_generator
from hmcgp.samplers.chains.chain import ChainTask, Run
from hmcgp.samplers.chains.record import Record
from hmcgp.samplers.integrators import init
from hmcgp.samplers.start import first_start

TIMING = "hmcgp: timing one evaluation ..."
REFUSE = 1.5  # refuse a run whose warm-up would take this many times max_time: forecasts are not that far off
TIMINGS = 3  # of which the shortest counts, as a busy machine only makes them longer
NUDGE = 0.05  # change of every coordinate, about a leapfrog step, so that the solver has to iterate


def time_evaluation(task: ChainTask, record: Record) -> float:
    """Return the seconds of one evaluation, after compilation and warm-started, near the last draw or the start.

    The random stream of the chain is copied, not used up.
    """
    with single_blas_thread():
        state = record.snapshot.state
        if state is None:
            state = first_start(task.density, restore_generator(record.snapshot.stream), task.start)
        state = init(task.density, state.position + 0.5 * NUDGE, state.carry)  # compiles, unless done before
        seconds: list[float] = []
        while len(seconds) < TIMINGS and sum(seconds) < 0.1:
            begin = time.perf_counter()
            init(task.density, state.position + 0.5 * NUDGE, state.carry)
            seconds.append(time.perf_counter() - begin)
        return min(seconds)


def announce(run: Run, max_time: float | None, *, progressbar: bool, resumable: bool = False) -> None:
    """Print on stderr how long a run should take: always if it must end in time, otherwise where bars are shown.

    Raises InvalidInput as `forecast` does, also without a `progressbar`, which prints nothing.
    """
    shown = progressbar and bars_are_shown()
    if run.finished or (max_time is None and not shown):
        return
    if shown:
        print(TIMING, end="\r", file=sys.stderr, flush=True)
    outlook = forecast(run, max_time, resumable=resumable)
    if progressbar:
        print(outlook.ljust(len(TIMING) if shown else 0), file=sys.stderr, flush=True)


def forecast(run: Run, max_time: float | None, *, resumable: bool = False) -> str:
    """Return one line that forecasts the running time, and how much of the run `max_time` allows.

    Raises InvalidInput if that is clearly too short for warm-up, unless the run is `resumable` from a checkpoint.
    """
    task, records, n_workers = run.tasks[0], run.records, run.n_workers
    seconds = time_evaluation(task, records[0])
    steps = task.sampler.usual_steps
    n_draws = sum(record.total - record.count for record in records)
    expected = n_draws * steps * seconds / n_workers
    n_warm_up = sum(max(record.tune - record.count, 0) for record in records)
    warm_up = n_warm_up * steps * seconds / n_workers
    if max_time is not None and warm_up > REFUSE * max_time and not resumable:
        raise InvalidInput(
            f"max_time = {_clock(max_time)} is too short: warm-up alone should take about {_clock(warm_up)}, for "
            f"{n_warm_up} draws on {n_workers} workers of about {steps:g} evaluations of {1e3 * seconds:.3g} ms each, "
            f"and there would be no draws to keep. Allow about {_clock(expected)} for all draws; give a 'checkpoint' "
            "from which the same call can go on; or take the most probable hyperparameters instead, sampler='map' "
            f"(find_map), by some hundred evaluations, about {_clock(300.0 * seconds)}."
        )
    workers = f"{n_workers} worker{'s' * (n_workers > 1)}"
    found = (
        f"hmcgp: about {_clock(expected)} for {n_draws} draws on {workers}, if each takes {steps:g} evaluations of "
        f"{1e3 * seconds:.3g} ms (one was timed)"
    )
    if max_time is None:
        return f"{found}."
    outlook = "should do" if expected <= max_time else f"will end it after about {max_time / expected:.0%} of them"
    return f"{found}; max_time = {_clock(max_time)} {outlook}."


def _clock(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10.0 else f"{seconds:.0f} s"
