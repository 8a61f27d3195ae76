"""Prior densities of hyperparameters: log density, its derivative, and draws.

    Normal(mu, sigma)          -z^2/2 - log(sigma) - log(2 pi)/2,   z = (x - mu)/sigma           all x
    LogNormal(mu, sigma)       -z^2/2 - log(x sigma) - log(2 pi)/2, z = (log x - mu)/sigma       x > 0
    Gamma(alpha, beta)         (alpha - 1) log x - beta x + alpha log beta - lgamma(alpha)       x > 0
    InverseGamma(alpha, beta)  -(alpha + 1) log x - beta/x + alpha log beta - lgamma(alpha)      x > 0
    HalfNormal(sigma)          -x^2/(2 sigma^2) + log(2)/2 - log(pi)/2 - log(sigma)              x > 0
    HalfCauchy(scale)          -log(1 + x^2/scale^2) + log(2/(pi scale))                         x > 0
    Beta(alpha, beta)          (alpha - 1) log x + (beta - 1) log(1 - x) - log B(alpha, beta)    0 < x < 1

Supports are open: the log density is -inf at an edge and outside, with derivative 0, and no warning is given.
`Prior.transform` names the map onto the whole line that suits the support (`hmcgp.transforms`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaln, gammaln

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput
from hmcgp.transforms import Identity, Log, Logit, Transform

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_SMALL, _LARGE = 1e-100, 1e100
_LIMIT = 1e50  # of parameters: (x/sigma)^2 and beta/x^2 are then below 1e300 for x between _SMALL and _LARGE


@dataclass(frozen=True, repr=False)
class Prior(ABC):
    """A density on an open interval; subclasses write `_logpdf` and `_dlogpdf` for points inside it."""

    _support: ClassVar[tuple[float, float]] = (0.0, math.inf)
    _transform: ClassVar[Transform] = Log()
    _signed: ClassVar[tuple[str, ...]] = ()  # parameters that may be zero or negative

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _number(type(self).__name__, field.name, getattr(self, field.name))
            if value <= 0.0 and field.name not in self._signed:
                raise InvalidInput(f"'{field.name}' of {type(self).__name__} must be positive; got {value:g}.")
            object.__setattr__(self, field.name, value)

    def __repr__(self) -> str:
        inside = ", ".join(f"{field.name}={getattr(self, field.name):.10g}" for field in fields(self))
        return f"{type(self).__name__}({inside})"

    @property
    def support(self) -> tuple[float, float]:
        """The open interval on which the density is positive."""
        return self._support

    @property
    def transform(self) -> Transform:
        """The map between the support and the whole line."""
        return self._transform

    def logpdf(self, x: Array) -> Array:
        """Log density, elementwise.

        Parameters
        ----------
        x : ndarray
            Points, of any shape.

        Returns
        -------
        ndarray
            log p(x), of the shape of `x`; -inf outside the open support (and at NaN).
        """
        return self._where_inside(self._logpdf, x, -np.inf)

    def dlogpdf(self, x: Array) -> Array:
        """Slope d log p/dx of the log density, elementwise; 0 outside the open support."""
        return self._where_inside(self._dlogpdf, x, 0.0)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array | float:
        """Draw from the prior.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness.
        size : int, optional
            How many draws; a single float when None.

        Returns
        -------
        ndarray of shape (size,) or float
            Draws inside the open support: one that rounds to an edge is moved to the nearest number within.
        """
        lower, upper = self._support
        x = np.clip(self._sample(rng, size), np.nextafter(lower, upper), np.nextafter(upper, lower))
        return float(x) if size is None else np.asarray(x)

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        """Log density of u where x = T(u) follows this prior, and its derivative, elementwise.

        Parameters
        ----------
        u : ndarray
            Unconstrained values, of any shape.

        Returns
        -------
        log_density, derivative : ndarrays
            log p(T(u)) + log |dx/du| and its derivative with respect to u, of the shape of `u`.
        """
        t = self._transform
        x = t.constrain(u)
        return self.logpdf(x) + t.log_jacobian(u), self.dlogpdf(x) * t.dconstrain(u) + t.dlog_jacobian(u)

    def _where_inside(self, formula: Any, x: Array, otherwise: float) -> Array:
        x = np.asarray(x, dtype=float)
        lower, upper = self._support
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

    def _logpdf(self, x: Array) -> Array:
        z = (x - self.mu) / self.sigma
        return -0.5 * z * z - (math.log(self.sigma) + _HALF_LOG_2PI)

    def _dlogpdf(self, x: Array) -> Array:
        return (self.mu - x) / self.sigma / self.sigma

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return rng.normal(self.mu, self.sigma, size)


@dataclass(frozen=True, repr=False)
class LogNormal(Prior):
    """log x ~ N(mu, sigma^2): median exp(mu)."""

    mu: float
    sigma: float
    _signed = ("mu",)

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        """Log density of u = log x, which is normal, and its derivative (see `Prior.logpdf_unconstrained`)."""
        z = (u - self.mu) / self.sigma
        return -0.5 * z * z - (math.log(self.sigma) + _HALF_LOG_2PI), -z / self.sigma

    def _logpdf(self, x: Array) -> Array:
        log_x = np.log(x)
        z = (log_x - self.mu) / self.sigma
        return -0.5 * z * z - log_x - (math.log(self.sigma) + _HALF_LOG_2PI)

    def _dlogpdf(self, x: Array) -> Array:
        return -((np.log(x) - self.mu) / self.sigma / self.sigma + 1.0) / x

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return rng.lognormal(self.mu, self.sigma, size)


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
        return -0.5 * z * z + (math.log(2.0 / self.sigma) - _HALF_LOG_2PI)

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
    """x between 0 and 1: mean alpha/(alpha + beta)."""

    alpha: float
    beta: float
    _support = (0.0, 1.0)
    _transform = Logit()

    def _logpdf(self, x: Array) -> Array:
        return (self.alpha - 1.0) * np.log(x) + (self.beta - 1.0) * np.log1p(-x) - betaln(self.alpha, self.beta)

    def _dlogpdf(self, x: Array) -> Array:
        return (self.alpha - 1.0) / x - (self.beta - 1.0) / (1.0 - x)

    def _sample(self, rng: np.random.Generator, size: int | None) -> Array | float:
        return rng.beta(self.alpha, self.beta, size)


def default_prior(role: str, n_inputs: int) -> Prior:
    """Prior of a hyperparameter that the user left open, for standardised inputs and a logistic likelihood.

    Parameters
    ----------
    role : {"variance", "length_scale"}
        What the hyperparameter does.
    n_inputs : int
        Number d of inputs that share the distance in which the length scale counts.

    Returns
    -------
    Prior
        `LogNormal(2, 2)` for a variance: median 7.4, 95 % within 0.15 to 370.
        `LogNormal(0.5 + log(d)/2, 1)` for a length scale: median 1.65 sqrt(d), 95 % within 0.23 to 11.7 sqrt(d).

    Notes
    -----
    *Length scale.*  Standardised rows lie about sqrt(2 d) apart, so a length scale that does not grow with sqrt(d) says
    that no two rows have anything to do with each other when d is large.  Hvarfner et al. (2024, ICML) scale the median
    of a log-normal by sqrt(d) for that reason, as do we.  Their numbers, LogNormal(sqrt(2) + log(d)/2, sqrt(3)), are
    meant for optimisation in the unit cube; used here they would put more than 95 of 100 rows on one side of p = 1/2
    in 62, 22 and 3 % of the draws for d = 1, 7, 30 (ours: last line of the table), which two classes seldom look like.
    At our upper end, 11.7 sqrt(d), an input adds about 1/(70 d) to the scaled squared distance of two rows: it is
    switched off, which is what relevance needs.

    *Variance.*  The latent function has standard deviation 0.4 to 19, from "the inputs say nothing" to nearly separable
    classes.  With this prior and 80 training rows of the crabs data, the most probable variance (in the log, with
    scikit-learn's Laplace evidence, five random stratified training sets) was 500 to 1200: between 2.1 and 2.6 prior
    standard deviations up, so the prior pulls on such data but does not forbid it.

    *What the prior says about probabilities.*  Measured by drawing from it: 2000 times, hyperparameters from this prior
    (one length scale per input), 100 standard normal rows, standardised, a latent function with squared-exponential
    covariance there, and p its logistic transform.

    ======================================================  ======  ======  ======
    number of inputs d                                           1       7      30
    ======================================================  ======  ======  ======
    share of p within (0.1, 0.9)                              0.58    0.59    0.58
    share of p below 0.01 or above 0.99                       0.22    0.21    0.22
    quartiles of p, lower (the upper mirrors it)              0.14    0.17    0.16
    latent correlation of nearest rows, median                1.00    0.82    0.42
    the same, exceeded by 90 % of the draws                   1.00    0.48    0.13
    the same, exceeded by 10 % of the draws                   1.00    0.94    0.64
    latent correlation of any two rows, median                0.83    0.38    0.20
    standard deviation of p within a data set, median         0.12    0.25    0.31
    nearest rows on the same side of p = 1/2, share           0.99    0.79    0.64
    draws with more than 95 of 100 rows on one side           0.43    0.11    0.01
    ======================================================  ======  ======  ======

    Every probability is likely enough beforehand, none is forced, and neighbours resemble each other in every d.
    The same length-scale prior without the factor sqrt(d) gives nearest rows a median correlation of 0.23 in d = 7 and
    0.00 in d = 30: white noise.
    """
    if isinstance(n_inputs, bool) or not isinstance(n_inputs, int | np.integer) or n_inputs < 1:
        raise InvalidInput(f"'n_inputs' must be a positive whole number; got {n_inputs!r}.")
    if role == "variance":
        return LogNormal(2.0, 2.0)
    if role == "length_scale":
        return LogNormal(0.5 + 0.5 * math.log(n_inputs), 1.0)
    raise InvalidInput(
        f"no default prior for the role {role!r}; known are 'variance' and 'length_scale'. Give a prior."
    )


def _number(owner: str, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidInput(f"'{name}' of {owner} must be a number; got {value!r}.")
    if not (value == 0.0 or 1.0 / _LIMIT <= abs(float(value)) <= _LIMIT):  # NaN fails too
        raise InvalidInput(f"'{name}' of {owner} must be finite, of a size between 1e-50 and 1e50; got {value!r}.")
    return float(value)
