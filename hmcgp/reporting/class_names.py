"""Names of classes in saved files, and the classes of this package that have one."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass
from typing import Any

ROOMS = ("numerics", "estimators", "evidence", "kernels", "likelihoods", "priors", "samplers")
NOT_SAVED = ("hmcgp.estimators.comparison",)


def own_classes() -> dict[str, type[Any]]:
    """Return the dataclasses and named tuples of this package that a file may name, as `kernels.Matern`."""
    found = {}
    for name, module in list(sys.modules.items()):
        package, _, rest = name.partition(".")
        room = rest.partition(".")[0]
        if package != "hmcgp" or room not in ROOMS or name in NOT_SAVED:
            continue
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name and (is_dataclass(value) or is_record(value)):
                found[f"{room}.{value.__name__}"] = value
    return found


def own_fields(cls: type[Any]) -> list[str]:
    """Return the names of the fields of a dataclass or named tuple from which it is built."""
    return list(cls._fields) if is_record(cls) else [f.name for f in fields(cls) if f.init]


def is_record(cls: type[Any]) -> bool:
    """Return whether a class is a named tuple."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def full_name(thing: Any) -> str:
    """Return the name of a class or function, module first."""
    return f"{thing.__module__}.{thing.__qualname__}"
