"""Checks of settings that several rooms share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from inspect import Parameter, signature
from math import floor, inf, log10
from numbers import Integral, Real
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.runtime.typing import Array

MAX_NUMBER = 1e150  # whose square is far from overflow


def check_count(name: str, value: object, least: int, most: float = inf) -> None:
    """Refuse a setting that is not an integer >= least, and <= most."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        limit = f">= {least}" if most == inf else f"from {least} to {most:g}"
        raise InvalidInput(f"'{name}' must be an integer {limit}; got {value!r}.")


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse a setting that is not True or False; nor None, if it is optional."""
    if not isinstance(value, bool | np.bool_) and not (optional and value is None):
        wanted = "True, False or None" if optional else "True or False"
        raise InvalidInput(f"'{name}' must be {wanted}; got {value!r}.")


def check_between(name: str, value: object, lower: float, upper: float, *, closed: bool = False) -> None:
    """Refuse a setting that is not a number strictly between the two, or equal to the lower one if `closed`."""
    inside = isinstance(value, Real) and not isinstance(value, bool) and lower <= float(value) < upper
    if not inside or (value == lower and not closed):
        wanted = f"a number x with {lower:g} {'<=' if closed else '<'} x < {upper:g}"
        wanted = "positive and finite" if (lower, upper, closed) == (0.0, inf, False) else wanted
        raise InvalidInput(f"'{name}' must be {wanted}; got {value!r}.")


def check_quantiles(quantiles: Any) -> Array:
    """Quantiles as an array of shape (q,); refused unless all lie strictly between 0 and 1."""
    q = np.atleast_1d(np.asarray(quantiles, dtype=float))
    if q.ndim != 1 or not ((q > 0.0) & (q < 1.0)).all():
        raise InvalidInput(f"'quantiles' must be numbers strictly between 0 and 1; got {quantiles}.")
    return q


def name_among(argument: str, value: Any, known: Iterable[str], alternative: str = "") -> str:
    """Return the known name, in lower case, that a user means; otherwise name all, and the one that looks most alike.

    The message adds the `alternative` values that the setting may have: " or an instance".
    """
    names = list(known)
    wanted = lowered(value)
    if wanted in names:
        return str(wanted)
    closest = difflib.get_close_matches(wanted, names, n=1) if isinstance(wanted, str) else []
    hint = f" Did you mean {closest[0]!r}?" if closest else ""
    raise InvalidInput(f"'{argument}' must be one of {sorted(names)}{alternative}; got {value!r}.{hint}")


def lowered(value: Any) -> Any:
    """Return a name in lower case, and anything else as it is."""
    return value.lower() if isinstance(value, str) else value


def refuse_class(argument: str, value: Any) -> None:
    """Refuse a class where an instance of it belongs."""
    if isinstance(value, type):
        call = f"{value.__name__}({', '.join(_required(value))})"
        raise InvalidInput(
            f"'{argument}' is the class {value.__name__}: pass an instance of it, {argument.partition(' ')[0]}={call}."
        )


def _required(function: Any) -> list[str]:
    """Names of the arguments without a default."""
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    arguments = signature(function).parameters.values()
    return [a.name for a in arguments if a.default is Parameter.empty and a.kind in positional]


def refuse_huge(argument: str, values: Any) -> None:
    """Refuse numbers whose squares overflow; NaN is ignored."""
    largest = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    if largest > MAX_NUMBER:
        raise InvalidInput(
            f"'{argument}' has values up to {largest:.3g}, whose squares exceed the range of double precision. Are "
            f"these codes of missing values? Otherwise divide '{argument}' by 1e{floor(log10(largest))}."
        )
