"""Predictions at new inputs: latent moments for each draw of the hyperparameters, and averages over the draws.

    p(y* = 1 | y) = Σ_s w_s ∫ p(y* = 1 | f*) N(f*; μ_s, σ²_s) df*,     μ_s = k*'α_s,  σ²_s = k** - k*'R_s k*

The weights w_s sum to 1; they are equal unless the draws carry others (`weights`).
With several classes f* has a component for each, μ_s as many, and σ²_s is their covariance.  Where the latent
posterior is a weighted sample instead of a Gaussian (`SupportsLatentMixture`), N(f*; μ_s, σ²_s) becomes the mixture.

One factorisation serves all new inputs of a draw.  New inputs come in blocks, so that beside two n x n matrices a
worker holds at most about BLOCK_BYTES of cross-covariances and the moments computed from them.

Memory does not grow with draws times inputs.  Averages (means, variances, probabilities, log densities) solve each draw
once, are updated draw by draw, and hold a few numbers for each new input (`over_draws`).  Quantiles need all draws of a
new input at once: inputs come in blocks whose values are held in HELD_BYTES, and every draw is solved again for every
block.  That is one block up to 16,000 inputs with 500 draws; beyond, a factorisation of n³/3 operations is little
beside the n² operations for each of the inputs of a block.  Functions that return values for each draw hold them once,
and HELD_BYTES or a group per worker beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import Evidence, SupportsLatentMixture
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood, NoisyNumbers
from hmcgp.model import Model
from hmcgp.posterior import mixture, over_draws
from hmcgp.posterior.joint import latent_jointly
from hmcgp.posterior.latent_values import latent_gaussian, mean_class_probabilities
from hmcgp.posterior.over_draws import Group, SolvedDraw, Statistic, latent_shape, slices, summarise
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

JOINT_ROWS = 64  # rows whose covariances are computed at once, although those within groups suffice
BLOCK_BYTES = 32 * 2**20  # of work space for a block of new inputs, for each worker


# -- averages over draws ---------------------------------------------------------------------------------------------


def probabilities(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes averaged over the draws, of shape (m, C), with C = 2 for labels -1 and +1.

    Of two classes, both are right in relative terms, however small.  Of more, rows sum to 1 exactly.
    """
    return model.likelihood.normalised(summarise(_ProbabilitySums(X), model, draws, n_jobs=n_jobs).T)


def probabilities_per_draw(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes for each draw, of shape (S, m, C)."""
    return summarise(_Probabilities(X), model, draws, n_jobs=n_jobs)


def latent_moments(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Latent mean and variance at each new input for each draw.

    Parameters
    ----------
    model : Model
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters.
    X : ndarray of shape (m, d)
        New inputs, scaled as the model's.
    n_jobs : int, optional
        Workers.

    Returns
    -------
    mean, variance : ndarrays of shape (S, m), or (S, m, C) for C classes or columns of targets
    """
    mean, variance = summarise(_Moments(X, observed=False), model, draws, n_jobs=n_jobs)
    return mean, variance


def observed_moments(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of a new observation, noise included: as of `latent_moments`."""
    mean, variance = summarise(_Moments(X, observed=True), model, draws, n_jobs=n_jobs)
    return mean, variance


def mixture_moments(
    model: Model, draws: Draws, X: Array, *, observed: bool = False, n_jobs: int | None = None
) -> tuple[Array, Array]:
    """Mean and variance at each new input, averaged over the draws.

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `latent_moments`.
    observed : bool, default=False
        Of new observations, noise included, instead of the latent function.

    Returns
    -------
    mean, variance : ndarrays of shape (m,), or (m, C) as above
        The variance is that of the mixture: the mean of the variances plus the variance of the means.
    """
    mean, between, within = summarise(_MixtureMoments(X, observed), model, draws, n_jobs=n_jobs)
    return mean, (between + within) / WeightedDraws.of(draws).total


def quantiles(
    model: Model,
    draws: Draws,
    X: Array,
    q: Array,
    *,
    observed: bool = True,
    links: mixture.Links | None = None,
    n_jobs: int | None = None,
) -> Array:
    """Quantiles of new observations, or of the latent function, under the mixture over draws.

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `latent_moments`.
    q : ndarray of shape (k,)
        Probabilities, strictly between 0 and 1.
    observed : bool, default=True
        Of new observations, noise included, instead of the latent function.
    links : Links, optional
        Quantiles are of the values of these functions, one for each draw.

    Returns
    -------
    ndarray of shape (k, m), or (k, m, C) as above
    """
    latents, weight = latent_shape(model), WeightedDraws.of(draws).weight
    moments = observed_moments if observed else latent_moments
    out = np.empty((len(q), len(X), *latents))
    numbers = 4 * len(draws) * int(np.prod(latents))  # mean and variance, in results of groups and merged
    for rows in slices(len(X), max(over_draws.HELD_BYTES // (8 * numbers), 1)):
        # (a name for the moments would keep them until those of the next block are there)
        out[:, rows] = mixture.quantiles(q, *moments(model, draws, X[rows], n_jobs=n_jobs), weight, links)
    return out


def log_density(model: Model, draws: Draws, X: Array, y: Array, *, n_jobs: int | None = None) -> Array:
    """Log density of new observations under the mixture over draws, of shape (m,).

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `latent_moments`.
    y : ndarray of shape (m,) or (m, C)
        Columns of targets are independent given the hyperparameters, and the density is the joint one.
    """
    return summarise(_LogDensity(X, y), model, draws, n_jobs=n_jobs) - np.log(WeightedDraws.of(draws).total)


def joint_log_density(model: Model, draws: Draws, X: Array, y: Array, *, n_jobs: int | None = None) -> Array:
    """Log density of groups of correlated observations under the mixture over draws, of shape (g,).

    Parameters
    ----------
    model, draws, n_jobs
        As of `latent_moments`.
    X : ndarray of shape (g size, d)
        A group is `size` consecutive rows.
    y : ndarray of shape (g, size)
        NaN is integrated out.
    """
    return summarise(_JointLogDensity(X, y), model, draws, n_jobs=n_jobs) - np.log(WeightedDraws.of(draws).total)


def observed_jointly(model: Model, draws: Draws, X: Array) -> Iterator[tuple[Array, Array]]:
    """Yield mean, of shape (m,) or (m, k), and covariance (m, m) of new observations, noise included, for each draw."""
    for theta in WeightedDraws.of(draws).theta:
        kernel, evidence = model.posterior(theta)
        yield _observed_jointly(model, kernel, evidence, model.likelihood_at(theta), X)


# -- statistics ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ProbabilitySums(Statistic):
    """Sums over draws of the probabilities of the classes, of shape (C, m)."""

    X: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return model.likelihood.count(model.y), len(self.X)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        for rows, p in class_probabilities(draw, self.X):
            out[:, rows] += draw.weight * p

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out += part


@dataclass(frozen=True)
class _Probabilities(Statistic):
    """Probabilities of the classes for each draw, of shape (S, m, C)."""

    X: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, len(self.X), model.likelihood.count(model.y)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        for rows, p in class_probabilities(draw, self.X):
            out[draw.index, rows] = p.T


@dataclass(frozen=True)
class _Moments(Statistic):
    """Means and variances for each draw, of shape (2, S, m, ...)."""

    X: Array
    observed: bool

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return 2, n_draws, len(self.X), *latent_shape(model)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        for rows, mean, variance in _marginals(draw, self.X, observed=self.observed):
            out[:, draw.index, rows] = mean, variance

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out[:, group.rows] = part


@dataclass(frozen=True)
class _MixtureMoments(Statistic):
    """Mean of the means, their scatter, and sum of the variances, of shape (3, m, ...)."""

    X: Array
    observed: bool

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return 3, len(self.X), *latent_shape(model)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        for rows, mean, variance in _marginals(draw, self.X, observed=self.observed):
            moments = mean, 0.0, draw.weight * variance
            mixture.merge(out[:, rows], draw.weight_before, moments, draw.weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        mixture.merge(out, group.weight_before, part, group.weight)


@dataclass(frozen=True)
class _LogDensity(Statistic):
    """Logarithm of the sum over draws of the densities of observations, of shape (m,)."""

    X: Array
    y: Array
    fill: ClassVar[float] = -np.inf

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return (len(self.y),)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        for rows, mean, variance in _marginals(draw, self.X, observed=True):
            log_p = mixture.log_densities(self.y[rows], mean, variance).reshape(len(mean), -1).sum(axis=1)
            out[rows] = np.logaddexp(out[rows], log_p + draw.log_weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        np.logaddexp(out, part, out=out)


@dataclass(frozen=True)
class _JointLogDensity(_LogDensity):
    """Logarithm of the sum over draws of the joint densities of groups of observations, of shape (g,)."""

    def update(self, out: Array, draw: SolvedDraw) -> None:
        g, size = self.y.shape
        for groups in slices(g, max(JOINT_ROWS // size, 1)):
            rows, k = slice(groups.start * size, groups.stop * size), groups.stop - groups.start
            mean, covariance = _observed_jointly(draw.model, draw.kernel, draw.evidence, draw.likelihood, self.X[rows])
            within = np.einsum("iaib->iab", covariance.reshape(k, size, k, size))
            log_p = mixture.joint_log_density(self.y[groups], mean.reshape(k, size), within)
            out[groups] = np.logaddexp(out[groups], log_p + draw.log_weight)


# -- one draw --------------------------------------------------------------------------------------------------------


def latent_blocks(draw: SolvedDraw, X: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Yield rows, latent mean and latent variance for every block of new inputs."""
    for rows in _blocks(draw.model, len(X)):
        yield rows, *latent_gaussian(draw, X[rows])


def class_probabilities(draw: SolvedDraw, X: Array) -> Iterator[tuple[slice, Array]]:
    """Yield rows and probabilities of the classes, of shape (C, m), for every block of new inputs."""
    posterior = draw.evidence.posterior
    if isinstance(posterior, SupportsLatentMixture):
        for rows in _blocks(draw.model, len(X), 6 * posterior.n_points):  # means, probabilities, and what makes them
            yield rows, mean_class_probabilities(draw, posterior, X[rows])
    else:
        for rows, mean, variance in latent_blocks(draw, X):
            yield rows, draw.likelihood.class_probabilities(mean, variance)


def _marginals(draw: SolvedDraw, X: Array, *, observed: bool) -> Iterator[tuple[slice, Array, Array]]:
    """Yield rows, mean and variance of each latent value, or of each observation, for every block of new inputs."""
    for rows, mean, between in latent_blocks(draw, X):
        variance = _variances(between, mean)
        if observed:  # noise belongs to a row, whatever its columns
            variance = (variance.T + _noisy(draw.likelihood).noise_at(X[rows])).T
        yield rows, mean, variance


def _blocks(model: Model, m: int, more: int = 0) -> list[slice]:
    """Blocks of m new inputs in BLOCK_BYTES, `more` numbers for each beside its covariances and moments."""
    n_latents = int(np.prod(latent_shape(model)))
    cross = 2 * n_latents * len(model.X)  # the cross-covariance and its solve
    moments = 16 + 8 * n_latents**2
    return slices(m, max(BLOCK_BYTES // (8 * (cross + moments + more)), 1))


def _variances(variance: Array, mean: Array) -> Array:
    """Variances of the latent values, in the shape of the mean; from covariances between classes, of (m, C, C)."""
    if variance.ndim == 3:
        return np.diagonal(variance, axis1=1, axis2=2)
    return variance if variance.shape == mean.shape else np.broadcast_to(variance[:, None], mean.shape)


def _noisy(likelihood: Likelihood) -> NoisyNumbers:
    if not isinstance(likelihood, NoisyNumbers):
        raise InvalidInput(f"observations of {type(likelihood).__name__} are labels: ask for their probabilities.")
    return likelihood


def _observed_jointly(
    model: Model, kernel: Kernel, evidence: Evidence, likelihood: Likelihood, X: Array
) -> tuple[Array, Array]:
    noise = _noisy(likelihood).noise_at(X)
    mean, covariance = latent_jointly(model, kernel, evidence, X)
    covariance.flat[:: len(X) + 1] += noise
    return mean, covariance
