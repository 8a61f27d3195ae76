"""Likelihoods of numbers: the latent value plus independent Gaussian noise.

Each gives the variance of the noise of every row.  An evidence provider returns ∂ log Z/∂noise_i, which `pull_back`
takes to the parameters of the likelihood, as a kernel's pullback takes ∂ log Z/∂K to its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Derivatives, Likelihood
from hmcgp.numerics.basis import Basis, basis_names, basis_values
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import REAL, Value, value_of
from hmcgp.parameters.units import Unit, Units
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class NoisyNumbers(Likelihood):
    """Base class: p(y_i | f_i) = N(y_i; f_i, noise_i)."""

    targets: ClassVar[str] = "numbers"
    is_gaussian: ClassVar[bool] = True  # otherwise the noise has this variance, and another distribution

    @abstractmethod
    def row_noise(self, n: int) -> Array:
        """Variances of the noise of the n rows that the likelihood explains, of shape (n,)."""

    def pull_back(self, dnoise: Array) -> Array:
        """Derivatives in the parameters, from those in the variances of the rows, of shape (n,)."""
        raise InvalidInput(f"the noise of {type(self).__name__} is not Gaussian: its evidence has no closed form.")

    @abstractmethod
    def noise_at(self, X: Array) -> Array:
        """Variance of the noise of a new observation at each row of X, of shape (m,)."""

    def _of_rows(self, n: int, what: str) -> Any:
        """Values that `for_rows` has found for n rows."""
        values = self.__dict__.get("_row_values")
        if values is None or len(values) != n:
            name = type(self).__name__
            raise InvalidInput(f"{name} has not been told the {what} of these rows: use for_rows(X), or Model.")
        return values

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless every target is a finite number."""
        bad = np.flatnonzero(~np.isfinite(y).reshape(len(y), -1).all(axis=1))
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
        """Log predictive density of the rows, log N(y; mean, variance + noise) (see `Likelihood.log_average`).

        Of shape (n,), or (n, k) for k columns of targets that share the variance.
        """
        total = variance + self.row_noise(len(y))
        return np.asarray(-0.5 * ((y - mean).T ** 2 / total + np.log(2.0 * math.pi * total))).T

    def predictive_distribution(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """P(y* < y) and P(y* <= y), which are equal (see `Likelihood.predictive_distribution`)."""
        p = ndtr((y - mean).T / np.sqrt(variance + self.row_noise(len(y)))).T
        return p, p

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), exactly.

        From N(y; f, s)^ω = N(√ω y; √ω f, s) (2πs)^((1 - ω)/2).
        """
        weights, noise = self.row_weights(len(y)), self.row_noise(len(y))
        total = weights * variance + noise
        log_p = -0.5 * weights * (y - mean).T ** 2 / total - 0.5 * np.log(2.0 * math.pi * total)
        return np.asarray(log_p + 0.5 * (1.0 - weights) * np.log(2.0 * math.pi * noise)).T


def is_gaussian(likelihood: Likelihood) -> bool:
    """Whether observations are numbers, and Gaussian given the latent function."""
    return isinstance(likelihood, NoisyNumbers) and likelihood.is_gaussian


@dataclass(frozen=True)
class Gaussian(NoisyNumbers):
    """p(y | f) = N(y; f, noise): targets that are numbers, observed with independent noise.

    Parameters
    ----------
    noise : float or prior, optional
        *Variance* of the noise, in the units of y squared, as `variance` is that of the function.  0 where there is
        none, or none beside `known`.  Default: a prior for targets of mean 0 and variance 1,
        LogNormal(-3, 2, lower=1e-6), with median 0.05 and 95 % within 0.001 to 2.5 (of standardised targets, where an
        estimator standardises).
    known : sequence of float, optional
        Known variances, one for each row, to which `noise` is added.
    """

    noise: Value = parameter("noise", allowed=(0.0,))
    known: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "known", _checked(self.known))

    def for_rows(self, X: Array) -> Self:
        """Check that there is one known variance per row, and noise where there are weights."""
        _check_rows(self, X)
        return super().for_rows(X)

    def row_noise(self, n: int) -> Array:
        noise = float(value_of(self, "noise"))
        return np.full(n, noise) if self.known is None else noise + np.array(self.known)

    def pull_back(self, dnoise: Array) -> Array:
        return dnoise.sum(keepdims=True)

    def noise_at(self, X: Array) -> Array:
        """Variance of the noise of a new observation at each row of X, of shape (m,), without what is `known`."""
        return np.full(len(X), float(value_of(self, "noise")))


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
        Takes inputs of shape (n, d), in the units of the table, to basis functions of shape (n, m), such as
        `kernels.RadialBasis`.  Default: the inputs themselves, φ_j(x) = x_j (where an estimator standardises, from
        their means).
    """

    noise: Value = parameter("noise")
    weight: Value = parameter("log_noise", per_basis=True, support=REAL)
    basis: Basis | None = None
    _functions = ("basis",)

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return basis_names(self.basis, inputs)

    def for_rows(self, X: Array) -> Self:
        """Likelihood that knows the basis functions at the rows of X."""
        return super().for_rows(X)._with({"_row_values": basis_values(self.basis, X)})

    def row_noise(self, n: int) -> Array:
        return self._noise(self._of_rows(n, "inputs"))

    def pull_back(self, dnoise: Array) -> Array:
        """Derivatives in `noise` and in the weights, of shape (1 + m,)."""
        B = self._of_rows(len(dnoise), "inputs")
        slopes = dnoise * self._noise(B)  # with respect to log noise_i
        weights = B.T @ slopes if np.ndim(value_of(self, "weight")) else np.atleast_1d(B.sum(axis=1) @ slopes)
        return np.concatenate([[slopes.sum() / float(value_of(self, "noise"))], weights])

    def noise_at(self, X: Array) -> Array:
        return self._noise(basis_values(self.basis, X))

    def _noise(self, B: Array) -> Array:
        weight = value_of(self, "weight")
        slopes = B @ weight if np.ndim(weight) else B.sum(axis=1) * weight
        return float(value_of(self, "noise")) * np.exp(slopes)


@dataclass(frozen=True)
class OutputNoise(NoisyNumbers):
    """p(y | f) = N(y; f, noise_a) for targets of output a, whose number 0, 1, … is the last input of the row.

    The likelihood that goes with `kernels.Coregional`.

    Parameters
    ----------
    outputs : sequence of str
        Names of the outputs.
    noise : float, sequence of float or prior, optional
        Variance of the noise, for all outputs or one for each.  Default: each under the prior of `Gaussian`.
    known : sequence of float, optional
        Known variances, one for each row, to which `noise` is added.
    """

    outputs: tuple[str, ...]
    noise: Value = parameter("noise", per_basis=True, allowed=(0.0,))
    known: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", tuple(map(str, self.outputs)))
        super().__post_init__()
        object.__setattr__(self, "known", _checked(self.known))

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return self.outputs

    def _unit_of(self, f: Any, units: Units) -> Unit:
        return tuple(target**2 for target in units.target)

    def for_rows(self, X: Array) -> Self:
        """Likelihood that knows the output of each row of X."""
        _check_rows(self, X)
        return super().for_rows(X)._with({"_row_values": self._output_of(X)})

    def row_noise(self, n: int) -> Array:
        noise = self._variances()[self._of_rows(n, "outputs")]
        return noise if self.known is None else noise + np.array(self.known)

    def pull_back(self, dnoise: Array) -> Array:
        """Derivatives in the noise of each output, of shape (k,); their sum, of shape (1,), where they share one."""
        numbers = self._of_rows(len(dnoise), "outputs")
        per_output = np.bincount(numbers, weights=dnoise, minlength=len(self.outputs))
        return np.asarray(per_output if np.ndim(value_of(self, "noise")) else per_output.sum(keepdims=True))

    def noise_at(self, X: Array) -> Array:
        """Variance of the noise of a new observation at each row of X, of shape (m,), without what is `known`."""
        return self._variances()[self._output_of(X)]

    def _variances(self) -> Array:
        return np.broadcast_to(np.asarray(value_of(self, "noise"), dtype=float), len(self.outputs))

    def _output_of(self, X: Array) -> NDArray[np.intp]:
        numbers = X[:, -1].astype(np.intp)
        if (numbers != X[:, -1]).any() or not ((numbers >= 0) & (numbers < len(self.outputs))).all():
            raise InvalidInput(
                f"the last input must be the number of the output, 0 to {len(self.outputs) - 1}; got {set(X[:, -1])}."
            )
        return numbers


def _checked(known: Sequence[float] | None) -> tuple[float, ...] | None:
    """Known variances as a tuple: likelihoods compare and hash."""
    if known is None:
        return None
    values = np.asarray(known, dtype=float)
    bad = np.flatnonzero(~((values >= 0.0) & (values < math.inf)))
    if values.ndim != 1 or len(bad):
        held = f"a value of {values[bad[0]]} in row {bad[0]}" if values.ndim == 1 else f"the shape {values.shape}"
        raise InvalidInput(f"known variances of the noise must be finite and not negative, one per row; got {held}.")
    return tuple(values.tolist())


def _check_rows(likelihood: Gaussian | OutputNoise, X: Array) -> None:
    """Refuse known variances that are not one per row, and weights of rows without noise."""
    known = likelihood.known
    if known is not None and len(known) != len(X):
        raise InvalidInput(f"there are {len(known)} known variances of the noise for {len(X)} rows.")
    exact = 0.0 in np.atleast_1d(np.asarray(likelihood.noise, dtype=object))
    if likelihood.weights is not None and exact and (known is None or min(known) == 0.0):
        raise InvalidInput("weights need noise in every row: a target that is exact cannot count more or less.")
