"""One kernel at several values of its parameters: the covariances of all of them at once.

For few rows, Python for each of them would take most of the time.  A squared exponential, a line and a constant are
known here, and sums from their two sides; other kernels are asked one by one.  The numbers are those of the kernels
themselves, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hmcgp.kernels import contract
from hmcgp.kernels.algebra import Sum
from hmcgp.kernels.base import Kernel, value_of
from hmcgp.kernels.compiled import stationary as core
from hmcgp.kernels.nonstationary import Constant, Linear
from hmcgp.kernels.stationary import SquaredExponential
from hmcgp.runtime.typing import Array


class SeveralKernels(Protocol):
    """S kernels of one formula, with every parameter a number."""

    def cross_covariances(self, X: Array, X2: Array) -> Array:
        """Covariances between the rows of X and of X2, of shape (S, m, n)."""
        ...

    def variances(self, X: Array) -> Array:
        """Prior variances at the rows of X, of shape (S, m)."""
        ...


def several(kernels: Sequence[Kernel]) -> SeveralKernels:
    """Kernels of one formula, to be asked together."""
    one_by_one = _OneByOne(list(kernels))
    kinds = {type(kernel) for kernel in kernels}
    if kinds == {Sum}:
        left, right = (several([getattr(kernel, side) for kernel in kernels]) for side in ("left", "right"))
        return _Sums(left, right)
    if kinds == {Constant}:
        return _Constants(np.array([float(value_of(kernel, "variance")) for kernel in kernels]))
    if kinds == {Linear} and (slopes := _stacked(kernels, "variance")) is not None:
        return _Lines(one_by_one, slopes)
    if kinds == {SquaredExponential} and (scales := _stacked(kernels, "length_scale")) is not None:
        variance = np.array([float(value_of(kernel, "variance")) for kernel in kernels])
        return _SquaredExponentials(one_by_one, variance, scales)
    return one_by_one


def _stacked(kernels: Sequence[Kernel], name: str) -> Array | None:
    """Values of a parameter of each kernel, of shape (S, 1) or (S, d); None if their numbers differ."""
    values = [np.atleast_1d(np.asarray(value_of(kernel, name), dtype=float)) for kernel in kernels]
    return np.array(values) if len({value.shape for value in values}) == 1 else None


@dataclass(frozen=True, eq=False)
class _OneByOne:
    kernels: list[Kernel]

    def cross_covariances(self, X: Array, X2: Array) -> Array:
        return np.array([contract.cross_covariance(kernel, X, X2) for kernel in self.kernels])

    def variances(self, X: Array) -> Array:
        return np.array([contract.variances(kernel, X) for kernel in self.kernels])


@dataclass(frozen=True, eq=False)
class _Sums:
    left: SeveralKernels
    right: SeveralKernels

    def cross_covariances(self, X: Array, X2: Array) -> Array:
        return self.left.cross_covariances(X, X2) + self.right.cross_covariances(X, X2)

    def variances(self, X: Array) -> Array:
        return self.left.variances(X) + self.right.variances(X)


@dataclass(frozen=True, eq=False)
class _Constants:
    variance: Array  # (S,)

    def cross_covariances(self, X: Array, X2: Array) -> Array:
        return np.broadcast_to(self.variance[:, None, None], (len(self.variance), len(X), len(X2)))

    def variances(self, X: Array) -> Array:
        return np.broadcast_to(self.variance[:, None], (len(self.variance), len(X)))


@dataclass(frozen=True, eq=False)
class _Lines:
    others: _OneByOne
    slopes: Array  # (S, 1) or (S, d)

    def cross_covariances(self, X: Array, X2: Array) -> Array:
        if X.shape[1] != X2.shape[1] or self.slopes.shape[1] not in (1, X.shape[1]):
            return self.others.cross_covariances(X, X2)  # which says what is wrong
        root = np.sqrt(self.slopes)[:, None]  # on both sides, as in `inner_products`
        return np.asarray((X * root) @ (X2 * root).transpose(0, 2, 1))

    def variances(self, X: Array) -> Array:
        return np.asarray((X**2 * self.slopes[:, None]).sum(axis=2))


@dataclass(frozen=True, eq=False)
class _SquaredExponentials:
    others: _OneByOne
    variance: Array  # (S,)
    length_scale: Array  # (S, 1) or (S, d)

    def cross_covariances(self, X: Array, X2: Array) -> Array:
        if X.shape[1] != X2.shape[1] or self.length_scale.shape[1] not in (1, X.shape[1]):
            return self.others.cross_covariances(X, X2)  # compiled code does not look
        X, X2 = (np.ascontiguousarray(part, dtype=float) for part in (X, X2))
        return np.asarray(core.cross_covariances(X, X2, self.variance, self.length_scale))

    def variances(self, X: Array) -> Array:
        return np.repeat(self.variance[:, None], len(X), axis=1)
