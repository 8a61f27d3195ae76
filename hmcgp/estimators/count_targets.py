"""Tables of counts: events with their exposures, or successes with their trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import Columns, plain_numbers
from hmcgp.estimators.default_kernel import curve
from hmcgp.estimators.outputs import OneOutput
from hmcgp.estimators.settings import gaps_allowed, validated
from hmcgp.estimators.table import Inputs, NewRows, Targets, TrainingTable
from hmcgp.estimators.weights import concatenate_weights, drop_zero_weight_rows
from hmcgp.likelihoods import Binomial, Counts, Likelihood
from hmcgp.model import GrowingModel, Model
from hmcgp.model.compatibility import as_likelihood
from hmcgp.posterior import responses
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.typing import Array

_ABOUT_TEXT = (
    "GPCounts needs counts: use GPClassifier for labels, GPOrdinal for ordered classes, or convert the text to numbers."
)


@dataclass(frozen=True, eq=False)
class CountTargets(Targets):
    """Whether rows have sizes, exposures or numbers of trials, and what these are called."""

    layout: ClassVar[OneOutput] = OneOutput()  # type: ignore[misc]
    size_name: str
    has_sizes: bool

    def attributes(self) -> dict[str, Any]:
        return {}

    def validate(self, y: Any) -> Array:
        """Counts of new rows, of shape (m,)."""
        return np.asarray(column_or_1d(plain_numbers(y, "y", _ABOUT_TEXT), dtype=np.float64))

    def sizes(self, likelihood: Counts, n: int, sizes: Any) -> Array:
        """Sizes of n new rows; refused unless they are given where the fit had them, and only there."""
        if sizes is None and self.has_sizes:
            raise InvalidInput(
                f"the fit was given '{self.size_name}', and the count of a new row depends on its own: give "
                f"'{self.size_name}' for these {n} rows, 1 each for counts per unit; or ask for 'predict_rate', which "
                "needs none."
            )
        if sizes is not None and not self.has_sizes:
            raise InvalidInput(
                f"the fit was given no '{self.size_name}', so that nothing is known of others: fit with it, or leave "
                "it out here."
            )
        return np.ones(n) if sizes is None else read_sizes(likelihood, n, sizes)

    def encode(self, y: Any, likelihood: Likelihood) -> Array:
        return self.validate(y)

    def new_rows(self, model: GrowingModel, X: Array, y: Array, weights: Array | None, row_data: Any) -> NewRows:
        likelihood = model.likelihood
        assert isinstance(likelihood, Counts)
        new = self.sizes(likelihood, len(y), row_data)
        likelihood.at_sizes(new).check_targets(y)
        if self.has_sizes:
            likelihood = likelihood.with_rows(new)
        both = concatenate_weights((likelihood.weights, len(model.y)), (weights, len(y)))
        return NewRows(X, y, likelihood if both is None else likelihood.weighted(both), self)

    def observed(self, model: Model) -> NDArray[Any]:
        return model.y.astype(np.int64)

    def log_units(self, model: Model) -> Array:
        return np.zeros(len(model.y))

    def replicates(
        self, rng: np.random.Generator, model: Model, draws: WeightedDraws, n_jobs: int | None
    ) -> NDArray[Any]:
        assert isinstance(model.likelihood, Counts)
        return responses.replicates(rng, model, draws, model.likelihood.sizes(len(model.y)))


def read_sizes(likelihood: Counts, n: int, sizes: Any) -> Array:
    """Exposures or numbers of trials of n rows, checked; one number stands for all."""
    name = likelihood.size_name
    found = np.asarray(plain_numbers(sizes, name, f"Give a number, the {name} of the row, for each."), dtype=np.float64)
    if found.ndim == 0:
        found = np.full(n, float(found))
    checked = likelihood.check_sizes(found)
    if len(checked) != n:
        raise InvalidInput(
            f"'{name}' has {len(checked)} values for {n} rows: give one for each row, or a single number for all."
        )
    return checked


def sizes_for(likelihood: Counts, exposure: Any, trials: Any) -> Any:
    """Return the one of `exposure` and `trials` that the likelihood has, and refuse the other."""
    given = {"exposure": exposure, "trials": trials}
    other = "trials" if likelihood.size_name == "exposure" else "exposure"
    if given[other] is not None:
        has = "successes of 'trials'" if likelihood.size_name == "trials" else "events in an 'exposure'"
        raise InvalidInput(
            f"'{other}' does not go with the likelihood {type(likelihood).__name__}, which counts {has}."
        )
    return given[likelihood.size_name]


def count_table(gp: Any, X: Any, y: Any, sizes: Any, sample_weight: Any) -> TrainingTable:
    """Training table of `GPCounts`, which learns the names of the columns; arguments as of its `fit`."""
    likelihood = as_likelihood(gp.likelihood, "counts")
    assert isinstance(likelihood, Counts)
    if isinstance(likelihood, Binomial) and sizes is None:
        raise InvalidInput(
            "the likelihood 'binomial' counts successes of trials: give 'trials' to fit, the number of each row (1 "
            "each: GPClassifier is for single trials, too)."
        )
    X, y, weights, sizes = drop_zero_weight_rows(X, y, sample_weight, sizes)
    columns = Columns.learn(X, gp.missing)
    y = plain_numbers(y, "y", _ABOUT_TEXT)
    X, y = validated(gp, columns.encode(X), gaps_allowed(gp), y, ensure_min_samples=2, y_numeric=True)
    y = np.asarray(y, dtype=np.float64)
    weights = concatenate_weights((weights, len(X)))
    targets = CountTargets(likelihood.size_name, sizes is not None)
    size = np.ones(len(y)) if sizes is None else read_sizes(likelihood, len(y), sizes)
    likelihood.at_sizes(size).check_targets(y)
    if sizes is not None:
        likelihood = likelihood.with_rows(size)
    if gp.standardize and likelihood.offset == 0.0:
        likelihood = likelihood.centred(y, size, np.ones(len(y)) if weights is None else weights)
    inputs = Inputs.learn(gp, X, columns, weights)
    X = inputs.gaps.complete(X)
    kernel = curve(inputs.categories) if gp.kernel is None else gp.kernel
    given = {"y": y, targets.size_name: sizes}
    return TrainingTable(X, y, weights, inputs, targets, kernel, likelihood, given, {})
