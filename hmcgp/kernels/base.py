"""The algebra of covariance functions.

A kernel is a frozen value.  Its parameters are facts (numbers) or questions (anything else, in practice a prior; None
asks for the default prior of its role); kernels never look inside a question.  Once every parameter is a number the
kernel is *bound*, and

    K, pullback = kernel.vjp(X)         K_ij = k(x_i, x_j)
    pullback(G)                         Σ_ij G_ij ∂K_ij/∂θ_k for every parameter k, in the order of `parameters`

in O(n² d) and without an (n, n, p) array.  Kernels combine:

    k1 + k2        sum of independent functions
    k1 * k2        product
    2.0 * k        scaled variance (a prior in place of the number makes it a parameter, `scale`)
    k.on([0, 2])   acts on some columns only (positions, or names when the inputs have names)

A new kernel subclasses `Kernel` as a frozen dataclass, marks its parameters with `parameter(...)`, and defines `vjp`,
`__call__` and `diag`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput

Pullback: TypeAlias = Callable[[Array], Array]
Value: TypeAlias = Any  # a number, an array of numbers, None (the default prior), or a prior


class Parameter(NamedTuple):
    """One parameter of a kernel, scalar or per input."""

    name: str  # "length_scale", or "left.length_scale" where two must be told apart
    size: int
    labels: tuple[str, ...] | None  # names of the inputs of a per-input parameter
    value: Value
    role: str  # "variance", "length_scale": selects the default prior
    n_inputs: int = 1  # that its kernel sees

    @property
    def is_free(self) -> bool:
        """True for a question, False for a fact."""
        return not _is_number(self.value)

    @property
    def flat_names(self) -> list[str]:
        """One name per component: `variance`, `length_scale[FL]`."""
        return [self.name] if self.labels is None else [f"{self.name}[{label}]" for label in self.labels]


def _is_number(value: Value) -> bool:
    """True for a number or, one per input, a tuple (an array once bound) of them."""
    if isinstance(value, tuple | np.ndarray):
        return True
    return isinstance(value, Real) and not isinstance(value, bool)


def parameter(role: str, *, per_input: bool = False) -> Any:
    """Declare a dataclass field as a positive parameter of a kernel.

    Parameters
    ----------
    role : str
        Which default prior suits it: "variance" or "length_scale".
    per_input : bool, default=False
        One value per input column when the kernel has ``ard=True``.
    """
    return field(default=None, metadata={"role": role, "per_input": per_input})


@dataclass(frozen=True)
class Kernel(ABC):
    """Base class of covariance functions."""

    def __post_init__(self) -> None:
        for f in self._own_fields():
            value = getattr(self, f.name)
            if isinstance(value, list | tuple | np.ndarray):  # kept as a tuple: kernels compare and hash
                value = self._per_input(f, value)
                object.__setattr__(self, f.name, value)
            if _is_number(value) and not all(math.isfinite(v) and v > 0.0 for v in np.atleast_1d(value)):
                raise InvalidInput(
                    f"'{f.name}' of {type(self).__name__} must be positive and finite; got {value}. "
                    "Give a number to fix it, a prior to infer it, or nothing for the default prior."
                )

    def _per_input(self, f: Any, value: Any) -> tuple[float, ...] | float:
        what = f"'{f.name}' of {type(self).__name__}"
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"{what} must be a number, one number per input, or one prior (with ard=True, for every input); "
                f"got {value}."
            ) from None
        if array.ndim == 0:
            return float(array)
        if array.ndim > 1 or not f.metadata["per_input"]:
            raise InvalidInput(
                f"{what} takes {'one number per input' if array.ndim > 1 else 'one number'}; got {value}."
            )
        return tuple(array.tolist())

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

    # -- the algebra -------------------------------------------------------------------------------------------------

    def __add__(self, other: Kernel) -> Kernel:
        from hmcgp.kernels.combined import Sum

        if not isinstance(other, Kernel):
            raise TypeError(f"only kernels can be added; got {other!r}. A constant offset is Constant(variance).")
        return Sum(self, other)

    def __radd__(self, other: object) -> Kernel:
        """Let `sum([k1, k2])` work, which starts from 0."""
        if other != 0:
            raise TypeError(f"only kernels can be added; got {other!r}. A constant offset is Constant(variance).")
        return self

    def __mul__(self, other: Kernel | Value) -> Kernel:
        from hmcgp.kernels.combined import Product, Scaled

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
        from hmcgp.kernels.combined import On

        chosen: tuple[Any, ...] = tuple(columns) if isinstance(columns, list | tuple | np.ndarray) else (columns,)
        if not all(isinstance(c, str | Integral) and not isinstance(c, bool | np.bool_) for c in chosen):
            raise InvalidInput(f"'columns' of on() must be positions or names of inputs; got {columns!r}.")
        return On(self, tuple(c if isinstance(c, str) else int(c) for c in chosen))

    # -- parameters --------------------------------------------------------------------------------------------------

    def children(self) -> dict[str, Kernel]:
        """The kernels this one is made of, by the name of their role in it."""
        return {}

    def _own_fields(self) -> tuple[Any, ...]:
        return _parameter_fields(type(self))

    def _own_parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        """Parameters of this kernel itself, without those of its children."""
        found = []
        for f in self._own_fields():
            value = getattr(self, f.name)
            given = isinstance(value, tuple | np.ndarray)  # one number per input was written down
            per_input = f.metadata["per_input"] and (getattr(self, "ard", False) or given)
            if given and len(value) != len(inputs):
                raise InvalidInput(
                    f"'{f.name}' of {type(self).__name__} has {len(value)} values for {len(inputs)} inputs "
                    f"({', '.join(inputs)}). Give one number, or one per input."
                )
            labels = tuple(inputs) if per_input else None
            found.append(
                Parameter(f.name, len(inputs) if per_input else 1, labels, value, f.metadata["role"], len(inputs))
            )
        return found

    def _tree(self, inputs: Sequence[str], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Parameter]]:
        """Every parameter below this kernel with the path that leads to it, own ones last."""
        found = []
        for role, child in self.children().items():
            found += child._tree(self._child_inputs(inputs), (*path, *([role] if role else [])))
        return found + [(path, p) for p in self._own_parameters(inputs)]

    def _child_inputs(self, inputs: Sequence[str]) -> Sequence[str]:
        return inputs

    def parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        """All parameters, in the order of `pullback`, with names a person can read.

        Parameters
        ----------
        inputs : sequence of str
            Names of the input columns.

        Returns
        -------
        list of Parameter
            `left.` and `right.` stand before a name only where two free parameters would share it.
        """
        tree = self._tree(inputs)
        shared = Counter(p.name for _, p in tree if p.is_free)
        named = [p._replace(name=".".join((*path, p.name))) if shared[p.name] > 1 else p for path, p in tree]
        seen: Counter[str] = Counter()
        for i, p in enumerate(named):  # a scaling of a scaling has no path of its own
            if p.is_free:
                seen[p.name] += 1
                if seen[p.name] > 1:
                    named[i] = p._replace(name=f"{p.name}_{seen[p.name]}")
        return named

    def located(self, inputs: Sequence[str]) -> Kernel:
        """The same kernel with the names of columns turned into positions among the inputs."""
        return self._with({name: child.located(inputs) for name, child in self._child_fields().items()})

    def bind(self, values: Sequence[Array | float]) -> Kernel:
        """The same kernel with every parameter a number.

        Parameters
        ----------
        values : sequence
            One positive number or array per entry of `parameters`, in its order.  Not checked again: this runs
            before every evaluation of the density.
        """
        remaining = list(values)
        bound = self._bind(remaining)
        if remaining:
            raise InvalidInput(
                f"'values' holds {len(values)} values, {len(remaining)} more than the kernel has parameters."
            )
        return bound

    def _bind(self, remaining: list[Any]) -> Kernel:
        """Take this kernel's values from the front of the list."""
        changes: dict[str, Any] = {name: child._bind(remaining) for name, child in self._child_fields().items()}
        for f in self._own_fields():
            changes[f.name] = remaining.pop(0)
        return self._with(changes)

    def _with(self, changes: dict[str, Any]) -> Kernel:
        """A copy with some fields changed: `dataclasses.replace` without the validation."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, **changes)
        return new

    def _child_fields(self) -> dict[str, Kernel]:
        return {name: value for name, value in self.__dict__.items() if isinstance(value, Kernel)}


@cache
def _parameter_fields(kernel_class: type[Kernel]) -> tuple[Any, ...]:
    return tuple(f for f in fields(kernel_class) if "role" in f.metadata)


def bound_value(kernel: Kernel, name: str) -> Any:
    """The number behind a parameter, or an error that says how to get one."""
    value = getattr(kernel, name)
    if not _is_number(value):
        question = "left to its default prior" if value is None else repr(value)
        raise InvalidInput(
            f"'{name}' of {type(kernel).__name__} is {question}, not a number: the covariance can only be evaluated "
            "once every parameter has a value. Use kernel.bind(values), or Model."
        )
    return np.asarray(value) if isinstance(value, tuple) else value
