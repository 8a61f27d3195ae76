"""The modes of a posterior: where they are, and how much each weighs.

From many starts drawn from the prior, L-BFGS climbs to a maximum each (`hmcgp.optimize`).  Ends that lie within the
width of a mode are one mode.  Of each, the Hessian H gives Laplace's approximation,

    integral of p over the mode ~ p(m) (2 pi)^(d/2) |-H|^(-1/2),

and with it the mode's share of the probability.  Modes that no start leads to are missing; `Modes.found` tells how
often each was met, and one that was met once suggests that there are more.
"""

from __future__ import annotations

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.optimize.maximum import climb_from_starts, hessian
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State
from hmcgp.samplers.jumps import Modes

SAME = 1.0  # squared distance, in the units of a mode's own width, within which two ends are one mode


def find_modes(
    density: LogDensity, *, n_restarts: int = 50, random_state: RandomStateLike = None, n_jobs: int | None = None
) -> Modes:
    """Find the modes of the density of the unconstrained parameters, by L-BFGS from several starts.

    Parameters
    ----------
    density : LogDensity
        The log density, with its gradient.
    n_restarts : int, default=50
        Number of starts, drawn by `density.initial`, each from its own stream.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed of the starts; start i is the same whatever their number.
    n_jobs : int, optional
        Workers, as in `hmcgp.samplers.sample`.

    Returns
    -------
    Modes
        Highest first, to be looked at, or given to `samplers.JumpingHMC`.

    Raises
    ------
    InvalidInput
        If no start led to a maximum.
    """
    ends = climb_from_starts(density, n_restarts=n_restarts, random_state=random_state, n_jobs=n_jobs)
    tops: list[State] = []
    precisions: list[Array] = []  # -H at each
    counts: list[int] = []
    for end in sorted(ends, key=lambda state: -state.logdensity):
        same = [_is_within(end, top, precision) for top, precision in zip(tops, precisions, strict=True)]
        if any(same):
            counts[same.index(True)] += 1
            continue
        H = hessian(density, end)
        if np.isfinite(H).all() and np.linalg.eigvalsh(H).max() < 0.0:  # else the search ended on a slope
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
    return bool(r @ precision @ r < SAME)
