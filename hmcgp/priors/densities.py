"""Prior densities of hyperparameters: log density, its derivative, and draws.

    Normal(mu, sigma)          -z^2/2 - log(sigma) - log(2 pi)/2,   z = (x - mu)/sigma           all x
    LogNormal(mu, sigma)       -z^2/2 - log(x sigma) - log(2 pi)/2, z = (log x - mu)/sigma       x > 0
    Gamma(alpha, beta)         (alpha - 1) log x - beta x + alpha log beta - lgamma(alpha)       x > 0
    InverseGamma(alpha, beta)  -(alpha + 1) log x - beta/x + alpha log beta - lgamma(alpha)      x > 0
    HalfNormal(sigma)          -x^2/(2 sigma^2) + log(2)/2 - log(pi)/2 - log(sigma)              x > 0
    HalfCauchy(scale)          -log(1 + x^2/scale^2) + log(2/(pi scale))                         x > 0
    Beta(alpha, beta, b = 1)   (alpha - 1) log(x/b) + (beta - 1) log(1 - x/b)
                               - log B(alpha, beta) - log b                                      0 < x < b

Supports are open: the log density is -inf at an edge and outside, with derivative 0, and no warning is given.
`Prior.transform` names the map onto the whole line that suits the support (`hmcgp.parameters.transforms`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln, gammaln

from hmcgp.errors import InvalidInput
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.parameters.transforms import Identity, Log, Logit, Transform
from hmcgp.runtime.typing import Array

_SMALL, _LARGE = 1e-100, 1e100
_LIMIT = 1e50  # of parameters: (x/sigma)^2 and beta/x^2 are then below 1e300 for x between _SMALL and _LARGE


@dataclass(frozen=True, repr=False)
class Prior(ABC):
    """Base class of densities on an open interval; subclasses write `_logpdf` and `_dlogpdf` for points inside it."""

    _support: ClassVar[tuple[float, float]] = (0.0, math.inf)
    _transform: ClassVar[Transform] = Log()
    _signed: ClassVar[tuple[str, ...]] = ()  # parameters that may be zero or negative
    of_standardised: ClassVar[bool] = False  # True: always about standardised inputs

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _number(type(self).__name__, field.name, getattr(self, field.name))
            if value <= 0.0 and field.name not in self._signed:
                raise InvalidInput(f"'{field.name}' of {type(self).__name__} must be positive; got {value:g}.")
            object.__setattr__(self, field.name, value)

    def __repr__(self) -> str:
        told = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name):.10g}' for f in told)})"

    @property
    def support(self) -> tuple[float, float]:
        """Open interval on which the density is positive."""
        return self._support

    @property
    def transform(self) -> Transform:
        """Map from the whole line onto the support."""
        return self._transform

    @property
    def normal(self) -> tuple[float, float] | None:
        """Mean and standard deviation of u = T^-1(x) where that is normal, else None."""
        return None

    def normal_law(self, size: int) -> tuple[Array, Array] | None:
        """Mean and precision matrix of `size` values of u, where they are jointly normal, else None."""
        if self.normal is None:
            return None
        mean, sd = (np.broadcast_to(number, size) for number in self.normal)
        return mean, np.diag(sd**-2.0)

    def logpdf(self, x: Array) -> Array:
        """Log density at points x of any shape, elementwise; -inf outside the open support (and at NaN)."""
        return self._where_inside(self._logpdf, x, -np.inf)

    def dlogpdf(self, x: Array) -> Array:
        """Slope d log p/dx of the log density, elementwise; 0 outside the open support."""
        return self._where_inside(self._dlogpdf, x, 0.0)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array | float:
        """Draw a float, or an array of shape (size,), from the prior.

        Draws are inside the open support: one that rounds to an edge is moved to the nearest number within.
        """
        lower, upper = self.support
        x = np.clip(self._sample(rng, size), np.nextafter(lower, upper), np.nextafter(upper, lower))
        return float(x) if size is None else np.asarray(x)

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        """Log density log p(T(u)) + log |dx/du| of u where x = T(u) follows this prior, and its slope, elementwise."""
        t = self.transform
        x = t.constrain(u)
        return self.logpdf(x) + t.log_jacobian(u), self.dlogpdf(x) * t.dconstrain(u) + t.dlog_jacobian(u)

    def in_units(self, unit: float | tuple[float, ...]) -> Prior:
        """Prior of x where unit * x follows this one; one unit for all values, or one for each."""
        from hmcgp.priors.units import InUnits

        return InUnits(self, unit)

    def _where_inside(self, formula: Any, x: Array, otherwise: float) -> Array:
        x = np.asarray(x, dtype=float)
        lower, upper = self.support
        # The hot path: x far enough from 0 and inf that no square or quotient overflows (see _LIMIT), and so no
        # np.errstate, which costs as much as three operations on a short vector; count_nonzero is a quick all().
        ordinary = (x > max(lower, -_LARGE) + _SMALL) & (x < min(upper, _LARGE))
        if np.count_nonzero(ordinary) == x.size:
            return np.asarray(formula(x))
        inside = (x > lower) & (x < upper)
        out = np.full(x.shape, otherwise)
        with np.errstate(over="ignore", divide="ignore"):  # x^2 = inf for x = 1e200: log p = -inf is right
            out[inside] = formula(x[inside])
        return out

    @abstractmethod
    def _logpdf(self, x: Array) -> Array: ...

    @abstractmethod
    def _dlogpdf(self, x: Array) -> Array: ...

    @abstractmethod
    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float: ...


@dataclass(frozen=True, repr=False)
class Normal(Prior):
    """x ~ N(mu, sigma^2)."""

    mu: float
    sigma: float
    _support = (-math.inf, math.inf)
    _transform = Identity()
    _signed = ("mu",)

    @property
    def normal(self) -> tuple[float, float]:
        return self.mu, self.sigma

    def _logpdf(self, x: Array) -> Array:
        z = (x - self.mu) / self.sigma
        return -0.5 * z * z - (math.log(self.sigma) + HALF_LOG_2PI)

    def _dlogpdf(self, x: Array) -> Array:
        return (self.mu - x) / self.sigma / self.sigma

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return rng.normal(self.mu, self.sigma, size)


@dataclass(frozen=True, repr=False)
class LogNormal(Prior):
    """log(x - lower) ~ N(mu, sigma^2), lower 0 unless given: median lower + exp(mu)."""

    mu: float
    sigma: float
    lower: float = 0.0
    _signed = ("mu", "lower")

    @property
    def support(self) -> tuple[float, float]:
        return (self.lower, math.inf)

    @property
    def transform(self) -> Transform:
        return Log(self.lower)

    @property
    def normal(self) -> tuple[float, float]:
        return self.mu, self.sigma

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        """Log density of u = log(x - lower), which is normal, and its derivative (see `Prior.logpdf_unconstrained`)."""
        z = (u - self.mu) / self.sigma
        return -0.5 * z * z - (math.log(self.sigma) + HALF_LOG_2PI), -z / self.sigma

    def _logpdf(self, x: Array) -> Array:
        log_x = np.log(x - self.lower)
        z = (log_x - self.mu) / self.sigma
        return -0.5 * z * z - log_x - (math.log(self.sigma) + HALF_LOG_2PI)

    def _dlogpdf(self, x: Array) -> Array:
        x = x - self.lower
        return -((np.log(x) - self.mu) / self.sigma / self.sigma + 1.0) / x

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return self.lower + rng.lognormal(self.mu, self.sigma, size)


@dataclass(frozen=True, repr=False)
class Gamma(Prior):
    """Shape alpha and rate beta: mean alpha/beta."""

    alpha: float
    beta: float

    def _logpdf(self, x: Array) -> Array:
        constant = self.alpha * math.log(self.beta) - gammaln(self.alpha)
        return (self.alpha - 1.0) * np.log(x) - self.beta * x + constant

    def _dlogpdf(self, x: Array) -> Array:
        return (self.alpha - 1.0) / x - self.beta

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return rng.gamma(self.alpha, 1.0 / self.beta, size)


@dataclass(frozen=True, repr=False)
class InverseGamma(Prior):
    """1/x ~ Gamma(alpha, beta): mean beta/(alpha - 1) for alpha > 1."""

    alpha: float
    beta: float

    def _logpdf(self, x: Array) -> Array:
        constant = self.alpha * math.log(self.beta) - gammaln(self.alpha)
        return -(self.alpha + 1.0) * np.log(x) - self.beta / x + constant

    def _dlogpdf(self, x: Array) -> Array:
        return (self.beta / x - (self.alpha + 1.0)) / x  # no inf - inf as x -> 0

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        with np.errstate(divide="ignore", over="ignore"):  # a gamma draw may underflow to 0; `sample` clips
            return np.divide(self.beta, rng.gamma(self.alpha, 1.0, size))


@dataclass(frozen=True, repr=False)
class HalfNormal(Prior):
    """x = |z|, z ~ N(0, sigma^2)."""

    sigma: float

    def _logpdf(self, x: Array) -> Array:
        z = x / self.sigma
        return -0.5 * z * z + (math.log(2.0 / self.sigma) - HALF_LOG_2PI)

    def _dlogpdf(self, x: Array) -> Array:
        return -x / self.sigma / self.sigma

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return np.abs(rng.normal(0.0, self.sigma, size))


@dataclass(frozen=True, repr=False)
class HalfCauchy(Prior):
    """x = |z|, z ~ Cauchy(0, scale): median scale."""

    scale: float

    def _logpdf(self, x: Array) -> Array:
        # log(1 + z^2) = 2 log hypot(1, z), which does not overflow
        return -2.0 * np.log(np.hypot(1.0, x / self.scale)) + math.log(2.0 / (math.pi * self.scale))

    def _dlogpdf(self, x: Array) -> Array:
        return -2.0 / (x + self.scale * (self.scale / x))

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return self.scale * np.abs(rng.standard_cauchy(size))


@dataclass(frozen=True, repr=False)
class Beta(Prior):
    """x between 0 and `upper`, 1 unless given: mean upper alpha/(alpha + beta).  `Beta(1, 1, upper)` is uniform."""

    alpha: float
    beta: float
    upper: float = 1.0

    @property
    def support(self) -> tuple[float, float]:
        return (0.0, self.upper)

    @property
    def transform(self) -> Transform:
        return Logit(self.upper)

    def _logpdf(self, x: Array) -> Array:
        # log(1 - x/upper) = log(upper - x) - log(upper): x/upper may round to 1, upper - x never to 0
        constant = betaln(self.alpha, self.beta) + (self.alpha + self.beta - 1.0) * math.log(self.upper)
        return (self.alpha - 1.0) * np.log(x) + (self.beta - 1.0) * np.log(self.upper - x) - constant

    def _dlogpdf(self, x: Array) -> Array:
        return (self.alpha - 1.0) / x - (self.beta - 1.0) / (self.upper - x)

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return self.upper * rng.beta(self.alpha, self.beta, size)


def _number(owner: str, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidInput(f"'{name}' of {owner} must be a number; got {value!r}.")
    if not (value == 0.0 or 1.0 / _LIMIT <= abs(float(value)) <= _LIMIT):  # NaN fails too
        raise InvalidInput(f"'{name}' of {owner} must be finite, of a size between 1e-50 and 1e50; got {value!r}.")
    return float(value)
