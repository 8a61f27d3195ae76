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
from hmcgp.estimators.outputs import OneOutput
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
    def learn(cls, gp: Any, X: Array, columns: Columns, weights: Array | None) -> Self:
        """Scales of inputs that `gp` has validated, rows weighted; categories are left as codes.

        Warns
        -----
        DataWarning
            For constant inputs.
        """
        names = input_names(list(getattr(gp, "feature_names_in_", range(gp.n_features_in_))))
        scaling = Scaling.learn(X, standardize=gp.standardize, keep=columns.mask(names), weights=weights)
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

    layout: OneOutput

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


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """Validated rows of a fit, without those of weight 0."""

    X: Array  # (n, d), in the units of the user, categories as codes
    y: Array  # (n,) or (n, k), encoded
    weights: Array | None  # (n,), those of the classes included; None: all are 1
    inputs: Inputs
    targets: Targets
    kernel: Kernel
    likelihood: str | Likelihood
    given: dict[str, Any]  # targets and known variances, in the units of the user
    target_names: dict[str, Any]  # classes or outputs

    def model(self, evidence: str | EvidenceProvider | None, *, standardize: bool) -> Model:
        """The posterior density of the hyperparameters given this table.

        Warns
        -----
        DataWarning
            For more hyperparameters than rows, and for inputs of very different scales that are not standardised.
        """
        layout = self.targets.layout
        X, y = layout.rows(self.inputs.scaling.apply(self.X), self.y)
        model = Model(
            X,
            y,
            kernel=layout.kernel(self.kernel, self.X.shape[1]),
            likelihood=self.likelihood,
            evidence=evidence,
            weights=None if self.weights is None else layout.repeat_rows(self.weights, self.y),
            input_names=layout.input_names(self.inputs.names),
        )
        parameters = model.kernel.parameters(model.input_names)
        warn_about_hyperparameters(model.n_dim, len(self.X), model.kernel, parameters)
        if not standardize:
            warn_about_scales(self.X, self.inputs.names, parameters)
        return model

    def identity(self) -> dict[str, Any]:
        """Identity for a checkpoint: digests of the numbers as given, and the names."""
        categories = {name: known.tolist() for name, known in self.inputs.columns.categories.items()}
        return table_identity(
            {"X": self.X, **self.given, "weights": self.weights},
            {"list of columns": self.inputs.names, "list of categories": categories, **self.target_names},
        )
