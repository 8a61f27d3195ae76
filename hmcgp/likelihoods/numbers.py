"""Likelihoods of numbers: the latent value plus independent Gaussian noise.

What they share is the variance of the noise of each row, and its derivatives.  An evidence provider asks for the
variances of its rows and hands ∂ log Z/∂noise_i back, as it hands ∂ log Z/∂K to a kernel.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from hmcgp._typing import Array
from hmcgp.basis import Basis, basis_names, basis_values
from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Derivatives, Likelihood
from hmcgp.parameters import REAL, Value, bound_value, parameter


@dataclass(frozen=True)
class NoisyNumbers(Likelihood):
    """Base class: p(y_i | f_i) = N(y_i; f_i, noise_i)."""

    targets: ClassVar[str] = "numbers"

    @abstractmethod
    def row_noise(self, n: int) -> Array:
        """Variances of the noise of the n rows that the likelihood explains, of shape (n,)."""

    @abstractmethod
    def pull_back(self, dnoise: Array) -> Array:
        """Derivatives in its parameters, in their order, from those in the variances of the rows, of shape (n,)."""

    @abstractmethod
    def noise_at(self, X: Array) -> Array:
        """Variance of the noise of a new observation at each row of X, of shape (m,)."""

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless every target is a finite number."""
        bad = np.flatnonzero(~np.isfinite(y))
        if len(bad):
            raise InvalidInput(
                f"'y' must be finite; it holds {y[bad[0]]} in row {bad[0]}, one of {len(bad)} such rows."
            )

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """Log likelihood and its first three derivatives with respect to f, elementwise."""
        noise = self.row_noise(len(f))
        g = (np.asarray(y, dtype=float) - f) / noise
        log_prob = -0.5 * noise * g * g - 0.5 * np.log(2.0 * math.pi * noise)
        return Derivatives(log_prob, g, -1.0 / noise, np.zeros(g.shape))

    def average(self, mean: Array, variance: Array) -> Array:
        """Refused: a number has no classes, and so no probability of one."""
        raise InvalidInput(f"{type(self).__name__} explains numbers, not classes: there is no P(y = +1) to average.")

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive density of the rows, log N(y; mean, variance + noise) (see `Likelihood.log_average`)."""
        total = variance + self.row_noise(len(y))
        return np.asarray(-0.5 * (y - mean) ** 2 / total - 0.5 * np.log(2.0 * math.pi * total))

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), exactly.

        From N(y; f, s)^ω = N(√ω y; √ω f, s) (2πs)^((1 - ω)/2).
        """
        weights, noise = self.row_weights(len(y)), self.row_noise(len(y))
        total = weights * variance + noise
        log_p = -0.5 * weights * (y - mean) ** 2 / total - 0.5 * np.log(2.0 * math.pi * total)
        return np.asarray(log_p + 0.5 * (1.0 - weights) * np.log(2.0 * math.pi * noise))


@dataclass(frozen=True)
class Gaussian(NoisyNumbers):
    """p(y | f) = N(y; f, noise): targets that are numbers, observed with independent noise.

    Parameters
    ----------
    noise : float or prior, optional
        *Variance* of the noise, in the units of y squared, as `variance` is that of the function.  0 where there is
        none, or none beside `known`.  Default: a prior for targets of mean 0 and variance 1,
        LogNormal(-3, 2, lower=1e-6), with median 0.05 and 95 % within 0.001 to 2.5.
    known : sequence of float, optional
        Known variances, one for each row, to which `noise` is added.
    """

    noise: Value = parameter("noise", allowed=(0.0,))
    known: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.known is None:
            return
        known = np.asarray(self.known, dtype=float)
        bad = np.flatnonzero(~((known >= 0.0) & (known < math.inf)))
        if known.ndim != 1 or len(bad):
            held = f"a value of {known[bad[0]]} in row {bad[0]}" if known.ndim == 1 else f"the shape {known.shape}"
            raise InvalidInput(
                f"known variances of the noise must be finite and not negative, one per row; got {held}."
            )
        object.__setattr__(self, "known", tuple(known.tolist()))  # likelihoods compare and hash

    def located(self, X: Array) -> Self:
        """The same, after a look at whether there is one known variance per row, and noise where there are weights."""
        if self.known is not None and len(self.known) != len(X):
            raise InvalidInput(f"there are {len(self.known)} known variances of the noise for {len(X)} rows.")
        if self.weights is not None and self.noise == 0.0 and (self.known is None or min(self.known) == 0.0):
            raise InvalidInput("weights need noise in every row: a target that is exact cannot count more or less.")
        return super().located(X)

    def row_noise(self, n: int) -> Array:
        """Variances of the noise of the n rows, of shape (n,)."""
        noise = float(bound_value(self, "noise"))
        return np.full(n, noise) if self.known is None else noise + np.array(self.known)

    def pull_back(self, dnoise: Array) -> Array:
        """Return the sum, the derivative in the noise that all rows share, of shape (1,)."""
        return dnoise.sum(keepdims=True)

    def noise_at(self, X: Array) -> Array:
        """Variance of the noise of a new observation at each row of X, of shape (m,), without what is `known`."""
        return np.full(len(X), float(bound_value(self, "noise")))


@dataclass(frozen=True)
class VaryingNoise(NoisyNumbers):
    """p(y | f) = N(y; f, noise exp(Σ_j weight_j φ_j(x))): noise that depends on the inputs (MacKay 1998, eq. 43).

    Parameters
    ----------
    noise : float or prior, optional
        Variance of the noise where all basis functions are 0.  Default: as of `Gaussian`.
    weight : float, sequence of float or prior, optional
        One per basis function.  Default prior: Normal(0, 1/√d) each for d inputs; with one, a factor of 0.14 to 7.
    basis : callable, optional
        Takes inputs of shape (n, d), on the scale of the model, to basis functions of shape (n, m), such as
        `kernels.RadialBasis`.  Default: the inputs themselves, φ_j(x) = x_j.
    """

    noise: Value = parameter("noise")
    weight: Value = parameter("log_noise", per_basis=True, support=REAL)
    basis: Basis | None = None

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return basis_names(self.basis, inputs)

    def located(self, X: Array) -> Self:
        """The same, with the basis functions at the rows of X."""
        return super().located(X)._with({"_values": basis_values(self.basis, X)})

    def row_noise(self, n: int) -> Array:
        """Variances of the noise of the n rows, of shape (n,)."""
        return self._noise(self._rows(n))

    def pull_back(self, dnoise: Array) -> Array:
        """Derivatives in `noise` and in the weights, of shape (1 + m,)."""
        B = self._rows(len(dnoise))
        slopes = dnoise * self._noise(B)  # with respect to log noise_i
        weights = B.T @ slopes if np.ndim(bound_value(self, "weight")) else np.atleast_1d(B.sum(axis=1) @ slopes)
        return np.concatenate([[slopes.sum() / float(bound_value(self, "noise"))], weights])

    def noise_at(self, X: Array) -> Array:
        """Variance of the noise of a new observation at each row of X, of shape (m,)."""
        return self._noise(basis_values(self.basis, X))

    def _noise(self, B: Array) -> Array:
        weight = bound_value(self, "weight")
        slopes = B @ weight if np.ndim(weight) else B.sum(axis=1) * weight
        return float(bound_value(self, "noise")) * np.exp(slopes)

    def _rows(self, n: int) -> Array:
        values = self.__dict__.get("_values")
        if values is None or len(values) != n:
            raise InvalidInput("VaryingNoise has not been told the inputs of these rows: use located(X), or Model.")
        return np.asarray(values)
