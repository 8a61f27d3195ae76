"""Mixtures of Gaussians with equal weights, one component per draw: moments, quantiles, log density.

Components are arrays of which the first axis is the draws; the others are places, and may be several.
"""

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
    mean, variance : ndarrays of shape (S, ...)
        Of the S components, at each place.

    Returns
    -------
    mean, variance : ndarrays of shape (...)
        The variance is the mean of the variances plus the variance of the means.
    """
    return mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)


def log_density(y: Array, mean: Array, variance: Array) -> Array:
    """Logarithm of the density at y, a number for each place (see `moments`)."""
    return averaged(log_densities(y, mean, variance))


def log_densities(y: Array, mean: Array, variance: Array) -> Array:
    """Logarithm of the density at y of every component, of shape (S, ...)."""
    return np.asarray(norm.logpdf(y, mean, np.sqrt(variance)))


def averaged(log_p: Array) -> Array:
    """Logarithm of the mean over the draws of densities whose logarithms are given, of shape (S, ...)."""
    return np.asarray(logsumexp(log_p, axis=0) - np.log(len(log_p)))


def joint_log_density(y: Array, mean: Array, covariance: Array) -> Array:
    """Logarithm of the density of vectors under a Gaussian each; components of y that are NaN are integrated out.

    Parameters
    ----------
    y, mean : ndarrays of shape (m, k)
    covariance : ndarray of shape (m, k, k)

    Returns
    -------
    ndarray of shape (m,)
    """
    seen = ~np.isnan(y)
    k = y.shape[1]
    # without a component, its row and column of the covariance may as well be those of a unit matrix
    root = np.linalg.cholesky(np.where(seen[:, :, None] & seen[:, None, :], covariance, np.eye(k)))
    z = np.linalg.solve(root, np.where(seen, y - mean, 0.0)[:, :, None])[:, :, 0]
    log_root = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(-0.5 * ((z * z).sum(axis=1) + seen.sum(axis=1) * np.log(2.0 * np.pi)) - log_root)


def quantiles(q: Array, mean: Array, variance: Array) -> Array:
    """Quantiles of the mixture by bisection: they lie between the least and the greatest of those of the components.

    Parameters
    ----------
    q : ndarray of shape (k,)
        Probabilities, strictly between 0 and 1.
    mean, variance : ndarrays of shape (S, ...)

    Returns
    -------
    ndarray of shape (k, ...)
    """
    places = mean.shape[1:]
    mean, sd = mean.reshape(len(mean), -1), np.sqrt(variance).reshape(len(mean), -1)
    single = mean + ndtri(q)[:, None, None] * sd  # (k, S, m)
    low, high = single.min(axis=1), single.max(axis=1)
    tolerance = _RELATIVE * sd.max(axis=0)
    while (high - low > tolerance).any():
        middle = 0.5 * (low + high)
        below = ndtr((middle[:, None, :] - mean) / sd).mean(axis=1) < q[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high)).reshape(len(q), *places)
