"""Mixtures of Gaussians, one component per draw: moments, quantiles, log density.

Components are arrays whose first axis is that of the draws; the others are those of the inputs and outputs.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from hmcgp.numerics.constants import LOG_2PI
from hmcgp.runtime.typing import Array

# of a quantile, in units of the widest component: the last step of Newton's method, which squares the error, and the
# last bracket, which matters in gaps between components only
_STEP, _BRACKET = 1e-10, 1e-13
_FLAT = 1e-6  # density, in those units, below which a step says little about the error
_NUMBERS = 2**18  # in a temporary array: 2 MB
_TINY = np.finfo(float).tiny


def merge(into: Array, n: float, other: Array | tuple[Array, Array | float, Array], k: float) -> None:
    """Add moments of weight k to those of weight n, in place (Chan, Golub & LeVeque 1979, eq. 2.1): nothing cancels.

    Moments, of shape (3, ...), are mean of the means, sum of their squared deviations from it, sum of the variances,
    all weighted.
    """
    if k == 0.0:
        return
    deviation = other[0] - into[0]
    into[0] += (k / (n + k)) * deviation
    into[1] += other[1] + (n * k / (n + k)) * deviation**2
    into[2] += other[2]


def log_densities(y: Array, mean: Array, variance: Array) -> Array:
    """Logarithm of the density at y of every component, of shape (S, ...)."""
    return np.asarray(norm.logpdf(y, mean, np.sqrt(variance)))


def joint_log_density(y: Array, mean: Array, covariance: Array) -> Array:
    """Log density, (m,), of vectors (m, k) under a Gaussian each, of covariances (m, k, k); NaN is integrated out."""
    seen = ~np.isnan(y)
    k = y.shape[1]
    # without a component, its row and column of the covariance may as well be those of a unit matrix
    root = np.linalg.cholesky(np.where(seen[:, :, None] & seen[:, None, :], covariance, np.eye(k)))
    z = np.linalg.solve(root, np.where(seen, y - mean, 0.0)[:, :, None])[:, :, 0]
    log_root = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return np.asarray(-0.5 * ((z * z).sum(axis=1) + seen.sum(axis=1) * LOG_2PI) - log_root)


class Links(Protocol):
    """Increasing functions, one for each component, from its Gaussian variable to probabilities."""

    def value(self, f: Array) -> Array:
        """Probabilities, of the shape (S, m) of the variables."""

    def inverse(self, p: Array) -> tuple[Array, Array]:
        """Variables at which the functions have the values p, (m,), and their derivatives in p, both (S, m).

        Beyond the range of a function: an infinity, and 0.
        """


def quantiles(q: Array, mean: Array, variance: Array, weight: Array | None = None, links: Links | None = None) -> Array:
    """Quantiles of the mixture at probabilities q, (k,), from means and variances of shape (S, ...), as (k, ...).

    Components have equal weights, or those given, (S,).  Quantiles lie between the least and the greatest of those of
    the components: by Newton's method, safeguarded by bisection, for each input and output by itself.  With `links`,
    they are of the values of these.
    """
    shape = mean.shape[1:]
    weight = np.full(len(mean), 1.0 / len(mean)) if weight is None else weight / weight.sum()
    mean, variance = mean.reshape(len(mean), -1), variance.reshape(len(mean), -1)
    out = np.empty((len(q), mean.shape[1]))
    size = max(_NUMBERS // len(mean), 1)
    for begin in range(0, mean.shape[1], size):
        some = slice(begin, begin + size)
        for i, p in enumerate(q):
            # a component of no width is a step, whose slope overflows
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                out[i, some] = _quantile(float(p), mean[:, some], np.sqrt(variance[:, some]), weight, links)
    return out.reshape(len(q), *shape)


def _quantile(p: float, mean: Array, sd: Array, weight: Array, links: Links | None) -> Array:
    single = mean + ndtri(p) * sd  # (S, m)
    if links is None:
        centre, widest = weight @ mean, sd.max(axis=0)
        x = centre + ndtri(p) * np.sqrt(weight @ (sd**2 + (mean - centre) ** 2))
    else:
        single = links.value(single)
        x, widest = weight @ single, np.ones(single.shape[1])
    low, high = single.min(axis=0), single.max(axis=0)
    x, sd = np.clip(x, low, high), np.maximum(sd, _TINY)
    out, left, last = x.copy(), np.arange(len(x)), high - low
    while len(left):
        f, slope = (x, 1.0) if links is None else links.inverse(x)
        z = (f - mean) / sd
        error = weight @ ndtr(z) - p
        density = weight @ (np.exp(-0.5 * z * z) / sd * slope) / np.sqrt(2.0 * np.pi)
        low, high = np.where(error < 0.0, x, low), np.where(error < 0.0, high, x)
        newton, middle = x - error / density, 0.5 * (low + high)
        step = np.abs(newton - x)
        fair = (newton >= low) & (newton <= high) & (step <= 0.5 * last) & (density * widest > _FLAT)  # NaN is not
        x, last = np.where(fair, newton, middle), np.where(fair, step, high - low)
        found = fair & (step <= _STEP * widest)
        rounding = 4.0 * np.finfo(float).eps * np.maximum(np.abs(low), np.abs(high))
        found |= high - low <= np.maximum(_BRACKET * widest, rounding)
        out[left] = x
        go_on = ~found
        left, x, last, low, high, widest = (a[go_on] for a in (left, x, last, low, high, widest))
        mean, sd = mean[:, go_on], sd[:, go_on]
    return out
