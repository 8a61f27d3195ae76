"""Points where the density ends along each axis.

Draws of a short warm-up seldom reach a tail that holds a few percent of the probability, and a surrogate without points
there has no draws there either.  So some draws are moved along each axis, both ways, step by step until the log density
has fallen by DROP, with all else as it was: far where a hyperparameter hardly matters, not far where it does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hmcgp.runtime.typing import Array

DRAWS = 2  # that are moved along each axis, either way
DROP = 8.0  # nats
FIRST, GROWTH, MOST = 1.5, 1.5, 7  # standard deviations of the first move, factor to the next, and number of moves


def explore(u: Array, lp: Array, sd: Array, evaluated: Callable[[Array], Array]) -> None:
    """Evaluate the log density at moved draws until it has fallen in every direction.

    Parameters
    ----------
    u : ndarray of shape (S, d)
        Draws.
    lp : ndarray of shape (S,)
        Log densities there.
    sd : ndarray of shape (d,)
        Standard deviations.
    evaluated : callable
        Returns the log densities, of shape (m,), at positions of shape (m, d), and keeps them.
    """
    d = u.shape[1]
    number = np.arange(2 * d * DRAWS)
    draw = np.linspace(0, len(u) - 1, len(number)).round().astype(np.intp)
    direction = np.concatenate([np.diag(sd), -np.diag(sd)])[number % (2 * d)]
    base, floor, distance = u[draw], lp[draw] - DROP, FIRST
    for _ in range(MOST):
        on = evaluated(base + distance * direction) > floor
        if not on.any():
            break
        base, floor, direction, distance = base[on], floor[on], direction[on], GROWTH * distance
