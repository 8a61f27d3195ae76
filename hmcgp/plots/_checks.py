"""Checks and labels that the pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmcgp.errors import InvalidInput
from hmcgp.runtime.typing import Array

_MARGIN = 0.06  # of the range of the data, on each side


def require(gp: object, *attributes: str) -> None:
    """Refuse an estimator that is not fitted, or lacks an attribute that a picture needs."""
    missing = [name for name in attributes if not hasattr(gp, name)]
    kind = type(gp).__name__
    if any(name.endswith("_") for name in missing) and hasattr(gp, "fit"):
        raise InvalidInput(f"this {kind} is not fitted yet: call gp.fit(X, y) first.")
    if missing:
        raise InvalidInput(
            f"this picture is of a fitted estimator with {', '.join(map(repr, missing))}, which a {kind} does not have."
        )


def binary_classes(classes: ArrayLike) -> NDArray[Any]:
    """Return the two labels, or refuse more."""
    found = np.asarray(classes)
    if len(found) != 2:
        raise InvalidInput(
            f"this picture is for two classes; got {len(found)}: {found.tolist()}. "
            "Draw one class against the rest, from a fit to such labels."
        )
    return found


def is_class_1(y: ArrayLike, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell where `y` is the second class; refuse labels that are neither."""
    return np.asarray(check_labels(y, classes) == classes[1], dtype=bool)


def check_labels(y: ArrayLike, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the labels as an array; refuse any that is none of the classes."""
    labels = np.asarray(y)
    unknown = sorted(set(labels.tolist()) - set(classes.tolist()), key=str)
    if labels.ndim != 1 or unknown:
        raise InvalidInput(f"'y' must be one-dimensional with the labels {classes.tolist()}; also got {unknown[:5]}.")
    return labels


def target_label(y: object, label: object) -> str:
    """Text for an axis: P(diabetes = Yes), or P(y = Yes) when `y` has no name."""
    return f"P({getattr(y, 'name', None) or 'y'} = {label})"


def input_names(gp: object, X: object = None) -> list[str] | None:
    """Column names of the fit, else of `X`, else None."""
    for names in (getattr(gp, "feature_names_in_", None), getattr(X, "columns", None)):
        if names is not None:
            return [str(name) for name in names]
    return None


def named_like_fit(gp: object, X: Array) -> Any:
    """Give `X` the column names of the fit, so that the estimator finds what it was fitted on."""
    names = getattr(gp, "feature_names_in_", None)
    if names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=names)


def check_prob(prob: float) -> None:
    """Refuse a probability that makes no interval."""
    if not 0.0 < prob < 1.0:
        raise InvalidInput(f"'prob' must be between 0 and 1; got {prob}.")


def inputs_of(gp: Any, X: Any, n_inputs: int) -> Array:
    """Return `X` with one row per case; refuse another number of inputs than a picture shows."""
    data = np.asarray(X, dtype=float)
    if n_inputs == 1 and data.ndim == 1:
        data = data[:, None]
    fitted = gp.n_features_in_
    if fitted != n_inputs or data.ndim != 2 or data.shape[1] != n_inputs:
        raise InvalidInput(
            f"this picture is of {n_inputs} input{'s' * (n_inputs > 1)}; "
            f"got a fit on {fitted} and 'X' of shape {data.shape}. See plots.predictive."
        )
    return data


def range_of(data: Array | None, limits: tuple[float, float] | None) -> tuple[float, float]:
    """Return the limits given, else those of the data and a little more."""
    if limits is not None:
        return limits
    if data is None:
        raise InvalidInput("'X' or 'limits' must be given, to know where to draw.")
    return widened(data)


def grid_2d(data: Array, n_grid: int) -> tuple[Array, Array, Array]:
    """Return the two axes of a grid over the range of the data, and its points of shape (n_grid ** 2, 2)."""
    x0, x1 = (np.linspace(*widened(column), n_grid) for column in data.T)
    return x0, x1, np.stack([axis.ravel() for axis in np.meshgrid(x0, x1)], axis=1)


def widened(column: Array) -> tuple[float, float]:
    """Return the range of the data and a little more on each side."""
    low, high = float(column.min()), float(column.max())
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin
