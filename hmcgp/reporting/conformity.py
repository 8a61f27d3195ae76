"""Checks of values against the annotated types of the fields that hold them."""

from __future__ import annotations

import collections.abc
import reprlib
import types
from collections.abc import Hashable, Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np


def field_types(annotated: Any) -> Mapping[str, Any]:
    """Return the annotations of a class or function, resolved, by name."""
    return _resolved(annotated)


@cache
def _resolved(annotated: Hashable) -> Mapping[str, Any]:
    return get_type_hints(annotated)


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
        wanted = [kind for argument in inner[1:] for kind in get_args(argument)]
        return all(kind is Any or np.issubdtype(value.dtype, kind) for kind in wanted)
    if origin is tuple:
        return _are(value, inner)
    if issubclass(origin, collections.abc.Mapping):
        return all(conforms(key, inner[0]) and conforms(item, inner[1]) for key, item in value.items())
    return not isinstance(value, str) and (
        not issubclass(origin, collections.abc.Iterable) or all(conforms(item, inner[0]) for item in value)
    )


def _are(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(conforms(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(conforms, values, hints))


def _is_instance(value: Any, cls: Any) -> bool:
    if cls is None or cls is type(None):
        return value is None
    if cls is bool:
        return isinstance(value, bool | np.bool_)
    if cls in (int, float):
        return isinstance(value, Integral if cls is int else Real) and not isinstance(value, bool | np.bool_)
    if (
        cls is Any
        or not isinstance(cls, type)
        or (getattr(cls, "_is_protocol", False) and not getattr(cls, "_is_runtime_protocol", 0))
    ):
        return True
    return isinstance(value, cls)
