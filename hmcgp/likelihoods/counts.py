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
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Likelihood
from hmcgp.likelihoods.log_concave_average import log_concave_average
from hmcgp.runtime.typing import Array

NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
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

    def predictive_distribution(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        sizes = self.sizes(len(y))
        return self.distribution(y - 1.0, mean, variance, sizes), self.distribution(y, mean, variance, sizes)

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
        f = mean[rest] + np.sqrt(variance[rest]) * NODES[:, None]  # (nodes, rest)
        out[rest] = NODE_WEIGHTS @ self._distribution_given(at[rest], self.rate(f), sizes[rest])
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
