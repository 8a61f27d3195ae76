"""Targets drawn anew at the training rows, one table for each draw of the hyperparameters: posterior predictive checks.

Numbers are drawn jointly, as one realisation of the latent function and its noise:

    y_rep ~ N(m, V + S),     m, V = mean and covariance of f given y and θ,   S = diag(noise of each row).

Labels are drawn row by row from their probabilities given y and θ: their errors are independent given θ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.evidence import SupportsJointPrediction
from hmcgp.kernels import contract
from hmcgp.likelihoods import NoisyNumbers
from hmcgp.model import Model
from hmcgp.posterior import predict
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array


def replicated_codes(
    rng: np.random.Generator, model: Model, draws: Draws, *, n_jobs: int | None = None
) -> NDArray[np.intp]:
    """Positions of labels among the classes, of shape (S, n)."""
    upper = np.cumsum(predict.probabilities_per_draw(model, draws, model.X, n_jobs=n_jobs), axis=2)  # (S, n, C)
    where = rng.random(upper.shape[:2]) * upper[:, :, -1]
    return np.minimum(np.sum(where[:, :, None] >= upper, axis=2), upper.shape[2] - 1)


def replicated_numbers(rng: np.random.Generator, model: Model, draws: Draws) -> Array:
    """Numbers on the scale of the model, of shape (S, n), or (S, n, k) for k columns of targets."""
    thetas = WeightedDraws.of(draws).theta
    out = np.empty((len(thetas), *model.y.shape))
    for theta, y in zip(thetas, out, strict=True):
        kernel, evidence = model.posterior(theta)
        likelihood = model.likelihood_at(theta)
        if not (isinstance(evidence.posterior, SupportsJointPrediction) and isinstance(likelihood, NoisyNumbers)):
            raise InvalidInput(f"{type(model.evidence).__name__} predicts no covariances between rows.")
        K = contract.covariance(kernel, model.X)
        cross = K if model.inducing is None else contract.cross_covariance(kernel, model.inducing, model.X)
        mean, covariance = evidence.posterior.predict_jointly(cross, K.copy())
        covariance.flat[:: len(mean) + 1] += likelihood.row_noise(len(mean))
        y[...] = mean + _centred(rng, covariance, int(np.prod(model.y.shape[1:]))).reshape(mean.shape)
    return out


def _centred(rng: np.random.Generator, covariance: Array, k: int) -> Array:
    """Draws of N(0, covariance) as k columns."""
    zero = np.zeros(len(covariance))
    return rng.multivariate_normal(zero, covariance, size=k, check_valid="ignore", method="eigh").T
