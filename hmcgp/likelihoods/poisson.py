"""Likelihoods of events in an exposure: Poisson's, and the negative binomial (see `counts`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, digamma, pdtr, polygamma

from hmcgp.likelihoods.counts import Counts
from hmcgp.likelihoods.terms import NEGATIVE_BINOMIAL, POISSON
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import Value, value_of
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Poisson(Counts):
    """p(y | f) = Poisson(y; e r), r = exp(f + offset): events at the rate r in the exposure e.

    Parameters
    ----------
    exposure : sequence of float, optional
        Time, area or population in which the events of each row were counted.  Default: 1 each.
    offset : float, default=0.0
        Logarithm of the rate where f = 0.
    """

    exposure: Sequence[float] | NDArray[Any] | None = None
    kind: ClassVar[int] = POISSON

    def _second(self, n: int) -> Array:
        return np.zeros(n)

    def _scatter(self, average: Array, spread: Array, sizes: Array) -> Array:
        return sizes * average

    def _comparison(self, k: Array, sizes: Array) -> tuple[Array, Array, Array]:
        return digamma(k + 1.0) - np.log(sizes), polygamma(1, k + 1.0), polygamma(2, k + 1.0)  # T = log(gamma/e)

    def _distribution_given(self, k: Array, rate: Array, sizes: Array) -> Array:
        return np.asarray(pdtr(k, sizes * rate))

    def draw(self, rng: np.random.Generator, f: Array, sizes: Array) -> Array:
        return _poisson(rng, sizes * self.rate(f))


@dataclass(frozen=True)
class NegativeBinomial(Counts):
    """p(y | f) = NB(y; mean e r, variance e r + α (e r)²), r = exp(f + offset): more scatter than Poisson's.

    A Poisson count whose rate is multiplied by a gamma variable of mean 1 and variance α.

    Parameters
    ----------
    dispersion : float or prior, optional
        α > 0, as in statsmodels; close to 0, `Poisson`.  Default: the prior LogNormal(-2, 2, lower=1e-6), with median
        0.14 and 95 % within 0.003 to 7.
    exposure, offset
        As of `Poisson`.
    """

    dispersion: Value = parameter("dispersion")
    exposure: Sequence[float] | NDArray[Any] | None = None
    kind: ClassVar[int] = NEGATIVE_BINOMIAL

    @property
    def _shape(self) -> float:
        return 1.0 / float(value_of(self, "dispersion"))

    def _second(self, n: int) -> Array:
        return np.full(n, self._shape)

    def parameter_gradient(self, y: Array, slopes: Array) -> Array:
        """Derivative in the dispersion (see `Likelihood.parameter_gradient`)."""
        b = self._shape
        db = slopes[1].sum() + self.row_weights(len(y)) @ (digamma(y + b) - digamma(b))
        return np.array([-b * b * db])

    def _scatter(self, average: Array, spread: Array, sizes: Array) -> Array:
        return sizes * average + float(value_of(self, "dispersion")) * sizes**2 * (spread + average**2)

    def _comparison(self, k: Array, sizes: Array) -> tuple[Array, Array, Array]:
        b = self._shape  # T = log(b gamma_{k+1}/(e gamma_b))
        mean = digamma(k + 1.0) - digamma(b) + math.log(b) - np.log(sizes)
        return mean, polygamma(1, k + 1.0) + polygamma(1, b), polygamma(2, k + 1.0) - polygamma(2, b)

    def _distribution_given(self, k: Array, rate: Array, sizes: Array) -> Array:
        b = self._shape
        return np.asarray(betainc(b, k + 1.0, b / (b + sizes * rate)))

    def draw(self, rng: np.random.Generator, f: Array, sizes: Array) -> Array:
        b = self._shape
        return _poisson(rng, sizes * self.rate(f) * rng.gamma(b, 1.0 / b, size=f.shape))


def _poisson(rng: Any, rate: Array) -> Array:
    """Poisson counts; beyond 1e18, where none can be drawn as integers, the rate itself."""
    large = rate > 1e18
    return np.where(large, rate, rng.poisson(np.where(large, 1.0, rate)))
