"""Units of parameters: from those of the user's table to those of standardised inputs and targets, and back.

A model sees z_k = (x_k - centre_k)/spread_k, and numbers of a regression divided by `target`.  A parameter of the
dimension (input^a) (target^b) is spread^a target^b times larger in the user's units than in the model's:

    length scales, periods     a = 1              variances, noise    b = 2
    slopes of logarithms       a = -1             variances of slopes a = -2, b = 2

A number that a user has written is divided by that unit, and a prior p becomes that of the quotient,
log p(unit x) + log unit (`hmcgp.priors.units`).  Parameters that are left open keep their default priors, which are
about standardised inputs and targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self, TypeAlias

import numpy as np

Unit: TypeAlias = float | tuple[float, ...] | None  # of all components, of each, or None where there is no such unit

DIMENSIONS: dict[str, tuple[float, float]] = {  # of roles, as powers of input and target; of others (0, 0)
    "length_scale": (1.0, 0.0),
    "period": (1.0, 0.0),
    "variance": (0.0, 2.0),
    "noise": (0.0, 2.0),
    "log_slope": (-1.0, 0.0),
    "log_length_slope": (-1.0, 0.0),
    "log_noise": (-1.0, 0.0),
}


class Unlike(Exception):
    """One prior, in the units of the inputs, for one parameter of inputs that were scaled differently."""


@dataclass(frozen=True)
class Units:
    """Location and spread of the inputs that a kernel sees, and of the targets, in the user's units.

    Parameters
    ----------
    centre, spread : tuple of float
        Of each input: where the standardised one is 0, and its standard deviation.
    target : tuple of float, default=(1.0,)
        Standard deviation of each output; 1 for labels; none, (), where variances have no unit of their own.
    """

    centre: tuple[float, ...]
    spread: tuple[float, ...]
    target: tuple[float, ...] = (1.0,)

    @classmethod
    def plain(cls, n_inputs: int, target: tuple[float, ...] = (1.0,)) -> Units:
        """Units of inputs that are not scaled."""
        return cls((0.0,) * n_inputs, (1.0,) * n_inputs, target)

    def chosen(self, positions: Sequence[int]) -> Self:
        """Units of some of the inputs."""
        centre, spread = (tuple(part[i] for i in positions) for part in (self.centre, self.spread))
        return replace(self, centre=centre, spread=spread)

    def with_target(self, *target: float) -> Self:
        """Units of the same inputs and of other targets."""
        return replace(self, target=target)

    @property
    def are_plain(self) -> bool:
        """Whether inputs are as the user gave them."""
        return set(self.centre) == {0.0} and set(self.spread) == {1.0}

    def of(self, dimension: tuple[float, float], *, each: bool) -> Unit:
        """Unit of a parameter of a dimension, for each input or for all together; None without such a number."""
        a, b = dimension
        target = common([t**b for t in self.target]) if b else 1.0
        if target is None or a == 0.0:
            return target
        units = tuple(target * _power(spread, a) for spread in self.spread)
        if not all(0.0 < unit < math.inf for unit in units):
            return None  # of inputs around 1e-300, say
        shared = common(units)
        return units if shared is None and each else shared

    def stretched(self) -> tuple[Units, tuple[float, ...]]:
        """Units of inputs that are scaled alike, by the geometric mean, and the factors that make the inputs so."""
        alike = math.exp(np.mean(np.log(self.spread)))
        factors = tuple(spread / alike for spread in self.spread)
        return replace(self, spread=(alike,) * len(self.spread)), factors


def _power(x: float, a: float) -> float:
    """x^a, or infinity where that is no number any more, as for the square of 1e300."""
    try:
        return float(x**a)
    except OverflowError:
        return math.inf


def common(values: Sequence[float]) -> float | None:
    """The value that all are, up to rounding; None if they differ, or there is none."""
    return values[0] if values and max(values) <= min(values) * (1.0 + 1e-9) else None


def in_unit(value: Any, unit: float | tuple[float, ...], *, is_vector: bool) -> Any:
    """Number, numbers or prior in multiples of a unit; `Unlike` for one prior of several units."""
    if isinstance(value, tuple | float | int | np.number):
        fits = not isinstance(value, tuple) or np.size(unit) in (1, len(value))
        divided = np.asarray(value, dtype=float) / np.asarray(unit) if fits else np.asarray(value)  # refused later
        return tuple(divided.tolist()) if divided.ndim else float(divided)
    if not hasattr(value, "in_units") or value.of_standardised:  # no prior: refused later, in words
        return value
    if isinstance(unit, tuple) and not is_vector:
        raise Unlike
    return value if unit == 1.0 else value.in_units(unit)


def joined(values: Sequence[Any], sizes: Sequence[int]) -> Any:
    """One prior of a vector, from those of its parts, which differ at most by their units; None if they are open."""
    first = values[0]
    if all(value == first for value in values):
        return first
    units = [np.broadcast_to(getattr(v, "unit", 1.0), size).tolist() for v, size in zip(values, sizes, strict=True)]
    return getattr(first, "prior", first).in_units(tuple(chain(*units)))
