"""Predictions of one draw at many new inputs, block by block.

A worker holds, beside the matrices of its draw, at most about BLOCK_BYTES of cross-covariances and the moments computed
from them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import SupportsLatentMixture
from hmcgp.likelihoods import Likelihood, NoisyNumbers
from hmcgp.model import Model
from hmcgp.posterior.over_draws import PredictingDraw, SolvedDraw, latent_shape, slices
from hmcgp.posterior.predictors import AnyPredictor, PosteriorPredictor, latent_gaussian, mean_class_probabilities
from hmcgp.runtime.typing import Array

BLOCK_BYTES = 8 * 2**20  # of work space for a block of new inputs, for each worker: larger arrays leave the cache


def latent_blocks(draw: SolvedDraw | PredictingDraw, X: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Yield rows, latent mean and latent variance for every block of new inputs."""
    found = draw.predictor
    for rows in blocks(draw.model, found, len(X)):
        yield rows, *latent_gaussian(found, X[rows])


def class_probabilities(draw: SolvedDraw | PredictingDraw, X: Array) -> Iterator[tuple[slice, Array]]:
    """Yield rows and probabilities of the classes, of shape (C, m), for every block of new inputs."""
    found = draw.predictor
    if isinstance(found, PosteriorPredictor) and isinstance(found.posterior, SupportsLatentMixture):
        more = 6 * found.posterior.n_points  # means, probabilities, and what makes them
        for rows in blocks(draw.model, found, len(X), more):
            yield rows, mean_class_probabilities(found, found.posterior, X[rows])
    else:
        for rows in blocks(draw.model, found, len(X)):
            yield rows, found.likelihood.class_probabilities(*latent_gaussian(found, X[rows]))


def marginals(draw: PredictingDraw, X: Array, *, observed: bool) -> Iterator[tuple[slice, Array, Array]]:
    """Yield rows, mean and variance of each latent value, or of each observation, for every block of new inputs."""
    for rows, mean, between in latent_blocks(draw, X):
        variance = _variances(between, mean)
        if observed:  # noise belongs to a row, whatever its columns
            variance = (variance.T + noisy(draw.predictor.likelihood).noise_at(X[rows])).T
        yield rows, mean, variance


def blocks(model: Model, found: AnyPredictor, m: int, more: int = 0) -> list[slice]:
    """Blocks of m new inputs in BLOCK_BYTES, `more` numbers for each beside its covariances and moments."""
    n_latents = int(np.prod(latent_shape(model)))
    cross = 2 * n_latents * len(found.X)  # the cross-covariance and its product
    moments = 16 + 8 * n_latents**2
    return slices(m, max(BLOCK_BYTES // (8 * (cross + moments + more)), 1))


def noisy(likelihood: Likelihood) -> NoisyNumbers:
    """Return the likelihood if its observations are numbers with noise; refuse others."""
    if not isinstance(likelihood, NoisyNumbers):
        raise InvalidInput(f"observations of {type(likelihood).__name__} are labels: ask for their probabilities.")
    return likelihood


def _variances(variance: Array, mean: Array) -> Array:
    """Variances of the latent values, in the shape of the mean; from covariances between classes, of (m, C, C)."""
    if variance.ndim == 3:
        return np.diagonal(variance, axis1=1, axis2=2)
    return variance if variance.shape == mean.shape else np.broadcast_to(variance[:, None], mean.shape)
