"""A model of some of its rows, such as for a comparison with a dense fit of a subset."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hmcgp.likelihoods import Classes, Counts, Likelihood
from hmcgp.model.model import Model
from hmcgp.runtime.typing import Array

M = TypeVar("M", bound=Model)


def restricted(model: M, rows: NDArray[np.intp], inducing: Array | None = None) -> M:
    """Return the model of some rows, with the same hyperparameters, and with given inducing inputs or none.

    Parameters
    ----------
    model : Model
    rows : ndarray of int
        Positions of the rows.
    inducing : ndarray of shape (m, d), optional
        Inducing inputs, which need not be among the rows; None for a dense covariance matrix.
    """
    other = copy.copy(model)
    other.X, other.y = model.X[rows], model.y[rows]
    other.likelihood = _likelihood_of(model.likelihood, model.y, rows).for_rows(other.X)
    other.inducing, other._identity = inducing, None
    return other


def _likelihood_of(likelihood: Likelihood, y: Array, rows: NDArray[np.intp]) -> Likelihood:
    """Likelihood of some rows: their weights, known variances and sizes; and all classes, present in them or not."""
    names = ["weights", "known", *([likelihood.size_name] if isinstance(likelihood, Counts) else [])]
    per_row = {name: getattr(likelihood, name, None) for name in names}
    changes: dict[str, Any] = {name: tuple(np.array(v)[rows]) for name, v in per_row.items() if v is not None}
    if isinstance(likelihood, Classes):
        changes["n_classes"] = likelihood.count(y)
    checked = replace(likelihood, **changes)  # the rest, such as units, stays as it is
    own = [*changes, "_weights", "_sizes"]  # arrays that go with the fields
    return likelihood._with({name: value for name, value in checked.__dict__.items() if name in own})
