"""Several chains at once.

Chain c has its own random stream, the c-th child of the seed, so its draws do not depend on how many chains there
are or on how many threads run them.  Ctrl-C keeps what there is; an error in one chain stops them all.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hmcgp._checks import check_count
from hmcgp._parallel import resolve_n_jobs, run_threads
from hmcgp._random import RandomStateLike, spawn_generators
from hmcgp._typing import Array
from hmcgp.errors import ApproximationWarning, HmcgpError, InvalidInput
from hmcgp.samplers.chain import ChainTask, Control, Record, Sampler, run_chain
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.metropolis import Metropolis
from hmcgp.samplers.nuts import NUTS
from hmcgp.samplers.progress import Progress
from hmcgp.samplers.trace import Trace
from hmcgp.target import Target

SAMPLERS: dict[str, Callable[[], Sampler]] = {"nuts": NUTS, "hmc": HMC, "metropolis": Metropolis}


def sample(
    target: Target,
    sampler: str | Sampler = "hmc",
    *,
    draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
    progressbar: bool = True,
    start: Array | None = None,
) -> Trace:
    """Draw from a target with several chains.

    Parameters
    ----------
    target : Target
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
        Seed.  The same one gives the same draws, bit for bit, whatever `n_jobs`.
    n_jobs : int, optional
        Threads.  None takes what `joblib.parallel_config` sets, one inside another joblib worker, and otherwise
        all cores; never more than chains.  BLAS runs on one thread meanwhile.
    progressbar : bool
        Show one bar for all chains, in a terminal or a notebook.
    start : ndarray of shape (n_dim,) or (chains, n_dim), optional
        Unconstrained starting point, of all chains or of each.  None draws one per chain from the target.

    Returns
    -------
    Trace
        After Ctrl-C: the draws so far, with a warning, if there are any after warm-up.
    """
    sampler = as_sampler(sampler)
    check_counts(draws=draws, tune=tune, chains=chains)
    sampler.check(target.n_dim, tune)
    starts = as_starts(start, chains, target.n_dim)
    n_threads = resolve_n_jobs(n_jobs, chains)
    rngs = spawn_generators(random_state, chains)
    records = [Record(tune, draws, target.n_dim, sampler.info) for _ in range(chains)]
    control = Control()
    progress = Progress(records, tune, enabled=progressbar)
    calls = [
        (run_chain, (ChainTask(target, sampler, rng, u), record, control, progress.tick))
        for rng, u, record in zip(rngs, starts, records, strict=True)
    ]
    begin = time.perf_counter()
    interrupted: KeyboardInterrupt | None = None
    try:
        run_threads(calls, n_threads)
    except KeyboardInterrupt as interrupt:
        interrupted = interrupt
        control.stop_and_wait()  # a second Ctrl-C ends this wait
    finally:
        control.stop.set()
        progress.close()
    elapsed = time.perf_counter() - begin
    raise_first_error(records)
    n_kept = draws
    if interrupted is not None:
        chosen, n_kept = largest_block([r.kept for r in records])
        if n_kept == 0:
            raise interrupted
        warn_interrupted(chosen, n_kept, chains, draws)
        records = [records[c] for c in chosen]
    return assemble(target, sampler.name, records, n_kept, elapsed, interrupted=interrupted is not None)


def as_sampler(sampler: str | Sampler) -> Sampler:
    """Return a sampler for a name or an instance."""
    if isinstance(sampler, str):
        if sampler in SAMPLERS:
            return SAMPLERS[sampler]()
    elif hasattr(sampler, "build_step") and not isinstance(sampler, type):
        return sampler
    hint = " For the most probable parameters use find_map, or GPClassifier(sampler='map')." if sampler == "map" else ""
    raise InvalidInput(f"'sampler' must be one of {sorted(SAMPLERS)} or an instance; got {sampler!r}.{hint}")


def check_counts(*, draws: int, tune: int, chains: int) -> None:
    """Refuse counts that are no counts."""
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1)):
        check_count(name, value, least)


def as_starts(start: Array | None, chains: int, n_dim: int) -> list[Array | None]:
    """Return one starting point per chain, or None where the target shall draw it."""
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


def warn_interrupted(chosen: list[int], n_kept: int, chains: int, draws: int) -> None:
    """Say what an interrupted run has kept."""
    left_out = sorted(set(range(chains)) - set(chosen))
    which = f" Chains {left_out} were left out: they had fewer draws." if left_out else ""
    warnings.warn(
        f"sampling was interrupted: {n_kept} of {draws} draws were kept in each of {len(chosen)} of {chains} chains."
        + which,
        ApproximationWarning,
        stacklevel=3,
    )


def assemble(
    target: Target, name: str, records: list[Record], n_kept: int, elapsed: float, *, interrupted: bool
) -> Trace:
    """Gather the records of chains into a trace."""
    tune = records[0].tune
    positions = np.stack([r.positions[: tune + n_kept] for r in records])  # (chains, tune + draws, n_dim)
    natural = np.array([[target.constrain(u) for u in chain] for chain in positions]).reshape(positions.shape)
    stats = np.stack([r.stats[: tune + n_kept] for r in records])  # (chains, tune + draws), structured
    return Trace(
        draws=natural[:, tune:].copy(),
        unconstrained=positions[:, tune:].copy(),
        stats=_columns(stats[:, tune:]),
        names=list(target.names),
        sampler=name,
        sampling_time=elapsed,
        interrupted=interrupted,
        warmup_draws=natural[:, :tune].copy(),
        warmup_unconstrained=positions[:, :tune].copy(),
        warmup_stats=_columns(stats[:, :tune]),
        inv_metric=np.stack([r.inv_metric for r in records if r.inv_metric is not None]),
    )


def _columns(stats: NDArray[np.void]) -> dict[str, NDArray[np.generic]]:
    return {name: stats[name].copy() for name in stats.dtype.names or ()}
