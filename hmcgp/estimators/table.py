"""The training table: inputs, targets and weights of a fit, validated once, from which the model is built.

    X ── columns ──► numbers ── scaling ──► inputs of the model
    y ── targets ──► labels -1 and +1, codes 0, 1, …, or scaled numbers

`Inputs` and `Targets` are what a fitted estimator keeps: they take new rows the same way, and predictions back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import DataWarning, warn_user
from hmcgp.estimators.columns import Columns, in_fitted_order, input_names
from hmcgp.estimators.gaps import Gaps
from hmcgp.estimators.outputs import OneOutput
from hmcgp.estimators.scaling import Scaling
from hmcgp.estimators.settings import validated
from hmcgp.estimators.text_columns import listed
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel, Parameter
from hmcgp.kernels.per_class import PerClass
from hmcgp.likelihoods import Likelihood
from hmcgp.model import GrowingModel, Model
from hmcgp.parameters.units import Units
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.typing import Array

LONGEST = {"period": 1.0, "length_scale": 10.0}  # of numbers that the user fixes, in ranges of their input
FAR_FROM_ONE = 30.0  # standard deviation of an input that is not standardised, for which default priors do not do
SCALES_APART = 100.0  # ratio of the largest to the smallest standard deviation of inputs that are not standardised


@dataclass(frozen=True)
class Inputs:
    """Names, categories and scales of the columns of X."""

    names: list[str]  # those of the user's columns, then those of the indicators of gaps
    columns: Columns
    gaps: Gaps
    scaling: Scaling

    @classmethod
    def learn(cls, gp: Any, X: Array, columns: Columns, weights: Array | None) -> Self:
        """Scales of inputs that `gp` has validated, rows weighted, with a warning for constant inputs."""
        names = input_names(list(getattr(gp, "feature_names_in_", range(gp.n_features_in_))))
        gaps = Gaps.learn(X, names, weights)
        scaling = gaps.learn_scaling(
            gaps.complete(X), standardize=gp.standardize, keep=columns.mask(names), weights=weights
        )
        if gp.missing == "auto":
            warn_about_indicators([names[j] for j in gaps.columns], columns.with_missing)
        names = gaps.names(names)
        warn_about_constants(names, scaling.constant)
        return cls(names, columns, gaps, scaling)

    def encode(self, gp: Any, X: Any) -> Array:
        """Validated new inputs on the scale of the model, in the order of the columns of the fit.

        Missing values are filled and have their indicators; those for which there is no indicator are an error.
        """
        return self._encode(gp, X, [self.names[j] for j in self.gaps.columns])

    def encode_incomplete(self, gp: Any, X: Any) -> Array:
        """Encode as `encode`, with NaN for missing values that have no indicator; they are an error if `gp` says so."""
        return self.encode(gp, X) if gp.missing == "error" else self._encode(gp, X, None)

    def _encode(self, gp: Any, X: Any, may_miss: Sequence[str] | None) -> Array:
        X = in_fitted_order(X, getattr(gp, "feature_names_in_", None))
        X = validated(gp, self.columns.encode(X, allow_missing=may_miss is None), may_miss, reset=False)
        return self.scaling.apply(self.gaps.complete(X))

    @property
    def categories(self) -> NDArray[np.bool_]:
        """Which columns of the model are categories."""
        return self.columns.mask(self.names)


class NewRows(NamedTuple):
    """Rows to append to a model."""

    X: Array  # (N, d), as the model takes them
    y: Array  # (N,) or (N, k)
    likelihood: Likelihood | None  # of all rows, if it is told about each
    targets: Targets


class Targets(ABC):
    """The kind of targets: how they become those of the model, and back."""

    layout: OneOutput

    @property
    def units(self) -> tuple[float, ...]:
        """One unit of the targets of the model, in those of y, for each output; 1 for labels."""
        return (1.0,)

    @abstractmethod
    def attributes(self) -> dict[str, Any]:
        """Public attributes that a fitted estimator has because of its targets."""

    @abstractmethod
    def encode(self, y: Any, likelihood: Likelihood) -> Array:
        """Validated targets of new rows, encoded as those of the fit."""

    @abstractmethod
    def new_rows(self, model: GrowingModel, X: Array, y: Array, weights: Array | None, row_data: Any) -> NewRows:
        """Rows of the model for scaled inputs and encoded targets that are appended."""

    @abstractmethod
    def observed(self, model: Model) -> NDArray[Any]:
        """Targets of the training rows, as the user gave them."""

    @abstractmethod
    def log_units(self, model: Model) -> Array:
        """Logarithms of the units of density of the training rows, of shape (n,): 0 for labels."""

    @abstractmethod
    def replicates(
        self, rng: np.random.Generator, model: Model, draws: WeightedDraws, n_jobs: int | None
    ) -> NDArray[Any]:
        """Targets drawn at the training rows, for each draw of the hyperparameters: of shape (S, n) or (S, n, k)."""


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Validated rows of a fit, without those of weight 0."""

    X: Array  # (n, d), in the units of the user, categories as codes, gaps filled and their indicators behind
    y: Array  # (n,) or (n, k), encoded
    weights: Array | None  # (n,), those of the classes included; None: all are 1
    inputs: Inputs
    targets: Targets
    kernel: Kernel
    likelihood: str | Likelihood
    given: dict[str, Any]  # targets and known variances, in the units of the user
    target_names: dict[str, Any]  # classes or outputs

    def model(self, evidence: str | EvidenceProvider | None, *, standardize: bool) -> Model:
        """The posterior density of the hyperparameters given this table, with warnings where it may not be as meant."""
        layout = self.targets.layout
        X, y = layout.rows(self.inputs.scaling.apply(self.X), self.y)
        kernel, likelihood = self._in_standard_units() if standardize else (self.kernel, self.likelihood)
        model = Model(
            X,
            y,
            kernel=layout.kernel(kernel, self.X.shape[1]),
            likelihood=likelihood,
            evidence=evidence,
            weights=None if self.weights is None else layout.repeat_rows(self.weights, self.y),
            input_names=layout.input_names(self.inputs.names),
        )
        parameters = model.kernel.parameters(model.input_names)
        warn_about_hyperparameters(model.n_dim, len(self.X), model.kernel, parameters)
        warn_about_lengths(np.ptp(X, axis=0), model.input_names, parameters)
        if not standardize:
            warn_about_scales(self.X, self.inputs.names, parameters)
        return model

    def _in_standard_units(self) -> tuple[Kernel, str | Likelihood]:
        """Kernel and likelihood with the numbers and priors that the user wrote in standardised units."""
        kernel, likelihood, scaling = self.kernel, self.likelihood, self.inputs.scaling
        target = self.targets.units
        units = Units(tuple(scaling.undo(np.zeros((1, self.X.shape[1])))[0].tolist()), tuple(scaling.spread.tolist()))
        if isinstance(kernel, Kernel):
            of_kernel = units if self.targets.layout.carries_units else units.with_target(*target)
            kernel = kernel.with_positions(self.inputs.names).in_standard_units(of_kernel)
        if isinstance(likelihood, Likelihood):
            likelihood = likelihood.in_standard_units(units.with_target(*target))
        return kernel, likelihood

    def identity(self) -> dict[str, Any]:
        """Identity for a checkpoint: digests of the numbers as given, and the names."""
        categories = {name: known.tolist() for name, known in self.inputs.columns.categories.items()}
        return table_identity(
            {"X": self.X, **self.given, "weights": self.weights},
            {"list of columns": self.inputs.names, "list of categories": categories, **self.target_names},
        )


# -- warnings about tables that can be fitted, but perhaps not as meant -----------------------------------------------


def warn_about_constants(names: Sequence[str], constant: NDArray[np.bool_]) -> None:
    """Name inputs that never change."""
    found = [name for name, flag in zip(names, constant, strict=True) if flag]
    if found:
        warn_user(
            f"{len(found)} of {len(names)} inputs are constant in the training rows ({listed(found)}): they cannot "
            "inform the fit, and their length scales follow the prior. Drop these columns.",
            DataWarning,
        )


def warn_about_indicators(inputs: Sequence[str], categories: Sequence[str]) -> None:
    """Name columns with missing values, for which the default setting adds indicators or levels."""
    parts = []
    if inputs:
        parts.append(f"{listed(list(map(repr, inputs)))} (an indicator is added for each)")
    if categories:
        parts.append(f"{listed(list(map(repr, categories)))} (missing is a category)")
    if parts:
        warn_user(
            f"the training rows have missing values in {' and '.join(parts)}. missing='indicator' does the same "
            "without this warning; missing='error' raises an error instead.",
            DataWarning,
        )


def warn_about_copies(X: Array, targets: Array) -> None:
    """Count rows with the inputs of another row, and those among them with another label."""
    _, place, sizes = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    place = place.ravel()
    copies = int((sizes[place] > 1).sum())
    if not copies:
        return
    pairs = np.unique(np.column_stack([place, targets]), axis=0)  # a place and a label that is found there
    labels = np.bincount(pairs[:, 0].astype(int))
    torn = int((labels[place] > 1).sum())
    conflict = f", {torn} of them those of a row with another label" if torn else ""
    warn_user(
        f"{copies} of {len(X)} rows repeat the inputs of another row{conflict}. The fit works and counts each as a "
        "case of its own, which is right where few or rounded inputs coincide; accidental copies would make the "
        "probabilities over-confident: drop those.",
        DataWarning,
    )


def warn_about_scales(X: Array, names: Sequence[str], parameters: Sequence[Parameter]) -> None:
    """Compare the scales of inputs, not standardised, whose length scales have priors that expect them to be."""
    spread = _spread_by_default(X, names, parameters)
    if not spread:
        return
    least, most = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
    if spread[most] > SCALES_APART * spread[least]:
        found = (
            f"the scales of the inputs are orders of magnitude apart: the standard deviation is {spread[least]:.2g} in "
            f"{least!r} and {spread[most]:.2g} in {most!r}"
        )
    elif spread[most] > FAR_FROM_ONE or spread[least] < 1.0 / FAR_FROM_ONE:
        name = most if spread[most] > FAR_FROM_ONE else least
        found = f"the standard deviation of {name!r} is {spread[name]:.2g}"
    else:
        return
    warn_user(
        f"standardize=False, and {found}. The default priors expect about 1. Take standardize=True, scale these "
        "columns, or give the kernel a prior for each length scale.",
        DataWarning,
    )


def _spread_by_default(X: Array, names: Sequence[str], parameters: Sequence[Parameter]) -> dict[str, float]:
    """Standard deviations of inputs whose length scales have priors for 1; constant inputs are left out."""
    by_default = [p for p in parameters if p.role == "length_scale" and p.is_free and p.standardized]
    labels = {label for p in by_default for label in (names if p.labels is None else p.labels)}
    return {name: float(sd) for name, sd in zip(names, X.std(axis=0), strict=True) if name in labels and sd > 0.0}


def warn_about_lengths(ranges: Array, names: Sequence[str], parameters: Sequence[Parameter]) -> None:
    """Name fixed periods longer than the range of their input, and length scales that are ten times as long."""
    known = dict(zip(names, ranges.tolist(), strict=True))
    for p in parameters:
        if p.is_free or p.role not in LONGEST or not all(name in known for name in p.inputs):
            continue
        values, units = (np.broadcast_to(part, len(p.inputs)) for part in (p.value, 1.0 if p.unit is None else p.unit))
        for name, value, unit in zip(p.inputs, values, units, strict=True):
            if 0.0 < LONGEST[p.role] * known[name] < value:
                warn_user(
                    f"the {p.role.replace('_', ' ')} {value * unit:.4g} is longer than the range of its input "
                    f"{name!r}, {known[name] * unit:.4g}: the rows hardly show it. Numbers in kernels are in the units "
                    "of the table, unless you say standardized=True.",
                    DataWarning,
                )


def warn_about_hyperparameters(
    n_hyperparameters: int, n_rows: int, kernel: Kernel, parameters: Sequence[Parameter]
) -> None:
    """Say when there are more hyperparameters than rows, and which kernels have fewer."""
    if n_hyperparameters <= n_rows:
        return
    remedies = []
    if isinstance(kernel, PerClass):
        remedies.append("share one kernel among all classes (kernel=SquaredExponential(ard=True))")
    if any(p.is_free and p.labels is not None and p.role == "length_scale" for p in parameters):
        remedies.append("share one length scale among all inputs (kernel=SquaredExponential())")
    remedies += ["drop inputs", "fix some hyperparameters to numbers"]
    what = f"{', '.join(remedies[:-1])}, or {remedies[-1]}"
    warn_user(
        f"there are {n_hyperparameters} hyperparameters for {n_rows} rows: most of them will only follow their priors, "
        f"and sampling takes long. {what[0].upper()}{what[1:]}.",
        DataWarning,
    )
