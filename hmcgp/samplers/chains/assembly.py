"""The trace of a run, whole or ended early, from the records of its chains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import HmcgpError, InterruptedWarning, InvalidInput, warn_user
from hmcgp.runtime.interrupts import take_interrupt
from hmcgp.samplers.chains.chain import Run
from hmcgp.samplers.chains.record import Record
from hmcgp.samplers.trace import Trace


def assemble(
    run: Run, seconds: float, failure: BaseException | None, max_time: float | None, checkpoint: Path | None
) -> Trace:
    """Return the trace of chains that no longer run; if they ended early, warn, or raise if there are no draws to keep.

    `failure` is the KeyboardInterrupt or WorkersLost that ended them; None for their end or `max_time`.
    """
    records = run.records
    raise_first_error(records)
    tune, draws = records[0].length
    chosen, n_kept = largest_block([record.kept for record in records])
    resume = "" if checkpoint is None else f" The same call goes on from {str(checkpoint)!r}."
    if n_kept == 0:
        if isinstance(failure, KeyboardInterrupt):
            raise failure
        where = f"at draw {max(record.count for record in records)} of {tune} of warm-up"
        raise HmcgpError(f"{_explain(failure, max_time)}, {where}: there are no draws to keep.{resume}") from failure
    trace = _trace(run, chosen, n_kept, seconds)
    if take_interrupt():  # after the last draw: nothing is lost
        failure = KeyboardInterrupt()
    if failure is not None or not run.finished:
        left_out = sorted(set(range(len(records))) - set(chosen))
        which = f" Chains {left_out} were left out: they had fewer draws." if left_out else ""
        warn_user(
            f"{_explain(failure, max_time)}: {n_kept} of {draws} draws were kept in each of {len(chosen)} of "
            f"{len(records)} chains.{which}{resume}",
            InterruptedWarning,
        )
    return trace


def _explain(failure: BaseException | None, max_time: float | None) -> str:
    """Return the reason why a run ended early."""
    if failure is None:
        return f"sampling was stopped by max_time = {max_time:g} s"
    if isinstance(failure, KeyboardInterrupt):
        return "sampling was interrupted"
    return str(failure)


def raise_first_error(records: list[Record]) -> None:
    """Raise the error of the first chain that failed, with the draw at which it did."""
    for c, record in enumerate(records):
        if record.error is not None:
            kind = InvalidInput if isinstance(record.error, InvalidInput) else HmcgpError
            what = f"{type(record.error).__name__}: {record.error}"
            if isinstance(record.error, InvalidInput) and record.count == 0:
                raise record.error  # about the settings, not about this chain
            raise kind(f"chain {c} failed {record.where}: {what}") from record.error


def largest_block(kept: list[int]) -> tuple[list[int], int]:
    """Return the chains and their common length that keep most draws, from the draws of each chain.

    Chains that waited for a thread may have no draws; cutting all to the shortest would lose those of the others.
    """
    lengths = sorted(kept, reverse=True)
    size, n_kept = max((n * (k + 1), n) for k, n in enumerate(lengths))
    return [c for c, n in enumerate(kept) if n >= n_kept] if size else [], n_kept


def _trace(run: Run, chosen: list[int], n_kept: int, seconds: float) -> Trace:
    """Return the first n_kept draws of some chains, with all of warm-up."""
    (density, sampler, _), records = run.tasks[0], [run.records[c] for c in chosen]
    tune = records[0].tune
    positions = np.stack([r.positions[: tune + n_kept] for r in records])  # (chains, tune + draws, n_dim)
    natural = np.array([[density.constrain(u) for u in chain] for chain in positions]).reshape(positions.shape)
    stats = np.stack([r.stats[: tune + n_kept] for r in records])  # (chains, tune + draws), structured
    return Trace(
        draws=natural[:, tune:].copy(),
        unconstrained=positions[:, tune:].copy(),
        stats=_columns(stats[:, tune:]),
        names=list(density.names),
        sampler=sampler.name,
        sampling_time=seconds,
        interrupted=not run.finished,
        warmup_draws=natural[:, :tune].copy(),
        warmup_unconstrained=positions[:, :tune].copy(),
        warmup_stats=_columns(stats[:, :tune]),
        inv_metric=np.stack([r.snapshot.tuning.metric.inv_mass for r in records if r.snapshot.tuning is not None]),
    )


def _columns(stats: NDArray[np.void]) -> dict[str, NDArray[np.generic]]:
    return {name: stats[name].copy() for name in stats.dtype.names or ()}
