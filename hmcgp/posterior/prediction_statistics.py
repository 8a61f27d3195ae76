"""Arrays that predictions of all draws are collected in, or added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.model import Model
from hmcgp.posterior import mixture
from hmcgp.posterior.over_draws import Group, PredictingDraw, Prediction, latent_shape
from hmcgp.posterior.predictors import latent_mean
from hmcgp.posterior.row_blocks import blocks, class_probabilities, marginals
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class ProbabilitySums(Prediction):
    """Sums over draws of the probabilities of the classes, of shape (C, m)."""

    X: Array
    size: int | None = None  # training rows that variances come from, if not all

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return model.likelihood.count(model.y), len(self.X)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows, p in class_probabilities(draw.reduced(self.size), self.X):
            out[:, rows] += draw.weight * p

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out += part


@dataclass(frozen=True)
class MeanSums(Prediction):
    """Sums over draws of the latent means, of shape (m, ...)."""

    X: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return len(self.X), *latent_shape(model)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows in blocks(draw.model, draw.predictor, len(self.X)):
            out[rows] += draw.weight * latent_mean(draw.predictor, self.X[rows])

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out += part


@dataclass(frozen=True)
class Probabilities(Prediction):
    """Probabilities of the classes for each draw, of shape (S, m, C)."""

    X: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, len(self.X), model.likelihood.count(model.y)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows, p in class_probabilities(draw, self.X):
            out[draw.index, rows] = p.T


@dataclass(frozen=True)
class Moments(Prediction):
    """Means and variances for each draw, of shape (2, S, m, ...)."""

    X: Array
    observed: bool

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return 2, n_draws, len(self.X), *latent_shape(model)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows, mean, variance in marginals(draw, self.X, observed=self.observed):
            out[:, draw.index, rows] = mean, variance

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out[:, group.rows] = part


@dataclass(frozen=True)
class MixtureMoments(Prediction):
    """Mean of the means, their scatter, and sum of the variances, of shape (3, m, ...)."""

    X: Array
    observed: bool
    size: int | None = None  # training rows that variances come from, if not all

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return 3, len(self.X), *latent_shape(model)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows, mean, variance in marginals(draw.reduced(self.size), self.X, observed=self.observed):
            moments = mean, 0.0, draw.weight * variance
            mixture.merge(out[:, rows], draw.weight_before, moments, draw.weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        mixture.merge(out, group.weight_before, part, group.weight)


@dataclass(frozen=True)
class LogDensity(Prediction):
    """Logarithm of the sum over draws of the densities of observations, of shape (m,)."""

    X: Array
    y: Array
    fill: ClassVar[float] = -np.inf

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return (len(self.y),)

    def update(self, out: Array, draw: PredictingDraw) -> None:
        for rows, mean, variance in marginals(draw, self.X, observed=True):
            log_p = mixture.log_densities(self.y[rows], mean, variance).reshape(len(mean), -1).sum(axis=1)
            out[rows] = np.logaddexp(out[rows], log_p + draw.log_weight)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        np.logaddexp(out, part, out=out)
