"""Weights of rows and of classes, as a user gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_consistent_length

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import plain_numbers
from hmcgp.runtime.checks import name_among
from hmcgp.runtime.typing import Array


def drop_zero_weight_rows(
    X: Any, y: Any, sample_weight: Any, row_data: Any = None
) -> tuple[Any, Any, Array | None, Any]:
    """Drop rows of weight 0 from a table, its targets, its weights, and what else is known of rows (`row_data`).

    Weights, of shape (n,), must be finite and not negative, and not all 0; those returned are None if all are 1.
    """
    if sample_weight is None:
        return X, y, None, row_data
    weights = np.asarray(plain_numbers(sample_weight, "sample_weight", "Give a number for each row."), dtype=np.float64)
    if weights.ndim != 1:
        raise InvalidInput(f"'sample_weight' must have one number per row; got the shape {weights.shape}.")
    bad = np.flatnonzero(~((weights >= 0.0) & (weights < np.inf)))
    if len(bad):
        raise InvalidInput(
            f"'sample_weight' must be finite and not negative; it holds {weights[bad[0]]} in row {bad[0]}, one of "
            f"{len(bad)} such rows."
        )
    check_consistent_length(X, y, weights, row_data)
    if not weights.any():
        raise InvalidInput("'sample_weight' is zero in every row: there is nothing left to learn from.")
    if weights.all():
        return X, y, concatenate_weights((weights, len(weights))), row_data
    keep = np.flatnonzero(weights)
    X, y, row_data = (None if part is None else _safe_indexing(part, keep) for part in (X, y, row_data))
    return X, y, weights[keep], row_data


def class_weights(
    class_weight: Any, classes: NDArray[Any], codes: NDArray[np.intp], y: NDArray[Any], weights: Array | None
) -> Array:
    """Weight of each class, of shape (C,), as in scikit-learn; `codes` are the positions of y among the classes.

    "balanced" gives every class the same total weight, and all of them together that of the rows: n, where these have
    no weights of their own.
    """
    if not isinstance(class_weight, Mapping):
        name_among("class_weight", class_weight, ["balanced"], ", a dict from label to weight, or None")
        counts = np.bincount(codes, weights=weights)
        return np.asarray(counts.sum() / (len(classes) * counts))
    found = np.asarray(compute_class_weight(class_weight, classes=classes, y=y), dtype=np.float64)
    if not ((found >= 0.0) & (found < np.inf)).all():
        raise InvalidInput(f"'class_weight' must hold finite numbers that are not negative; got {class_weight!r}.")
    return found


def concatenate_weights(*parts: tuple[Array | tuple[float, ...] | None, int]) -> Array | None:
    """Concatenate the weights of several sets of n rows, given with n; None stands for weights of 1."""
    weights = np.concatenate([np.ones(n) if w is None else np.asarray(w) for w, n in parts])
    return None if (weights == 1.0).all() else weights
