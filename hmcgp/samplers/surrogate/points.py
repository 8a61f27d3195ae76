"""Evaluations of a log density that a surrogate is fitted to."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.density import Evaluation, LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.surrogate.gaussian_process import Surrogate, Whitening, fit

DEPTH = 25.0  # nats below the highest point: what lies deeper says little about where draws lie
# Length scales to choose from, in standard deviations of the density.  Shorter ones are often more likely, as most
# points lie close together, and lead astray between the points that lie far out.
LENGTHS = (2.5, 4.0)
NUGGETS = (1e-4, 1e-3)  # what the process cannot follow, relative to its variance
COMPARED = 60  # points by which length scale and nugget are chosen


class Points(NamedTuple):
    """Positions with log densities and gradients."""

    u: Array  # (N, d)
    logdensity: Array  # (N,), finite
    grad: Array  # (N, d)

    def __len__(self) -> int:
        return len(self.logdensity)

    def spread(self, whitening: Whitening, most: int) -> Points:
        """Return points not far below the highest, as far apart from each other as possible.

        The highest comes first, then always the point farthest from all before: gaps are filled, and no two points
        are nearly the same, which would make the covariance of their values singular.
        """
        near = np.flatnonzero(self.logdensity > self.logdensity.max() - DEPTH)
        z = whitening.whiten(self.u[near])
        chosen = [int(np.argmax(self.logdensity[near]))]
        distance = np.full(len(z), inf)
        while len(chosen) < min(most, len(z)):
            distance = np.minimum(distance, np.sum((z - z[chosen[-1]]) ** 2, axis=1))
            chosen.append(int(np.argmax(distance)))
        return self.chosen(near[chosen])

    def chosen(self, some: NDArray[np.intp] | slice) -> Points:
        """Return some of the points."""
        return Points(self.u[some], self.logdensity[some], self.grad[some])


def joined(parts: list[Points]) -> Points:
    """Return all points of several parts."""
    return Points(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def fitted(points: Points, whitening: Whitening, most: int) -> Surrogate:
    """Return the surrogate of the points that are best spread, at most so many.

    Length scale and nugget are those under which some of the points are most likely.
    """
    points = points.spread(whitening, most)
    some = points.chosen(slice(None, None, -(-len(points) // COMPARED)))
    tried = [
        (fit(whitening, *some, length=length, nugget=nugget).log_likelihood, length, nugget)
        for length in LENGTHS
        for nugget in NUGGETS
    ]
    _, length, nugget = max(tried)
    return fit(whitening, *points, length=length, nugget=nugget)


class Recorded:
    """A log density that keeps the evaluations that had a gradient."""

    def __init__(self, density: LogDensity) -> None:
        self._density = density
        self._kept: list[tuple[Array, float, Array]] = []
        self.evaluations = 0

    @property
    def n_dim(self) -> int:
        return self._density.n_dim

    @property
    def names(self) -> list[str]:
        return self._density.names

    def constrain(self, u: Array) -> Array:
        return self._density.constrain(u)

    def initial(self, rng: np.random.Generator) -> Array:
        return self._density.initial(rng)

    def evaluate(self, u: Array, carry: object = None, gradient: bool = True) -> Evaluation:
        """Evaluate, and keep what was found where it is finite."""
        evaluation = self._density.evaluate(u, carry, gradient)
        self.evaluations += 1
        if gradient and evaluation.logdensity > -inf:
            self._kept.append((u.copy(), evaluation.logdensity, evaluation.grad.copy()))
        return evaluation

    @property
    def points(self) -> Points:
        """Evaluations so far."""
        if not self._kept:
            return Points(np.empty((0, self.n_dim)), np.empty(0), np.empty((0, self.n_dim)))
        return Points(*(np.array(column) for column in zip(*self._kept, strict=True)))
