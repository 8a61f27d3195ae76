"""Checks of settings that several rooms share."""

from __future__ import annotations

from numbers import Integral

from hmcgp.errors import InvalidInput


def check_count(name: str, value: object, least: int) -> None:
    """Refuse a setting that is not an integer >= least."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InvalidInput(f"'{name}' must be an integer >= {least}; got {value!r}.")
