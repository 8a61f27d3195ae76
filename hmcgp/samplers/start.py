"""Where chains and searches start: a position of finite log density."""

from __future__ import annotations

from math import inf

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State, evaluate

ATTEMPTS = 100  # random positions before giving up


def find_start(density: LogDensity, rng: np.random.Generator, start: Array | None = None) -> State:
    """Return the state at the user's position, or at the first by `density.initial` that has a finite log density."""
    for _ in range(ATTEMPTS if start is None else 1):
        position = density.initial(rng) if start is None else start
        state, _ = evaluate(density, np.array(position, dtype=float))
        if state.logdensity > -inf:
            return state
    if start is not None:
        raise InvalidInput(
            f"the log density is -inf at 'start' = {start} (unconstrained), so there is nowhere to go from there. "
            "Start elsewhere, or leave 'start' out."
        )
    raise InvalidInput(
        f"the log density was -inf at all of {ATTEMPTS} random starting points: the covariance could not be factored, "
        "or the inner solver failed, wherever the prior puts weight. Check the priors for absurd scales, and the "
        "inputs if they are not standardised."
    )


def as_starts(start: Array | None, chains: int, n_dim: int) -> list[Array | None]:
    """Return one starting position per chain; None where the density draws it."""
    if start is None:
        return [None] * chains
    u = np.asarray(start, dtype=float)
    if u.shape not in ((n_dim,), (chains, n_dim)):
        raise InvalidInput(f"'start' must have shape ({n_dim},) or ({chains}, {n_dim}); got {u.shape}.")
    if not np.all(np.isfinite(u)):
        raise InvalidInput("'start' must be finite.")
    return list(np.broadcast_to(u, (chains, n_dim)))
