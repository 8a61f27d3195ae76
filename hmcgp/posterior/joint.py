"""Posterior samples of the latent function at several new inputs together, and of the probabilities that they give.

For each draw of the hyperparameters the latent values at m new inputs are Gaussian, with a covariance of all of them:
m x m numbers, or Cm x Cm for C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import Evidence, SupportsJointPrediction
from hmcgp.kernels import Kernel, contract
from hmcgp.model import Model
from hmcgp.posterior.over_draws import SolvedDraw, Statistic, latent_shape, summarise
from hmcgp.posterior.weights import Draws, WeightedDraws, resampled
from hmcgp.runtime.interrupts import defer_interrupts
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array

_JITTER = 1e-10  # of the largest variance, on the diagonal of a covariance that rounding may leave indefinite


@defer_interrupts
def latent_jointly(model: Model, kernel: Kernel, evidence: Evidence, X: Array) -> tuple[Array, Array]:
    """Latent mean and covariance at new inputs for one draw (see `SupportsJointPrediction`)."""
    if not isinstance(evidence.posterior, SupportsJointPrediction):
        raise InvalidInput(
            f"{type(model.evidence).__name__} predicts no covariances between new inputs, and so no joint samples: ask "
            "for predictions of single rows, or fit with another 'evidence' or 'refine'."
        )
    K_cross, K_new = contract.cross_covariance(kernel, model.support, X), contract.covariance(kernel, X)
    return evidence.posterior.predict_jointly(K_cross, K_new)


def probability_samples(
    model: Model, draws: Draws, X: Array, random_state: RandomStateLike = None, *, n_jobs: int | None = None
) -> Array:
    """Samples of the probabilities of the classes at all new inputs jointly, of shape (S, m, C).

    There are as many samples as draws, and all count the same: draws that carry weights are resampled, so that one of
    weight 2 has about two samples, with a latent function each.
    """
    draws = WeightedDraws.of(draws)
    chosen = resampled(draws.weight)
    kept = None if draws.kept is None else draws.kept.part("resampled")
    equal = WeightedDraws(draws.theta[chosen], np.ones(len(chosen)), kept, draws.progressbar)
    normals = as_generator(random_state).standard_normal((len(chosen), len(X), *latent_shape(model)))
    return summarise(_ProbabilitySamples(X, normals), model, equal, n_jobs=n_jobs)


@dataclass(frozen=True)
class _ProbabilitySamples(Statistic):
    """Probabilities of the classes given a sample of the latent function for each draw, of shape (S, m, C)."""

    X: Array
    normals: Array  # (S, m), or (S, m, C)
    keeps: ClassVar[bool] = True

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, len(self.X), model.likelihood.count(model.y)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        mean, covariance = latent_jointly(draw.model, draw.kernel, draw.evidence, self.X)
        z = self.normals[draw.number]
        f = mean + (covariance_root(covariance.reshape(mean.size, mean.size)) @ z.ravel()).reshape(mean.shape)
        out[draw.index] = draw.likelihood.probabilities_given(f)


def covariance_root(covariance: Array) -> Array:
    """Return A with A A' = covariance, up to rounding."""
    variances = np.diag(covariance)
    try:
        return np.linalg.cholesky(covariance + _JITTER * max(variances.max(initial=0.0), 0.0) * np.eye(len(variances)))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
