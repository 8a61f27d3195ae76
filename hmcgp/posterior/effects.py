"""Effects of inputs: how the response changes with one or two of them, averaged over rows for the others.

For values v of the inputs J, rows x_i with the weights ω_i (of sum 1), and a draw of the hyperparameters,

    e(v) = Σ_i ω_i r(f(x_J = v, x_-J = x_i,-J)),

with r(f) the probabilities of the classes, the rate of counts, or f itself (partial dependence; Friedman 2001).  With
weights of sum 0 it is an average difference: of rows with an input moved up and the same rows with it moved down
(average predictive comparison; Gelman & Pardoe 2007).

e(v) is as uncertain as f.  An average of f is Gaussian for each draw, with the variance ω'Σω, Σ being the posterior
covariance of f at these inputs.  An average of probabilities or rates is not: f is sampled, at all rows of a value
together, with the same random numbers for all values, so that a band is smooth.

Under a sum of kernels f = Σ_t f_t, and term t has the covariance k_t with what was observed:

    E f_t(x) = k_t(x)'α,   cov f_t(x), f_t(x') = k_t(x, x') - k_t(x)'R k_t(x').
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtri

from hmcgp.model import Model
from hmcgp.numerics.weighted import weighted_quantile
from hmcgp.posterior import mixture
from hmcgp.posterior.joint import covariance_root, latent_jointly
from hmcgp.posterior.over_draws import SolvedDraw, Statistic, latent_shape, summarise
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

SAMPLES = 8  # of the latent function for each draw, and
LEAST_SAMPLES = 400  # of it in all: with sampler="map" there is one draw


class AverageSamples(NamedTuple):
    """Posterior samples of averages over rows, over the latent function and the hyperparameters."""

    mean: Array  # (G, C)
    samples: Array  # (N, G, C)
    weight: Array  # (N,)

    def quantiles(self, q: Array) -> Array:
        """Quantiles at the probabilities q, (k,), of shape (k, G, C)."""
        return np.asarray(weighted_quantile(self.samples, q, self.weight))


def average_responses(
    model: Model, draws: Draws, X: Array, row_weight: Array, rng: np.random.Generator, *, n_jobs: int | None = None
) -> AverageSamples:
    """Averages over rows of the probabilities of the classes, or of the rates of counts.

    Parameters
    ----------
    model : Model
        Of classification, ordinal targets or counts.
    draws : ndarray of shape (S, p), or WeightedDraws
    X : ndarray of shape (G, M, d)
        M rows for each of G values, scaled as the model's.
    row_weight : ndarray of shape (M,)
        Of sum 1; or of sum 0 for differences, with negative weights for the rows to be subtracted.
    rng : Generator
    """
    draws = WeightedDraws.of(draws)
    n_samples = _samples_of_each(len(draws))
    half = rng.standard_normal((len(draws), n_samples // 2, X.shape[1], *latent_shape(model)))
    normals = np.concatenate([half, -half], axis=1)  # antithetic: the error of the mean has no linear part
    values = summarise(_Responses(X, row_weight, normals), model, draws, n_jobs=n_jobs)  # (S, 1 + K, G, C)
    mean = np.average(values[:, 0], axis=0, weights=draws.weight)
    samples = values[:, 1:].reshape(-1, *values.shape[2:])
    return AverageSamples(mean, samples, np.repeat(draws.weight, n_samples))


def _samples_of_each(n_draws: int) -> int:
    """Samples of the latent function for each draw of the hyperparameters, an even number."""
    return max(SAMPLES, 2 * (-(-LEAST_SAMPLES // (2 * n_draws))))


class LatentAverages(NamedTuple):
    """Averages over rows of the latent function: a Gaussian for each draw of the hyperparameters."""

    means: Array  # (S, G, C)
    variances: Array  # (S, G, C)
    weight: Array  # (S,)

    @property
    def mean(self) -> Array:
        """Mean over the draws, of shape (G, C)."""
        return np.asarray(np.average(self.means, axis=0, weights=self.weight))

    def quantiles(self, q: Array) -> Array:
        """Quantiles at the probabilities q, (k,), of shape (k, G, C)."""
        return mixture.quantiles(q, self.means, self.variances, self.weight)

    def samples(self) -> AverageSamples:
        """The quantiles (k + 1/2)/K of each Gaussian, K for each draw, as weighted samples."""
        n_samples = _samples_of_each(len(self.weight))
        z = ndtri((np.arange(n_samples) + 0.5) / n_samples)[:, None, None]
        samples = self.means[:, None] + np.sqrt(self.variances)[:, None] * z
        return AverageSamples(self.mean, samples.reshape(-1, *self.means.shape[1:]), np.repeat(self.weight, n_samples))


def average_latents(
    model: Model, draws: Draws, X: Array, row_weight: Array,
    *, n_outputs: int | None = None, term: int | None = None, n_jobs: int | None = None,
) -> LatentAverages:  # fmt: skip
    """Averages over rows of the latent function, or of one of the terms that it is a sum of.

    Parameters
    ----------
    model, draws, row_weight, n_jobs
        As for `average_responses`; the model may be one of regression.
    X : ndarray of shape (G, M, d), or (G, M n_outputs, d)
    n_outputs : int, optional
        Outputs that are stacked, row by row, in X.
    term : int, optional
        Position among the `summands` of the kernel.

    Returns
    -------
    LatentAverages
        C is 1 unless there are several classes or outputs.
    """
    draws = WeightedDraws.of(draws)
    statistic = _Latents(X, row_weight, n_outputs, term)
    means, variances = np.moveaxis(summarise(statistic, model, draws, n_jobs=n_jobs), 1, 0)  # (S, G, C) each
    return LatentAverages(means, variances, draws.weight)


@dataclass(frozen=True)
class _Responses(Statistic):
    """Average responses and samples of them, of shape (S, 1 + K, G, C)."""

    X: Array  # (G, M, d)
    row_weight: Array
    normals: Array  # (S, K, M), or (S, K, M, C)
    keeps: ClassVar[bool] = True  # other inputs are likely to follow

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, 1 + self.normals.shape[1], len(self.X), model.likelihood.count(model.y)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        z = self.normals[draw.number].reshape(self.normals.shape[1], -1)  # (K, M C)
        for g, X in enumerate(self.X):
            mean, covariance = latent_jointly(draw.model, draw.kernel, draw.evidence, X)
            f = mean + (z @ covariance_root(covariance.reshape(mean.size, mean.size)).T).reshape(-1, *mean.shape)
            samples = np.einsum("kmc,m->kc", draw.likelihood.response_given(f), self.row_weight)
            out[draw.index, 1:, g] = samples
            if mean.ndim == 1:
                out[draw.index, 0, g] = (
                    draw.likelihood.mean_response(mean, np.maximum(np.diagonal(covariance), 0.0)) @ self.row_weight
                )
            else:  # mean_response samples, too, at a higher cost
                out[draw.index, 0, g] = samples.mean(axis=0)


@dataclass(frozen=True)
class _Latents(Statistic):
    """Mean and variance of an average of the latent function, or of a term of it, of shape (S, 2, G, C)."""

    X: Array  # (G, M, d)
    row_weight: Array
    n_outputs: int | None
    term: int | None
    keeps: ClassVar[bool] = True

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, 2, len(self.X), self.n_outputs or int(np.prod(latent_shape(model)))

    def update(self, out: Array, draw: SolvedDraw) -> None:
        kernel, w = draw.kernel, self.row_weight
        if self.term is not None:
            kernel = kernel.summands(draw.model.input_names)[self.term][1]
        for g, X in enumerate(self.X):
            mean, covariance = latent_jointly(draw.model, kernel, draw.evidence, X)
            if self.n_outputs is not None:
                mean = mean.reshape(-1, self.n_outputs)
                covariance = covariance.reshape(*mean.shape, *mean.shape)
            out[draw.index, 0, g] = w @ mean
            if covariance.ndim == 4:  # of each class, or output, with all others
                out[draw.index, 1, g] = np.einsum("i,icjc,j->c", w, covariance, w, optimize=True)
            else:  # of one latent value, or of columns that share it
                out[draw.index, 1, g] = w @ covariance @ w
            np.maximum(out[draw.index, 1, g], 0.0, out=out[draw.index, 1, g])
