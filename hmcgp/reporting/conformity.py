"""Checks of values against the annotated types of the fields that hold them."""

from __future__ import annotations

import collections.abc
import reprlib
import types
from collections.abc import Callable, Mapping
from functools import cache
from itertools import repeat
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

# annotations of a class or function, resolved, by name
field_types: Callable[[Any], Mapping[str, Any]] = cache(get_type_hints)


def misfits(values: Mapping[str, Any], hints: Mapping[str, Any]) -> str:
    """Say which values are of another type than declared, and of which; empty where all conform."""
    wrong = [name for name, value in values.items() if not conforms(value, hints.get(name, Any))]
    return ", ".join(f"{name} is a {type(values[name]).__name__} ({reprlib.repr(values[name])})" for name in wrong)


def conforms(value: Any, hint: Any) -> bool:
    """Return whether a value is of an annotated type; True where the annotation cannot be checked.

    Numbers conform as they do to numpy: an integer is a `float`, a numpy scalar its Python kin, a bool is none of both.
    """
    hint = _expanded(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None:
        return _is_instance(value, hint)
    if origin in (Union, types.UnionType):
        return any(conforms(value, choice) for choice in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    return _is_instance(value, origin) and _holds(value, origin, inner)


def _expanded(hint: Any) -> Any:
    """Annotation that an alias of the `type` statement stands for, such as numpy's NDArray since Python 3.12."""
    alias = get_origin(hint) or hint
    if not hasattr(alias, "__value__"):
        return hint
    value, arguments = alias.__value__, get_args(hint)
    return _expanded(value[arguments] if arguments else value)


def _holds(value: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """Return whether the parts of a container conform."""
    if origin is np.ndarray:
        return all(_has_dtype(value, hint) for hint in inner[1:])
    if origin is tuple and inner[-1:] != (Ellipsis,):
        return len(value) == len(inner) and all(map(conforms, value, inner))
    if issubclass(origin, collections.abc.Mapping):
        return all(map(conforms, value, repeat(inner[0]))) and all(map(conforms, value.values(), repeat(inner[1])))
    if isinstance(value, str):  # a sequence of itself
        return False
    return not issubclass(origin, collections.abc.Iterable) or all(map(conforms, value, repeat(inner[0])))


def _has_dtype(value: Any, hint: Any) -> bool:
    return all(kind is Any or np.issubdtype(value.dtype, kind) for kind in get_args(hint))


def _is_instance(value: Any, cls: Any) -> bool:
    if cls is None:
        return value is None
    if cls in (bool, int, float):
        is_bool = isinstance(value, bool | np.bool_)
        return is_bool if cls is bool else not is_bool and isinstance(value, Integral if cls is int else Real)
    is_opaque = getattr(cls, "_is_protocol", False) and not getattr(cls, "_is_runtime_protocol", False)
    return cls is Any or not isinstance(cls, type) or is_opaque or isinstance(value, cls)
