"""One-to-one maps between unconstrained numbers u and the support of a prior.

A sampler moves in u, on the whole line; a parameter x lives on its support.  If x has density p(x),

    x = T(u),    log p(u) = log p(x) + log |dx/du|,    d log p(u)/du = (d log p/dx) (dx/du) + d log|dx/du|/du

    Identity    x = u               log |dx/du| = 0                          d/du 0
    Log         x = a + exp(u)      log |dx/du| = u                          d/du 1
    Divided     x = T(u)/c          log |dx/du| = log |dT/du| - log c        d/du as of T
    Logit       x = b/(1 + e^-u)    log |dx/du| = log x + log(1 - x/b)       d/du 1 - 2x/b
                                                = log b - |u| - 2 log(1 + e^-|u|)   = -tanh(u/2)

The right-hand forms neither overflow nor cancel, however large |u| is.  `Log` gives inf past u = 709 and 0 below
u = -745, where double precision ends; a prior's log density is -inf there.  Nothing here warns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from hmcgp.errors import InvalidInput
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Transform(ABC):
    """An increasing, differentiable map from the line onto an open interval; every method is elementwise."""

    @abstractmethod
    def constrain(self, u: Array) -> Array:
        """Natural values x = T(u), for u of any shape."""

    @abstractmethod
    def unconstrain(self, x: Array) -> Array:
        """Inverse of `constrain`; a value outside the open interval, or NaN, raises `InvalidInput`."""

    @abstractmethod
    def dconstrain(self, u: Array) -> Array:
        """Slope dx/du, positive."""

    @abstractmethod
    def log_jacobian(self, u: Array) -> Array:
        """Return log |dx/du|, what the log density gains on the way from x to u."""

    @abstractmethod
    def dlog_jacobian(self, u: Array) -> Array:
        """Slope of `log_jacobian` in u."""


@dataclass(frozen=True)
class Identity(Transform):
    """x = u, for parameters on the whole line."""

    def constrain(self, u: Array) -> Array:
        return np.asarray(u, dtype=float)

    def unconstrain(self, x: Array) -> Array:
        return _inside(x, -np.inf, np.inf)

    def dconstrain(self, u: Array) -> Array:
        return np.ones(np.shape(u))

    def log_jacobian(self, u: Array) -> Array:
        return np.zeros(np.shape(u))

    def dlog_jacobian(self, u: Array) -> Array:
        return np.zeros(np.shape(u))


@dataclass(frozen=True)
class Log(Transform):
    """x = lower + exp(u), for parameters above a limit, 0 unless given."""

    lower: float = 0.0

    def constrain(self, u: Array) -> Array:
        """Return lower + exp(u), kept above the limit, where rounding would put it for very negative u."""
        x = self.dconstrain(u)
        return x if self.lower == 0.0 else np.maximum(self.lower + x, np.nextafter(self.lower, np.inf))

    def unconstrain(self, x: Array) -> Array:
        return np.log(_inside(x, self.lower, np.inf) - self.lower)

    def dconstrain(self, u: Array) -> Array:
        with np.errstate(over="ignore"):  # inf is the right answer: no prior has mass there
            return np.asarray(np.exp(np.asarray(u, dtype=float)))

    def log_jacobian(self, u: Array) -> Array:
        return np.asarray(u, dtype=float)

    def dlog_jacobian(self, u: Array) -> Array:
        return np.ones(np.shape(u))


@dataclass(frozen=True)
class Logit(Transform):
    """x = upper/(1 + exp(-u)), for parameters between 0 and an upper limit, 1 unless given."""

    upper: float = 1.0

    def constrain(self, u: Array) -> Array:
        """upper/(1 + exp(-u)), kept below the limit, where rounding would put it for u > 37."""
        return np.minimum(self.upper * expit(np.asarray(u, dtype=float)), np.nextafter(self.upper, 0.0))

    def unconstrain(self, x: Array) -> Array:
        x = _inside(x, 0.0, self.upper)
        return np.log(x) - np.log(self.upper - x)  # x/upper may round to 1, upper - x never to 0

    def dconstrain(self, u: Array) -> Array:
        """Slope upper s (1 - s) with s = x/upper, and 1 - s taken at -u against cancellation."""
        u = np.asarray(u, dtype=float)
        return self.upper * expit(u) * expit(-u)

    def log_jacobian(self, u: Array) -> Array:
        a = np.abs(u)
        return math.log(self.upper) - a - 2.0 * np.log1p(np.exp(-a))

    def dlog_jacobian(self, u: Array) -> Array:
        return -np.tanh(0.5 * np.asarray(u, dtype=float))


@dataclass(frozen=True)
class Divided(Transform):
    """x = T(u)/unit, for parameters measured in other units than those of T; the units may be one for each row of u."""

    transform: Transform
    unit: float | tuple[float, ...]

    def _unit(self, u: Array) -> Array:
        return along_rows(self.unit, np.ndim(u))

    def constrain(self, u: Array) -> Array:
        return np.asarray(self.transform.constrain(u) / self._unit(u))

    def unconstrain(self, x: Array) -> Array:
        return self.transform.unconstrain(x * self._unit(x))

    def dconstrain(self, u: Array) -> Array:
        return np.asarray(self.transform.dconstrain(u) / self._unit(u))

    def log_jacobian(self, u: Array) -> Array:
        return np.asarray(self.transform.log_jacobian(u) - np.log(self._unit(u)))

    def dlog_jacobian(self, u: Array) -> Array:
        return self.transform.dlog_jacobian(u)


def along_rows(values: float | tuple[float, ...], n_axes: int) -> Array:
    """Number, or numbers along the first of so many axes."""
    array = np.asarray(values, dtype=float)
    return array.reshape(array.shape + (1,) * (n_axes - array.ndim)) if array.ndim else array


def _inside(x: Array, lower: float, upper: float) -> Array:
    x = np.asarray(x, dtype=float)
    if not np.all((x > lower) & (x < upper)):
        raise InvalidInput(f"'x' must lie strictly between {lower:g} and {upper:g}; got {x.tolist()}.")
    return x
