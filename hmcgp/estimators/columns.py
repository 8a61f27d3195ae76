"""Convert X and y (arrays, lists, pandas, polars, pyarrow) to float arrays.

narwhals reads the columns of a DataFrame, so that all libraries are treated alike:

    numbers, booleans                     float64
    categories, Enums, text               codes 0, 1, …, for `kernels.Categorical`
    numbers written as text               an error that names the column (`text_columns`)
    dates, durations, periods, lists, …   an error that names the column
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from hmcgp.errors import DataWarning, InvalidInput, warn_user
from hmcgp.estimators.text_columns import (
    check_not_numbers,
    is_number,
    known_spellings,
    listed,
    warn_about_levels,
    warn_about_spellings,
)
from hmcgp.runtime.typing import Array

_UNKNOWN = -1.0  # the code of a category that was not among the training rows
_MISSING = "(missing)"  # the level of missing categories
_SHOWN = 5  # levels listed in a message
_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)
_OF_TEXT = (nw.Categorical, nw.Enum, nw.String)
_TURN_TO_NUMBERS = (
    "Turn it into numbers that mean something here: the days since a date (or seconds of a duration), the hour, the "
    "month, or a category such as the weekday"
)
_MAKE_ONE_KIND = (
    "Replace this text by numbers, or by NaN where a number is missing. If the column is a category, make all of it "
    "text (astype(str))."
)
_ENCODE_TEXT = (
    "Give a DataFrame, whose columns of text are taken as categories, or turn the text into numbers "
    "(sklearn.preprocessing has OneHotEncoder)."
)


class NotANumber(InvalidInput, TypeError):
    """A cell that is neither a number nor text: a list, a dict, a date.  A TypeError, as float() would raise."""


@dataclass(frozen=True)
class Columns:
    """Columns that hold categories, with the levels that their codes number."""

    categories: dict[str, NDArray[Any]]  # by the name of the input, in the order of the codes 0, 1, …

    @classmethod
    def learn(cls, X: Any, missing: str = "error") -> Columns:
        """Find the columns of a DataFrame that hold categories or text.

        Text that is mostly numbers is an error.  Warns about categories that differ in case or spaces only, that have
        many levels, or whose order is ignored.  Missing categories are a separate level, or an error if `missing` is
        "error".
        """
        frame = _frame(X, "X")
        if frame is None:
            return cls({})
        columns = {
            name: column
            for name, column in zip(input_names(frame.columns), frame.iter_columns(), strict=True)
            if _holds_text(column)
        }
        for name, column in columns.items():
            if not _is_declared(column):
                check_not_numbers(name, column.drop_nulls().to_list())
        found = cls({name: np.unique(_labels(column, missing != "error")) for name, column in columns.items()})
        _warn_about_order({name: column for name, column in columns.items() if _is_ordered(column)})
        warn_about_spellings(found.categories)
        warn_about_levels({name: len(levels) for name, levels in found.categories.items()}, len(frame))
        return found

    def encode(self, X: Any, *, allow_missing: bool = False) -> Any:
        """Numbers for scikit-learn to validate: a DataFrame of float64, or an array (as it is, if it holds numbers).

        Missing categories that are not a level are NaN if `allow_missing`, and an error otherwise.
        """
        frame = _frame(X, "X")
        if frame is None:
            return _array(X)
        numbers = [
            _codes(column, self.categories[name], allow_missing) if name in self.categories else _numbers(column)
            for name, column in zip(input_names(frame.columns), frame.iter_columns(), strict=True)
        ]
        values = np.column_stack(numbers) if numbers else np.empty((len(frame), 0))
        return pd.DataFrame(values, columns=pd.Index(frame.columns, tupleize_cols=False))

    @property
    def with_missing(self) -> list[str]:
        """Names of the columns in which missing categories are a level."""
        return [name for name, levels in self.categories.items() if _MISSING in levels]

    def mask(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """True for the inputs that are categories, of shape (d,)."""
        return np.array([name in self.categories for name in names], dtype=bool)


def in_fitted_order(X: Any, fitted: Sequence[str] | None) -> Any:
    """Return a DataFrame with its columns in the order of the fit, by name; other tables unchanged.

    Columns that are missing, or that were not in the fit, are an error with the words of scikit-learn's.
    """
    if fitted is None or (isinstance(X, pd.DataFrame) and X.columns.tolist() == list(fitted)):
        return X
    frame = _frame(X, "X")
    if frame is None or not all(isinstance(name, str) for name in frame.columns):
        return X
    names = list(frame.columns)
    if names == list(fitted):
        return X
    unseen = [repr(name) for name in names if name not in set(fitted)]
    absent = [repr(name) for name in fitted if name not in set(names)]
    if unseen or absent:
        parts = ["The feature names should match those that were passed during fit."]
        if unseen:
            parts.append(f"Feature names unseen at fit time: {listed(unseen)}. Drop these columns.")
        if absent:
            parts.append(f"Feature names seen at fit time, yet now missing: {listed(absent)}. Add these columns.")
        raise InvalidInput(" ".join(parts))
    return frame.select(list(fitted)).to_native()


def input_names(names: Sequence[Any]) -> list[str]:
    """Names of inputs: those of the columns if all are text, as scikit-learn has it, otherwise x0, x1, …."""
    return list(names) if all(isinstance(name, str) for name in names) else [f"x{i}" for i in range(len(names))]


def check_finite(X: Array, names: Sequence[str], with_gaps: Sequence[str] | None = (), *, learnt: bool = False) -> None:
    """Refuse infinity in inputs of shape (n, d), and NaN outside columns `with_gaps` (None: all); name the columns.

    The words before the colon are scikit-learn's, which its checks of estimators look for.  `learnt` says that the
    columns with gaps were learnt from the training rows.
    """
    if np.isfinite(X).all():
        return
    bad, what = np.isnan(X) & [with_gaps is not None and name not in with_gaps for name in names], "NaN"
    remedy = "fill the missing values in before, as make_pipeline(SimpleImputer(), gp) does (sklearn.impute)."
    remedy = (
        "These columns were complete in the rows that were fitted. Predictions of single rows average over training "
        "values; appended rows, joint samples and covariances need the values themselves: drop these rows, or "
        f"{remedy}"
        if learnt
        else f"Fit with missing='auto' or 'indicator', drop these rows, or {remedy}"
    )
    if not bad.any():
        if not np.isinf(X).any():
            return
        bad, what = np.isinf(X), "infinity or a value too large for dtype('float64')"
        remedy = "Look for a division by zero or log(0) behind them, and drop or clip these values."
    counts = {repr(name): int(n) for name, n in zip(names, bad.sum(axis=0), strict=True) if n}
    where = [f"{name} ({n} {'row' if n == 1 else 'rows'})" for name, n in counts.items()]
    rows = int(bad.any(axis=1).sum())
    raise InvalidInput(f"Input X contains {what}: in {rows} of {len(X)} rows, in the columns {listed(where)}. {remedy}")


def target_name(y: Any) -> str | None:
    """Name of targets that are a Series, or a DataFrame of one column, of any make; None if they have none."""
    frame, series = _frame(y, "y"), nw.from_native(y, series_only=True, pass_through=True)
    names = [series.name] if isinstance(series, nw.Series) else [] if frame is None else frame.columns
    return names[0] if len(names) == 1 and isinstance(names[0], str) and names[0] else None


def plain_targets(y: Any, name: str = "y") -> Any:
    """Targets as a numpy array, or as a pandas DataFrame if they are a DataFrame of any make.

    Dates, durations, periods and lists are refused, and labels that are missing beside text; `name` is the argument's.
    """
    frame = _frame(y, name)
    if frame is not None:
        parts = (_target(column, f"column {column.name!r} of '{name}'") for column in frame.iter_columns())
        return pd.DataFrame(dict(zip(frame.columns, parts, strict=True)))
    series = nw.from_native(y, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        return _target(series, f"'{name}'")
    values = _plain(y)
    return y if values is None or values.ndim == 0 else _checked_targets(values, f"'{name}'", y)


def plain_numbers(y: Any, name: str, about_text: str) -> Any:
    """Targets as `plain_targets` has them, where all must be numbers; `about_text` says what to do with text."""
    y = plain_targets(y, name)
    if isinstance(y, pd.DataFrame):
        return y.apply(lambda c: _floats(c.to_numpy(), f"column {c.name!r} of '{name}'", about_text), raw=False)
    values = _plain(y)
    if values is None or values.dtype.kind not in "OUS" or values.ndim == 0:
        return y
    return _floats(values.astype(object).ravel(), f"'{name}'", about_text).reshape(values.shape)


# -- DataFrames ------------------------------------------------------------------------------------------------------


def _frame(table: Any, argument: str) -> nw.DataFrame[Any] | None:
    """The DataFrame; None for anything else."""
    try:
        frame = nw.from_native(table, pass_through=True)
    except DuplicateError:
        names = [str(name) for name in getattr(table, "column_names", None) or table.columns]
        twice = [repr(name) for name in dict.fromkeys(names) if names.count(name) > 1]
        raise InvalidInput(
            f"'{argument}' has several columns of the same name: {listed(twice)}. Rename or drop the copies, so that "
            "every column has a name of its own."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        raise InvalidInput(f"'{argument}' is a lazy query, not a table yet: pass {argument}.collect().")
    return frame if isinstance(frame, nw.DataFrame) else None


def _holds_text(column: nw.Series[Any]) -> bool:
    if column.dtype != nw.Object:
        return isinstance(column.dtype, _OF_TEXT)
    values = column.to_numpy()
    there = values[~pd.isna(values)]
    return len(there) > 0 and all(isinstance(value, str) for value in there)


def _is_declared(column: nw.Series[Any]) -> bool:
    """Whether the type of the column says that it holds categories."""
    return isinstance(column.dtype, nw.Categorical | nw.Enum)


def _is_ordered(column: nw.Series[Any]) -> bool:
    """Whether an order was declared; an Enum of polars always has one, and is often no more than a list of names."""
    return bool(getattr(getattr(column.to_native(), "dtype", None), "ordered", False))


def _labels(column: nw.Series[Any], with_gaps: bool) -> NDArray[Any]:
    """Levels of a column as text; those that are missing are a level of their own, or refused."""
    values = column.to_numpy()
    missing = pd.isna(values)
    if missing.any() and not with_gaps:
        raise InvalidInput(
            f"column {column.name!r} holds {int(missing.sum())} missing categories (NaN). Fit with missing='auto' or "
            "'indicator', write them as a category such as 'unknown', or drop the rows."
        )
    return np.where(missing, _MISSING, np.asarray(values, dtype=object)).astype(str)


def _codes(column: nw.Series[Any], known: NDArray[Any], allow_missing: bool) -> Array:
    """Positions of the values of a column among the known levels; NaN for those missing, if that is not a level."""
    found = _labels(column, allow_missing or _MISSING in known)
    place = np.minimum(np.searchsorted(known, found), len(known) - 1)
    is_known = known[place] == found
    missing = (found == _MISSING) & ~is_known
    is_known |= missing
    if not is_known.all():
        unknown = list(dict.fromkeys(found[~is_known].tolist()))
        if column.dtype.is_numeric() or column.dtype == nw.Boolean:
            raise InvalidInput(
                f"column {column.name!r} holds numbers ({listed(unknown)}), and held text or categories "
                f"({listed(list(map(repr, known.tolist())))}) in the rows that were fitted. Write the same categories "
                "as there."
            )
        spellings = known_spellings(unknown, known.tolist())
        hint = f" Some differ from known ones in case or spaces only: {listed(spellings)}." if spellings else ""
        warn_user(
            f"{int((~is_known).sum())} rows have categories of {column.name!r} that were not among the training rows "
            f"({listed(unknown)}): they are taken as different from all of those.{hint}",
            DataWarning,
        )
    return np.where(missing, np.nan, np.where(is_known, place.astype(np.float64), _UNKNOWN))


def _numbers(column: nw.Series[Any]) -> Array:
    dtype, what = column.dtype, f"column {column.name!r}"
    if dtype.is_numeric() or dtype == nw.Boolean:
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    if _holds_text(column):
        raise _text_for_numbers(column, what)
    _refuse_types(column, what)
    return _floats(column.to_numpy(), what, _MAKE_ONE_KIND)


def _text_for_numbers(column: nw.Series[Any], what: str) -> InvalidInput:
    """Return the error for text in a column that held numbers in the rows that were fitted."""
    texts = list(dict.fromkeys(map(str, column.drop_nulls().to_list())))
    shown = [repr(text) for text in texts if not is_number(text)] or list(map(repr, texts))
    return InvalidInput(
        f"{what} holds text or categories ({listed(shown)}), and held numbers in the rows that were fitted. Convert it "
        'to numbers, with NaN where one is missing (pandas.to_numeric(column, errors="coerce") does).'
    )


def _refuse_types(column: nw.Series[Any], what: str) -> None:
    dtype = column.dtype
    native = getattr(column.to_native(), "dtype", dtype)
    if dtype.is_temporal() or isinstance(native, pd.PeriodDtype):
        raise InvalidInput(f"{what} holds dates or durations ({native}), not numbers. {_TURN_TO_NUMBERS}.")
    if dtype.is_nested() or isinstance(native, pd.IntervalDtype):
        raise InvalidInput(
            f"{what} holds a list, an interval or a record in each cell ({native}), not a number. Give every part a "
            "column of its own."
        )


def _target(column: nw.Series[Any], what: str) -> NDArray[Any]:
    _refuse_types(column, what)
    return _checked_targets(np.asarray(column.to_numpy()), what)


# -- arrays ----------------------------------------------------------------------------------------------------------


def _plain(values: Any) -> NDArray[Any] | None:
    """The array that numpy makes of it; None where it makes none (scikit-learn says why)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.asarray(values)
    except Exception:
        return None


def _array(X: Any) -> Any:
    """An array of objects or text as numbers; others are left alone, for scikit-learn to validate."""
    values = _plain(X)
    if values is None or values.ndim == 0:
        return X
    if values.dtype.kind in "mM":
        raise InvalidInput(f"'X' holds dates or durations ({values.dtype}), not numbers. {_TURN_TO_NUMBERS}.")
    if values.dtype.kind not in "OUS" or values.ndim != 2:
        return X
    columns = [_floats(column.astype(object), f"column {i} of 'X'", _ENCODE_TEXT) for i, column in enumerate(values.T)]
    return np.column_stack(columns) if columns else X


def _floats(values: NDArray[Any], what: str, about_text: str) -> Array:
    """Numbers of a column of objects; None and its kin become NaN."""
    if any(isinstance(value, complex) for value in values):
        raise InvalidInput(f"Complex data not supported: {what} holds complex numbers. Give their parts or moduli.")
    values = np.where(pd.isna(values), np.nan, values)
    dates = next((value for value in values if isinstance(value, _DATES)), None)
    if dates is not None:
        raise NotANumber(f"{what} holds dates or durations ({type(dates).__name__}), not numbers. {_TURN_TO_NUMBERS}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return values.astype(np.float64)
    except Exception as error:
        raise _no_numbers(values, what, about_text, error) from None


def _no_numbers(values: NDArray[Any], what: str, about_text: str, error: Exception) -> InvalidInput:
    """The error to raise for a column that numpy cannot read as numbers."""
    text = [value for value in values if isinstance(value, str | bytes)]
    text = [value for value in text if not (isinstance(value, str) and is_number(value))] or text
    if text:
        shown = listed(list(dict.fromkeys(map(repr, text))))
        return InvalidInput(f"{what} holds text ({shown}) in {len(text)} of {len(values)} rows. {about_text}")
    odd = next((type(value).__name__ for value in values if not isinstance(value, float | int)), "thing")
    return NotANumber(f"{what} holds a {odd} where a number belongs ({error}). Give every number a cell of its own.")


def _checked_targets(values: NDArray[Any], what: str, given: Any = None) -> Any:
    """Targets as they were given, or as an array, unless they are dates or some are missing beside text."""
    dates = values.dtype.kind in "mM"
    if values.dtype == object:
        dates = any(isinstance(value, _DATES) for value in values.flat)
        missing = pd.isna(values)
        if missing.any() and any(isinstance(value, str) for value in values.flat):
            raise InvalidInput(
                f"{what} holds {int(missing.sum())} missing labels (NaN or None) among {values.size}. Drop these rows, "
                "or give them a label of their own."
            )
        if missing.any() and given is None:  # NA of pandas' nullable types, which numpy cannot read
            values = np.where(missing, np.nan, values)
    if dates:
        raise InvalidInput(f"{what} holds dates or durations, not numbers or labels. {_TURN_TO_NUMBERS}.")
    return values if given is None else given


# -- warnings --------------------------------------------------------------------------------------------------------


def _warn_about_order(columns: dict[str, nw.Series[Any]]) -> None:
    if columns:
        names = [
            f"{name!r} ({' < '.join(map(str, column.to_native().dtype.categories[:_SHOWN]))})"
            for name, column in columns.items()
        ]
        warn_user(
            f"the order of the categories of {listed(names)} is ignored: all levels are taken as equally different "
            "from each other. Where the order matters, give numbers instead, as .cat.codes does; where it does not, "
            ".cat.as_unordered() says so.",
            DataWarning,
        )
