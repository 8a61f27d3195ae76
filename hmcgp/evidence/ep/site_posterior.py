"""Methods that all posteriors by Gaussian sites share."""

import numpy as np

from hmcgp.runtime.typing import Array


class Sites:
    """Methods of a posterior by Gaussian sites, whatever the structure of its prior covariance."""

    f: Array  # (n,) mean
    alpha: Array  # (n,) x
    w: Array  # (n,) site precisions
    mu: Array  # (n,) cavity mean
    v: Array  # (n,) cavity variance
    y: Array  # (n,) the labels

    @property
    def start(self) -> Array:
        """The sites (η, w), stacked, of shape (2n,): likelihoods hardly change when the prior does."""
        return np.concatenate([self.alpha + self.w * self.f, self.w])

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The sites, those of the new rows 0: they say nothing yet."""
        return np.pad(self.start.reshape(2, -1), ((0, 0), (0, len(mean)))).ravel()

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value, each of shape (n,)."""
        return self.mu, self.v

    def loo_errors(self) -> Array:
        """True where the cavity mean has the wrong sign: the rows that the others would misclassify, of shape (n,)."""
        return np.asarray(self.y * self.mu <= 0.0)
