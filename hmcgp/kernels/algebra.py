"""Kernels made of kernels: sum, product, scaling, and restriction to some columns.

(k1 + k2)   K = K1 + K2      G pulls back to both unchanged
(k1 * k2)   K = K1 ∘ K2      G pulls back to k1 as G ∘ K2 and to k2 as G ∘ K1
a k         K = a K1         Σ G ∘ K1 for a, and a G for k
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import InducingPullback, Kernel, Owner, Pullback, Value, parameter, value_of
from hmcgp.kernels.nonstationary import Constant, pull_constant
from hmcgp.kernels.together import CurveAndLine
from hmcgp.parameters.units import Units
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class _Pair(Kernel):
    left: Kernel
    right: Kernel

    def children(self) -> dict[str, Kernel]:
        return {"left": self.left, "right": self.right}


@dataclass(frozen=True)
class Wrapped(Kernel):
    """Base class of kernels that wrap another one."""

    kernel: Kernel


@dataclass(frozen=True)
class Mapped(Wrapped):
    """k(u(x), u(x'))."""

    @abstractmethod
    def _map(self, X: Array) -> Array:
        """Transformed inputs u(x), one row per row of X."""

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        return self.kernel.vjp(self._map(X))

    def add_vjp(self, K: Array, X: Array, offset: float, out: Array) -> Pullback:
        own = type(self).vjp is Mapped.vjp  # a class may have another
        return (self.kernel.add_vjp if own else super().add_vjp)(K, self._map(X) if own else X, offset, out)

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        return self.kernel.inducing_vjp(self._map(X), self._map(Z))

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return self.kernel(self._map(X), None if X2 is None else self._map(X2))

    def add_to(self, K: Array, X: Array, X2: Array | None) -> None:
        if type(self).__call__ is not Mapped.__call__:  # a class may have another
            super().add_to(K, X, X2)
        else:
            self.kernel.add_to(K, self._map(X), None if X2 is None else self._map(X2))

    def diag(self, X: Array) -> Array:
        return self.kernel.diag(self._map(X))


@dataclass(frozen=True)
class _Nameless(Wrapped):
    """Base class of wrappers whose parameters go by the name of the kernel inside."""

    def _label(self) -> str:
        return self.kernel._label()

    def _child_owner(self, role: str, child: Kernel, own: Owner) -> Owner:
        return own


@dataclass(frozen=True)
class Sum(_Pair):
    """k1(x, x') + k2(x, x')."""

    def _terms(self) -> list[Kernel]:
        """Kernels that are added, in the order of the formula."""
        sides = (side._terms() if type(side) is Sum else [side] for side in (self.left, self.right))
        return [term for terms in sides for term in terms]

    @staticmethod
    def _split(terms: list[Kernel]) -> tuple[int, list[int], float]:
        """Place of a first term, no constant if possible, those of others that are none, and the sum of the rest."""
        others, offset = [], 0.0
        first = next((i for i, term in enumerate(terms) if type(term) is not Constant), 0)
        for i, term in enumerate(terms):
            if type(term) is not Constant and i != first:
                others.append(i)
            elif i != first:
                offset += float(value_of(term, "variance"))
        return first, others, offset

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        terms = self._terms()
        together = CurveAndLine.of(terms, X)
        if together is not None:
            return together.vjp()
        first, others, offset = self._split(terms)
        pulls: list[Pullback] = [pull_constant] * len(terms)
        K, pulls[first] = terms[first].vjp(X)  # of which a pullback may make use: not to be written to
        total = np.empty(K.shape)
        if not others:
            np.add(K, offset, out=total)
        for i in others:
            pulls[i] = terms[i].add_vjp(K, X, offset, total)
            K, offset = total, 0.0
        return total, lambda G: np.concatenate([pull(G) for pull in pulls])

    def input_vjp(self, X: Array, G: Array) -> Array:
        return self.left.input_vjp(X, G) + self.right.input_vjp(X, G)

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        K1, k1, pull1 = self.left.inducing_vjp(X, Z)
        K2, k2, pull2 = self.right.inducing_vjp(X, Z)
        return K1 + K2, k1 + k2, lambda G, g: np.concatenate([pull1(G, g), pull2(G, g)])

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        terms = self._terms()
        together = CurveAndLine.of(terms, X) if X2 is None else None
        if together is not None:
            return together.covariance()
        first, others, offset = self._split(terms)
        K = np.add(terms[first](X, X2), offset)  # a new array
        for i in others:
            terms[i].add_to(K, X, X2)
        return K

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) + self.right.diag(X)

    def summands(self, inputs: Sequence[str]) -> list[tuple[str, Kernel]]:
        return [*self.left.summands(inputs), *self.right.summands(inputs)]


@dataclass(frozen=True)
class Product(_Pair):
    """k1(x, x') k2(x, x')."""

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        K1, pull1 = self.left.vjp(X)
        K2, pull2 = self.right.vjp(X)
        return K1 * K2, lambda G: np.concatenate([pull1(G * K2), pull2(G * K1)])

    def input_vjp(self, X: Array, G: Array) -> Array:
        return self.left.input_vjp(X, G * self.right(X)) + self.right.input_vjp(X, G * self.left(X))

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        K1, k1, pull1 = self.left.inducing_vjp(X, Z)
        K2, k2, pull2 = self.right.inducing_vjp(X, Z)
        return K1 * K2, k1 * k2, lambda G, g: np.concatenate([pull1(G * K2, g * k2), pull2(G * K1, g * k1)])

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return self.left(X, X2) * self.right(X, X2)

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) * self.right.diag(X)

    def _child_units(self, units: Units, role: str) -> Units:
        """One factor is in the units of y²: the first whose variance is left open, else the first that has one."""
        first = self.left._amplitude() >= self.right._amplitude()
        return units if first == (role == "left") else units.with_target(1.0)


@dataclass(frozen=True)
class Scaled(_Nameless):
    """scale * k(x, x').

    Parameters
    ----------
    kernel : Kernel
    scale : float or prior
    """

    scale: Value = parameter("variance")

    def _dimension(self, f: Any) -> tuple[float, float]:
        return (0.0, 0.0 if self.kernel._amplitude() else 2.0)  # a factor, where the kernel has a variance

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        scale = value_of(self, "scale")
        K, pull = self.kernel.vjp(X)
        return scale * K, lambda G: np.append(scale * pull(G), np.vdot(G, K))

    def input_vjp(self, X: Array, G: Array) -> Array:
        return np.asarray(value_of(self, "scale") * self.kernel.input_vjp(X, G))

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        scale = value_of(self, "scale")
        K, k, pull = self.kernel.inducing_vjp(X, Z)
        return scale * K, scale * k, lambda G, g: np.append(scale * pull(G, g), np.vdot(G, K) + g @ k)

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return np.asarray(value_of(self, "scale") * self.kernel(X, X2))

    def diag(self, X: Array) -> Array:
        return np.asarray(value_of(self, "scale") * self.kernel.diag(X))

    def summands(self, inputs: Sequence[str]) -> list[tuple[str, Kernel]]:
        return [(name, Scaled(term, self.scale)) for name, term in self.kernel.summands(inputs)]


@dataclass(frozen=True)
class On(_Nameless, Mapped):
    """k(x_S, x'_S): a kernel of some of the columns.

    Parameters
    ----------
    kernel : Kernel
    columns : tuple of int or str
        Positions or names; `with_positions` turns names into positions.
    """

    columns: tuple[int | str, ...]

    def _positions(self, inputs: Sequence[str]) -> list[int]:
        if not self.columns:
            raise InvalidInput("'columns' of on() is empty; name at least one input.")
        positions = [_position(c, inputs) for c in self.columns]
        if len(set(positions)) < len(positions):
            raise InvalidInput(f"'columns' of on() names an input twice: {list(self.columns)}.")
        return positions

    def _child_inputs(self, inputs: Sequence[str]) -> Sequence[str]:
        return [inputs[i] for i in self._positions(inputs)]

    def _child_units(self, units: Units, role: str) -> Units:
        if any(isinstance(c, str) for c in self.columns):
            raise InvalidInput(f"the kernel acts on {list(self.columns)}: use with_positions(names) first.")
        return units.chosen([int(c) for c in self.columns])

    def with_positions(self, inputs: Sequence[str]) -> Kernel:
        return On(self.kernel.with_positions(self._child_inputs(inputs)), tuple(self._positions(inputs)))

    def _map(self, X: Array) -> Array:
        if any(isinstance(c, str) for c in self.columns):
            raise InvalidInput(
                f"the kernel acts on the columns {list(self.columns)}, and does not know where they are: use "
                "kernel.with_positions(names), with the names of all inputs, or give it to Model or an estimator."
            )
        return np.ascontiguousarray(X[:, np.asarray(self.columns, dtype=int)])

    def summands(self, inputs: Sequence[str]) -> list[tuple[str, Kernel]]:
        return [(name, On(term, self.columns)) for name, term in self.kernel.summands(self._child_inputs(inputs))]

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Derivatives with respect to X (see `Kernel.input_vjp`); 0 in the columns that are not seen."""
        dX = np.zeros(X.shape)
        dX[:, np.asarray(self.columns, dtype=int)] = self.kernel.input_vjp(self._map(X), G)
        return dX


@dataclass(frozen=True)
class Stretched(_Nameless, Mapped):
    """k(a x, a x'), each input multiplied by a factor: brings standardised inputs to one scale.

    Parameters
    ----------
    kernel : Kernel
    factors : tuple of float
        One for each input.
    """

    factors: tuple[float, ...]

    def _map(self, X: Array) -> Array:
        return np.ascontiguousarray(X * np.array(self.factors))

    def input_vjp(self, X: Array, G: Array) -> Array:
        return self.kernel.input_vjp(self._map(X), G) * np.array(self.factors)


def _position(column: int | str, inputs: Sequence[str]) -> int:
    if isinstance(column, str):
        if column not in inputs:
            raise InvalidInput(
                f"the kernel acts on column {column!r}, which is not among the inputs: {', '.join(inputs)}."
            )
        return list(inputs).index(column)
    if not -len(inputs) <= column < len(inputs):
        raise InvalidInput(
            f"the kernel acts on column {column}, but there are only {len(inputs)} inputs: {', '.join(inputs)}."
        )
    return column % len(inputs)
