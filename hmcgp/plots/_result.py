"""What the pictures ask of a result, and how they ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmcgp.errors import InvalidInput
from hmcgp.runtime.typing import Array

_MARGIN = 0.06  # of the range of the data, on each side


class TraceLike(Protocol):
    """Draws of the natural parameters, with their names and statistics."""

    @property
    def draws(self) -> Array:
        """Natural parameters, of shape (chains, draws, n_dim)."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """One name per parameter, such as ``length_scale[FL]``."""
        ...

    @property
    def stats(self) -> Mapping[str, NDArray[Any]]:
        """Statistics of shape (chains, draws), among them `diverging`."""
        ...


class Sampled(Protocol):
    """A fitted estimator with a posterior."""

    @property
    def trace_(self) -> TraceLike:
        """Draws of all free parameters."""
        ...

    @property
    def parameters_(self) -> Sequence[Any]:
        """Free parameters, in the order of the columns of the trace."""
        ...


class Classifier(Protocol):
    """A fitted binary classifier."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The two labels, sorted."""
        ...

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of shape (n, 2)."""
        ...


class DrawnClassifier(Classifier, Protocol):
    """A fitted binary classifier that also predicts draw by draw."""

    @property
    def n_features_in_(self) -> int:
        """Number of inputs."""
        ...

    def predict_proba_draws(self, X: Any) -> Array:
        """Probabilities of shape (n_draws, n, 2)."""
        ...


def require(result: object, *attributes: str) -> None:
    """Refuse a result that is not fitted, or that cannot do what a picture needs."""
    missing = [name for name in attributes if not hasattr(result, name)]
    kind = type(result).__name__
    if any(name.endswith("_") for name in missing) and hasattr(result, "fit"):
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


def input_names(result: object, X: object = None) -> list[str] | None:
    """Column names of the fit, else of `X`, else None."""
    for names in (getattr(result, "feature_names_in_", None), getattr(X, "columns", None)):
        if names is not None:
            return [str(name) for name in names]
    return None


def named_like_fit(result: object, X: Array) -> Any:
    """Give `X` the column names of the fit, so that the estimator finds what it was fitted on."""
    names = getattr(result, "feature_names_in_", None)
    if names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=names)


def check_prob(prob: float) -> None:
    """Refuse a probability that makes no interval."""
    if not 0.0 < prob < 1.0:
        raise InvalidInput(f"'prob' must be between 0 and 1; got {prob}.")


def inputs_of(result: Any, X: Any, n_inputs: int) -> Array:
    data = np.asarray(X, dtype=float)
    if n_inputs == 1 and data.ndim == 1:
        data = data[:, None]
    fitted = result.n_features_in_
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


def widened(column: Array) -> tuple[float, float]:
    """Return the range of the data and a little more on each side."""
    low, high = float(column.min()), float(column.max())
    margin = _MARGIN * (high - low) or 1.0
    return low - margin, high + margin
