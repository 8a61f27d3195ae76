"""Covariances of a function and its derivatives (MacKay 1998, eqs. 55 to 57).

    Cov(f(x), ∂f/∂x'_b) = ∂k/∂x'_b,     Cov(∂f/∂x_a, ∂f/∂x'_b) = ∂²k/∂x_a ∂x'_b

For k = variance φ(s), s = Σ_k (x_k - x'_k)²/ℓ_k², with F_m = variance d^mφ/ds^m, p = ∂s/∂x_a = 2 (x_a - x'_a)/ℓ_a² and
q = ∂s/∂x'_b = -2 (x_b - x'_b)/ℓ_b²:

    neither F_0       one of them F_1 p or F_1 q       both F_2 p q - 2 F_1 δ_ab/ℓ_a²

The derivative in log ℓ_k has two parts.  Through s it is -2 (x_k - x'_k)²/ℓ_k² times the same expression with every F_m
replaced by F_{m+1}; through p, q and δ/ℓ² it is -2 p for a = k, -2 q for b = k, and -2/ℓ_a² for a = k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import Kernel, Pullback, value_of
from hmcgp.kernels.compiled import stationary as core
from hmcgp.kernels.stationary import Matern, SquaredExponential, Stationary
from hmcgp.parameters.units import Units
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class WithDerivatives(Kernel):
    """Covariance of a function f and its derivatives; the last input says which of them a row observes.

    0 there means the value f(x), and k = 1, 2, … the derivative ∂f/∂x_k along the k-th of the other columns.  So slopes
    can be observed beside values, and predicted from them.

    Parameters
    ----------
    kernel : SquaredExponential or Matern
        Of f, smooth enough: `Matern` with `nu` 1.5 or 2.5.

    Notes
    -----
    The last column holds codes: keep it, and the units of slopes, out of any standardisation (`standardize=False`).
    Sums have the sum of the covariances: `WithDerivatives(k1) + WithDerivatives(k2)`.
    """

    kernel: Stationary

    def __post_init__(self) -> None:
        smooth = isinstance(self.kernel, SquaredExponential | Matern) and getattr(self.kernel, "nu", 2.5) > 0.5
        if not smooth:
            raise InvalidInput(
                "'kernel' of WithDerivatives must be SquaredExponential, or Matern with nu 1.5 or 2.5, whose functions "
                f"have a derivative; got {self.kernel!r}."
            )

    def _child_inputs(self, inputs: Sequence[str]) -> Sequence[str]:
        if len(inputs) < 2:
            raise InvalidInput(
                "WithDerivatives needs a last column that says what each row observes: 0 for the value, k for the "
                "derivative along the k-th input."
            )
        return inputs[:-1]

    def _child_units(self, units: Units, role: str) -> Units:
        return units.chosen(range(len(units.spread) - 1))

    def _rows(self, X: Array) -> _Rows:
        X = np.asarray(X, dtype=float)
        code, d = X[:, -1], X.shape[1] - 1
        if not np.all(np.isin(code, np.arange(d + 1))):
            raise InvalidInput(
                f"the last column must say what each row observes, 0 for the value or 1 to {d} for the derivative "
                f"along an input; got {np.unique(code).tolist()[:10]}."
            )
        along = code.astype(int) - 1  # -1 for a value
        ell = np.broadcast_to(value_of(self.kernel, "length_scale"), d)
        inverse = np.where(along >= 0, 1.0 / ell[along], 0.0)
        return _Rows(self.kernel._scaled(np.ascontiguousarray(X[:, :-1])), along, inverse)

    def _profile(self, s: Array) -> list[Array]:
        """F_0 to F_3; where one is infinite at s = 0 it is only needed times 0, and set to 0."""
        variance = float(value_of(self.kernel, "variance"))
        if not isinstance(self.kernel, Matern):
            E = variance * np.exp(-0.5 * s)
            return [E, -0.5 * E, 0.25 * E, -0.125 * E]
        t = np.sqrt(2.0 * self.kernel.nu * s)
        E = variance * np.exp(-t)
        over = np.divide(1.0, t, out=np.zeros_like(t), where=t > 0.0)
        if self.kernel.nu == 1.5:
            return [(1.0 + t) * E, -1.5 * E, 2.25 * over * E, -3.375 * (1.0 + over) * over**2 * E]
        return [(1.0 + t + t**2 / 3.0) * E, -5.0 / 6.0 * (1.0 + t) * E, 25.0 / 12.0 * E, -125.0 / 24.0 * over * E]

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        rows = self._rows(X)
        shape = _Shape(rows, rows)
        F = self._profile(shape.s)
        K = shape.combine(F[0], F[1], F[2])
        slope = shape.combine(F[1], F[2], F[3])  # what multiplies ∂s/∂log ℓ_k
        M = shape.combine(np.zeros(()), F[1], F[2], slopes=2.0)  # minus this is ∂K/∂log ℓ_a through p, q and 1/ℓ_a²

        def pullback(G: Array) -> Array:
            _, squares = core.pull_back(G, -2.0 * slope, rows.Z)
            own = -2.0 * np.sum(G * M, axis=1)
            np.add.at(squares, rows.along[rows.along >= 0], own[rows.along >= 0])
            return self.kernel._assemble(float(np.vdot(G, K)) / value_of(self.kernel, "variance"), squares)

        return K, pullback

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        rows = self._rows(X)
        shape = _Shape(rows, rows if X2 is None else self._rows(X2))
        return shape.combine(*self._profile(shape.s)[:3])

    def diag(self, X: Array) -> Array:
        """Prior variance at each row of X: of the value, or of the derivative, -2 F_1(0)/ℓ²."""
        F = self._profile(np.zeros(1))
        return np.where(X[:, -1] == 0.0, F[0], -2.0 * F[1] * self._rows(X).inverse ** 2)


class _Rows(NamedTuple):
    """Rows of the inputs, taken apart."""

    Z: Array  # (d, n), divided by length scales
    along: NDArray[np.int_]  # (n,), the input of the derivative, or -1
    inverse: Array  # (n,), 1/ℓ of that input, or 0


class _Shape:
    """Factors of the covariances between two sets of rows that do not depend on F."""

    def __init__(self, left: _Rows, right: _Rows) -> None:
        n, m = left.Z.shape[1], right.Z.shape[1]
        self.s = np.zeros((n, m))
        for a, b in zip(left.Z, right.Z, strict=True):
            self.s += (a[:, None] - b) ** 2
        i, j = np.arange(n), np.arange(m)
        self.a, self.b = (left.along >= 0)[:, None], right.along >= 0
        # p_ij and q_ij, taken as 1 where there is no derivative
        p = 2.0 * (left.Z[left.along, i][:, None] - right.Z[left.along]) * left.inverse[:, None]
        q = -2.0 * (left.Z[right.along].T - right.Z[right.along, j]) * right.inverse
        self.pq = np.where(self.a, p, 1.0) * np.where(self.b, q, 1.0)
        same = self.a & (left.along[:, None] == right.along)
        self.same = same * 2.0 * left.inverse[:, None] ** 2

    def combine(self, F0: Array, F1: Array, F2: Array, *, slopes: float = 1.0) -> Array:
        """Covariances, from φ and its first two derivatives; the terms with p and q are multiplied by `slopes`."""
        both, one = self.a & self.b, self.a ^ self.b
        return np.where(both, slopes * F2 * self.pq - F1 * self.same, np.where(one, slopes * F1 * self.pq, F0))
