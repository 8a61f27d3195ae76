"""Draws from a log density by several chains, or from a surrogate of it."""

from __future__ import annotations

import os
from collections.abc import Callable

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_count, check_flag, lowered, name_among, refuse_class
from hmcgp.runtime.interrupts import deferred_interrupts
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.chain import Sampler
from hmcgp.samplers.chains.independent import Settings, sample_chains
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.metropolis import Metropolis
from hmcgp.samplers.nuts import NUTS
from hmcgp.samplers.single_draw import only_draw
from hmcgp.samplers.surrogate.sample import sample_surrogate
from hmcgp.samplers.surrogate.sampler import SurrogateHMC
from hmcgp.samplers.trace import Trace

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "nuts": NUTS,
    "hmc": HMC,
    "metropolis": Metropolis,
    "surrogate": SurrogateHMC,
}
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
        "nuts", "hmc", "metropolis", "surrogate", or an instance with settings.  The surrogate (`SurrogateHMC`) needs
        far fewer evaluations for up to about a dozen parameters, and its draws carry weights; where it fails, HMC draws
        in its place, as `Trace.note` says.
    draws : int
        Draws per chain to keep; of the surrogate at most, as its draws are worth more.
    tune : int
        Warm-up draws per chain, kept apart.  The surrogate has a short warm-up of its own.
    chains : int
        Number of chains.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed.  The same one gives the same draws, bit for bit, whatever `n_jobs` and wherever the chains run.
    n_jobs : int, optional
        Workers.  None takes the number set by `joblib.parallel_config`, one inside another joblib worker, and otherwise
        all cores; never more than chains.  They are threads; inside `joblib.parallel_config(backend="loky")` they are
        processes, inside `backend="dask"` those of a cluster.  BLAS runs on one thread each meanwhile.
    progressbar : bool
        Show, in a terminal or a notebook, a forecast of the running time from one timed evaluation, and a bar for all
        chains: one of warm-up, then one of draws.
    start : ndarray of shape (n_dim,) or (chains, n_dim), optional
        Unconstrained starting position, of all chains or of each.  None draws one per chain, by `density.initial`.
    max_time : float, optional
        Seconds after which to stop with the draws so far.  The forecast is then printed on stderr wherever that is (not
        with ``progressbar=False``).  Refused if too short for warm-up,
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
        settings = Settings(draws, tune, chains, n_jobs, progressbar, max_time)
        sampler = check_arguments(sampler, draws, tune, chains)
        if isinstance(sampler, SurrogateHMC):
            refuse_for_surrogate(start=start, checkpoint=checkpoint)
            return sample_surrogate(density, sampler, settings, random_state)
        return sample_chains(density, sampler, settings, random_state, start, checkpoint)


def refuse_for_surrogate(**arguments: object) -> None:
    """Raise InvalidInput for arguments that only chains take."""
    for name, value in arguments.items():
        if value is not None:
            raise InvalidInput(
                f"sampler='surrogate' takes no '{name}': its chains share what they learn, and are not run one by one. "
                f"Leave '{name}' out, or take sampler='hmc'."
            )


def check_arguments(sampler: str | Sampler, draws: int, tune: int, chains: int) -> Sampler:
    """Return the sampler, and raise InvalidInput unless the numbers of draws and chains are integers in range."""
    check_counts(draws=draws, tune=tune, chains=chains)
    return as_sampler(sampler)


def as_sampler(sampler: str | Sampler) -> Sampler:
    """Return a sampler for a name or an instance."""
    refuse_class("sampler", sampler)
    if not isinstance(sampler, str) and hasattr(sampler, "build_step"):
        return sampler
    instead = _OF_ESTIMATORS.get(lowered(sampler) if isinstance(sampler, str) else "")
    if instead is not None:
        raise InvalidInput(
            f"sampler={sampler!r} is a setting of the estimators (GPClassifier, GPRegressor, GPCounts, GPOrdinal). "
            f"Here, call {instead}."
        )
    return SAMPLERS[name_among("sampler", sampler, SAMPLERS, " or a sampler with settings, such as HMC()")]()


def check_counts(*, draws: int, tune: int, chains: int) -> None:
    """Raise InvalidInput unless the numbers of draws and chains are integers in range."""
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("chains", chains, 1)):
        check_count(name, value, least)
