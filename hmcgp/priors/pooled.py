"""Length scales that resemble each other: partial pooling of a vector of parameters.

    log x_k = m + δ_k,     m ~ N(mu, sigma²) common to all,     δ_k ~ N(0, within²) of each

With within → 0 all values are one; with sigma → 0 they are independent.  The common m is integrated out: no further
coordinate, and u = log x is normal with the covariance Σ = within² I + sigma² 11', of which (Sherman & Morrison, d
values, s = sigma²/(within² + d sigma²))

    Σ⁻¹ = (I - s 11')/within²,     log det Σ = (d - 1) log within² + log(within² + d sigma²).

As this prior compares inputs with each other, it is always about standardised inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.priors.densities import Prior
from hmcgp.runtime.typing import Array


@dataclass(frozen=True, repr=False)
class PooledLogNormal(Prior):
    """log x_k = m + δ_k, with m ~ N(mu, sigma²) shared by all values and δ_k ~ N(0, within²) of each.

    A hierarchical prior for `length_scale` with `ard=True`: inputs share one length scale unless the data say
    otherwise.  Each value by itself is log-normal with the standard deviation √(sigma² + within²), and two of them are
    within a factor of exp(2 √2 within) of each other in 95 % of the draws.

    Parameters
    ----------
    mu : float
        Of the logarithm of the common scale.
    sigma : float
        Standard deviation of the logarithm of the common scale.
    within : float
        Standard deviation of the logarithms of single values about it.
    """

    mu: float
    sigma: float
    within: float
    _signed = ("mu",)
    of_standardised = True

    def normal_law(self, size: int) -> tuple[Array, Array]:
        w, s = self.within**2, self.sigma**2
        return np.full(size, self.mu), (np.eye(size) - s / (w + size * s)) / w

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        """Shares of the joint log density of u = log x, which is normal, and its gradient."""
        z = np.asarray(u, dtype=float) - self.mu
        d, w, s = z.size, self.within**2, self.sigma**2
        slope = (s / (w + d * s) * z.sum() - z) / w  # -Σ⁻¹ z
        log_det = (d - 1) * math.log(w) + math.log(w + d * s)
        value = 0.5 * float(np.vdot(z, slope)) - 0.5 * log_det - d * HALF_LOG_2PI
        return np.full(z.shape, value / max(d, 1)), slope

    def _logpdf(self, x: Array) -> Array:
        log_x = np.log(x)
        return self.logpdf_unconstrained(log_x)[0] - log_x

    def _dlogpdf(self, x: Array) -> Array:
        return (self.logpdf_unconstrained(np.log(x))[1] - 1.0) / x

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        common = rng.normal(self.mu, self.sigma)
        return np.exp(common + rng.normal(0.0, self.within, size))
