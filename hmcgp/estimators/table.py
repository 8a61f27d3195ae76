"""The training table: inputs, targets and weights of a fit, validated once, from which the model is built.

    X ── columns ──► numbers ── scaling ──► inputs of the model
    y ── targets ──► labels -1 and +1, codes 0, 1, …, or scaled numbers

`Inputs` and `Targets` are what a fitted estimator keeps: they take new rows the same way, and predictions back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hmcgp.estimators.columns import Columns, input_names
from hmcgp.estimators.scaling import Scaling
from hmcgp.estimators.table_warnings import warn_about_constants, warn_about_hyperparameters, warn_about_scales
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Categorical, Constant, Kernel, SquaredExponential
from hmcgp.likelihoods import Likelihood
from hmcgp.model import GrowingModel, Model
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Inputs:
    """Names, categories and scales of the columns of X."""

    names: list[str]
    columns: Columns
    scaling: Scaling

    @classmethod
    def learn(cls, X: Array, names: list[str], columns: Columns, weights: Array | None, *, standardize: bool) -> Self:
        """Scales of validated inputs, rows weighted; categories are left as codes.

        Warns
        -----
        DataWarning
            For constant inputs.
        """
        scaling = Scaling.learn(X, standardize=standardize, keep=columns.mask(names), weights=weights)
        warn_about_constants(names, scaling.constant)
        return cls(names, columns, scaling)

    def default_kernel(self) -> Kernel:
        """Squared exponential of the quantities, times a categorical kernel of the categories."""
        categories = self.columns.mask(self.names)
        if not categories.any():
            return SquaredExponential(ard=True)
        quantities, names = np.flatnonzero(~categories).tolist(), np.flatnonzero(categories).tolist()
        first = SquaredExponential(ard=True).on(quantities) if quantities else Constant()
        return first * Categorical(ard=True).on(names)


class NewRows(NamedTuple):
    """Rows to append to a model."""

    X: Array  # (N, d), as the model takes them
    y: Array  # (N,) or (N, k)
    likelihood: Likelihood | None  # of all rows, if it is told about each
    targets: Targets


class Targets(ABC):
    """The kind of targets: how they become those of the model, and back."""

    @abstractmethod
    def attributes(self) -> dict[str, Any]:
        """Public attributes that a fitted estimator has because of its targets."""

    @abstractmethod
    def encode(self, y: Any, likelihood: Likelihood) -> Array:
        """Validated targets of new rows, encoded as those of the fit."""

    @abstractmethod
    def new_rows(self, model: GrowingModel, X: Array, y: Array, weights: Array | None, noise_variance: Any) -> NewRows:
        """Rows of the model for scaled inputs and encoded targets that are appended."""

    @abstractmethod
    def observed(self, model: Model) -> NDArray[Any]:
        """Targets of the training rows, as the user gave them."""

    @abstractmethod
    def observed_inputs(self, model: Model) -> Array:
        """Inputs of the training rows, one row per row of the user, still scaled."""


@dataclass(frozen=True, eq=False)
class TrainingTable(ABC):
    """Validated rows of a fit, without those of weight 0."""

    X: Array  # (n, d), in the units of the user, categories as codes
    y: Array  # (n,) or (n, k), encoded
    weights: Array | None  # (n,), those of the classes included; None: all are 1
    inputs: Inputs
    targets: Targets

    @abstractmethod
    def model_arguments(self) -> dict[str, Any]:
        """Arguments of `Model`, but for the evidence."""

    @abstractmethod
    def targets_as_given(self) -> tuple[dict[str, Array | None], dict[str, Any]]:
        """Numbers in the units of the user, and names, that tell these targets from others."""

    def model(self, evidence: str | EvidenceProvider | None) -> Model:
        """The posterior density of the hyperparameters given this table.

        Warns
        -----
        DataWarning
            For more hyperparameters than rows.
        """
        model = Model(**self.model_arguments(), evidence=evidence)
        warn_about_hyperparameters(model.n_dim, len(self.X), model.kernel, model.kernel.parameters(model.input_names))
        return model

    def warn_about_scales(self, model: Model) -> None:
        """Warn about inputs of very different scales, where they are not standardised."""
        warn_about_scales(self.X, self.inputs.names, model.kernel.parameters(model.input_names))

    def identity(self) -> dict[str, Any]:
        """Identity for a checkpoint: digests of the numbers as given, and the names."""
        numbers, names = self.targets_as_given()
        categories = {name: known.tolist() for name, known in self.inputs.columns.categories.items()}
        return table_identity(
            {"X": self.X, **numbers, "weights": self.weights},
            {"list of columns": self.inputs.names, "list of categories": categories, **names},
        )


def names_of_inputs(estimator: Any) -> list[str]:
    """Names of the inputs that scikit-learn has validated: those of the columns, or x0, x1, …."""
    return input_names(list(getattr(estimator, "feature_names_in_", range(estimator.n_features_in_))))
