"""Weighted draws from a surrogate; or draws by HMC, where it was given up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hmcgp.errors import HmcgpError
from hmcgp.numerics.density import LogDensity
from hmcgp.numerics.weighted import pareto_smoothed
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.interrupts import Stopped, raise_if_interrupt
from hmcgp.runtime.parallel import resolve_n_jobs
from hmcgp.runtime.random import RandomStateLike, as_generator, spawn_generators
from hmcgp.samplers.chains.assembly import assemble
from hmcgp.samplers.chains.forecast import announce
from hmcgp.samplers.chains.independent import Settings, prepare, sample_chains
from hmcgp.samplers.chains.recording import Recording
from hmcgp.samplers.surrogate import warmup
from hmcgp.samplers.surrogate.draws import GROUP
from hmcgp.samplers.surrogate.run import WAVE, GivenUp, SurrogateRun
from hmcgp.samplers.surrogate.sampler import ContinuedHMC, SurrogateHMC
from hmcgp.samplers.trace import Trace

_LEAST_TIME = 1e-3  # seconds left to HMC, which then says that they were too few


@single_blas_thread()  # surrogates are fitted in the thread of the caller
def sample_surrogate(
    density: LogDensity, sampler: SurrogateHMC, settings: Settings, random_state: RandomStateLike
) -> Trace:
    """Draw from a surrogate of the log density, with weights (arguments as of `hmcgp.samplers.sample`).

    Where the surrogate is given up, HMC draws in its place, from where warm-up has led, and the trace is HMC's.
    """
    sampler.check(density.n_dim, settings.tune)
    rng = as_generator(random_state)
    planned = settings._replace(draws=sampler.length(settings.draws), tune=warmup.ROUND * warmup.ROUNDS)
    run = prepare(density, sampler, planned, rng)
    run = run._replace(n_workers=resolve_n_jobs(settings.n_jobs, WAVE // GROUP))
    scouting, again = spawn_generators(rng, 2)
    announce(run, settings.max_time, progressbar=settings.progressbar)
    found: GivenUp | str = ""
    with Recording(run, None, progressbar=settings.progressbar) as recording:
        found = _guarded(SurrogateRun(run, scouting, recording.tick))
    if isinstance(found, GivenUp):
        left = None if settings.max_time is None else max(run.stop.remaining, _LEAST_TIME)
        below = ContinuedHMC(begin=found.covariance)
        trace = sample_chains(density, below, settings._replace(max_time=left), again, found.start)
        seconds = trace.sampling_time + recording.seconds
        return replace(trace, sampling_time=seconds, note=f"HMC in place of the surrogate: {found.reason}")
    trace = assemble(run, recording.seconds, recording.failure, settings.max_time, None)
    lp, followed = (np.asarray(trace.stats[name], dtype=np.float64) for name in ("lp", "surrogate_lp"))
    weights = pareto_smoothed(np.ravel(lp - followed))
    log_weight = weights.log_weight.reshape(trace.draws.shape[:2])
    return replace(trace, log_weight=log_weight, pareto_k=weights.pareto_k, note=found)


def _guarded(run: SurrogateRun) -> GivenUp | str:
    """Run, and say where an error came from that is not our own."""
    try:
        return run.sample()
    except (HmcgpError, Stopped):
        raise
    except Exception as error:
        raise_if_interrupt(error)
        raise HmcgpError(f"sampling on a surrogate failed: {type(error).__name__}: {error}") from error
