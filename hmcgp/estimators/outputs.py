"""One output or several: how a table of targets becomes rows of a model, and predictions a table again.

    one            y (n,)      f ~ GP(0, C)
    independent    Y (n, k)    f_a ~ GP(0, C), a = 1 … k, with hyperparameters and noise in common (MacKay 1998, δ_ab C)
    coregional     Y (n, k)    cov(f_a(x), f_b(x')) = B_ab C(x, x'), and a noise for each output

The model of the first two has the user's rows.  That of the last has a row for each number of Y that is not missing,
row by row, with the number of its output behind its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, column_or_1d

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import plain_numbers
from hmcgp.estimators.scaling import Scaling
from hmcgp.estimators.settings import validated
from hmcgp.kernels import Kernel, SquaredExponential
from hmcgp.kernels.coregional import Coregional, coregionalised
from hmcgp.likelihoods import Gaussian, Likelihood, OutputNoise
from hmcgp.model import Model
from hmcgp.posterior import predict
from hmcgp.runtime.checks import name_among
from hmcgp.runtime.typing import Array

OUTPUTS = ("independent", "coregional")
_TEXT = "GPRegressor explains numbers: take GPClassifier for labels, or turn the text into numbers."
_VARIANCES = "Give a number, the variance of the noise, for each row."


@dataclass(frozen=True)
class OneOutput:
    """Targets of shape (n,); rows of the model are those of the user."""

    names: tuple[str, ...] = ()

    def check_missing(self, Y: Array) -> None:
        """Refuse what is missing (NaN) in targets of shape (n, k), unless the model can do without it."""
        if np.isnan(Y).any():
            raise InvalidInput(
                "'y' contains NaN, and outputs='independent' share the covariance matrix of all rows: drop the rows in "
                "which an output is missing, or take outputs='coregional', which does without it."
            )

    # -- the model ---------------------------------------------------------------------------------------------------

    def kernel(self, kernel: Kernel | None, n_inputs: int) -> Kernel | None:
        """Covariance function of the model's inputs."""
        return kernel

    def likelihood(self, likelihood: str | Likelihood) -> str | Likelihood:
        """Likelihood of the model's targets."""
        return likelihood

    def input_names(self, names: Sequence[str]) -> list[str]:
        """Names of the model's inputs."""
        return list(names)

    def rows(self, X: Array, targets: Array) -> tuple[Array, Array]:
        """Inputs and targets of the model."""
        return X, targets

    def spread(self, values: Array, targets: Array) -> Array:
        """Values of the user's rows, of shape (n,), for the rows of the model."""
        return values

    def with_rows(self, targets: Array) -> Self:
        """The same, with more rows."""
        return self

    def known_noise(self, noise_variance: Any, targets: Array, scaling: Scaling) -> tuple[Array, Array]:
        """Known variances of the model's rows, in the user's units and on the scale of the model."""
        known = column_or_1d(plain_numbers(noise_variance, "noise_variance", _VARIANCES), dtype=np.float64)
        check_consistent_length(targets, known)
        return known, known / float(scaling.spread[0]) ** 2

    # -- predictions -------------------------------------------------------------------------------------------------

    def asked(self, X: Array) -> Array:
        """Inputs of the model for predictions at m places."""
        return X

    def shaped(self, values: Array) -> Array:
        """Values at what was asked, the last axis of the array, as (..., m), or (..., m, k)."""
        return values

    def within(self, covariance: Array) -> Array:
        """Covariance of what was asked within each output: (m, m), or (m, m, k)."""
        return covariance

    def draw(self, rng: np.random.RandomState, mean: Array, covariance: Array, size: int) -> Array:
        """Samples from mean and covariance of what was asked, of shape (size, m), or (size, m, k)."""
        return np.asarray(rng.multivariate_normal(mean, covariance, size=size, check_valid="ignore"))

    def log_density(self, targets: Array, model: Model, draws: Array, X: Array, n_jobs: int | None) -> Array:
        """Log density of targets on the scale of the model, of shape (m,), under the mixture over draws.

        Several outputs of a row are taken together: independent given the hyperparameters.
        """
        return predict.log_density(model, draws, X, targets, n_jobs=n_jobs)

    # -- back to the user's table ------------------------------------------------------------------------------------

    def between(self, kernel: Kernel) -> Array:
        """B, of shape (k, k), of a kernel with values."""
        raise InvalidInput("there is no covariance between outputs to infer: fit with outputs='coregional'.")

    @property
    def together(self) -> NDArray[np.intp] | None:
        """Which row of the user's each of the model's belongs to; None where they are the same."""
        return None

    def inputs(self, X: Array) -> Array:
        """The user's inputs among those of the model, still scaled."""
        return X

    def table(self, X: Array, y: Array) -> Array:
        """Targets as the user gave them, still scaled, from the rows of the model."""
        return y


@dataclass(frozen=True)
class IndependentOutputs(OneOutput):
    """Targets of shape (n, k) that share one covariance matrix."""

    def known_noise(self, noise_variance: Any, targets: Array, scaling: Scaling) -> tuple[Array, Array]:
        """Variances of the rows, the same for all outputs."""
        if np.unique(scaling.spread).size > 1:
            raise InvalidInput(
                "known variances are in the units of 'y', and standardised outputs have different units, so they would "
                "not share one covariance matrix: use outputs='coregional' with one variance per row and output, or "
                "scale the outputs alike and take standardize=False."
            )
        return super().known_noise(noise_variance, targets, scaling)

    def within(self, covariance: Array) -> Array:
        """Covariance of what was asked, the same for each output."""
        return covariance[:, :, None]

    def draw(self, rng: np.random.RandomState, mean: Array, covariance: Array, size: int) -> Array:
        """Samples, each output by itself."""
        centred = super().draw(rng, np.zeros(len(mean)), covariance, size * len(self.names))
        return mean + centred.reshape(size, len(self.names), len(mean)).transpose(0, 2, 1)


@dataclass(frozen=True, eq=False)
class CoregionalOutputs(OneOutput):
    """Targets of shape (n, k), some of them missing (NaN), stacked; `row` says whose they are."""

    row: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))  # (N,)

    def check_missing(self, Y: Array) -> None:
        """Refuse a row that is all missing."""
        empty = np.isnan(Y).all(axis=1)
        if empty.any():
            raise InvalidInput(f"'y' contains NaN only in row {int(np.argmax(empty))}: drop rows without any output.")

    def kernel(self, kernel: Kernel | None, n_inputs: int) -> Kernel | None:
        """C times B; what is no kernel is left to the model to refuse."""
        kernel = SquaredExponential(ard=True) if kernel is None else kernel
        return coregionalised(kernel, n_inputs, self.names) if isinstance(kernel, Kernel) else kernel

    def likelihood(self, likelihood: str | Likelihood) -> Likelihood:
        """A noise for each output, as `Gaussian` has one for all."""
        if isinstance(likelihood, OutputNoise) and len(likelihood.outputs) == len(self.names):
            return replace(likelihood, outputs=self.names)
        if isinstance(likelihood, Gaussian):
            return OutputNoise(self.names, likelihood.noise, likelihood.known)
        raise InvalidInput(
            f"outputs='coregional' has a variance of the noise for each of its {len(self.names)} outputs: take "
            f"likelihood='gaussian', or OutputNoise with as many outputs; got {likelihood!r}."
        )

    def input_names(self, names: Sequence[str]) -> list[str]:
        """Those of the user and, behind them, that of the number of the output."""
        last = "output"
        while last in names:
            last += "_"
        return [*names, last]

    def rows(self, X: Array, targets: Array) -> tuple[Array, Array]:
        """One row for each target that is there."""
        row, output = np.nonzero(~np.isnan(targets))
        return np.column_stack([X[row], output]), targets[row, output]

    def spread(self, values: Array, targets: Array) -> Array:
        """Each as often as its row has targets."""
        return np.asarray(values[np.nonzero(~np.isnan(targets))[0]])

    def with_rows(self, targets: Array) -> Self:
        """The same, with the rows of these targets."""
        row = np.nonzero(~np.isnan(targets))[0]
        n = self.row[-1] + 1 if len(self.row) else 0
        return replace(self, row=np.concatenate([self.row, n + row]))

    def known_noise(self, noise_variance: Any, targets: Array, scaling: Scaling) -> tuple[Array, Array]:
        """Variances of the rows and outputs."""
        known = np.asarray(plain_numbers(noise_variance, "noise_variance", _VARIANCES), dtype=np.float64)
        if known.shape != targets.shape:
            raise InvalidInput(
                f"'noise_variance' must have one value for each row and output, {targets.shape}; got {known.shape}."
            )
        seen = ~np.isnan(targets)
        return known[seen], (known / scaling.spread**2)[seen]

    def asked(self, X: Array) -> Array:
        """Every place once for each output."""
        k = len(self.names)
        return np.column_stack([np.repeat(X, k, axis=0), np.tile(np.arange(k), len(X))])

    def shaped(self, values: Array) -> Array:
        """Values at places and outputs."""
        return values.reshape(*values.shape[:-1], -1, len(self.names))

    def within(self, covariance: Array) -> Array:
        """Covariance within each output."""
        m, k = len(covariance) // len(self.names), len(self.names)
        return np.einsum("iaja->ija", covariance.reshape(m, k, m, k))

    def draw(self, rng: np.random.RandomState, mean: Array, covariance: Array, size: int) -> Array:
        """Samples of all outputs together."""
        return self.shaped(super().draw(rng, mean, covariance, size))

    def log_density(self, targets: Array, model: Model, draws: Array, X: Array, n_jobs: int | None) -> Array:
        """Of the outputs of a row that are not missing, together."""
        return predict.joint_log_density(model, draws, X, targets, n_jobs=n_jobs)

    def between(self, kernel: Kernel) -> Array:
        """B, the last factor of what `coregionalised` has made."""
        B: Coregional = kernel.right.kernel  # type: ignore[attr-defined]
        return B.covariance()

    @property
    def together(self) -> NDArray[np.intp] | None:
        """The user's row of each of the model's."""
        return self.row

    def inputs(self, X: Array) -> Array:
        """One row for each of the user's, without the number of the output."""
        first = np.unique(self.row, return_index=True)[1]
        return np.asarray(X[first, :-1])

    def table(self, X: Array, y: Array) -> Array:
        """Targets with NaN where they are missing."""
        out = np.full((self.row[-1] + 1, len(self.names)), np.nan)
        out[self.row, X[:, -1].astype(int)] = y
        return out


def checked_table(estimator: Any, X: Any, y: Any) -> tuple[Array, Array, OneOutput]:
    """Validated inputs and targets, and what kind of outputs these are.

    As scikit-learn has it, one column is a vector, with a warning.
    """
    kind = name_among("outputs", estimator.outputs, OUTPUTS)
    y = plain_numbers(y, "y", _TEXT)
    shape = np.asarray(y).shape
    if not (len(shape) == 2 and shape[1] > 1):
        if kind == "coregional":
            raise InvalidInput(
                f"outputs='coregional' is for 'y' of shape (n, k), k >= 2; got {shape}. For one output leave "
                "'outputs' out."
            )
        X, y = validated(estimator, X, y, ensure_min_samples=2, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64), OneOutput()
    X = validated(estimator, X, ensure_min_samples=2)
    Y = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
    check_consistent_length(X, Y)
    layout = (IndependentOutputs if kind == "independent" else CoregionalOutputs)(_names(y, Y.shape[1]))
    layout.check_missing(Y)
    return X, Y, layout


def more_targets(layout: OneOutput, y: Any) -> Array:
    """Validated targets of new rows, of shape (m,) or (m, k)."""
    y = plain_numbers(y, "y", _TEXT)
    if not layout.names:
        return np.asarray(column_or_1d(y, dtype=np.float64))
    Y = check_array(y, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y")
    layout.check_missing(Y)
    if Y.shape[1] != len(layout.names):
        raise InvalidInput(
            f"'y' must have a column for each of the {len(layout.names)} outputs {', '.join(layout.names)}; got "
            f"{Y.shape[1]}."
        )
    given = tuple(map(str, getattr(y, "columns", layout.names)))
    if given != layout.names and set(given) == set(layout.names):
        raise InvalidInput(f"the columns of 'y' must be in the order of fit, {', '.join(layout.names)}; got {given}.")
    return np.asarray(Y)


def learn_scaling(y: Array, layout: OneOutput, weights: Array | None, *, standardize: bool) -> Scaling:
    """Location and spread of every output, of what is not missing, rows weighted; refuses one that is constant."""
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


def _names(y: Any, k: int) -> tuple[str, ...]:
    names = tuple(map(str, y.columns if hasattr(y, "columns") else range(k)))
    if len(set(names)) < len(names):
        raise InvalidInput(f"the columns of 'y' must have different names; got {', '.join(names)}.")
    return names
