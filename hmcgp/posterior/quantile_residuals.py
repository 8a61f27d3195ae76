"""Predictive distributions at the observed targets: the probability integral transform, for targets of any kind.

With F the predictive distribution function of row i, averaged over draws of the hyperparameters, observations are
compared by F(y_i) or, where targets are discrete, by a uniform number between P(y* < y_i) and P(y* <= y_i) (randomised
quantile residuals; Dunn & Smyth 1996, JCGS 5).  Where predictions are calibrated, these are uniform.  Classes are in
the order of their codes: any fixed order will do.

Training rows are predicted by all others: by the cavity of each draw, whose weights are those of `leave_one_out`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hmcgp.likelihoods import Counts, Likelihood
from hmcgp.likelihoods.base import distribution_of_classes
from hmcgp.model import Model
from hmcgp.numerics import pareto
from hmcgp.posterior.leave_one_out import cavity_of
from hmcgp.posterior.over_draws import PredictingDraw, Prediction, SolvedDraw, Statistic, summarise
from hmcgp.posterior.row_blocks import class_probabilities, latent_blocks
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array


class PredictiveDistribution(NamedTuple):
    """Predictive mean of each row, and its distribution function below and at the observed target, of shape (n,)."""

    mean: Array
    below: Array  # P(y* < y)
    upto: Array  # P(y* <= y)


def left_out(model: Model, draws: Draws, *, r_eff: float = 1.0, n_jobs: int | None = None) -> PredictiveDistribution:
    """Predictive distribution of each training row given all others, at its target; one output."""
    draws = WeightedDraws.of(draws)
    values = summarise(_LeftOut(), model, draws, n_jobs=n_jobs)  # (S, 4, n)
    share = np.ones((values.shape[2], 1))
    if len(draws) > 1:
        share = np.exp(pareto.smooth((draws.log_weight[:, None] - values[:, 3]).T, r_eff)[0])  # (n, S)
    return PredictiveDistribution(*np.einsum("ns,skn->kn", share, values[:, :3]))


def at_new_rows(
    model: Model, draws: Draws, X: Array, y: Array, sizes: Array | None = None, *, n_jobs: int | None = None
) -> PredictiveDistribution:
    """Predictive distribution of new rows at their targets: classes, ordered classes, counts or one output.

    `sizes` are the exposures or numbers of trials of counts.
    """
    draws = WeightedDraws.of(draws)
    values = summarise(_AtNewRows(X, y, sizes), model, draws, n_jobs=n_jobs)  # (S, 3, m)
    return PredictiveDistribution(*np.average(values, axis=0, weights=draws.weight))


@dataclass(frozen=True)
class _LeftOut(Statistic):
    """Mean and distribution of each row given the others, and what it adds to the log evidence: (S, 4, n)."""

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, 4, len(model.y)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        likelihood, y, moments = draw.likelihood, draw.model.y, cavity_of(draw)
        out[draw.index, 0] = _mean(likelihood, *moments)
        out[draw.index, 1:3] = likelihood.predictive_distribution(y, *moments)
        out[draw.index, 3] = likelihood.log_weighted_average(y, *moments)


@dataclass(frozen=True)
class _AtNewRows(Prediction):
    """Mean and distribution of new rows at their targets, of shape (S, 3, m)."""

    X: Array
    y: Array
    sizes: Array | None

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, 3, len(self.X)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        likelihood: Any = draw.predictor.likelihood
        if likelihood.targets not in ("numbers", "counts"):
            for rows, p in class_probabilities(draw, self.X):
                out[draw.index, 0, rows] = np.arange(len(p)) @ p
                out[draw.index, 1:, rows] = distribution_of_classes(p, likelihood.class_codes(self.y[rows]))
            return
        for rows, mean, variance in latent_blocks(draw, self.X):
            own = likelihood if self.sizes is None else likelihood.at_sizes(self.sizes[rows])
            out[draw.index, 0, rows] = _mean(own, mean, variance)
            out[draw.index, 1:, rows] = own.predictive_distribution(self.y[rows], mean, variance)


def _mean(likelihood: Likelihood, mean: Array, variance: Array) -> Array:
    """Expected target: count, regression target, or position of the class."""
    if isinstance(likelihood, Counts):
        return likelihood.observed_moments(mean, variance, likelihood.sizes(len(mean)))[0]
    if likelihood.targets == "numbers":
        return mean
    p = likelihood.class_probabilities(mean, variance)
    return np.arange(len(p)) @ p
