"""Checks and labels that the pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.reporting import units as units_of
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def in_units(gp: Any, trace: Any, units: str) -> Any:
    """Return a trace of a fit with its hyperparameters in these units."""
    return trace if units == "standardized" else units_of.in_units(trace, gp.parameters_, units)


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


def target_name(gp: object, y: object = None) -> str | None:
    """Name of the targets: of the Series `y`, else of those of the fit, else None."""
    found = getattr(y, "name", None) or getattr(gp, "target_name_", None)
    return None if found is None else str(found)


def target_label(gp: object, y: object, label: object) -> str:
    """Text for an axis: P(diabetes = Yes), or P(y = Yes) when neither `y` nor the target of the fit has a name."""
    return f"P({target_name(gp, y) or 'y'} = {label})"


def input_names(gp: object, X: object, default: list[str]) -> list[str]:
    """Column names of the fit, else of `X`, else those given."""
    found = (getattr(gp, "feature_names_in_", None), getattr(X, "columns", None), default)
    return [str(name) for name in next(names for names in found if names is not None)]


def named_like_fit(gp: object, X: Array) -> Any:
    """Give `X` the column names of the fit, so that the estimator finds what it was fitted on."""
    names = getattr(gp, "feature_names_in_", None)
    return X if names is None else pd.DataFrame(X, columns=names)


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


def grid_1d(gp: Any, X: Any, limits: tuple[float, float] | None, n_grid: int) -> tuple[Array | None, Array, Any]:
    """Return the data, if any, a grid over the limits or the range of the data, and the grid as inputs of the fit."""
    data = None if X is None else inputs_of(gp, X, 1)[:, 0]
    if limits is None:
        if data is None:
            raise InvalidInput("'X' or 'limits' must be given, to know where to draw.")
        limits = _widened(data)
    grid = np.linspace(*limits, n_grid)
    return data, grid, named_like_fit(gp, grid[:, None])


def grid_2d(gp: Any, data: Array, n_grid: int) -> tuple[Array, Array, Any]:
    """Return the two axes of a grid over the range of the data, and its points, (n_grid ** 2, 2), as inputs."""
    x0, x1 = (np.linspace(*_widened(column), n_grid) for column in data.T)
    return x0, x1, named_like_fit(gp, np.stack([axis.ravel() for axis in np.meshgrid(x0, x1)], axis=1))


def frame_2d(ax: Axes, gp: Any, X: Any, x0: Array, x1: Array) -> None:
    """Label the axes with the names of two inputs, and limit them to the grid."""
    names = input_names(gp, X, ["input 0", "input 1"])
    ax.set(xlabel=names[0], ylabel=names[1], xlim=(x0[0], x0[-1]), ylim=(x1[0], x1[-1]))
    style.clean(ax)


def _widened(column: Array) -> tuple[float, float]:
    """Return the range of the data and a little more on each side."""
    low, high = float(column.min()), float(column.max())
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin
