"""Columns of a DataFrame that hold names, not quantities: categories become codes, for `kernels.Categorical`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp._typing import Array
from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user

_UNKNOWN = -1.0  # the code of a category that was not among the training rows


@dataclass(frozen=True)
class Columns:
    """Which columns are categories, and what their codes stand for."""

    categories: dict[str, NDArray[Any]]  # by the name of the column, in the order of the codes 0, 1, …

    @classmethod
    def learn(cls, X: Any) -> Columns:
        """Find the columns of a DataFrame whose dtype is category, string, or object with strings only."""
        if not hasattr(X, "dtypes") or not hasattr(X, "columns"):
            return cls({})
        return cls({str(name): _categories(X[name]) for name in X.columns if _holds_names(X[name])})

    def encode(self, X: Any) -> Any:
        """The table with codes instead of categories; others are left alone."""
        if not self.categories or not hasattr(X, "columns"):
            return X
        X = X.copy()
        for name, known in self.categories.items():
            if name not in X.columns:
                continue  # scikit-learn's check of the names says so better
            codes = _codes(X[name], known)
            unknown = X[name][codes == _UNKNOWN]
            if len(unknown):
                warn_user(
                    f"{len(unknown)} rows have categories of {name!r} that were not among the training rows "
                    f"({', '.join(map(str, unknown.unique()[:5]))}): they are taken as different from all of those.",
                    ApproximationWarning,
                )
            X[name] = codes
        return X

    def mask(self, names: list[str]) -> NDArray[np.bool_]:
        """True for the columns that are categories, of shape (d,)."""
        return np.array([name in self.categories for name in names], dtype=bool)


def _holds_names(column: Any) -> bool:
    from pandas.api import types

    dtype = column.dtype
    if isinstance(dtype, types.CategoricalDtype):
        return True
    return bool(types.is_string_dtype(column))  # of the values: an object column of numbers is none


def _categories(column: Any) -> NDArray[Any]:
    return np.unique(_names(column))


def _names(column: Any) -> NDArray[Any]:
    if column.isna().any():
        raise InvalidInput(
            f"column {column.name!r} holds {int(column.isna().sum())} missing categories (NaN). Give them a category "
            "of their own, such as 'unknown', or drop the rows."
        )
    return np.asarray(column, dtype=object).astype(str)


def _codes(column: Any, known: NDArray[Any]) -> Array:
    found = _names(column)
    place = np.minimum(np.searchsorted(known, found), len(known) - 1)
    return np.where(known[place] == found, place.astype(float), _UNKNOWN)
