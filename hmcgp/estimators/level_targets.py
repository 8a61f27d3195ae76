"""Tables of ordered levels: codes 0, 1, 2, … in the order of the levels, which need not be that of sorting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import DataWarning, InvalidInput, warn_user
from hmcgp.estimators.columns import Columns, plain_targets
from hmcgp.estimators.default_kernel import curve
from hmcgp.estimators.labels import LabelTargets, check_labels, check_several
from hmcgp.estimators.settings import gaps_allowed, validated
from hmcgp.estimators.table import Inputs, TrainingTable
from hmcgp.estimators.weights import concatenate_weights, drop_zero_weight_rows
from hmcgp.likelihoods import Ordinal
from hmcgp.model.compatibility import as_likelihood


@dataclass(frozen=True, eq=False)
class LevelTargets(LabelTargets):
    """Levels, the lowest first."""

    def positions(self, labels: NDArray[Any]) -> NDArray[np.intp]:
        number = {level: c for c, level in enumerate(self.classes.astype(labels.dtype).tolist())}
        found = [number[label] for label in np.ravel(labels).tolist()]
        return np.array(found, dtype=np.intp).reshape(labels.shape)


def level_table(gp: Any, X: Any, y: Any, sample_weight: Any) -> TrainingTable:
    """Training table of `GPOrdinal`, which learns the names of the columns; arguments as of its `fit`."""
    told = list(gp.levels) if gp.levels is not None else _ordered_categories(y)
    X, y, weights, _ = drop_zero_weight_rows(X, y, sample_weight)
    columns = Columns.learn(X, gp.missing)
    X, y = validated(gp, columns.encode(X), gaps_allowed(gp), y, ensure_min_samples=2)
    check_labels(y)
    check_several(np.unique(y), "level (class)")
    targets = LevelTargets(_levels(y, told), True, None)
    likelihood = as_likelihood(gp.likelihood, "levels")
    assert isinstance(likelihood, Ordinal)
    likelihood = replace(likelihood, levels=tuple(map(str, targets.classes.tolist())))
    codes = targets.encode(y, likelihood)
    inputs = Inputs.learn(gp, X, columns, weights)
    X = inputs.gaps.complete(X)
    kernel = curve(inputs.categories) if gp.kernel is None else gp.kernel
    names = {"list of levels": targets.classes.tolist()}
    weights = concatenate_weights((weights, len(X)))
    return TrainingTable(X, codes, weights, inputs, targets, kernel, likelihood, {"y": codes}, names)


def _ordered_categories(y: Any) -> list[Any] | None:
    """Categories of an ordered pandas Series (or Categorical), lowest first; None for all else."""
    categories = getattr(y, "cat", y)
    if not getattr(categories, "ordered", False):
        return None
    return list(categories.categories)


def _levels(y: NDArray[Any], told: list[Any] | None) -> NDArray[Any]:
    """Levels as told, or those found, sorted, with a warning where sorting is no order."""
    found = np.unique(y)
    if told is None:
        if found.dtype.kind in "OUS" and len(found) > 1:
            warn_user(
                f"the levels are text, put into alphabetical order: {', '.join(map(str, found))}. Give levels=[...], "
                "the lowest first, if that is not their order.",
                DataWarning,
            )
        return found
    levels = np.asarray(plain_targets(told))
    if len(set(levels.tolist())) < len(levels):
        raise InvalidInput(f"'levels' must be different from each other; got {told}.")
    unknown = sorted(set(found.tolist()) - set(levels.tolist()), key=str)
    if unknown:
        raise InvalidInput(
            f"'y' holds {unknown[:5]}, which are not among the levels {levels.tolist()}: add them to 'levels', or "
            "mend 'y'."
        )
    return levels
