"""A trace of one draw: a maximum, or the only position of a density without parameters."""

from __future__ import annotations

import time
from math import inf
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import Work, evaluate
from hmcgp.samplers.trace import Info, Trace

FIXED = "fixed"  # stands for the sampler where there is nothing to sample


def single_draw(
    position: Array, parameters: Array, logdensity: float, names: list[str], sampler: str, work: Work, seconds: float
) -> Trace:
    """Return a trace of one chain of one draw, without warm-up."""
    u = position[None, None, :]  # (1, 1, n_dim)
    info = Info(
        lp=logdensity,
        acceptance_rate=1.0,
        step_size=0.0,
        energy=-logdensity,
        energy_error=0.0,
        diverging=False,
        **work._asdict(),
    )
    stats: dict[str, Any] = {name: np.array([[value]]) for name, value in info._asdict().items()}
    return Trace(
        draws=parameters[None, None, :],
        unconstrained=u,
        stats=stats,
        names=names,
        sampler=sampler,
        sampling_time=seconds,
        interrupted=False,
        warmup_draws=u[:, :0],
        warmup_unconstrained=u[:, :0],
        warmup_stats={name: value[:, :0] for name, value in stats.items()},
        inv_metric=np.zeros((1, len(names))),
    )


def only_draw(density: LogDensity) -> Trace:
    """Return the only draw of a density without parameters, evaluated once."""
    begin = time.perf_counter()
    u = np.empty(0)
    with single_blas_thread():
        state, evaluation = evaluate(density, u)
    if state.logdensity == -inf:
        raise InvalidInput(
            "the log density is -inf at the fixed parameters: the covariance could not be factored, or the inner "
            "solver failed. Check the numbers given to the kernel, and the inputs if they are not standardised."
        )
    work, seconds = Work().plus(evaluation), time.perf_counter() - begin
    return single_draw(u, density.constrain(u), state.logdensity, list(density.names), FIXED, work, seconds)
