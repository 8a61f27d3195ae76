"""The modes of a posterior density, with the probability of each.

L-BFGS searches for a maximum from each of many starts drawn from the prior.  Ends within the width of a mode are one
mode.  The Hessian H at each gives Laplace's approximation,

    integral of p over the mode ~ p(m) (2 pi)^(d/2) |-H|^(-1/2),

and with it the mode's share of the probability.  Modes that no search reaches are missing; `Modes.found` counts the
searches that reached each, and a mode that was reached once suggests that there are more.
"""

from __future__ import annotations

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.optimize.maximum import climb_from_starts
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers.ascent import hessian
from hmcgp.samplers.integrators import State
from hmcgp.samplers.jumps import Modes

SAME_MODE = 1.0  # squared Mahalanobis distance from a mode within which other ends belong to it


@single_blas_thread()  # also for the Hessians, so that results do not depend on the number of BLAS threads
def find_modes(
    density: LogDensity, *, n_restarts: int = 50, random_state: RandomStateLike = None, n_jobs: int | None = None
) -> Modes:
    """Return the modes of the density of the unconstrained parameters, by L-BFGS from several starts.

    Parameters
    ----------
    density : LogDensity
        The log density, with its gradient.
    n_restarts : int, default=50
        Number of starts; see `find_map`.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed of the starts; start i is the same whatever their number.
    n_jobs : int, optional
        Workers, as in `hmcgp.samplers.sample`.

    Returns
    -------
    Modes
        Highest first; `samplers.JumpingHMC` takes them.

    Raises
    ------
    InvalidInput
        If no search ended at a maximum.
    """
    if density.n_dim == 0:
        raise InvalidInput("the density has no parameters, and so no modes: all of the kernel's are fixed numbers.")
    optima, _ = climb_from_starts(density, "lbfgs", n_restarts, random_state, n_jobs)
    tops: list[State] = []
    precisions: list[Array] = []  # -H at each
    counts: list[int] = []
    for end, *_ in sorted(optima, key=lambda optimum: -optimum.state.logdensity):
        same = [_is_within(end, top, precision) for top, precision in zip(tops, precisions, strict=True)]
        if any(same):
            counts[same.index(True)] += 1
            continue
        H = hessian(density, end)
        if np.isfinite(H).all() and np.linalg.eigvalsh(H).max() < 0.0:  # else the search did not reach a maximum
            tops.append(end)
            precisions.append(-H)
            counts.append(1)
    if not tops:
        raise InvalidInput(
            f"none of {n_restarts} searches ended at a maximum of the posterior density: it has no modes to jump "
            "between. Narrow the widest priors, or use sampler='hmc'."
        )
    return Modes(
        positions=np.array([top.position for top in tops]),
        parameters=np.array([density.constrain(top.position) for top in tops]),
        logdensity=np.array([top.logdensity for top in tops]),
        covariances=np.linalg.inv(np.array(precisions)),
        found=np.array(counts),
        names=list(density.names),
    )


def _is_within(end: State, top: State, precision: Array) -> bool:
    r = end.position - top.position
    return bool(r @ precision @ r < SAME_MODE)
