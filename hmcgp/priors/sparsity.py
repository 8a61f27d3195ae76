"""Joint priors of length scales that expect most inputs not to matter.

Given a global scale τ, inverse length scales (or their squares) are independent half-Cauchy numbers of scale τ; τ is
half-Cauchy too.  Where data say little, τ is small and all inputs are switched off together; the heavy tail lets the
few that matter escape.

Sampled as a hierarchy, τ would be one more coordinate, correlated with all length scales.  Here it is integrated out:
no further coordinate, and a smooth density of u with tails e^-|u|.  The logarithm v of a half-Cauchy number of scale τ
has the density sech(v - log τ)/π, so

    p(v_1, …, v_d) = ∫ sech(w - w0)/π Π_k sech(v_k - w)/π dw,

by the trapezoidal rule, whose error falls exponentially with 1/h: the integrand is analytic, and as narrow as
1/sqrt(d + 1) at most.  `logpdf` and the like then concern all values together: the entries they return add up to the
joint log density, in equal shares.

As these priors compare inputs with each other, they are always about standardised inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.numerics.compiled import compiled_with_lock
from hmcgp.parameters.transforms import Log, Transform
from hmcgp.priors.densities import Prior
from hmcgp.runtime.typing import Array

_DROP = 40.0  # the integrand is neglected where it is below e^-40 of its maximum


@compiled_with_lock
def log_density(v: Array, w0: float) -> tuple[float, Array]:
    """Log p(v) and its gradient."""
    d = v.shape[0]
    # outside all centres the integrand falls by e^-(d + 1) per unit, after a factor 2 each
    margin = _DROP / (d + 1.0) + math.log(2.0)
    lower, upper = min(v.min(), w0) - margin, max(v.max(), w0) + margin
    n = math.ceil((upper - lower) / min(0.3, 0.9 / math.sqrt(d + 1.0))) + 1
    h = (upper - lower) / (n - 1)
    f, slopes = np.empty(n), np.empty((n, d))
    for i in range(n):
        w = lower + i * h
        a = abs(w - w0)
        f[i] = -a - math.log1p(math.exp(-2.0 * a))
        product = 1.0
        for k in range(d):  # sech x = 2 e^-|x|/(1 + e^-2|x|)
            x = v[k] - w
            e = math.exp(-2.0 * abs(x))
            f[i] -= abs(x)
            product *= 1.0 + e
            slopes[i, k] = math.copysign((1.0 - e) / (1.0 + e), -x)  # -tanh x
            if product > 1e300:
                f[i] -= math.log(product)
                product = 1.0
        f[i] -= math.log(product)
    top = f.max()
    total, grad = 0.0, np.zeros(d)
    for i in range(n):
        weight = math.exp(f[i] - top)
        total += weight
        for k in range(d):
            grad[k] += weight * slopes[i, k]
    return top + math.log(h * total) + (d + 1.0) * math.log(2.0 / math.pi), grad / total


@dataclass(frozen=True, repr=False)
class SparsityPrior(Prior):
    """Length scales T(u_k) for which exp(rate * u_k) is half-Cauchy with a shared, unknown scale."""

    scale: float
    _rate: ClassVar[float]  # negative: long length scales are small weights
    of_standardised = True

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        """Shares of the joint log density of u, and its gradient (see `Prior.logpdf_unconstrained`)."""
        u = np.asarray(u, dtype=float)
        value, grad = log_density(np.ascontiguousarray(self._rate * u.ravel()), math.log(self.scale))
        value += u.size * math.log(abs(self._rate))
        return np.full(u.shape, value / u.size), self._rate * grad.reshape(u.shape)

    def _logpdf(self, x: Array) -> Array:
        u = self.transform.unconstrain(x)
        return self.logpdf_unconstrained(u)[0] - self.transform.log_jacobian(u)

    def _dlogpdf(self, x: Array) -> Array:
        t = self.transform
        u = t.unconstrain(x)
        return (self.logpdf_unconstrained(u)[1] - t.dlog_jacobian(u)) / t.dconstrain(u)

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        weights = self.scale * abs(rng.standard_cauchy()) * np.abs(rng.standard_cauchy(size))
        return self.transform.constrain(np.log(weights) / self._rate)


@dataclass(frozen=True, repr=False)
class SAAS(SparsityPrior):
    """1/length_scale_k² = τ λ_k, with τ ~ HalfCauchy(scale) and λ_k ~ HalfCauchy(1).

    Sparse axis-aligned subspaces (Eriksson & Jankowiak 2021).  For `length_scale` with `ard=True`.  Their scale is 0.1
    in the unit cube, where an input has the standard deviation 0.29; for standardised inputs that is 0.1 * 0.29².
    """

    scale: float = 0.01
    _rate = -2.0


@dataclass(frozen=True, repr=False)
class RegularizedHorseshoe(SparsityPrior):
    """1/length_scale_k = τ λ̃_k, λ̃_k² = c² λ_k²/(c² + τ² λ_k²), τ ~ HalfCauchy(scale), λ_k ~ HalfCauchy(1).

    The regularised horseshoe (Piironen & Vehtari 2017) with the slab c on inverse length scales: no length scale is
    shorter than 1/c, length_scale_k² = 1/(τ λ_k)² + 1/c².  For `length_scale` with `ard=True`.  A sensible `scale` is
    about the share of the inputs that you expect to matter.
    """

    scale: float = 0.1
    slab: float = 4.0
    _rate = -1.0

    @property
    def support(self) -> tuple[float, float]:
        return (1.0 / self.slab, math.inf)

    @property
    def transform(self) -> Transform:
        return Hypotenuse(1.0 / self.slab)


@dataclass(frozen=True)
class Hypotenuse(Transform):
    """x = sqrt(lower² + exp(2u)), for parameters above a positive limit: exp(u) far from it.

    dx/du = exp(2u)/x,     log |dx/du| = 2u - log x,     d/du log |dx/du| = 2 - exp(2u)/x² = 1 + lower²/x²
    """

    lower: float

    def constrain(self, u: Array) -> Array:
        """sqrt(lower² + exp(2u)), kept above the limit, where rounding would put it."""
        return np.maximum(np.hypot(self.lower, Log().constrain(u)), np.nextafter(self.lower, np.inf))

    def unconstrain(self, x: Array) -> Array:
        """½ log(x² - lower²); x not above the limit raises `InvalidInput`."""
        above = np.asarray(x, dtype=float) - self.lower
        return 0.5 * (Log().unconstrain(above) + np.log(above + 2.0 * self.lower))

    def dconstrain(self, u: Array) -> Array:
        """Slope exp(2u)/x."""
        e = Log().constrain(u)
        return e * (e / np.hypot(self.lower, e))

    def log_jacobian(self, u: Array) -> Array:
        """Return 2u - log x."""
        return 2.0 * np.asarray(u, dtype=float) - np.log(np.hypot(self.lower, Log().constrain(u)))

    def dlog_jacobian(self, u: Array) -> Array:
        """1 + lower²/x²."""
        return 1.0 + (self.lower / np.hypot(self.lower, Log().constrain(u))) ** 2
