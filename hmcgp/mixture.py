"""Mixtures of Gaussians with equal weights, one component per draw: moments, quantiles, log density."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import norm

from hmcgp._typing import Array

_RELATIVE = 1e-10  # error of a quantile, in units of the widest component


def moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance of the mixture.

    Parameters
    ----------
    mean, variance : ndarrays of shape (S, m)
        Of the S components, at each of m places.

    Returns
    -------
    mean, variance : ndarrays of shape (m,)
        The variance is the mean of the variances plus the variance of the means.
    """
    return mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)


def log_density(y: Array, mean: Array, variance: Array) -> Array:
    """Logarithm of the density at y, of shape (m,) (see `moments`)."""
    return np.asarray(logsumexp(norm.logpdf(y, mean, np.sqrt(variance)), axis=0) - np.log(len(mean)))


def quantiles(q: Array, mean: Array, variance: Array) -> Array:
    """Quantiles of the mixture by bisection: they lie between the least and the greatest of those of the components.

    Parameters
    ----------
    q : ndarray of shape (k,)
        Probabilities, strictly between 0 and 1.
    mean, variance : ndarrays of shape (S, m)

    Returns
    -------
    ndarray of shape (k, m)
    """
    sd = np.sqrt(variance)
    single = mean + ndtri(q)[:, None, None] * sd  # (k, S, m)
    low, high = single.min(axis=1), single.max(axis=1)
    tolerance = _RELATIVE * sd.max(axis=0)
    while (high - low > tolerance).any():
        middle = 0.5 * (low + high)
        below = ndtr((middle[:, None, :] - mean) / sd).mean(axis=1) < q[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
