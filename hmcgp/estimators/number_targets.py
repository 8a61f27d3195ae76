"""Tables of numbers: one output or several, on the scale of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, column_or_1d

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import Columns, plain_numbers
from hmcgp.estimators.default_kernel import curve
from hmcgp.estimators.outputs import CoregionalOutputs, IndependentOutputs, OneOutput
from hmcgp.estimators.scaling import Scaling
from hmcgp.estimators.settings import gaps_allowed, validated
from hmcgp.estimators.table import Inputs, NewRows, Targets, TrainingTable
from hmcgp.estimators.weights import concatenate_weights, drop_zero_weight_rows
from hmcgp.likelihoods import Gaussian, Likelihood, OutputNoise, is_gaussian
from hmcgp.model import GrowingModel, Model
from hmcgp.posterior import responses
from hmcgp.posterior.replicates import replicated_numbers
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.checks import lowered, name_among, refuse_huge
from hmcgp.runtime.typing import Array

OUTPUTS = ("independent", "coregional")
_ABOUT_TEXT = (
    "GPRegressor needs real-valued targets: use GPClassifier for labels, GPOrdinal for ordered classes, or convert the "
    "text to numbers."
)


@dataclass(frozen=True, eq=False)
class NumberTargets(Targets):
    """Layout and units of the outputs."""

    layout: OneOutput
    scaling: Scaling

    def attributes(self) -> dict[str, Any]:
        return {"output_names_": np.array(self.layout.names)} if self.layout.names else {}

    @property
    def units(self) -> tuple[float, ...]:
        return tuple(self.scaling.spread.tolist())

    @property
    def unit(self) -> Any:
        """One unit of the standardised target, in those of y; of each output, of shape (k,), if there are several."""
        return self.scaling.spread if self.layout.names else float(self.scaling.spread[0])

    def log_unit(self, y: Array) -> Any:
        """Logarithm of the unit of density of the targets that a row has; NaN is missing."""
        return (~np.isnan(y)) @ np.log(self.unit) if self.layout.names else np.log(self.unit)

    def standardise(self, y: Array) -> Array:
        """Targets on the scale of the model."""
        return self.scaling.apply(y) if self.layout.names else self.scaling.apply(y[:, None])[:, 0]

    def in_units(self, z: Array) -> Array:
        """Values on the scale of the model, in the units of y."""
        return self.scaling.undo(z) if self.layout.names else self.scaling.undo(z[..., None])[..., 0]

    def validate(self, y: Any) -> Array:
        """Targets of new rows in the units of the user, of shape (m,) or (m, k)."""
        y = plain_numbers(y, "y", _ABOUT_TEXT)
        names = self.layout.names
        if not names:
            return np.asarray(column_or_1d(y, dtype=np.float64))
        Y = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
        self.layout.check_missing(Y)
        if Y.shape[1] != len(names):
            raise InvalidInput(
                f"'y' must have a column for each of the {len(names)} outputs {', '.join(names)}; got {Y.shape[1]}."
            )
        given = tuple(map(str, getattr(y, "columns", names)))
        if given != names and set(given) == set(names):
            raise InvalidInput(f"the columns of 'y' must be in the order of fit, {', '.join(names)}; got {given}.")
        return np.asarray(Y)

    def encode(self, y: Any, likelihood: Likelihood) -> Array:
        y = self.validate(y)
        if not self.layout.names:
            likelihood.check_targets(y)
        return self.standardise(y)

    def new_rows(self, model: GrowingModel, X: Array, y: Array, weights: Array | None, row_data: Any) -> NewRows:
        likelihood = self._with_known_noise(model.likelihood, y, row_data)
        new = self.layout.repeat_rows(np.ones(len(X)) if weights is None else weights, y)
        both = concatenate_weights((model.likelihood.weights, len(model.y)), (new, len(new)))
        if both is not None:
            likelihood = (likelihood or model.likelihood).weighted(both)
        targets = replace(self, layout=self.layout.with_rows(y))
        return NewRows(*self.layout.rows(X, y), likelihood, targets)

    def _with_known_noise(self, likelihood: Likelihood, y: Array, noise_variance: Any) -> Likelihood | None:
        """The likelihood with the known variances of new rows behind its own; None if it has none."""
        known = likelihood.known if isinstance(likelihood, Gaussian | OutputNoise) else None
        if (known is None) != (noise_variance is None):
            raise InvalidInput("give 'noise_variance' to fit and to append, or to neither: each row has one or none.")
        if known is None or not isinstance(likelihood, Gaussian | OutputNoise):
            return None
        return replace(likelihood, known=known + self.known_noise(likelihood, noise_variance, y))

    def known_noise(self, likelihood: Gaussian | OutputNoise, noise_variance: Any, y: Array) -> tuple[float, ...]:
        """Known variances of the rows of the model, on its scale."""
        given, scaled = self.layout.known_noise(noise_variance, y, self.scaling)
        replace(likelihood, known=tuple(given.tolist()))  # checked in the user's units
        return tuple(scaled.tolist())

    def observed(self, model: Model) -> NDArray[Any]:
        return self.in_units(self.layout.table(model.X, model.y))

    def log_units(self, model: Model) -> Array:
        y = self.observed(model)
        return np.asarray(self.log_unit(y) + np.zeros(len(y)))

    def replicates(
        self, rng: np.random.Generator, model: Model, draws: WeightedDraws, n_jobs: int | None
    ) -> NDArray[Any]:
        drawn = (
            replicated_numbers(rng, model, draws)
            if is_gaussian(model.likelihood)
            else responses.replicates(rng, model, draws, None)
        )
        return self.in_units(np.array([self.layout.table(model.X, y) for y in drawn]))


def number_table(gp: Any, X: Any, y: Any, noise_variance: Any, sample_weight: Any) -> TrainingTable:
    """Training table of a regressor, which learns the names of the columns; arguments as of `GPRegressor.fit`."""
    X, y, weights, noise_variance = drop_zero_weight_rows(X, y, sample_weight, noise_variance)
    columns = Columns.learn(X, gp.missing)
    X, y, layout = _validated_rows(gp, columns.encode(X), y)
    refuse_huge("y", y)
    targets = NumberTargets(layout, learn_scaling(y, layout, weights, standardize=gp.standardize))
    scaled = targets.standardise(y)
    weights = concatenate_weights((weights, len(X)))
    likelihood = _likelihood(gp.likelihood, targets, scaled, noise_variance)
    targets = replace(targets, layout=layout.with_rows(scaled))
    inputs = Inputs.learn(gp, X, columns, weights)
    X = inputs.gaps.complete(X)
    if isinstance(likelihood, Gaussian | OutputNoise) and likelihood.noise == 0.0:
        _refuse_copies(X, scaled, likelihood, targets.layout)
    kernel = curve(inputs.categories) if gp.kernel is None else gp.kernel
    given, names = {"y": y, "noise_variance": noise_variance}, {"list of outputs": layout.names}
    return TrainingTable(X, scaled, weights, inputs, targets, kernel, likelihood, given, names)


def _validated_rows(gp: Any, X: Any, y: Any) -> tuple[Array, Array, OneOutput]:
    """Validated inputs and targets, and the layout of the outputs; one column is a vector, with a warning."""
    kind = name_among("outputs", gp.outputs, OUTPUTS)
    y = plain_numbers(y, "y", _ABOUT_TEXT)
    shape = np.asarray(y).shape
    if not (len(shape) == 2 and shape[1] > 1):
        if kind == "coregional":
            raise InvalidInput(
                f"outputs='coregional' is for 'y' of shape (n, k), k >= 2; got {shape}. For one output leave "
                "'outputs' out."
            )
        X, y = validated(gp, X, gaps_allowed(gp), y, ensure_min_samples=2, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64), OneOutput()
    X = validated(gp, X, gaps_allowed(gp), ensure_min_samples=2)
    Y = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
    check_consistent_length(X, Y)
    layout = (IndependentOutputs if kind == "independent" else CoregionalOutputs)(_output_names(y, Y.shape[1]))
    layout.check_missing(Y)
    return X, Y, layout


def _output_names(y: Any, k: int) -> tuple[str, ...]:
    names = tuple(map(str, y.columns if hasattr(y, "columns") else range(k)))
    if len(set(names)) < len(names):
        raise InvalidInput(f"the columns of 'y' must have different names; got {', '.join(names)}.")
    return names


def learn_scaling(y: Array, layout: OneOutput, weights: Array | None, *, standardize: bool) -> Scaling:
    """Location and spread of every output, of targets that are not missing, rows weighted; refuses constant outputs."""
    found = []
    for i, with_gaps in enumerate(y.reshape(len(y), -1).T):
        seen = ~np.isnan(with_gaps)
        column, of_rows = with_gaps[seen], None if weights is None else weights[seen]
        of_output = f" of output {layout.names[i]!r}" if layout.names else ""
        if len(column) < 2 and layout.names:
            raise InvalidInput(f"there are {len(column)} targets{of_output}, and at least 2 are needed.")
        found.append(Scaling.learn(column[:, None], standardize=standardize, weights=of_rows))
        if found[-1].constant[0]:
            about = "" if column.min() == column.max() else ", up to rounding"
            raise InvalidInput(
                f"all {len(column)} targets{of_output} are {column[0]:g}{about}: there is nothing to explain. "
                "Check the selection of rows and of the target column."
            )
    parts = ("size", "mean", "sd", "constant")
    return Scaling(*(np.concatenate([getattr(scaling, part) for scaling in found]) for part in parts))


def _likelihood(
    likelihood: str | Likelihood, targets: NumberTargets, y: Array, noise_variance: Any
) -> str | Likelihood:
    """The likelihood of the model's rows, with their known variances."""
    likelihood = Gaussian() if lowered(likelihood) == "gaussian" else likelihood
    if noise_variance is not None:
        if not isinstance(likelihood, Gaussian | OutputNoise):
            raise InvalidInput(f"'noise_variance' goes with the likelihood 'gaussian'; got {likelihood!r}.")
        likelihood = replace(likelihood, known=targets.known_noise(likelihood, noise_variance, y))
    return targets.layout.likelihood(likelihood)


def _refuse_copies(X: Array, y: Array, likelihood: Gaussian | OutputNoise, layout: OneOutput) -> None:
    """Refuse two rows of equal inputs without noise: they contradict each other or make K singular."""
    X, _ = layout.rows(X, y)
    exact = np.arange(len(X)) if likelihood.known is None else np.flatnonzero(np.array(likelihood.known) == 0.0)
    _, first, place = np.unique(X[exact], axis=0, return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[place.ravel()] != np.arange(len(exact)))
    if len(copies):
        one, other = exact[first[place.ravel()[copies[0]]]], exact[copies[0]]
        row = layout.row_groups
        one, other = (one, other) if row is None else row[[one, other]]
        raise InvalidInput(
            f"rows {one} and {other} have the same inputs and no noise ({len(copies)} such rows): the covariance "
            "is singular. Drop the copies, or leave the noise to be inferred (likelihood='gaussian')."
        )
