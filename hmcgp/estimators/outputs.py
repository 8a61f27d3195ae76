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
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import plain_numbers
from hmcgp.estimators.scaling import Scaling
from hmcgp.kernels import Kernel
from hmcgp.kernels.coregional import Coregional, coregionalised
from hmcgp.likelihoods import Gaussian, Likelihood, OutputNoise, is_gaussian
from hmcgp.model import Model
from hmcgp.posterior import predict, responses
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

_ABOUT_TEXT = "Give a number, the variance of the noise, for each row."


@dataclass(frozen=True)
class OneOutput:
    """Targets of shape (n,); the model has the user's rows."""

    names: tuple[str, ...] = ()
    carries_units: ClassVar[bool] = False  # True: variances of the kernel are factors of others, in the units of y

    def check_missing(self, Y: Array) -> None:
        """Refuse missing targets (NaN) among those of shape (n, k), unless the model can do without them."""
        if np.isnan(Y).any():
            raise InvalidInput(
                "'y' contains NaN, and outputs='independent' share the covariance matrix of all rows: drop the rows in "
                "which an output is missing, or take outputs='coregional', which does without it."
            )

    # -- the model ---------------------------------------------------------------------------------------------------

    def kernel(self, kernel: Kernel, n_inputs: int) -> Kernel:
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

    def repeat_rows(self, values: Array, targets: Array) -> Array:
        """One value per model row, from one per row of the user, of shape (n,)."""
        return values

    def with_rows(self, targets: Array) -> Self:
        """The layout with the rows of these targets appended."""
        return self

    def known_noise(self, noise_variance: Any, targets: Array, scaling: Scaling) -> tuple[Array, Array]:
        """Known variances of the model's rows, in the user's units and on the scale of the model."""
        known = column_or_1d(plain_numbers(noise_variance, "noise_variance", _ABOUT_TEXT), dtype=np.float64)
        check_consistent_length(targets, known)
        return known, known / float(scaling.spread[0]) ** 2

    # -- predictions -------------------------------------------------------------------------------------------------

    def prediction_inputs(self, X: Array) -> Array:
        """Inputs of the model for predictions at m inputs of the user."""
        return X

    def unstack(self, values: Array) -> Array:
        """Values at prediction inputs, the last axis of the array, as (..., m), or (..., m, k)."""
        return values

    def per_output_covariance(self, covariance: Array) -> Array:
        """Covariance at prediction inputs within each output: (m, m), or (m, m, k)."""
        return covariance

    def draw(self, rng: np.random.RandomState, mean: Array, covariance: Array, size: int) -> Array:
        """Samples from mean and covariance at prediction inputs, of shape (size, m), or (size, m, k)."""
        return np.asarray(rng.multivariate_normal(mean, covariance, size=size, check_valid="ignore"))

    def log_density(self, targets: Array, model: Model, draws: Draws, X: Array, n_jobs: int | None) -> Array:
        """Log density of targets on the scale of the model, of shape (m,), under the mixture over draws.

        The density is that of all outputs of a row: they are independent given the hyperparameters.
        """
        if not is_gaussian(model.likelihood):
            return responses.log_density(model, draws, X, targets, n_jobs=n_jobs)
        return predict.log_density(model, draws, X, targets, n_jobs=n_jobs)

    def mixture_covariance(self, model: Model, draws: WeightedDraws, X: Array) -> tuple[Array, Array]:
        """Mean and covariance of new observations at prediction inputs, within each output, averaged over draws."""
        centre: Any = 0.0
        covariance: Any = 0.0
        before = 0.0
        for weight, (mean, S) in zip(draws.weight, predict.observed_jointly(model, draws, X), strict=True):
            # from the mean of those before, as in mixture.merge
            share = weight / max(before + weight, np.finfo(float).tiny)
            deviation = self.unstack(mean) - centre
            centre = centre + share * deviation
            between = np.einsum("i...,j...->ij...", deviation, deviation * (before * share))
            covariance = covariance + between + weight * self.per_output_covariance(S)
            before += weight
        return centre, covariance / draws.total

    def samples(self, rng: Any, model: Model, draws: WeightedDraws, X: Array, n: int) -> Array:
        """New observations at all prediction inputs jointly, of shape (n, m), or (n, m, k)."""
        if not is_gaussian(model.likelihood):
            return responses.samples(rng, model, draws, X, None, n)
        chosen = rng.choice(len(draws), size=n, p=draws.weight / draws.total)
        groups, counts = np.unique(chosen, return_counts=True)
        joint = predict.observed_jointly(model, draws, X, groups.tolist())
        drawn = [self.draw(rng, *moments, count) for moments, count in zip(joint, counts, strict=True)]
        return np.asarray(rng.permutation(np.concatenate(drawn)))  # samples of one draw need not lie side by side

    # -- back to the user's table ------------------------------------------------------------------------------------

    def output_covariance(self, kernel: Kernel) -> Array:
        """B, of shape (k, k), of a kernel with values."""
        raise InvalidInput("there is no covariance between outputs to infer: fit with outputs='coregional'.")

    @property
    def row_groups(self) -> NDArray[np.intp] | None:
        """The user's row of each model row, of shape (N,); None where they are the same."""
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
        if np.unique(scaling.spread).size > 1:
            raise InvalidInput(
                "known variances are in the units of 'y', and standardised outputs have different units, so they would "
                "not share one covariance matrix: use outputs='coregional' with one variance per row and output, or "
                "scale the outputs alike and take standardize=False."
            )
        return super().known_noise(noise_variance, targets, scaling)

    def per_output_covariance(self, covariance: Array) -> Array:
        return covariance[:, :, None]

    def draw(self, rng: np.random.RandomState, mean: Array, covariance: Array, size: int) -> Array:
        centred = super().draw(rng, np.zeros(len(mean)), covariance, size * len(self.names))
        return mean + centred.reshape(size, len(self.names), len(mean)).transpose(0, 2, 1)


@dataclass(frozen=True, eq=False)
class CoregionalOutputs(OneOutput):
    """Targets of shape (n, k), some of them missing (NaN), stacked: one model row per target."""

    carries_units = True
    row: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))  # (N,), the user's row of each

    def check_missing(self, Y: Array) -> None:
        """Refuse a row that is all missing."""
        empty = np.isnan(Y).all(axis=1)
        if empty.any():
            raise InvalidInput(f"'y' contains NaN only in row {int(np.argmax(empty))}: drop rows without any output.")

    def kernel(self, kernel: Kernel, n_inputs: int) -> Kernel:
        """C times B; the model refuses what is not a kernel."""
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
        row, output = np.nonzero(~np.isnan(targets))
        return np.column_stack([X[row], output]), targets[row, output]

    def repeat_rows(self, values: Array, targets: Array) -> Array:
        return np.asarray(values[np.nonzero(~np.isnan(targets))[0]])

    def with_rows(self, targets: Array) -> Self:
        row = np.nonzero(~np.isnan(targets))[0]
        n = self.row[-1] + 1 if len(self.row) else 0
        return replace(self, row=np.concatenate([self.row, n + row]))

    def known_noise(self, noise_variance: Any, targets: Array, scaling: Scaling) -> tuple[Array, Array]:
        known = np.asarray(plain_numbers(noise_variance, "noise_variance", _ABOUT_TEXT), dtype=np.float64)
        if known.shape != targets.shape:
            raise InvalidInput(
                f"'noise_variance' must have one value for each row and output, {targets.shape}; got {known.shape}."
            )
        seen = ~np.isnan(targets)
        return known[seen], (known / scaling.spread**2)[seen]

    def prediction_inputs(self, X: Array) -> Array:
        k = len(self.names)
        return np.column_stack([np.repeat(X, k, axis=0), np.tile(np.arange(k), len(X))])

    def unstack(self, values: Array) -> Array:
        return values.reshape(*values.shape[:-1], -1, len(self.names))

    def per_output_covariance(self, covariance: Array) -> Array:
        m, k = len(covariance) // len(self.names), len(self.names)
        return np.einsum("iaja->ija", covariance.reshape(m, k, m, k))

    def draw(self, rng: np.random.RandomState, mean: Array, covariance: Array, size: int) -> Array:
        return self.unstack(super().draw(rng, mean, covariance, size))

    def log_density(self, targets: Array, model: Model, draws: Draws, X: Array, n_jobs: int | None) -> Array:
        """Joint log density of the outputs of a row that are not missing."""
        return predict.joint_log_density(model, draws, X, targets, n_jobs=n_jobs)

    def output_covariance(self, kernel: Kernel) -> Array:
        """B, the last factor of the kernel."""
        B: Coregional = kernel.right.kernel  # type: ignore[attr-defined]
        return B.covariance()

    @property
    def row_groups(self) -> NDArray[np.intp] | None:
        return self.row

    def inputs(self, X: Array) -> Array:
        first = np.unique(self.row, return_index=True)[1]
        return np.asarray(X[first, :-1])

    def table(self, X: Array, y: Array) -> Array:
        out = np.full((self.row[-1] + 1, len(self.names)), np.nan)
        out[self.row, X[:, -1].astype(int)] = y
        return out
