"""Where chains and searches start: at random, but not where the log density is hopeless.

A density may have regions in which it is nearly flat, with a lower maximum of their own: where the prior variance of a
classifier is tiny, all labels have probability one half whatever the other hyperparameters are.  A chain or a search
that starts there stays there, and under some priors most draws lie there.  So the log density is computed, without its
gradient, at a number of candidates: draws by `density.initial`, and draws stretched about their median, which reach
what the prior all but excludes and the data may demand.

A chain starts at the first candidate whose log density is within n_dim + SLACK of the highest.  At a draw from a
Gaussian density it is n_dim/2 below the maximum on average, at one from a Gaussian that is √2 times as wide n_dim: so
the starts of chains remain wider apart than the density is.
"""

from __future__ import annotations

from math import inf

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State, evaluate, init

ATTEMPTS = 100  # random positions before giving up
DRAWN = 32  # candidates by `density.initial`
STRETCHED = 96  # candidates farther out
STRETCH = 3.0  # how much farther
SLACK = 10.0  # nats


def draw_positions(density: LogDensity, rng: np.random.Generator) -> Array:
    """Return positions of candidates: draws by `density.initial`, then stretched ones, of shape (128, n_dim)."""
    drawn = np.array([density.initial(rng) for _ in range(DRAWN + STRETCHED)], dtype=float)
    centre = np.median(drawn, axis=0)
    drawn[DRAWN:] = centre + STRETCH * (drawn[DRAWN:] - centre)
    return drawn


def evaluate_candidates(density: LogDensity, positions: Array) -> list[State]:
    """Return the states at given positions, without gradients."""
    return [evaluate(density, u, gradient=False)[0] for u in positions]


def find_start(density: LogDensity, rng: np.random.Generator, start: Array | None = None) -> State:
    """Return the state at the user's position, or at the first candidate that is not far below the others."""
    if start is None:
        candidates = []
        for position in draw_positions(density, rng):
            candidates.append(evaluate(density, position, gradient=False)[0])
        floor = max(state.logdensity for state in candidates) - density.n_dim - SLACK
        for candidate in candidates:
            if candidate.logdensity > -inf and candidate.logdensity >= floor:
                state = init(density, candidate.position, candidate.carry)
                if state.logdensity > -inf:  # else the gradient failed where the value did not
                    return state
    return first_start(density, rng, start)


def first_start(density: LogDensity, rng: np.random.Generator, start: Array | None = None) -> State:
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
