"""Checks of text columns that become categories: numbers written as text, spellings, identifiers.

A column of text is taken as a category.  That is wrong for measurements of which some are not written as numbers: one
"<0.6" among 300 results makes every distinct result a category.  Such a column is an error if at least half of its
values are numbers (decimal commas and thousands separators included) and one of these holds:

    some numbers are not whole              "0.7", "<0.6"
    more than MAX_CODES different numbers   "18", "19", ..., "90+"
    all other values mean "missing"         "1", "2", "?"

Whole numbers with few different values, such as stages "1", "2", "3+", are a category, as are columns whose type says
that they are one (pandas' Categorical, Enum).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import DataWarning, InvalidInput, warn_user

MIN_SHARE = 0.5  # of the values that are numbers, from which on a column of text is one of numbers
MAX_CODES = 20  # different whole numbers in a column of text that is taken as a category
MIN_IDENTIFIERS = 3  # rows from which on a different text in every row is an identifier
MISSING_TEXTS = frozenset(["", "-", "--", ".", "?", "n/a", "na", "nan", "nd", "none", "null", "#n/a"])
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)  # not "nan" and "inf", which float() takes
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_POINTS_AND_COMMA = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_LIMIT = re.compile(r"\s*[<>≤≥]")
_SHOWN = 5  # values listed in a message before "…"


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first few of them."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def is_number(text: str) -> bool:
    """Whether a text is a number as Python writes it, spaces around it aside."""
    return _NUMBER.fullmatch(text.strip()) is not None


def check_not_numbers(name: str, values: Iterable[Any]) -> None:
    """Raise an error for a column of text (without missing values) that holds numbers rather than categories."""
    texts, counts = np.unique(np.array([str(value).strip() for value in values], dtype=object), return_counts=True)
    total = int(counts.sum())
    plain = np.array([is_number(text) for text in texts], dtype=bool)
    commas = np.array([_has_comma(text) for text in texts], dtype=bool)
    numbers = plain | commas
    n_numbers = int(counts[numbers].sum())
    if not n_numbers or n_numbers < MIN_SHARE * total:
        return
    others = texts[~numbers].tolist()
    fractions = commas.any() or any(not float(text).is_integer() for text in texts[plain])
    only_missing = bool(others) and all(text.lower() in MISSING_TEXTS for text in others)
    many = int(numbers.sum()) > MAX_CODES and bool(others)
    if not (fractions or only_missing or many):
        return
    what = f"{n_numbers} of its {total} values ({100.0 * n_numbers / total:.0f} %) are numbers"
    if commas.any():
        what += f", some with a comma ({listed(list(map(repr, texts[commas])))})"
    if others:
        what += f", and {total - n_numbers} are not ({listed(list(map(repr, others)))})"
    raise InvalidInput(
        f"column {name!r} holds text, but {what}. As text, every different value would be a category. "
        f"{_advice(texts[commas].tolist(), others)}"
    )


def _has_comma(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (_THOUSANDS, _POINTS_AND_COMMA, _DECIMAL_COMMA))


def _advice(commas: Sequence[str], others: Sequence[str]) -> str:
    """State what to do about a column of numbers that is text."""
    steps = []
    if commas and all(_THOUSANDS.fullmatch(text) for text in commas):
        steps.append("Remove the thousands separators (pandas.read_csv has thousands=',')")
    elif commas:
        steps.append("Write decimal points instead of commas (pandas.read_csv has decimal=',')")
    limits = [text for text in others if _LIMIT.match(text)]
    if limits:
        steps.append(f"Replace {limits[0]!r} and similar limits by numbers, such as the limit or half of it")
    if any(text.lower() in MISSING_TEXTS for text in others):
        steps.append('Write missing values as NaN or None (pandas.to_numeric(column, errors="coerce") does)')
    if not steps and others:
        steps.append("Replace the other values by numbers, or by NaN if they are missing")
    steps.append("Convert the column to numbers (astype(float))")
    return ". ".join([*steps, "If it is a category, say so: astype('category')"]) + "."


def spelling(text: str) -> str:
    """Return a text in lower case, without spaces around it and with single spaces inside."""
    return " ".join(text.split()).casefold()


def warn_about_spellings(categories: dict[str, NDArray[Any]]) -> None:
    """Warn about categories that differ only in upper and lower case or spaces."""
    groups = []
    for name, levels in categories.items():
        alike: dict[str, list[str]] = {}
        for level in levels.tolist():
            alike.setdefault(spelling(level), []).append(level)
        pairs = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
        if pairs:
            groups.append(f"{name!r} ({listed(pairs)})")
    if groups:
        warn_user(
            f"categories that differ only in upper and lower case or spaces are different categories: in the column "
            f"{listed(groups)}. If they mean the same, write them alike, for example with .str.strip().str.lower().",
            DataWarning,
        )


def known_spellings(unknown: Sequence[str], known: Sequence[str]) -> list[str]:
    """Describe unknown categories that differ from a known one only in case or spaces."""
    by_spelling = {spelling(level): level for level in known}
    pairs = [(text, by_spelling.get(spelling(text))) for text in unknown]
    return [f"{text!r} instead of {level!r}" for text, level in pairs if level is not None]


def warn_about_levels(n_levels: dict[str, int], n_rows: int) -> None:
    """Warn about identifiers, and about categories with more levels than half the rows."""
    identifiers = [repr(name) for name, n in n_levels.items() if n == n_rows >= MIN_IDENTIFIERS]
    if identifiers:
        warn_user(
            f"{listed(identifiers)}: the text is different in every one of the {n_rows} rows, as in an identifier or a "
            "free text. It says nothing about new rows. Drop the column.",
            DataWarning,
        )
    n_levels = {name: n for name, n in n_levels.items() if repr(name) not in identifiers}
    fine = [f"{name!r} has {n} levels" for name, n in n_levels.items() if 2 * n > n_rows]
    if fine:
        warn_user(
            f"{listed(fine)} in {n_rows} rows: a category with more levels than half the rows tells rows apart, not "
            "groups of them, and new rows mostly have a level that was never seen. Drop the column if it is an "
            "identifier, make it numbers if it holds numbers as text, or join rare levels.",
            DataWarning,
        )
