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
from scipy.special import ndtri

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
_EXACT = 1e-9  # error of Φ⁻¹(P(y* <= y)) at a quantile of numbers
_TINY, _EPS = float(np.finfo(float).tiny), float(np.finfo(float).eps)


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
        """Quantile of every row, within a bracket that is found by doubling."""
        low, high = self._bracket(p)
        if self.sizes is None:
            return self._solved(p, low, high)
        left = np.arange(len(low))
        for _ in range(_ROUNDS):
            left = left[high[left] - low[left] > 1.0]
            if not len(left):
                break
            middle = np.floor(0.5 * (low[left] + high[left]))
            above = self.distribution(middle, left) >= p
            high[left], low[left] = np.where(above, middle, high[left]), np.where(above, low[left], middle)
        return high

    def _solved(self, p: float, low: Array, high: Array) -> Array:
        """Quantiles of numbers between `low` and `high`: roots of Φ⁻¹(P(y* <= y)) - Φ⁻¹(p), nearly linear in y.

        By inverse quadratic interpolation, safeguarded by bisection (Chandrupatla 1997).
        """

        def error(y: Array, rows: NDArray[np.intp]) -> Array:
            return np.asarray(ndtri(np.clip(self.distribution(y, rows), _TINY, 1.0 - _EPS)) - ndtri(p))

        left: NDArray[np.intp] = np.arange(len(low))
        out = 0.5 * (low + high)
        a, b, close = low, high, _CLOSE * (high - low)
        fa, fb = error(a, left), error(b, left)
        t = np.clip(fa / np.where(fa == fb, 1.0, fa - fb), 0.05, 0.95)
        for _ in range(_ROUNDS):
            if not len(left):
                break
            x = a + t * (b - a)
            fx = error(x, left)
            same = np.sign(fx) == np.sign(fa)
            c, fc = np.where(same, a, b), np.where(same, fa, fb)
            b, fb = np.where(same, b, a), np.where(same, fb, fa)
            a, fa = x, fx
            best, f_best = np.where(np.abs(fa) < np.abs(fb), a, b), np.minimum(np.abs(fa), np.abs(fb))
            out[left] = best
            go_on = (np.abs(b - a) > 2.0 * close) & (f_best > _EXACT)
            left = left[go_on]
            a, b, c, fa, fb, fc, close = (part[go_on] for part in (a, b, c, fa, fb, fc, close))
            t = _next_share(a, b, c, fa, fb, fc, close)
        return out

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


def _next_share(a: Array, b: Array, c: Array, fa: Array, fb: Array, fc: Array, close: Array) -> Array:
    """Next trial between the ends a and b of brackets, c the end before, as a share of the way from a to b."""
    least = close / np.abs(b - a)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        smooth = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)  # inverse quadratic interpolation is safe
        t = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    return np.asarray(np.clip(np.where(smooth & np.isfinite(t), t, 0.5), least, 1.0 - least))
