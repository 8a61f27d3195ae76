"""Latent predictions of one draw of the hyperparameters at new inputs: a Gaussian, or a mixture of Gaussians."""

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import SupportsLatentMixture
from hmcgp.kernels import contract
from hmcgp.posterior.over_draws import SolvedDraw
from hmcgp.runtime.typing import Array


def latent_gaussian(draw: SolvedDraw, X: Array) -> tuple[Array, Array]:
    """Latent mean and variance at new inputs (see `Posterior.predict`)."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = draw.evidence.posterior.predict(*_covariances(draw, X))
    _refuse_overflow(X, mean, variance)
    return mean, variance


def mean_class_probabilities(draw: SolvedDraw, posterior: SupportsLatentMixture, X: Array) -> Array:
    """Probabilities of the classes averaged over a latent mixture (`SupportsLatentMixture`), of shape (C, m)."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights, means, variance = posterior.predict_mixture(*_covariances(draw, X))
    _refuse_overflow(X, means.T, variance)
    return np.tensordot(weights, draw.likelihood.class_probabilities(means, variance), (0, 1))


def _covariances(draw: SolvedDraw, X: Array) -> tuple[Array, Array]:
    return contract.cross_covariance(draw.kernel, draw.model.X, X), contract.variances(draw.kernel, X)


def _refuse_overflow(X: Array, *values: Array) -> None:
    """Raise InvalidInput unless all values are finite; their first axis is that of the rows of X."""
    if all(np.isfinite(part).all() for part in values):
        return
    finite = np.all([np.isfinite(part).reshape(len(X), -1).all(axis=1) for part in values], axis=0)
    raise InvalidInput(
        f"the covariance overflows at a new input whose standardised values are {X[np.argmin(finite)].tolist()}: "
        "it lies too far from the training inputs. Check the units of that row."
    )
