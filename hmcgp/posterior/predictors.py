"""Latent predictions of one draw of the hyperparameters as a function of new inputs.

A predictor is all that predictions need of a draw: training inputs, the kernel and the likelihood with their values,
and the latent posterior, as matrices to multiply with where it allows (`hmcgp.evidence.products`), or itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import Evidence, Posterior, SupportsLatentMixture
from hmcgp.evidence.products import LatentProducts, SupportsProducts
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import LabelNoise, Likelihood, Logistic, Probit
from hmcgp.model import Model
from hmcgp.runtime.typing import Array


@dataclass(frozen=True, eq=False)
class Predictor:
    """Latent mean and variance as functions of new inputs, by products."""

    kernel: Kernel  # with every parameter a number
    likelihood: Likelihood  # with every parameter a number
    X: Array  # (n, d) inputs that k is of
    products: LatentProducts

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Latent mean and variance at new inputs, unchecked (see `latent_gaussian`)."""
        # with the new inputs first, one of them makes a vector and not n rows of one number
        return self.products.predict_rows(
            contract.cross_covariance(self.kernel, X, self.X), contract.variances(self.kernel, X)
        )

    def latent_mean(self, X: Array) -> Array:
        """Latent mean at new inputs, unchecked, in n operations for each."""
        return self.products.mean_of_rows(contract.cross_covariance(self.kernel, X, self.X))


@dataclass(frozen=True, eq=False)
class PosteriorPredictor:
    """Latent mean and variance as functions of new inputs, by the posterior of the latent values."""

    kernel: Kernel
    likelihood: Likelihood
    X: Array
    posterior: Posterior

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Latent mean and variance at new inputs, unchecked (see `latent_gaussian`)."""
        return self.posterior.predict(*self.covariances(X))

    def latent_mean(self, X: Array) -> Array:
        """Latent mean at new inputs, unchecked."""
        return self.latent(X)[0]

    def covariances(self, X: Array) -> tuple[Array, Array]:
        """Prior covariances between training and new inputs, and prior variances at the new ones."""
        return contract.cross_covariance(self.kernel, self.X, X), contract.variances(self.kernel, X)


AnyPredictor = Predictor | PosteriorPredictor


def predictor(model: Model, theta: Array, kernel: Kernel, evidence: Evidence) -> AnyPredictor:
    """Predictor of a draw, from its kernel and evidence (`Model.posterior`)."""
    posterior, likelihood = evidence.posterior, model.likelihood_at(theta)
    if not isinstance(posterior, SupportsProducts):
        return PosteriorPredictor(kernel, likelihood, model.support, posterior)
    products = posterior.products()
    variances = contract.variances(kernel, model.support)
    # elsewhere than at the training inputs, only a variance that is the same everywhere is known
    if _is_smooth(likelihood) and np.ptp(variances) == 0.0:
        products = products.in_single(float(variances[0]))
    return Predictor(kernel, likelihood, model.support, products)


def _is_smooth(likelihood: Likelihood) -> bool:
    """True if probabilities change with the latent variance as the bound on float32 assumes."""
    if isinstance(likelihood, LabelNoise):
        return likelihood.link == "probit"
    return isinstance(likelihood, Logistic | Probit)


def latent_gaussian(found: AnyPredictor, X: Array) -> tuple[Array, Array]:
    """Latent mean and variance at new inputs (see `Posterior.predict`), which must be finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = found.latent(X)
    refuse_overflow(X, mean, variance)
    return mean, variance


def latent_mean(found: AnyPredictor, X: Array) -> Array:
    """Latent mean at new inputs, which must be finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = found.latent_mean(X)
    refuse_overflow(X, mean)
    return mean


def mean_class_probabilities(found: PosteriorPredictor, posterior: SupportsLatentMixture, X: Array) -> Array:
    """Probabilities of the classes averaged over a latent mixture (`SupportsLatentMixture`), of shape (C, m)."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights, means, variance = posterior.predict_mixture(*found.covariances(X))
    refuse_overflow(X, means.T, variance)
    return np.tensordot(weights, found.likelihood.class_probabilities(means, variance), (0, 1))


def refuse_overflow(X: Array, *values: Array) -> None:
    """Raise InvalidInput unless all values are finite; their first axis is that of the rows of X."""
    if all(np.isfinite(part).all() for part in values):
        return
    finite = np.all([np.isfinite(part).reshape(len(X), -1).all(axis=1) for part in values], axis=0)
    raise InvalidInput(
        f"the covariance overflows at a new input whose standardised values are {X[np.argmin(finite)].tolist()}: "
        "it lies too far from the training inputs. Check the units of that row."
    )
