"""Posterior of the latent values as weighted samples around the Gaussian of expectation propagation.

Samples are f_j = m + A z_j with weights ρ_j.  Given f_j, the latent value at a new input follows the prior, whatever
was observed.  In terms of EP's predictions N(μ, σ²) there, with R = (K + diag(w)⁻¹)⁻¹,

    c = cov_q(f, f*) = k* - K R k*,   A g = c,   f* | f_j ~ N(μ + g'z_j, σ² - |g|²),

so that the posterior of f* is a mixture of Gaussians of one variance, with the weights ρ_j.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsymm

from hmcgp.evidence.ep.binary import SitePosterior
from hmcgp.evidence.sampled.estimate import Root
from hmcgp.evidence.status import needs_factor
from hmcgp.runtime.typing import Array

_ROWS = 1024  # new inputs whose mixtures `predict` holds at once


@dataclass(frozen=True)
class SampledPosterior:
    """Weighted samples f_j = m + A z_j of the latent values, and how well they estimate the evidence."""

    ep: SitePosterior  # N(m, S)
    K: Array  # (n, n), of which the lower triangle is read
    root: Root  # A
    z: Array  # (J, r)
    weights: Array  # (J,), with sum 1
    standard_error: float  # of log Z
    pareto_k: float  # shape of the tail of the weights
    n_samples: int  # from which log Z was estimated

    @property
    def start(self) -> Array:
        """The sites of EP."""
        return self.ep.start

    @property
    def n_points(self) -> int:
        """Components of the mixtures of `predict_mixture`."""
        return len(self.weights)

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The sites of EP, those of the new rows 0."""
        return self.ep.start_with(mean, variance)

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value, each of shape (n,): those of EP."""
        return self.ep.cavity()

    def predict_mixture(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array, Array]:
        """Weights, means and variance of the mixture at new inputs (see `SupportsLatentMixture`)."""
        mean, variance = self.ep.predict(K_cross, k_diag)
        solved = needs_factor(self.ep.R, "to predict") @ K_cross
        C = K_cross - dsymm(1.0, self.K.T, solved, lower=0)  # the upper triangle of K' is the lower one of K
        g = self.root.solve(C)  # (r, m)
        return self.weights, mean + self.z @ g, np.maximum(variance - np.einsum("rm,rm->m", g, g), 0.0)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean and variance at new inputs: those of the mixture."""
        mean, variance = np.empty(len(k_diag)), np.empty(len(k_diag))
        for begin in range(0, len(k_diag), _ROWS):
            rows = slice(begin, begin + _ROWS)
            weights, means, within = self.predict_mixture(K_cross[:, rows], k_diag[rows])
            mean[rows] = weights @ means
            variance[rows] = within + weights @ (means - mean[rows]) ** 2
        return mean, variance
