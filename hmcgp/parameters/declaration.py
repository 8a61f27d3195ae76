"""Parameters of kernels and likelihoods: a number fixes one, a prior infers it.

A class with parameters is a frozen dataclass that derives from `Parametric` and marks them:

    variance: Value = parameter("variance")                      positive
    flip: Value = parameter("flip", support=(0.0, 0.5))          strictly between 0 and ½

The value of each is fixed (a number, or one number per input) or free (anything else, in practice a prior; None stands
for the default prior of its role); nothing here looks inside a prior.  An object can be evaluated once `with_values`
has put a number in place of every parameter.

Numbers and priors are in the units of the inputs and targets as the user gave them, also where an estimator
standardises both: it calls `in_standard_units` once (`hmcgp.parameters.units`).  ``standardized=True`` says that they
are about standardised inputs and targets already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.basis import OnOriginalScale
from hmcgp.parameters.units import DIMENSIONS, Unit, Units, Unlike, in_unit
from hmcgp.runtime.typing import Array

Value: TypeAlias = Any  # a number, an array of numbers, None (the default prior), or a prior

POSITIVE = (0.0, math.inf)
REAL = (-math.inf, math.inf)


class Parameter(NamedTuple):
    """One parameter of a kernel or a likelihood, scalar or per input."""

    name: str  # "variance", or "linear.variance" where two must be told apart
    size: int
    labels: tuple[str, ...] | None  # names of the components of a vector: of the inputs, if it has one for each
    value: Value
    role: str  # "variance", "length_scale", "noise", …: selects the default prior
    n_inputs: int = 1  # that its kernel sees
    support: tuple[float, float] = POSITIVE  # the open interval that its values lie in
    of_class: str | None = None  # whose latent function it shapes, where each class has a kernel of its own
    unit: Unit = 1.0  # by which to multiply values for those in the user's units; None where there is no such number
    inputs: tuple[str, ...] = ()  # that its kernel sees
    standardized: bool = False  # whether its value is meant for standardised inputs and targets

    @property
    def is_free(self) -> bool:
        """True if inferred, False if fixed."""
        return not is_number(self.value)

    @property
    def flat_names(self) -> list[str]:
        """One name per component: `variance`, `length_scale[FL]`."""
        return [self.name] if self.labels is None else [f"{self.name}[{label}]" for label in self.labels]


def is_number(value: Value) -> bool:
    """True for a number or, one per input, a tuple (an array from `with_values`) of them."""
    if type(value) is float or isinstance(value, tuple | np.ndarray):  # at every evaluation: Real takes longer to ask
        return True
    return isinstance(value, Real) and not isinstance(value, bool)


def interval(support: tuple[float, float]) -> str:
    """Describe an open interval: "positive and finite", "finite", "strictly between 0 and 0.5"."""
    if support in {POSITIVE, REAL}:
        return "finite" if support == REAL else "positive and finite"
    return f"strictly between {support[0]:g} and {support[1]:g}"


def parameter(
    role: str,
    *,
    per_input: bool = False,
    per_basis: bool = False,
    support: tuple[float, float] = POSITIVE,
    allowed: tuple[float, ...] = (),
    dimension: tuple[float, float] | None = None,
) -> Any:
    """Declare a dataclass field as a parameter.

    Parameters
    ----------
    role : str
        Which default prior suits it: "variance", "length_scale", "noise", … (see `hmcgp.priors.default_prior`).
    per_input : bool, default=False
        One value per input column when the kernel has ``ard=True``.
    per_basis : bool, default=False
        One value per basis function, of which the class tells the names (`_basis_names`).
    support : tuple of float, default=(0, inf)
        The open interval that its values, and the support of its prior, lie in.
    allowed : tuple of float, default=()
        Further values that may be given, such as an end of the interval.
    dimension : tuple of float, optional
        Powers of the units of input and target that it is measured in: (1, 0) for a length scale, (0, 2) for a
        variance, (-2, 2) for that of a slope.  Default: that of its role, or none.
    """
    metadata = {"role": role, "per_input": per_input, "per_basis": per_basis, "support": support, "allowed": allowed}
    metadata["dimension"] = DIMENSIONS.get(role, (0.0, 0.0)) if dimension is None else dimension
    return field(default=None, metadata=metadata)


@dataclass(frozen=True)
class Parametric:
    """Base class of frozen values with parameters, each fixed or free.

    Parameters
    ----------
    standardized : bool, default=False
        Numbers and priors are about standardised inputs and targets, where an estimator standardises them.  Default:
        they are in the units of the table.
    """

    standardized: bool = field(default=False, kw_only=True)
    units: tuple[Unit, ...] | None = field(  # of each parameter, once an estimator has standardised
        default=None, kw_only=True, repr=False, compare=False, metadata={"noted": True}
    )
    _functions: ClassVar[tuple[str, ...]] = ()  # fields that hold functions of the inputs

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Parametric.__repr__  # type: ignore[method-assign]  # dataclass would write a longer one

    def __repr__(self) -> str:
        shared = {f.name for f in fields(Parametric)}
        ordered = sorted(fields(self), key=lambda f: f.name in shared)  # `standardized` comes last
        told = [f for f in ordered if f.repr and f.init and _is_told(f, getattr(self, f.name))]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in told)})"

    def __post_init__(self) -> None:
        for f in self._own_fields():
            value = getattr(self, f.name)
            if isinstance(value, list | tuple | np.ndarray):  # kept as a tuple: kernels compare and hash
                value = self._per_input(f, value)
                object.__setattr__(self, f.name, value)
            lower, upper = f.metadata["support"]
            allowed = f.metadata["allowed"]
            # NaN fails too
            if is_number(value) and not all(lower < v < upper or v in allowed for v in np.atleast_1d(value)):
                raise InvalidInput(
                    f"'{f.name}' of {type(self).__name__} must be {interval((lower, upper))}; got {value}. "
                    "Give a number to fix it, a prior to infer it, or nothing for the default prior."
                )

    def _per_input(self, f: Any, value: Any) -> tuple[float, ...] | float:
        """Sequence of numbers as a tuple, or a number where the array has no dimension."""
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
        vector = f.metadata["per_input"] or f.metadata["per_basis"]
        if array.ndim > 1 or not vector:
            raise InvalidInput(f"{what} takes {'one number per input' if vector else 'one number'}; got {value}.")
        return tuple(array.tolist())

    def parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        """All parameters, for input columns of these names, in the order in which derivatives come."""
        return self._own_parameters(inputs)

    def _own_fields(self) -> tuple[Any, ...]:
        return _parameter_fields(type(self))  # type: ignore[arg-type]  # the class is hashable, whatever its instances

    def _own_parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        """Parameters of this object itself, without those of its parts."""
        found: list[Parameter] = []
        for f in self._own_fields():
            value = getattr(self, f.name)
            given = isinstance(value, tuple | np.ndarray)  # one number per component was written down
            labels = self._components(f, inputs) if given or not is_number(value) else None
            if given and labels is not None and len(value) != len(labels):
                what = "inputs" if f.metadata["per_input"] else "basis functions"
                raise InvalidInput(
                    f"'{f.name}' of {type(self).__name__} has {len(value)} values for {len(labels)} {what} "
                    f"({', '.join(labels)}). Give one number, or one for each."
                )
            size = 1 if labels is None else len(labels)
            found.append(
                Parameter(
                    *(f.name, size, labels, value, f.metadata["role"], len(inputs), f.metadata["support"]),
                    unit=1.0 if self.units is None else self.units[len(found)],
                    inputs=tuple(inputs),
                    standardized=self.standardized or value is None,
                )
            )
        return found

    def _components(self, f: Any, inputs: Sequence[str]) -> tuple[str, ...] | None:
        """Names of the components of a parameter that is a vector, or would be if it were free; else None."""
        if f.metadata["per_basis"]:
            return self._basis_names(inputs)
        given = isinstance(getattr(self, f.name), tuple | np.ndarray)
        return tuple(inputs) if f.metadata["per_input"] and (given or getattr(self, "ard", False)) else None

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Names of the basis functions of parameters with `per_basis`: of the inputs, unless a class says otherwise."""
        return tuple(inputs)

    def in_standard_units(self, units: Units) -> Any:
        """Copy whose numbers, priors and functions are for standardised inputs and targets of these units."""
        return self._with(self._own_in_standard_units(units))

    def _own_in_standard_units(self, units: Units) -> dict[str, Any]:
        """Own fields for standardised inputs and targets."""
        changes: dict[str, Any] = {"standardized": True}
        found = []
        for f in self._own_fields():
            value, unit = getattr(self, f.name), self._unit_of(f, units)
            if not (value is None or self.standardized):
                changes[f.name] = value = self._converted(f, value, unit)
            shared = isinstance(unit, tuple) and not (self._is_vector(f) or isinstance(value, tuple))
            found.append(None if shared else unit)
        return changes | self._functions_of(units) | {"units": tuple(found)}

    def _functions_of(self, units: Units) -> dict[str, Any]:
        """Functions that see inputs in the user's units, by field."""
        if self.standardized or units.are_plain:
            return {}
        found = {name: getattr(self, name) for name in self._functions}
        return {n: OnOriginalScale(f, units.centre, units.spread) for n, f in found.items() if f is not None}

    def _converted(self, f: Any, value: Value, unit: Unit) -> Value:
        try:
            if unit is not None:
                return in_unit(value, unit, is_vector=self._is_vector(f))
        except Unlike:
            pass
        name = type(self).__name__
        raise InvalidInput(
            f"'{f.name}' of {name} is {value!r}, in the units of the table, but it belongs to several columns (of "
            "inputs, or of y), which standardisation scales differently. Take ard=True (or a kernel for each column, "
            f"k.on(...)), say {name}(..., standardized=True) if it is meant for standardised columns, or "
            "standardize=False."
        )

    def _unit_of(self, f: Any, units: Units) -> Unit:
        """Unit of a parameter: for each component, where they differ."""
        return units.of(self._dimension(f), each=f.metadata["per_input"] or f.metadata["per_basis"])

    def _dimension(self, f: Any) -> tuple[float, float]:
        """Powers of the units of input and target that a parameter is measured in."""
        of_function = f.metadata["per_basis"] and getattr(self, "basis", None) is not None
        return (0.0, 0.0) if of_function else f.metadata["dimension"]

    def _is_vector(self, f: Any) -> bool:
        return bool(f.metadata["per_basis"] or (f.metadata["per_input"] and getattr(self, "ard", False)))

    def with_values(self, values: Sequence[Array | float]) -> Self:
        """Copy of this object with a number, or array, in place of every entry of `parameters`, in that order.

        Values are not checked again: this runs before every evaluation of the density.
        """
        remaining = list(values)
        valued = self._take_values(remaining)
        if remaining:
            raise InvalidInput(
                f"'values' holds {len(values)} values, {len(remaining)} more than {type(self).__name__} has parameters."
            )
        return valued

    def _take_values(self, remaining: list[Any]) -> Self:
        """Take this object's values from the front of the list."""
        return self._with({f.name: remaining.pop(0) for f in self._own_fields()})

    def _with(self, changes: dict[str, Any]) -> Self:
        """Copy with some fields changed: `dataclasses.replace` without the validation."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, **changes)
        return new


def _is_told(f: Any, value: Any) -> bool:
    """Whether the value of a field differs from its default."""
    return f.default is MISSING or not (value is f.default or (type(value) is type(f.default) and value == f.default))


@cache
def _parameter_fields(owner: type[Any]) -> tuple[Any, ...]:
    return tuple(f for f in fields(owner) if "role" in f.metadata)


_PLAIN = (float, np.float64, np.ndarray)  # types of the values that `with_values` gives


def value_of(owner: Parametric, name: str) -> Any:
    """Value of a parameter; InvalidInput unless it is a number."""
    value = getattr(owner, name)
    if type(value) in _PLAIN:  # quicker than to ask for abstract classes
        return value
    if not is_number(value):
        described = "left to its default prior" if value is None else repr(value)
        raise InvalidInput(
            f"'{name}' of {type(owner).__name__} is {described}, not a number: it can only be evaluated once every "
            "parameter has a value. Use with_values(values), or Model."
        )
    return np.asarray(value) if isinstance(value, tuple) else value
