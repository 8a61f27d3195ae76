"""Base class and algebra of covariance functions.

A kernel is a frozen value.  Its parameters (`hmcgp.parameters`) are numbers or priors, and kernels never look inside a
prior.  Once every parameter is a number,

    K, pullback = kernel.vjp(X)         K_ij = k(x_i, x_j)
    pullback(G)                         Σ_ij G_ij ∂K_ij/∂θ_k for every parameter k, in the order of `parameters`

in O(n² d) and without an (n, n, p) array.  Kernels combine:

    k1 + k2        sum of independent functions
    k1 * k2        product
    2.0 * k        scaled variance (a prior in place of the number makes it a parameter, `scale`)
    k.on([0, 2])   acts on some columns only (positions, or names when the inputs have names)

and `hmcgp.kernels.additive`, `.transformed` and `.derivatives` make more of them: one per column, of warped inputs, of
rescaled functions, of derivatives.

Numbers and priors are in the units of the inputs and of y as the user gave them, unless a kernel says
``standardized=True``; an estimator that standardises calls `in_standard_units` once.

A new kernel subclasses `Kernel` as a frozen dataclass, marks its parameters with `parameter(...)`, and defines `vjp`,
`__call__` and `diag`; `hmcgp.kernels.check_gradient` tests it.  All of them return float64 arrays that they do not
write to again, and leave X as it is: `hmcgp.kernels.contract` refuses a kernel that does otherwise.  `input_vjp` is
optional: only maps of the inputs that have parameters of their own need it.  `inducing_vjp`, the pullback of
cross-covariances that inducing inputs need, follows from `vjp`; a kernel may define a faster one, and `add_vjp` and
`add_to` for sums.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.parameters import Parameter, parameter
from hmcgp.parameters.declaration import Parametric, Value, is_number, value_of
from hmcgp.parameters.units import Units
from hmcgp.runtime.typing import Array

__all__ = ["InducingPullback", "Kernel", "Parameter", "Pullback", "Value", "parameter", "value_of"]

Pullback: TypeAlias = Callable[[Array], Array]
InducingPullback: TypeAlias = Callable[[Array, Array], Array]

_LEAST_BLOCK = 64  # rows whose covariances with the inducing inputs are pulled back at once


@dataclass(frozen=True, eq=False)
class Owner:
    """One kernel of a formula, with the name that its parameters go by; equal kernels are different owners."""

    name: str
    within: str = ""  # what the names of kernels inside begin with: "slope."


@dataclass(frozen=True)
class Kernel(Parametric, ABC):
    """Base class of covariance functions."""

    _most_inputs: ClassVar[float] = math.inf  # for which the formula is positive definite

    @abstractmethod
    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        """Covariance matrix of the rows of X and the pullback of its adjoint.

        Parameters
        ----------
        X : ndarray of shape (n, d)

        Returns
        -------
        K : ndarray of shape (n, n)
        pullback : callable
            Takes a symmetric G of shape (n, n) to the derivatives Σ G_ij ∂K_ij/∂θ, of shape (p,).
        """

    @abstractmethod
    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        """Covariance between the rows of X and those of X2 (or of X itself), of shape (n, m)."""

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """Prior variance k(x, x) at each row of X, of shape (n,)."""

    def add_vjp(self, K: Array, X: Array, offset: float, out: Array) -> Pullback:
        """Write K + offset + kernel(X) into `out`, which may be K, for a symmetric K; return the pullback of `vjp`.

        Sums call this for their second term and those after it; override it only for speed.
        """
        own, pullback = self.vjp(X)
        np.add(K, own, out=out)
        if offset:
            out += offset
        return pullback

    def add_to(self, K: Array, X: Array, X2: Array | None) -> None:
        """Add kernel(X, X2) to K in place, for a symmetric K where X2 is None.

        Sums call this for their second term and those after it; override it only for speed.
        """
        K += self(X, X2)

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        """Covariances of the rows of X with those of Z, variances of the rows of X, and the pullback of both.

        Rows of X and rows of Z count as different ones, even where they are equal: white noise has no part in K.
        Where a class does not define it, the pullback is that of `vjp` for blocks of rows with Z beneath: exact, at two
        to four times the cost of a formula of its own.

        Parameters
        ----------
        X : ndarray of shape (n, d)
        Z : ndarray of shape (m, d)
            Inducing inputs, which are fixed.

        Returns
        -------
        K : ndarray of shape (n, m)
        k : ndarray of shape (n,)
        pullback : callable
            Takes G of shape (n, m) and g of shape (n,) to Σ G_ij ∂K_ij/∂θ + Σ g_i ∂k_i/∂θ, of shape (p,).
        """

        def pullback(G: Array, g: Array) -> Array:
            n, block = len(X), max(len(Z), _LEAST_BLOCK)
            return sum_of_parts(
                self.vjp(np.vstack([X[i : i + block], Z]))[1](_bordered(G[i : i + block], g[i : i + block]))
                for i in range(0, n, block)
            )

        return self(X, Z), self.diag(X), pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Derivatives Σ_ij G_ij ∂K_ij/∂x with respect to every entry of X: 2 Σ_j G_ij ∂k(x, x_j)/∂x at x = x_i.

        Optional: needed where another kernel transforms the inputs of this one by a map with parameters.  G is
        symmetric.  A kernel that does not know these derivatives (see `has_input_vjp`) raises InvalidInput.
        """
        raise InvalidInput(
            f"{type(self).__name__} does not know its derivatives with respect to the inputs (input_vjp), so no "
            "parameter of a map of its inputs can be inferred: fix that parameter to a number, or use another kernel."
        )

    @property
    def has_input_vjp(self) -> bool:
        """True if this kernel, and every kernel inside it, has an `input_vjp`."""
        own = type(self).input_vjp is not Kernel.input_vjp
        return own and all(child.has_input_vjp for child in self.children().values())

    # -- the algebra -------------------------------------------------------------------------------------------------

    def __add__(self, other: Kernel) -> Kernel:
        from hmcgp.kernels.algebra import Sum

        if not isinstance(other, Kernel):
            raise TypeError(f"only kernels can be added; got {other!r}. A constant offset is Constant(variance).")
        return Sum(self, other)

    def __radd__(self, other: object) -> Kernel:
        """Let `sum([k1, k2])` work, which starts from 0."""
        return self if other == 0 else self + other  # type: ignore[operator]  # which refuses it

    def __mul__(self, other: Kernel | Value) -> Kernel:
        from hmcgp.kernels.algebra import Product, Scaled

        return Product(self, other) if isinstance(other, Kernel) else Scaled(self, other)

    def __rmul__(self, other: Value) -> Kernel:
        return self * other

    def on(self, columns: int | str | Sequence[int] | Sequence[str]) -> Kernel:
        """Let this kernel see only some of the input columns.

        Parameters
        ----------
        columns : int, str, or sequence of them
            Positions, or names when the inputs are a DataFrame.
        """
        from hmcgp.kernels.algebra import On

        chosen: tuple[Any, ...] = tuple(columns) if isinstance(columns, list | tuple | np.ndarray) else (columns,)
        if not all(isinstance(c, str | Integral) and not isinstance(c, bool | np.bool_) for c in chosen):
            raise InvalidInput(f"'columns' of on() must be positions or names of inputs; got {columns!r}.")
        return On(self, tuple(c if isinstance(c, str) else int(c) for c in chosen))

    def summands(self, inputs: Sequence[str]) -> list[tuple[str, Kernel]]:
        """Kernels of which this one is the sum, for input columns of these names, each with a name of its class."""
        return [(self._label(), self)]

    # -- parameters --------------------------------------------------------------------------------------------------

    def children(self) -> dict[str, Kernel]:
        """Kernels this one is made of, by field."""
        return {name: value for name, value in self.__dict__.items() if _is_kernel(type(value))}  # type: ignore[arg-type]

    def _child_inputs(self, inputs: Sequence[str]) -> Sequence[str]:
        """Names of the inputs that the kernels inside see."""
        return inputs

    def _label(self) -> str:
        """Name of the class as parameters write it: `squared_exponential`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    def _child_owner(self, role: str, child: Kernel, own: Owner) -> Owner:
        """Owner of the parameters of a child: the child itself, unless a class says otherwise."""
        return Owner(own.within + child._label(), own.within)

    def _own_parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        check_inputs(self, len(inputs))
        return super()._own_parameters(inputs)

    def _tree(self, inputs: Sequence[str], owner: Owner) -> list[tuple[Owner, Parameter]]:
        """Every parameter below this kernel with its owner, own ones last."""
        found = []
        for role, child in self.children().items():
            found += child._tree(self._child_inputs(inputs), self._child_owner(role, child, owner))
        return found + [(owner, p) for p in self._own_parameters(inputs)]

    def parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        """All parameters, for input columns of these names, in the order of `pullback`, each with a name of its own.

        Where several kernels have a free parameter of the same name, their names stand before it: `linear.variance`,
        `periodic.variance`; two of a kind are numbered in the order of the formula, `squared_exponential1.variance`
        and `squared_exponential2.variance`.
        """
        tree = self._tree(inputs, Owner(self._label()))
        shared = Counter(name for _, name in {(owner, p.name) for owner, p in tree if p.is_free})
        owners = _owner_names([owner for owner, _ in tree])
        named = [p._replace(name=f"{owners[owner]}.{p.name}") if shared[p.name] > 1 else p for owner, p in tree]
        seen: Counter[str] = Counter()
        for i, p in enumerate(named):  # a scaling of a scaling has no name of its own
            if p.is_free:
                seen[p.name] += 1
                if seen[p.name] > 1:
                    named[i] = p._replace(name=f"{p.name}_{seen[p.name]}")
        return named

    def with_positions(self, inputs: Sequence[str]) -> Kernel:
        """Kernel with column names replaced by positions among `inputs`, the names of all columns."""
        return self._with({n: k.with_positions(self._child_inputs(inputs)) for n, k in self.children().items()})

    # -- units -------------------------------------------------------------------------------------------------------

    def in_standard_units(self, units: Units) -> Kernel:
        """Kernel whose numbers, priors and functions are for standardised inputs and targets of these units."""
        changes: dict[str, Any] = {
            name: child.in_standard_units(self._child_units(units, name)) for name, child in self.children().items()
        }
        if not self._shares_prior(units):
            return self._with(changes | self._own_in_standard_units(units))
        from hmcgp.kernels.algebra import Stretched

        alike, factors = units.stretched()
        return Stretched(self._with(changes | self._own_in_standard_units(alike)), factors)

    def _child_units(self, units: Units, role: str) -> Units:
        """Units of the inputs and targets of a kernel inside."""
        return units

    def _shares_prior(self, units: Units) -> bool:
        """Whether inputs of different units share a parameter under one prior, and may be brought to one scale."""
        fields = [f for f in self._own_fields() if isinstance(self._unit_of(f, units), tuple)]
        priors = [f for f in fields if not (self.standardized or self._is_vector(f) or _is_fixed(self, f))]
        return bool(priors) and all(getattr(self, f.name) is not None for f in fields)

    def _amplitude(self) -> int:
        """0 without parameters in the units of the targets, 1 if all are in the user's, 2 if one is standardised."""
        own = [
            2 if self.standardized or getattr(self, f.name) is None else 1
            for f in self._own_fields()
            if self._dimension(f)[1]
        ]
        return max([0, *own, *(child._amplitude() for child in self.children().values())])

    def _take_values(self, remaining: list[Any]) -> Self:
        """Take this kernel's values, its children's first, from the front of the list."""
        valued = self._with({})
        for name, child in self.children().items():
            valued.__dict__[name] = child._take_values(remaining)
        for f in self._own_fields():
            valued.__dict__[f.name] = remaining.pop(0)
        return valued


@cache
def _is_kernel(kind: type) -> bool:
    """Whether a class is one of kernels; asked of every field before every evaluation."""
    return issubclass(kind, Kernel)


def _is_fixed(kernel: Kernel, f: Any) -> bool:
    value = getattr(kernel, f.name)
    return is_number(value) or getattr(value, "of_standardised", False)


def _owner_names(owners: Sequence[Owner]) -> dict[Owner, str]:
    """Name of each owner, numbered where several have the same."""
    alike: dict[str, list[Owner]] = {}
    for owner in dict.fromkeys(owners):
        alike.setdefault(owner.name, []).append(owner)
    return {
        owner: f"{name}{i}" if len(same) > 1 else name
        for name, same in alike.items()
        for i, owner in enumerate(same, start=1)
    }


def check_columns(n_inputs: int, n_inputs2: int) -> None:
    """Refuse two sets of rows with different numbers of inputs."""
    if n_inputs != n_inputs2:
        raise InvalidInput(f"'X' and 'X2' must have the same inputs; got {n_inputs} and {n_inputs2} columns.")


def check_inputs(kernel: Kernel, n_inputs: int) -> None:
    """Refuse more inputs than those for which a kernel is positive definite."""
    most = kernel._most_inputs
    if n_inputs > most:
        name, limit = type(kernel).__name__, "one input" if most == 1 else f"up to {most} inputs"
        raise InvalidInput(
            f"{name} is a covariance function of {limit}; got {n_inputs}. Restrict it with on(columns), or add one per "
            f"column with Additive({name}(...))."
        )


def transposed(X: Array) -> Array:
    """Transpose of X for compiled loops, one contiguous row per input: of shape (d, n)."""
    return np.ascontiguousarray(np.asarray(X, dtype=float).T)


def inner_products(X: Array, X2: Array | None, weight: Array | float) -> Array:
    """Σ_k weight_k x_k x'_k for all pairs of rows, of shape (n, m)."""
    root = np.sqrt(weight)  # on both sides: the product is then symmetric to the last bit
    S = X * root
    return np.asarray(S @ (S if X2 is None else X2 * root).T)


def _bordered(G: Array, g: Array) -> Array:
    """Adjoint [diag g, ½G; ½G', 0] of the covariance of n rows and the m inducing inputs beneath them."""
    n, m = G.shape
    S = np.zeros((n + m, n + m))
    S[:n, n:] = 0.5 * G
    S[n:, :n] = 0.5 * G.T
    S[np.arange(n), np.arange(n)] = g
    return S


def sum_of_parts(parts: Iterable[Array]) -> Array:
    """Sum of arrays of one shape, in their order."""
    first, *others = parts
    return sum(others, first)


def sum_if_shared(value: Value, parts: Array) -> Array:
    """Derivatives in each component, of shape (k,); their sum, of shape (1,), where one number serves all."""
    return parts if np.ndim(value) else np.asarray(parts.sum(keepdims=True))
