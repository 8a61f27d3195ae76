"""Likelihood of successes among trials (see `counts`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, digamma, expit, polygamma

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.counts import NODE_WEIGHTS, NODES, Counts
from hmcgp.likelihoods.terms import BINOMIAL
from hmcgp.numerics.quadrature import logistic_average
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Binomial(Counts):
    """p(y | f) = Binomial(y; N, p), p = σ(f + offset): y successes of N trials.

    With trials of 1 each, `Logistic` with y = 0 and 1; it serves replicated rows of a classification in one row each.

    Parameters
    ----------
    trials : sequence of int, optional
        Number of trials of each row.  Default: 1 each.
    offset : float, default=0.0
        Logit of the probability where f = 0.
    """

    trials: Sequence[float] | NDArray[Any] | None = None
    kind: ClassVar[int] = BINOMIAL
    size_name: ClassVar[str] = "trials"
    _about_wrong: ClassVar[str] = "Give the number of successes of each row, and that of its 'trials'."

    @classmethod
    def check_sizes(cls, sizes: Array) -> Array:
        checked = super().check_sizes(sizes)
        bad = np.flatnonzero(checked != np.round(checked))
        if len(bad):
            raise InvalidInput(f"'trials' must be whole numbers; got {checked[bad[0]]:g} in row {bad[0]}.")
        return checked

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless every target is a whole number between 0 and the number of trials."""
        super().check_targets(y)
        trials = self.sizes(len(y))
        bad = np.flatnonzero(y > trials)
        if len(bad):
            i = bad[0]
            raise InvalidInput(
                f"row {i} has {y[i]:g} successes of {trials[i]:g} trials, one of {len(bad)} such rows: there cannot be "
                "more successes than trials. Check 'trials', and that 'y' holds successes."
            )

    def _offset(self, total: float, size: float) -> float:
        return math.log(total / (size - total + 1.0))

    def _log_exposure(self, n: int) -> Array | float:
        return 0.0

    def _second(self, n: int) -> Array:
        return self.sizes(n)

    def rate(self, f: Array) -> Array:
        """Probability of success in a trial, given latent values."""
        return np.asarray(expit(f + self.offset))

    def rate_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of the probability of success for Gaussian latent values."""
        average = logistic_average(mean + self.offset, variance)
        f = mean + np.sqrt(variance) * NODES.reshape(-1, *[1] * np.ndim(mean))
        deviation = self.rate(f) - average
        return average, np.tensordot(NODE_WEIGHTS, deviation**2, (0, 0))

    def _scatter(self, average: Array, spread: Array, sizes: Array) -> Array:
        return np.asarray(sizes * (average * (1.0 - average) - spread))

    def _comparison(self, k: Array, sizes: Array) -> tuple[Array, Array, Array]:
        least = np.minimum(k, sizes - 1.0)
        a, b = least + 1.0, sizes - least  # T = logit(beta(k + 1, N - k))
        return digamma(a) - digamma(b), polygamma(1, a) + polygamma(1, b), polygamma(2, a) - polygamma(2, b)

    def _distribution_given(self, k: Array, rate: Array, sizes: Array) -> Array:
        return np.asarray(bdtr(np.minimum(k, sizes), sizes.astype(int), rate))

    def draw(self, rng: np.random.Generator, f: Array, sizes: Array) -> Array:
        return rng.binomial(sizes.astype(int), self.rate(f)).astype(float)

    def most(self, sizes: Array) -> Array:
        return np.asarray(sizes, dtype=float)
