"""Covariance functions of categories, given as integer codes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from hmcgp.kernels.base import (
    InducingPullback,
    Kernel,
    Pullback,
    Value,
    check_columns,
    parameter,
    sum_if_shared,
    transposed,
    value_of,
)
from hmcgp.numerics.compiled import compiled_with_lock
from hmcgp.runtime.typing import Array


@compiled_with_lock
def _exponents(Z: Array, Z2: Array, weight: Array) -> Array:
    """-Σ_k weight_k [z_k ≠ z'_k] between the n columns of Z and the m columns of Z2, of shape (n, m)."""
    n, m = Z.shape[1], Z2.shape[1]
    out = np.zeros((n, m))
    for i in range(n):
        for k in range(Z.shape[0]):
            for j in range(m):
                out[i, j] -= weight[k] * (Z[k, i] != Z2[k, j])  # no branch: nobody could predict it
    return out


@compiled_with_lock
def _pull_back(S: Array, Z: Array) -> Array:
    """Σ_ij S_ij [z_ik ≠ z_jk] for each input k, from the lower triangle of a symmetric S."""
    d, n = Z.shape
    out = np.zeros(d)
    for i in range(n):
        for k in range(d):
            for j in range(i):
                out[k] += S[i, j] * (Z[k, i] != Z[k, j])
    return 2.0 * out


@compiled_with_lock
def _pull_back_cross(S: Array, Z: Array, Z2: Array) -> Array:
    """Σ_ij S_ij [z_ik ≠ z2_jk] for each input k, for S of shape (n, m)."""
    d, (n, m) = Z.shape[0], S.shape
    out = np.zeros(d)
    for i in range(n):
        for k in range(d):
            for j in range(m):
                out[k] += S[i, j] * (Z[k, i] != Z2[k, j])
    return out


@dataclass(frozen=True)
class _OfCodes(Kernel):
    """Covariance function of columns of codes."""

    @abstractmethod
    def _covariance(self, Z: Array, Z2: Array) -> Array:
        """Covariances between the n columns of Z and the m of Z2, one row for each column of codes."""

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        Z = transposed(X)
        Z2 = Z if X2 is None else transposed(X2)
        check_columns(len(Z), len(Z2))
        return self._covariance(Z, Z2)


@dataclass(frozen=True)
class Categorical(_OfCodes):
    """exp(-Σ_k weight_k (1 - δ(x_k, x'_k))), δ = 1 for equal categories and 0 for different ones.

    For columns of integer codes (Kim & Ghahramani 2006, eq. 10).  Its variance is 1: multiply it by the kernel of the
    other columns, `SquaredExponential().on([0, 1]) * Categorical().on([2])`, and each category has a function of its
    own, that resembles the others by exp(-weight).  A category that was not among the training rows is as different
    from all of them as they are from each other.

    Parameters
    ----------
    weight : float, sequence of float or prior, optional
        One for all columns or, with `ard`, one per column; near 0 where the category hardly matters.
    ard : bool, default=False
        One weight per column.
    """

    weight: Value = parameter("weight", per_input=True)
    ard: bool = False

    def _covariance(self, Z: Array, Z2: Array) -> Array:
        weight = np.broadcast_to(np.asarray(value_of(self, "weight"), dtype=float), len(Z)).copy()
        return np.exp(_exponents(Z, Z2, weight))

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        Z = transposed(X)
        K = self._covariance(Z, Z)

        return K, lambda G: sum_if_shared(self.weight, -_pull_back(G * K, Z))

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        left, right = transposed(X), transposed(Z)
        K = self._covariance(left, right)
        return K, self.diag(X), lambda G, g: sum_if_shared(self.weight, -_pull_back_cross(G * K, left, right))

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))


@dataclass(frozen=True)
class CategoryEffects(_OfCodes):
    """Σ_k variance_k δ(x_k, x'_k), δ = 1 for equal categories and 0 for different ones.

    A sum of one effect for each category of each column, all independent: `Linear` of columns with one 0 or 1 for each
    category.  `Categorical` lets categories change the function of the other inputs; this adds a number to it,
    `SquaredExponential().on([0, 1]) * Categorical().on([2]) + CategoryEffects().on([2])`.  A category that was not
    among the training rows has an effect of mean zero.

    Parameters
    ----------
    variance : float, sequence of float or prior, optional
        Of the effects; one for all columns or, with `ard`, one per column.
    ard : bool, default=False
        One variance per column.
    """

    variance: Value = parameter("variance", per_input=True)
    ard: bool = False

    def _covariance(self, Z: Array, Z2: Array) -> Array:
        variance = self._variances(len(Z))
        return variance.sum() + _exponents(Z, Z2, variance)  # equal ones: all less those that differ

    def _variances(self, d: int) -> Array:
        return np.broadcast_to(np.asarray(value_of(self, "variance"), dtype=float), d).copy()

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        Z = transposed(X)
        return self._covariance(Z, Z), lambda G: sum_if_shared(self.variance, G.sum() - _pull_back(G, Z))

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        left, right = transposed(X), transposed(Z)

        def pullback(G: Array, g: Array) -> Array:
            return sum_if_shared(self.variance, G.sum() - _pull_back_cross(G, left, right) + g.sum())

        return self._covariance(left, right), self.diag(X), pullback

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self._variances(X.shape[1]).sum())
