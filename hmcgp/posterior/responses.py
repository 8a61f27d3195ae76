"""Predictions of observations that are not Gaussian given the latent function: counts, and numbers with heavy tails.

Under a draw θ_s of the hyperparameters a new observation is that of a likelihood whose latent value is N(μ_s, σ²_s):

    moments        mean and variance of the mixture over draws, of those of each
    quantiles      the y at which Σ_s w_s P(y* <= y | μ_s, σ²_s, θ_s) is the probability asked for
    log density    log Σ_s w_s ∫ p(y | f, θ_s) N(f; μ_s, σ²_s) df
    samples        f drawn jointly at all rows, then y given f

Memory as in `predict`: averages are updated draw by draw, quantiles hold the moments of a block of rows.  `sizes` are
exposures, or numbers of trials, of the new rows; numbers have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hmcgp.likelihoods import Counts
from hmcgp.model import Model
from hmcgp.posterior import mixture, over_draws
from hmcgp.posterior.joint import covariance_root, latent_jointly
from hmcgp.posterior.over_draws import Group, PredictingDraw, Prediction, posterior_of, slices, summarise
from hmcgp.posterior.predict import latent_moments
from hmcgp.posterior.row_blocks import latent_blocks
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

_ROUNDS = 200  # of a search for quantiles
_CLOSE = 1e-9  # of quantiles of numbers, relative to the first bracket


def moments(model: Model, draws: Draws, X: Array, sizes: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of new counts at each row of X, averaged over the draws, of shape (m,)."""
    mean, between, within = summarise(_CountMoments(X, sizes), model, draws, n_jobs=n_jobs)
    return mean, (between + within) / WeightedDraws.of(draws).total


def mean_rates(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> Array:
    """Expected rate of counts at each row of X, averaged over the draws, of shape (m,)."""
    return summarise(_RateSums(X), model, draws, n_jobs=n_jobs) / WeightedDraws.of(draws).total


def log_density(
    model: Model, draws: Draws, X: Array, y: Array, sizes: Array | None = None, *, n_jobs: int | None = None
) -> Array:
    """Log density, or probability, of new observations y under the mixture over draws, of shape (m,)."""
    return summarise(_LogAverages(X, y, sizes), model, draws, n_jobs=n_jobs) - np.log(WeightedDraws.of(draws).total)


def quantiles(
    model: Model, draws: Draws, X: Array, q: Array, sizes: Array | None = None, *, n_jobs: int | None = None
) -> Array:
    """Quantiles of new observations under the mixture over draws, of shape (k, m).

    Of counts, the smallest whole number whose probability not to be exceeded is q or more.
    """
    draws = WeightedDraws.of(draws)
    likelihoods = [model.likelihood_at(theta) for theta in draws.theta]
    out = np.empty((len(q), len(X)))
    for rows in slices(len(X), max(over_draws.HELD_BYTES // (64 * len(draws)), 1)):
        mean, variance = latent_moments(model, draws, X[rows], n_jobs=n_jobs)  # (S, m)
        found = _Mixture(
            likelihoods, draws.weight / draws.total, mean, variance, None if sizes is None else sizes[rows]
        )
        for i, p in enumerate(q):
            out[i, rows] = found.quantile(float(p))
    return out


def samples(rng: Any, model: Model, draws: WeightedDraws, X: Array, sizes: Array | None, n_samples: int) -> Array:
    """Observations at all rows of X jointly, of shape (n_samples, m), each under a draw taken by its weight."""
    chosen = rng.choice(len(draws), size=n_samples, p=draws.weight / draws.total)
    groups, counts = np.unique(chosen, return_counts=True)
    drawn = [_drawn(rng, model, draws, int(s), X, sizes, count) for s, count in zip(groups, counts, strict=True)]
    return np.asarray(rng.permutation(np.concatenate(drawn)))  # samples of one draw need not lie side by side


def replicates(rng: Any, model: Model, draws: Draws, sizes: Array | None) -> Array:
    """Observations drawn anew at the training rows, one table for each draw of the hyperparameters, of shape (S, n)."""
    draws = WeightedDraws.of(draws)
    return np.concatenate([_drawn(rng, model, draws, s, model.X, sizes, 1) for s in range(len(draws))])


def _drawn(rng: Any, model: Model, draws: WeightedDraws, s: int, X: Array, sizes: Array | None, n: int) -> Array:
    """Observations under one draw of the hyperparameters, of shape (n, m)."""
    kernel, evidence = posterior_of(model, draws, s)
    mean, covariance = latent_jointly(model, kernel, evidence, X)
    f = mean + rng.standard_normal((n, len(X))) @ covariance_root(covariance).T
    likelihood: Any = model.likelihood_at(draws.theta[s])
    return np.asarray(likelihood.draw(rng, f) if sizes is None else likelihood.draw(rng, f, sizes))


# -- averages over draws ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CountMoments(Prediction):
    """Mean of the means of new counts, their scatter, and sum of the variances, of shape (3, m)."""

    X: Array
    sizes: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return 3, len(self.X)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        likelihood = draw.predictor.likelihood
        assert isinstance(likelihood, Counts)
        for rows, mean, variance in latent_blocks(draw, self.X):
            centre, spread = likelihood.observed_moments(mean, variance, self.sizes[rows])
            mixture.merge(out[:, rows], draw.weight_before, (centre, 0.0, draw.weight * spread), draw.weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        mixture.merge(out, group.weight_before, part, group.weight)


@dataclass(frozen=True)
class _RateSums(Prediction):
    """Sums over draws of the expected rates, of shape (m,)."""

    X: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return (len(self.X),)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows, rate in rates(draw, self.X):
            out[rows] += draw.weight * rate

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out += part


def rates(draw: PredictingDraw, X: Array) -> Iterator[tuple[slice, Array]]:
    """Yield rows and expected rates for every block of new inputs."""
    for rows, mean, variance in latent_blocks(draw, X):
        yield rows, draw.predictor.likelihood.mean_response(mean, variance)[0]


@dataclass(frozen=True)
class _LogAverages(Prediction):
    """Logarithm of the sum over draws of the densities of observations, of shape (m,)."""

    X: Array
    y: Array
    sizes: Array | None
    fill: ClassVar[float] = -np.inf

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return (len(self.y),)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        likelihood: Any = draw.predictor.likelihood
        for rows, mean, variance in latent_blocks(draw, self.X):
            own = likelihood if self.sizes is None else likelihood.at_sizes(self.sizes[rows])
            log_p = own.log_average(self.y[rows], mean, variance)
            out[rows] = np.logaddexp(out[rows], log_p + draw.log_weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        np.logaddexp(out, part, out=out)


# -- quantiles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mixture:
    """Distribution of an observation at each of m rows, over draws."""

    likelihoods: list[Any]
    weight: Array  # (S,), of sum 1
    mean: Array  # (S, m), of the latent values
    variance: Array  # (S, m)
    sizes: Array | None  # (m,)

    def distribution(self, y: Array, some: NDArray[np.intp]) -> Array:
        """P(y* <= y) at some of the rows."""
        extra = () if self.sizes is None else (self.sizes[some],)
        total = np.zeros(len(y))
        for weight, likelihood, mean, variance in zip(
            self.weight, self.likelihoods, self.mean, self.variance, strict=True
        ):
            total += weight * likelihood.distribution(y, mean[some], variance[some], *extra)
        return total

    def quantile(self, p: float) -> Array:
        """Quantile of every row, by bisection of a bracket that is found by doubling."""
        counts = self.sizes is not None
        low, high = self._bracket(p)
        left = np.arange(len(low))
        width = high - low
        for _ in range(_ROUNDS):
            open_rows = high[left] - low[left] > (1.0 if counts else _CLOSE * width[left])
            left = left[open_rows]
            if not len(left):
                break
            middle = 0.5 * (low[left] + high[left])
            middle = np.floor(middle) if counts else middle
            above = self.distribution(middle, left) >= p
            high[left], low[left] = np.where(above, middle, high[left]), np.where(above, low[left], middle)
        return high if counts else 0.5 * (low + high)

    def _bracket(self, p: float) -> tuple[Array, Array]:
        """Values below and above the quantile of every row; a count above -1."""
        moments = [
            likelihood.observed_moments(mean, variance, *(() if self.sizes is None else (self.sizes,)))
            for likelihood, mean, variance in zip(self.likelihoods, self.mean, self.variance, strict=True)
        ]
        centre = np.einsum("s,sm->m", self.weight, [m for m, _ in moments])
        sd = np.sqrt(np.einsum("s,sm->m", self.weight, [np.minimum(v, 1e300) for _, v in moments]))
        counts = self.sizes is not None
        reach = np.ceil(sd + 1.0) if counts else 2.0 * sd
        low = np.full(len(centre), -1.0) if counts else self._end(centre, -reach, p)
        return low, self._end(np.floor(centre) if counts else centre, reach, p)

    def _end(self, start: Array, step: Array, p: float) -> Array:
        """First of start, start + step, start + 3 step, … beyond the quantile, in the direction of the step."""
        end, step, left = start.copy(), step.copy(), np.arange(len(start))
        up = bool(len(step)) and step[0] > 0.0
        for _ in range(_ROUNDS):
            beyond = self.distribution(end[left], left)
            left = left[beyond < p] if up else left[beyond >= p]
            if not len(left):
                break
            end[left] += step[left]
            step[left] *= 2.0
        return end
