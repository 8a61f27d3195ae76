"""Parts of settings by name, as in scikit-learn: `kernel__length_scale`, `sampler__target_accept`.

Kernels, likelihoods, priors, samplers and evidence providers are frozen dataclasses.  Their parts are their fields, and
those of a list of kernels its positions: `kernel__left__variance` is that of the first of two kernels that are added.
A part is not changed in place: the setting is replaced by a copy with another part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hmcgp.errors import InvalidInput


def nested_parts(name: str, value: Any) -> dict[str, Any]:
    """Every part of a setting, at any depth, by the name that `set_params` takes."""
    found: dict[str, Any] = {}
    for part, inner in _parts(value).items():
        found[f"{name}__{part}"] = inner
        found |= nested_parts(f"{name}__{part}", inner)
    return found


def with_part(name: str, value: Any, path: Sequence[str], new: Any) -> Any:
    """Copy of the setting `name` with another part, at the end of the path."""
    part, *rest = path
    parts = _parts(value)
    if part not in parts:
        known = f"it has {', '.join(map(repr, parts))}" if parts else "it has no parts that can be set"
        advice = " Give it a value first, such as kernel=SquaredExponential()." if value is None else ""
        raise InvalidInput(f"Invalid parameter {part!r} of {name!r}, which is {value!r}: {known}.{advice}")
    inner = with_part(f"{name}__{part}", parts[part], rest, new) if rest else new
    if isinstance(value, list | tuple):
        return type(value)(inner if str(i) == part else item for i, item in enumerate(value))
    return replace(value, **{part: inner})


def _parts(value: Any) -> dict[str, Any]:
    """Fields of a dataclass, or the kernels of a list, by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in _settings(value)}
    if isinstance(value, list | tuple) and any(is_dataclass(item) for item in value):
        return {str(i): item for i, item in enumerate(value)}
    return {}


def _settings(value: Any) -> list[Any]:
    """Fields that users write, those by keyword last, without what an estimator notes."""
    found = [field for field in fields(value) if field.init and not field.metadata.get("noted")]
    return sorted(found, key=lambda field: bool(field.kw_only))
