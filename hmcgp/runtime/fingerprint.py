"""Identity of a table: digests of its numbers, and its names in clear text.

Two tables are the same if every number has the same value, rows and columns come in the same order, and columns,
classes and categories have the same names, which are part of the names of the draws.  Neither the container nor the
type of the numbers matters: a DataFrame is its array, if its columns are called as those of an array are (x0, x1, ...).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

PREFIX = "sha256:"  # of a digest, beside names in clear text


def digest(values: ArrayLike) -> str:
    """Return a digest of the shape and the values of an array of numbers."""
    numbers = np.asarray(values, dtype=np.float64) + 0.0  # -0 is 0
    numbers[np.isnan(numbers)] = np.nan  # one NaN for all
    content = numbers.astype("<f8").tobytes()  # the same on every machine
    return PREFIX + hashlib.sha256(repr(numbers.shape).encode() + content).hexdigest()


def table_identity(
    numbers: Mapping[str, ArrayLike | None], names: Mapping[str, Sequence[object] | Mapping[str, Sequence[object]]]
) -> dict[str, Any]:
    """Return the identity of a table, JSON-compatible, by the names that messages have.

    Of the numbers a digest is kept; names of columns, classes and categories are kept as text.
    """
    of_numbers = {name: None if values is None else digest(values) for name, values in numbers.items()}
    return of_numbers | {name: _text(given) for name, given in names.items()}


def _text(names: Sequence[object] | Mapping[str, Sequence[object]]) -> Any:
    if isinstance(names, Mapping):
        return {str(key): _text(values) for key, values in names.items()}
    return [str(name) for name in names]
