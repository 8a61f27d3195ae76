"""Likelihoods of counts: events in an exposure, and successes among trials.

    Poisson           y ~ Poisson(e r),           r = exp(f + offset)       events at the rate r in the exposure e
    NegativeBinomial  y ~ NB(mean e r),           var y = e r + α (e r)²    the same, with more scatter
    Binomial          y ~ Binomial(N, p),         p = σ(f + offset)         successes of N trials

`rate` stands for r and p, `size` for e and N.  A new observation at a Gaussian latent value has

    mean  size E r,     variance  E var(y | r) + size² var r,

in closed form for r = exp(f), by quadrature for σ(f).  Its distribution function is that of a comparison: y <= k if
and only if f < T, where T is the logarithm of a gamma or beta-prime variable, or the logit of a beta variable.  Where
f is the narrower of the two, P(y <= k | f) is averaged over f by Gauss-Hermite quadrature; where T is, f - T is normal
up to a small skewness, for which an Edgeworth term stands.  Largest error that was measured: 2e-3.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import bdtr, betainc, digamma, expit, ndtr, pdtr, polygamma

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Likelihood
from hmcgp.likelihoods.log_concave_average import log_concave_average
from hmcgp.likelihoods.terms import BINOMIAL, NEGATIVE_BINOMIAL, POISSON
from hmcgp.numerics.quadrature import logistic_average
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import Value, value_of
from hmcgp.runtime.typing import Array

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
_NARROW = 0.5  # of T, in units of f: below, f - T is nearly normal
_MOST_LOG = 700.0  # beyond, exp leaves the range of float64
_BLOCK = 2**16  # values whose nodes are held at once


@dataclass(frozen=True)
class Counts(Likelihood):
    """Base class: counts whose rate per unit of exposure, or probability per trial, depends on f.

    Parameters
    ----------
    offset : float, default=0.0
        Added to the latent value: logarithm (of `Binomial`, logit) of the rate where f = 0.
    """

    offset: float = field(default=0.0, kw_only=True)
    targets: ClassVar[str] = "counts"
    size_name: ClassVar[str] = "exposure"  # what the size of a row is called

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.offset):
            raise InvalidInput(f"'offset' of {type(self).__name__} must be finite; got {self.offset}.")
        sizes = getattr(self, self.size_name)
        if sizes is not None:
            checked = self.check_sizes(np.array(sizes, dtype=float))
            object.__setattr__(self, self.size_name, tuple(checked.tolist()))  # likelihoods compare and hash
            object.__setattr__(self, "_sizes", checked)

    @classmethod
    def check_sizes(cls, sizes: Array) -> Array:
        """Sizes of shape (n,); InvalidInput unless they are positive and finite."""
        bad = np.flatnonzero(~((sizes > 0.0) & (sizes < math.inf)))
        if sizes.ndim != 1 or len(bad):
            held = f"{sizes[bad[0]]} in row {bad[0]}" if sizes.ndim == 1 else f"the shape {sizes.shape}"
            raise InvalidInput(
                f"'{cls.size_name}' must be positive and finite, one number per row; got {held}. Leave rows in which "
                "nothing was observed out."
            )
        return sizes

    def sizes(self, n: int) -> Array:
        """Exposures, or numbers of trials, of the n rows that the likelihood explains: 1 each unless given."""
        found = self.__dict__.get("_sizes")
        if found is None:
            return np.ones(n)
        if len(found) != n:
            raise InvalidInput(f"there are {len(found)} values of '{self.size_name}' for {n} rows.")
        return np.asarray(found)

    def for_rows(self, X: Array) -> Self:
        """Check that there is one size per row."""
        self.sizes(len(X))
        return super().for_rows(X)

    def at_sizes(self, sizes: Array) -> Self:
        """Likelihood of single observations at other rows, of these sizes, which are not checked again."""
        return self._with({self.size_name: (), "_sizes": sizes, "weights": None})

    def with_rows(self, sizes: Array) -> Self:
        """Likelihood with the sizes of more rows behind its own, which it may not have yet."""
        both: dict[str, Any] = {self.size_name: (*(getattr(self, self.size_name) or ()), *sizes.tolist())}
        return replace(self, **both)

    def centred(self, y: Array, sizes: Array, weights: Array) -> Self:
        """Likelihood whose rate at f = 0 is the mean rate of counts y, half a count added: it may be 0."""
        return replace(self, offset=self._offset(float(weights @ y) + 0.5, float(weights @ sizes)))

    def _offset(self, total: float, size: float) -> float:
        """Latent value of the rate total/size."""
        return math.log(total / size)

    def count(self, y: Array) -> int:
        """Number of responses: one, the rate."""
        return 1

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless every target is a whole number, 0 or more."""
        for wrong, what in (
            (~np.isfinite(y), "finite"),
            (y < 0.0, "counts, 0 or more"),
            (y != np.round(y), "whole numbers"),
        ):
            bad = np.flatnonzero(wrong)
            if len(bad):
                raise InvalidInput(
                    f"'y' must be {what}; it holds {y[bad[0]]:g} in row {bad[0]}, one of {len(bad)} such rows. "
                    f"{self._about_wrong}"
                )

    _about_wrong: ClassVar[str] = (
        "Give rates as counts with their 'exposure', and numbers that are not counts to GPRegressor."
    )

    def average(self, mean: Array, variance: Array) -> Array:
        """Refused: a count has no classes, and so no probability of one."""
        raise InvalidInput(f"{type(self).__name__} explains counts, not classes: there is no P(y = +1) to average.")

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive probability of the counts (see `Likelihood.log_average`), to 1e-9."""
        return self._log_average(y, mean, variance, np.ones(len(y)))

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), to 1e-9."""
        return self._log_average(y, mean, variance, self.row_weights(len(y)))

    def _log_average(self, y: Array, mean: Array, variance: Array, weights: Array) -> Array:
        y, mean, variance = (np.ascontiguousarray(part, dtype=float) for part in (y, mean, variance))
        return log_concave_average(self.kind, y, *self.row_numbers(y), mean, variance, weights)

    def row_numbers(self, y: Array) -> Array:
        return np.stack([np.full(len(y), self.offset) + self._log_exposure(len(y)), self._second(len(y))])

    def _log_exposure(self, n: int) -> Array | float:
        return np.log(self.sizes(n))

    @abstractmethod
    def _second(self, n: int) -> Array:
        """Second number of each row that compiled code reads (`likelihoods.terms`)."""

    # -- new observations --------------------------------------------------------------------------------------------

    def mean_response(self, mean: Array, variance: Array) -> Array:
        """Expected rate for Gaussian latent values, of shape (1, m)."""
        return self.rate_moments(mean, variance)[0][None]

    def response_given(self, f: Array) -> Array:
        """Rate given latent values, of shape (..., 1)."""
        return self.rate(f)[..., None]

    def rate(self, f: Array) -> Array:
        """Expected events per unit of exposure, given latent values."""
        return np.exp(np.minimum(f + self.offset, _MOST_LOG))

    def rate_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of the rate for Gaussian latent values."""
        log_mean = np.minimum(mean + self.offset + 0.5 * variance, 0.5 * _MOST_LOG)
        average = np.exp(log_mean)
        return average, np.exp(2.0 * log_mean + np.minimum(variance, _MOST_LOG - 2.0 * log_mean)) * -np.expm1(-variance)

    def observed_moments(self, mean: Array, variance: Array, sizes: Array) -> tuple[Array, Array]:
        """Mean and variance of a new count."""
        average, spread = self.rate_moments(mean, variance)
        return sizes * average, sizes**2 * spread + self._scatter(average, spread, sizes)

    @abstractmethod
    def _scatter(self, average: Array, spread: Array, sizes: Array) -> Array:
        """Average variance of a count given the rate, of this mean and variance."""

    def distribution(self, k: Array, mean: Array, variance: Array, sizes: Array) -> Array:
        """P(y <= k) of a new count for Gaussian latent values, elementwise; 0 for k < 0."""
        k, mean, variance, sizes = np.broadcast_arrays(
            *(np.asarray(x, dtype=float) for x in (k, mean, variance, sizes))
        )
        out, flat = np.empty(k.size), [part.ravel() for part in (k, mean, variance, sizes)]
        for start in range(0, k.size, _BLOCK):
            some = slice(start, start + _BLOCK)
            out[some] = self._distribution(*(part[some] for part in flat))
        return out.reshape(k.shape)

    def _distribution(self, k: Array, mean: Array, variance: Array, sizes: Array) -> Array:
        at = np.maximum(k, 0.0)
        location, spread, third = self._comparison(at, sizes)
        wide = spread < _NARROW**2 * variance
        out = np.empty(k.shape)
        total = np.sqrt(variance[wide] + spread[wide])
        z = (location[wide] - mean[wide] - self.offset) / total
        density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        out[wide] = ndtr(z) + third[wide] / total**3 / 6.0 * (z * z - 1.0) * density
        rest = ~wide
        f = mean[rest] + np.sqrt(variance[rest]) * _NODES[:, None]  # (nodes, rest)
        out[rest] = _NODE_WEIGHTS @ self._distribution_given(at[rest], self.rate(f), sizes[rest])
        return np.where(k < 0.0, 0.0, np.where(k >= self.most(sizes), 1.0, np.clip(out, 0.0, 1.0)))

    @abstractmethod
    def _comparison(self, k: Array, sizes: Array) -> tuple[Array, Array, Array]:
        """Mean, variance and third central moment of T, with y <= k if and only if f + offset < T."""

    @abstractmethod
    def _distribution_given(self, k: Array, rate: Array, sizes: Array) -> Array:
        """P(y <= k) given the rate."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, f: Array, sizes: Array) -> Array:
        """Counts drawn given latent values."""

    def most(self, sizes: Array) -> Array:
        """Largest count that is possible."""
        return np.full(np.shape(sizes), math.inf)


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

    exposure: Sequence[float] | None = None
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
    exposure: Sequence[float] | None = None
    kind: ClassVar[int] = NEGATIVE_BINOMIAL

    @property
    def _shape(self) -> float:
        return 1.0 / float(value_of(self, "dispersion"))

    def _second(self, n: int) -> Array:
        return np.full(n, self._shape)

    def parameter_gradient(self, y: Array, f: Array, share: Array, shift: Array) -> Array:
        b, weights = self._shape, self.row_weights(len(y))
        x = f + self.row_numbers(y)[0] - math.log(b)
        t, left = expit(x), expit(-x)
        w = (y + b) * t * left
        dlog_p = digamma(y + b) - digamma(b) - np.logaddexp(0.0, x) - (y * left - b * t) / b
        dg = w / b - t
        dlog_w = 1.0 / (y + b) - (left - t) / b
        db = weights @ dlog_p - 0.5 * share @ dlog_w + (weights * shift) @ dg
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

    trials: Sequence[float] | None = None
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
        f = mean + np.sqrt(variance) * _NODES.reshape(-1, *[1] * np.ndim(mean))
        deviation = self.rate(f) - average
        return average, np.tensordot(_NODE_WEIGHTS, deviation**2, (0, 0))

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


def _poisson(rng: Any, rate: Array) -> Array:
    """Poisson counts; beyond 1e18, where none can be drawn as integers, the rate itself."""
    large = rate > 1e18
    return np.where(large, rate, rng.poisson(np.where(large, 1.0, rate)))
