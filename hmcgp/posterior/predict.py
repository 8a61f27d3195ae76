"""Predictions at new inputs: latent moments for each draw of the hyperparameters, and averages over the draws.

    p(y* = 1 | y) = Σ_s w_s ∫ p(y* = 1 | f*) N(f*; μ_s, σ²_s) df*,     μ_s = k*'α_s,  σ²_s = k** - k*'R_s k*

The weights w_s sum to 1; they are equal unless the draws carry others (`weights`).
With several classes f* has a component for each, μ_s as many, and σ²_s is their covariance.  Where the latent
posterior is a weighted sample instead of a Gaussian (`SupportsLatentMixture`), N(f*; μ_s, σ²_s) becomes the mixture.

One factorisation serves all new inputs of a draw, and later calls too where there is memory to keep what it gave
(`kept`).  New inputs come in blocks (`row_blocks`).

Memory does not grow with draws times inputs.  Averages (means, variances, probabilities, log densities) solve each draw
once, are updated draw by draw, and hold a few numbers for each new input (`over_draws`).  Quantiles need all draws of a
new input at once: inputs come in blocks whose values are held in HELD_BYTES, and every draw is solved again for every
block.  That is one block up to 16,000 inputs with 500 draws; beyond, a factorisation of n³/3 operations is little
beside the n² operations for each of the inputs of a block.  Functions that return values for each draw hold them once,
and HELD_BYTES or a group per worker beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.evidence import Evidence, LatentSampling
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood, Logistic, Probit
from hmcgp.model import Model
from hmcgp.posterior import mixture, over_draws
from hmcgp.posterior.joint import latent_jointly
from hmcgp.posterior.over_draws import (
    Group,
    Kept,
    SolvedDraw,
    Statistic,
    latent_shape,
    posterior_of,
    slices,
    summarise,
)
from hmcgp.posterior.packed import packed_moments
from hmcgp.posterior.prediction_statistics import (
    LogDensity,
    MeanSums,
    MixtureMoments,
    Moments,
    Probabilities,
    ProbabilitySums,
)
from hmcgp.posterior.predictors import refuse_overflow
from hmcgp.posterior.reduction import sample_rows, sufficient_size
from hmcgp.posterior.row_blocks import noisy
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.parallel import run_tasks
from hmcgp.runtime.typing import Array

SMALL = 2**13  # moments, of rows times draws, that are held at once without a thought
PROBABILITY_ERROR = 2e-3  # by reduced predictors, at the rows that are compared
VARIANCE_ERROR = 1e-2  # as above, relative
JOINT_ROWS = 64  # rows whose covariances are computed at once, although those within groups suffice


# -- averages over draws ---------------------------------------------------------------------------------------------


def probabilities(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes averaged over the draws, of shape (m, C), with C = 2 for labels -1 and +1.

    Of two classes, both are right in relative terms, however small.  Of more, rows sum to 1 exactly.  Where there are
    thousands of rows, those of two classes are within about PROBABILITY_ERROR of this average (`reduction`).
    """
    draws = WeightedDraws.of(draws)
    if _is_small(model, draws, X):
        moments = _kept_moments(model, draws, X)
        if moments is None:
            moments = summarise(Moments(X, observed=False), model, draws, n_jobs=n_jobs)
        p = model.likelihood.class_probabilities(moments[0], moments[1])  # (2, S, m)
        return model.likelihood.normalised(np.tensordot(p, draws.weight, (1, 0)).T)
    size, sample = None, sample_rows(model, X)
    if sample is not None:
        full = summarise(ProbabilitySums(sample), model, draws, n_jobs=n_jobs)

        def largest_error(size: int) -> float:
            some = summarise(ProbabilitySums(sample, size), model, draws, n_jobs=n_jobs)
            return float(np.abs(some - full).max()) / draws.total

        size = sufficient_size(model, largest_error, PROBABILITY_ERROR)
    return model.likelihood.normalised(summarise(ProbabilitySums(X, size), model, draws, n_jobs=n_jobs).T)


def _is_small(model: Model, draws: WeightedDraws, X: Array) -> bool:
    """Whether the moments of all draws are little to hold, and a probability follows from them by the same function."""
    few = len(X) * len(draws) <= SMALL
    return few and isinstance(model.likelihood, Logistic | Probit) and not isinstance(model.evidence, LatentSampling)


def _kept_moments(model: Model, draws: WeightedDraws, X: Array) -> Array | None:
    """Latent moments of all draws, of shape (2, S, m), if predictors of all are kept; else None."""
    if draws.kept is None or not draws.kept.belongs_to(model):
        return None
    moments = packed_moments(draws.kept, len(draws), X)
    if moments is not None:
        return moments
    known = draws.kept.all_of(len(draws))
    return None if known is None else np.asarray(run_tasks([(_moments_of, (known, X))], 1)[0])


def _moments_of(known: list[Kept], X: Array) -> Array:
    out = np.empty((2, len(known), len(X)))
    with np.errstate(over="ignore", invalid="ignore"):
        for s, one in enumerate(known):
            out[0, s], out[1, s] = one.predictor.latent(X)
    refuse_overflow(X, out[0].T, out[1].T)
    return out


def mean(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> Array:
    """Latent mean at each new input, averaged over the draws, of shape (m,), or (m, C): n operations for each."""
    return summarise(MeanSums(X), model, draws, n_jobs=n_jobs) / WeightedDraws.of(draws).total


def probabilities_per_draw(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> Array:
    """Probabilities of the classes for each draw, of shape (S, m, C)."""
    return summarise(Probabilities(X), model, draws, n_jobs=n_jobs)


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
    mean, variance = summarise(Moments(X, observed=False), model, draws, n_jobs=n_jobs)
    return mean, variance


def observed_moments(model: Model, draws: Draws, X: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of a new observation, noise included: as of `latent_moments`."""
    mean, variance = summarise(Moments(X, observed=True), model, draws, n_jobs=n_jobs)
    return mean, variance


def mixture_moments(
    model: Model,
    draws: Draws,
    X: Array,
    *,
    observed: bool = False,
    n_jobs: int | None = None,
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
        The variance is that of the mixture: the mean of the variances plus the variance of the means.  Where there are
        thousands of rows, it is within about VARIANCE_ERROR of it, relatively (`reduction`).
    """
    size, sample = None, sample_rows(model, X)
    if sample is not None:
        _, between, within = summarise(MixtureMoments(sample, observed), model, draws, n_jobs=n_jobs)
        full = between + within

        def largest_error(size: int) -> float:
            _, between, within = summarise(MixtureMoments(sample, observed, size), model, draws, n_jobs=n_jobs)
            return float(np.max(np.abs(between + within - full) / np.maximum(full, np.finfo(float).tiny)))

        size = sufficient_size(model, largest_error, VARIANCE_ERROR)
    mean, between, within = summarise(MixtureMoments(X, observed, size), model, draws, n_jobs=n_jobs)
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
    return summarise(LogDensity(X, y), model, draws, n_jobs=n_jobs) - np.log(WeightedDraws.of(draws).total)


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


def observed_jointly(
    model: Model, draws: Draws, X: Array, some: Iterable[int] | None = None
) -> Iterator[tuple[Array, Array]]:
    """Yield mean, of shape (m,) or (m, k), and covariance (m, m) of new observations, noise included, for each draw.

    With `some`, for those of these numbers.
    """
    draws = WeightedDraws.of(draws)
    for s in range(len(draws)) if some is None else some:
        kernel, evidence = posterior_of(model, draws, s)
        yield _observed_jointly(model, kernel, evidence, model.likelihood_at(draws.theta[s]), X)


@dataclass(frozen=True)
class _JointLogDensity(Statistic):
    """Logarithm of the sum over draws of the joint densities of groups of observations, of shape (g,)."""

    X: Array
    y: Array
    fill: ClassVar[float] = -np.inf
    keeps: ClassVar[bool] = True

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return (len(self.y),)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        g, size = self.y.shape
        for groups in slices(g, max(JOINT_ROWS // size, 1)):
            rows, k = slice(groups.start * size, groups.stop * size), groups.stop - groups.start
            mean, covariance = _observed_jointly(draw.model, draw.kernel, draw.evidence, draw.likelihood, self.X[rows])
            within = np.einsum("iaib->iab", covariance.reshape(k, size, k, size))
            log_p = mixture.joint_log_density(self.y[groups], mean.reshape(k, size), within)
            out[groups] = np.logaddexp(out[groups], log_p + draw.log_weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        np.logaddexp(out, part, out=out)


def _observed_jointly(
    model: Model, kernel: Kernel, evidence: Evidence, likelihood: Likelihood, X: Array
) -> tuple[Array, Array]:
    noise = noisy(likelihood).noise_at(X)
    mean, covariance = latent_jointly(model, kernel, evidence, X)
    covariance.flat[:: len(X) + 1] += noise
    return mean, covariance
