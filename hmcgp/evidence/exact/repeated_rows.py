"""Weights of numbers with Gaussian noise: rows in other units.

    N(y; f, s)^ω = N(√ω y; √ω f, s) (2πs)^((1 - ω)/2)

so the evidence of weighted rows is that of the targets √ω y under the covariance √ω K √ω, whatever the solver, and

    log Z = log N(√ω y; 0, √ω K √ω + diag s) + ½ Σ (1 - ω_i) log 2πs_i
    ∂ log Z/∂K = √ω G √ω,     ∂ log Z/∂s_i = G_ii + ½ (1 - ω_i)/s_i,     G of the former.
"""

from dataclasses import dataclass, replace

import numpy as np

from hmcgp.evidence.base import Provider
from hmcgp.evidence.exact.posterior import ExactPosterior
from hmcgp.evidence.products import LatentProducts
from hmcgp.evidence.protocols import Evidence, Posterior, SupportsJointPrediction
from hmcgp.likelihoods import NoisyNumbers
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class WeightedPosterior:
    """The posterior of √ω f, seen as that of f."""

    scaled: SupportsJointPrediction  # posterior of √ω f
    root: Array  # (n,) √ω

    @property
    def start(self) -> Array:
        """As of `scaled`."""
        return self.scaled.start

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean and variance at new inputs (see `Posterior.predict`)."""
        return self.scaled.predict(self.root[:, None] * K_cross, k_diag)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean and covariance at new inputs (see `SupportsJointPrediction`)."""
        return self.scaled.predict_jointly(self.root[:, None] * K_cross, K_new)


@dataclass(frozen=True)
class WeightedExactPosterior(WeightedPosterior):
    """A weighted posterior from which rows can be left out."""

    scaled: ExactPosterior

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value, all of its weight left out."""
        mean, variance = self.scaled.cavity()
        return (mean.T / self.root).T, variance / self.root**2

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return replace(self.scaled.products(), scale=self.root)


def weighted_evidence(provider: Provider, K: Array, y: Array, likelihood: NoisyNumbers, *, gradient: bool) -> Evidence:
    """Evidence of rows with weights, by a provider that knows of none; columns of y share the weights, too."""
    weights, noise = likelihood.row_weights(len(y)), likelihood.row_noise(len(y))
    root = np.sqrt(weights)
    both = np.outer(root, root)  # symmetric to the last bit
    columns = y.size // len(y)
    found = provider(both * K, (root * y.T).T, likelihood.weighted(None), gradient=gradient)
    log_z = found.log_z + 0.5 * columns * float((1.0 - weights) @ np.log(2.0 * np.pi * noise))
    posterior = _weighted_posterior(found.posterior, root)
    if found.dK is None:
        return found._replace(log_z=log_z, posterior=posterior)
    dlik = found.dlik + likelihood.pull_back(0.5 * columns * (1.0 - weights) / noise)
    return found._replace(log_z=log_z, dK=both * found.dK, dlik=dlik, posterior=posterior)


def _weighted_posterior(scaled: Posterior, root: Array) -> WeightedPosterior:
    if isinstance(scaled, ExactPosterior):
        return WeightedExactPosterior(scaled, root)
    assert isinstance(scaled, SupportsJointPrediction)
    return WeightedPosterior(scaled, root)
