"""How long a run will take, said before it starts."""

from __future__ import annotations

import time

from hmcgp.errors import InvalidInput
from hmcgp.runtime.parallel import single_blas_thread
from hmcgp.runtime.random import restore_generator
from hmcgp.samplers.chains.chain import ChainTask, Record, find_start
from hmcgp.samplers.integrators import init

REFUSE = 1.5  # times the time allowed, that warm-up alone would take: a forecast is not that far off
TIMINGS = 3  # of evaluations of less than a tenth of a second: a busy machine only makes them longer
NUDGE = 0.05  # of every coordinate: as far as a leapfrog step goes, so that the solver has something to do


def time_evaluation(task: ChainTask, record: Record) -> float:
    """Return the seconds of one evaluation, warm and compiled, near where a chain starts or stands.

    The chain's random stream is copied, not used.
    """
    with single_blas_thread():
        state = record.snapshot.state
        if state is None:
            state = find_start(task.density, restore_generator(record.snapshot.stream), task.start)
        state = init(task.density, state.position + 0.5 * NUDGE, state.carry)  # compiles, if nothing before it has
        seconds: list[float] = []
        while len(seconds) < TIMINGS and sum(seconds) < 0.1:
            begin = time.perf_counter()
            init(task.density, state.position + 0.5 * NUDGE, state.carry)
            seconds.append(time.perf_counter() - begin)
        return min(seconds)


def forecast(
    task: ChainTask, records: list[Record], n_workers: int, max_time: float, *, resumable: bool = False
) -> str:
    """Say how long the chains will take, and what `max_time` will make of that.

    Parameters
    ----------
    task : ChainTask
        That of the first chain.
    records : list of Record
        How far the chains are.
    n_workers : int
        How many chains run at a time.
    max_time : float
        Seconds that the user allows.
    resumable : bool, default=False
        Whether the same call can go on where this one ends.

    Returns
    -------
    str
        One line.

    Raises
    ------
    InvalidInput
        If that is clearly too short for warm-up, and nothing would be left.
    """
    seconds = time_evaluation(task, records[0])
    steps = task.sampler.usual_steps
    n_draws = sum(record.total - record.count for record in records)
    expected = n_draws * steps * seconds / n_workers
    outlook = f"max_time = {_clock(max_time)} should do"
    n_warm_up = sum(max(record.tune - record.count, 0) for record in records)
    warm_up = n_warm_up * steps * seconds / n_workers
    if warm_up > REFUSE * max_time and not resumable:
        raise InvalidInput(
            f"max_time = {_clock(max_time)} is too short: warm-up alone should take about {_clock(warm_up)}, for "
            f"{n_warm_up} draws on {n_workers} workers of about {steps:g} evaluations of {1e3 * seconds:.3g} ms each, "
            f"and there would be no draws to keep. Allow about {_clock(expected)} for all draws; give a 'checkpoint' "
            "from which the same call can go on; or take the most probable hyperparameters instead, sampler='map' "
            f"(find_map), by some hundred evaluations, about {_clock(300.0 * seconds)}."
        )
    if expected > max_time:
        share = max_time / expected
        outlook = f"max_time = {_clock(max_time)} will end it after about {share:.0%} of them"
    return (
        f"hmcgp: about {_clock(expected)} for {n_draws} draws on {n_workers} workers, if each takes {steps:g} "
        f"evaluations of {1e3 * seconds:.3g} ms (one was timed); {outlook}."
    )


def _clock(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10.0 else f"{seconds:.0f} s"
