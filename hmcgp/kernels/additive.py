"""Sums over the inputs: one function of each column, and straight lines whose slopes vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import InducingPullback, Kernel, Owner, Parameter, Pullback
from hmcgp.parameters.units import Units, joined
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Additive(Kernel):
    """Σ_k k_k(x_k, x'_k): a sum of independent functions, one of each input.

    Every parameter that the kernel leaves open has one value per input: `variance[FL]`, `length_scale[FL]`, ….

    Parameters
    ----------
    kernel : Kernel
        Of one input.
    """

    kernel: Kernel
    in_units: tuple[Kernel, ...] = field(  # of each column, standardised
        default=(), kw_only=True, repr=False, metadata={"noted": True}
    )
    per_column: tuple[Kernel, ...] = field(default=(), init=False, repr=False)  # once they have values

    def _kernels(self, n_inputs: int) -> tuple[Kernel, ...]:
        return self.per_column or self.in_units or (self.kernel,) * n_inputs

    def _columns(self, X: Array) -> list[tuple[Kernel, Array]]:
        kernels = self._kernels(X.shape[1])
        if len(kernels) != X.shape[1]:
            raise InvalidInput(f"'X' must have {len(kernels)} columns, one for each kernel of the sum; got {X.shape}.")
        return [(k, np.ascontiguousarray(X[:, i : i + 1])) for i, k in enumerate(kernels)]

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        K, pulls = np.zeros((len(X), len(X))), []
        for kernel, x in self._columns(X):
            part, pull = kernel.vjp(x)
            K += part
            pulls.append(pull)
        return K, lambda G: self._gathered([pull(G) for pull in pulls])

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        K, k, pulls = np.zeros((len(X), len(Z))), np.zeros(len(X)), []
        for (kernel, x), (_, z) in zip(self._columns(X), self._columns(Z), strict=True):
            part, own, pull = kernel.inducing_vjp(x, z)
            K += part
            k += own
            pulls.append(pull)
        return K, k, lambda G, g: self._gathered([pull(G, g) for pull in pulls])

    def _gathered(self, per_column: list[Array]) -> Array:
        """Derivatives parameter by parameter, from those column by column."""
        stops = np.cumsum([p.size for p in self.kernel.parameters([""])])[:-1]
        return np.concatenate([part.ravel() for part in np.split(np.array(per_column), stops, axis=1)])

    def input_vjp(self, X: Array, G: Array) -> Array:
        return np.hstack([kernel.input_vjp(x, G) for kernel, x in self._columns(X)])

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        if X2 is None:
            return sum((kernel(x) for kernel, x in self._columns(X)), np.zeros((len(X), len(X))))
        pairs = zip(self._columns(X), self._columns(X2), strict=True)
        return sum((kernel(x, x2) for (kernel, x), (_, x2) in pairs), np.zeros((len(X), len(X2))))

    def diag(self, X: Array) -> Array:
        return sum((kernel.diag(x) for kernel, x in self._columns(X)), np.zeros(len(X)))

    def summands(self, inputs: Sequence[str]) -> list[tuple[str, Kernel]]:
        kernels = self._kernels(len(inputs))
        return [(name, k.on(i)) for i, (name, k) in enumerate(zip(inputs, kernels, strict=True))]

    def in_standard_units(self, units: Units) -> Kernel:
        columns = [units.chosen([i]) for i in range(len(units.spread))]
        return self._with({"in_units": tuple(self.kernel.in_standard_units(column) for column in columns)})

    def _tree(self, inputs: Sequence[str], owner: Owner) -> list[tuple[Owner, Parameter]]:
        inside = self._child_owner("kernel", self.kernel, owner)
        kernels = zip(self.in_units or (self.kernel,) * len(inputs), inputs, strict=True)
        columns = [kernel._tree([name], inside) for kernel, name in kernels]
        found = []
        for same in zip(*columns, strict=True):  # one parameter in every column
            part, p = same[0]
            labels = tuple(
                name if p.size == 1 else f"{name}: {label}"
                for name, (_, q) in zip(inputs, same, strict=True)
                for label in (q.labels or ("",))
            )
            each = [q for _, q in same]
            values = [q.value for q in each]
            fixed = not p.is_free
            value = tuple(np.hstack(values).tolist()) if fixed else joined(values, [q.size for q in each])
            unit = None if None in [q.unit for q in each] else _joined_units(each)
            p = p._replace(size=len(labels), labels=labels, value=value, unit=unit, inputs=tuple(inputs))
            if p.role == "variance":  # of one term: the default prior is about their sum
                p = p._replace(role="part_variance", n_inputs=len(inputs))
            found.append((part, p))
        return found

    def with_positions(self, inputs: Sequence[str]) -> Kernel:
        in_units = tuple(k.with_positions([name]) for k, name in zip(self.in_units, inputs, strict=False))
        return self._with({"kernel": self.kernel.with_positions(inputs[:1]), "in_units": in_units})

    def _take_values(self, remaining: list[Any]) -> Self:
        one = self.kernel.parameters([""])
        vectors = [np.asarray(remaining.pop(0), dtype=float).reshape(-1, p.size) for p in one]
        rows = list(zip(*vectors, strict=True))
        per_column = tuple(
            kernel.with_values([v if p.labels is not None else float(v[0]) for p, v in zip(one, row, strict=True)])
            for kernel, row in zip(self.in_units or (self.kernel,) * len(rows), rows, strict=True)
        )
        return self._with({"per_column": per_column})


def _joined_units(each: Sequence[Parameter]) -> tuple[float, ...]:
    """Units of all components of one parameter of several columns."""
    return tuple(np.concatenate([np.broadcast_to(np.asarray(q.unit), q.size) for q in each]).tolist())


@dataclass(frozen=True)
class LocallyLinear(Kernel):
    """x·x' C_slope(x, x') + C_offset(x, x'): a straight line whose slopes and offset vary over the input space.

    O'Hagan's (1978) localised regression f(x) = x·w(x) + b(x), where each component of w is an independent function
    with covariance C_slope, and b has covariance C_offset (MacKay 1998).

    Parameters
    ----------
    slope, offset : Kernel
    """

    slope: Kernel
    offset: Kernel

    def _child_owner(self, role: str, child: Kernel, own: Owner) -> Owner:
        name = own.within + role
        return Owner(name, f"{name}.")

    def _child_units(self, units: Units, role: str) -> Units:
        """Slopes are in the units of y per unit of the inputs, where all have the same."""
        if role == "offset":
            return units
        unit = units.of((-1.0, 1.0), each=False)
        return units.with_target(*([] if unit is None or isinstance(unit, tuple) else [unit]))

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        inner = X @ X.T
        C_slope, pull_slope = self.slope.vjp(X)
        C_offset, pull_offset = self.offset.vjp(X)
        return inner * C_slope + C_offset, lambda G: np.concatenate([pull_slope(G * inner), pull_offset(G)])

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        inner, square = X @ Z.T, np.sum(X**2, axis=1)
        K1, k1, pull1 = self.slope.inducing_vjp(X, Z)
        K2, k2, pull2 = self.offset.inducing_vjp(X, Z)
        return (
            inner * K1 + K2,
            square * k1 + k2,
            lambda G, g: np.concatenate([pull1(G * inner, g * square), pull2(G, g)]),
        )

    def input_vjp(self, X: Array, G: Array) -> Array:
        through = self.slope.input_vjp(X, G * (X @ X.T)) + self.offset.input_vjp(X, G)
        return through + 2.0 * (G * self.slope(X)) @ X

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return X @ (X if X2 is None else X2).T * self.slope(X, X2) + self.offset(X, X2)

    def diag(self, X: Array) -> Array:
        return np.sum(X**2, axis=1) * self.slope.diag(X) + self.offset.diag(X)
