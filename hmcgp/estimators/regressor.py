"""From a table of numbers to averaged predictions with their uncertainty."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from hmcgp.errors import InvalidInput
from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.numbers import NumbersMixin
from hmcgp.estimators.outputs import checked_table, learn_scaling, more_targets
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Gaussian, Likelihood, OutputNoise
from hmcgp.model import GrowingModel
from hmcgp.runtime.checks import lowered
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Sampler


class GPRegressor(RegressorMixin, NumbersMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process regression with the hyperparameters integrated out.

    Every prediction is of a mixture, one Gaussian per draw of the hyperparameters: of new observations, noise included,
    in the units of y.  `latent_mean_and_variance` is of the function alone.

    With several outputs, y of shape (n, k), predictions have a last axis for them: `predict` returns (m, k).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function, on the scale of standardised inputs and target.  A number is a fact, a prior is a question.
        Default: `SquaredExponential(ard=True)` under default priors.  Add `Constant()` or `Linear()` for a mean that
        is a constant or a linear function with unknown coefficients.
    likelihood : {"gaussian", "varying_noise"} or Likelihood, default="gaussian"
        `likelihoods.Gaussian(noise=0.1)` fixes the variance of the noise, on the scale of the standardised target;
        `likelihoods.VaryingNoise(basis=...)` lets it depend on the inputs (not of coregional outputs).
    outputs : {"independent", "coregional"}, default="independent"
        What several columns of y have in common.  "independent": given the hyperparameters and the noise, which on the
        standardised scale are the same for all, nothing; at the cost of one output.  "coregional": outputs are
        correlated, cov(f_a(x), f_b(x')) = B_ab C(x, x') with B inferred (`kernels.Coregional`; see
        `output_covariance`), each with a noise of its own, and may be missing (NaN) in some rows.  An output then
        learns from the others, at a cost of O((nk)³).  B carries the variances: one of `kernel` that is left to its
        default prior is fixed to 1 (in a sum that of the first term, in a product each).
    evidence : {"exact"} or EvidenceProvider, default="exact"
    sampler : {"nuts", "hmc", "jumps", "metropolis", "map"} or Sampler, optional
        How the hyperparameters are integrated; "map" takes their single most probable value.  Default: "hmc".
    draws, tune, chains, predict_draws, n_jobs, random_state, progressbar, max_time, checkpoint
        As of `GPClassifier`.
    standardize : bool, default=True
        Give every input, and the target, mean 0 and standard deviation 1, which is what the default priors expect.

    Attributes
    ----------
    trace_, model_, parameters_, kernel_, n_features_in_, feature_names_in_
        As of `GPClassifier`; variances and length scales are on the standardised scale.
    output_names_ : ndarray of shape (k,)
        Columns of y if it is a DataFrame, else "0", "1", …  Only with several outputs.

    Examples
    --------
    >>> from hmcgp import GPRegressor, datasets
    >>> X, y = datasets.load_motorcycle(return_X_y=True)
    >>> gp = GPRegressor(random_state=1).fit(X, y)  # doctest: +SKIP
    >>> mean, sd = gp.predict(X, return_std=True)  # doctest: +SKIP
    """

    targets: ClassVar[str] = "numbers"

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        outputs: str = "independent",
        evidence: str | EvidenceProvider = "exact",
        sampler: str | Sampler | None = None,
        draws: int = 1000,
        tune: int = 500,
        chains: int = 4,
        predict_draws: int | None = 500,
        n_jobs: int | None = None,
        standardize: bool = True,
        random_state: RandomStateLike = None,
        progressbar: bool = True,
        max_time: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            kernel,
            likelihood=likelihood,
            evidence=evidence,
            sampler=sampler,
            draws=draws,
            tune=tune,
            chains=chains,
            predict_draws=predict_draws,
            n_jobs=n_jobs,
            standardize=standardize,
            random_state=random_state,
            progressbar=progressbar,
            max_time=max_time,
            checkpoint=checkpoint,
        )
        self.outputs = outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_table(self, X: Any, y: Any, weights: Array | None) -> tuple[Array, Array, Array | None]:
        X, y, self._layout = checked_table(self, X, y)
        self._target_scaling = learn_scaling(y, self._layout, weights, standardize=self.standardize)
        self.__dict__.pop("output_names_", None)  # of an earlier fit
        if self._layout.names:
            self.output_names_ = np.array(self._layout.names)
        return X, self._to_units_of_model(y), weights

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, noise_variance: Any = None, sample_weight: Any = None
    ) -> Self:
        """Sample the hyperparameters given a table and its targets.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs, as of `GPClassifier.fit`.
        y : array-like of shape (n,), or array-like or DataFrame of shape (n, k)
            Finite numbers; NaN where a number is missing from several coregional outputs.
        noise_variance : array-like of shape (n,), or (n, k) for coregional outputs, optional
            Known variance of each target, in the units of y squared.  The noise of `likelihoods.Gaussian` is inferred
            on top of it: `likelihood=Gaussian(noise=0.0)` says that there is no other.  For independent outputs only
            with `standardize=False`: they share it.
        sample_weight : array-like of shape (n,), optional
            Numbers >= 0 that multiply the log likelihoods of the rows: 2 is the same as the row twice, 0 as without it
            (in `loo` and wherever rows come back, too).  They are not normalised.  They count in the standardisation as
            well.  A weight ω makes the noise of its row ω times smaller, and is as much evidence about the noise as ω
            rows; where only its variance is known, give `noise_variance` instead.

        Returns
        -------
        self

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            When the chains do not agree, or hold too few effective draws, or diverged.
        DataWarning
            For constant inputs.
        ApproximationWarning
            For failures of the solver.
        InterruptedWarning
            After Ctrl-C, or `max_time`.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C before there are draws to keep.  The estimator is as it was before the call.
        """
        return self._fit(X, y, sample_weight, noise_variance=noise_variance)

    def append(  # type: ignore[override]
        self, X: Any, y: Any, noise_variance: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take more rows into account without sampling again, at n² operations for each row and draw.

        As `GPClassifier.append`.  Where rows have weights, a draw takes n³ operations.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        y : array-like of shape (m,) or (m, k)
        noise_variance : array-like of shape (m,) or (m, k), optional
            Known variances of the new targets, where `fit` was given those of the first.
        sample_weight : array-like of shape (m,), optional
            As of `fit`; default: 1 each.
        """
        return self._append(X, y, sample_weight, noise_variance=noise_variance)

    def _identity(self, numbers: dict[str, Any]) -> dict[str, Any]:
        return super()._identity(numbers) | table_identity({}, {"list of outputs": self._layout.names})

    def _targets_as_given(self, y: Any, targets: Array) -> Array:
        return np.asarray(y, dtype=np.float64).reshape(targets.shape)

    def _more_targets(self, y: Any) -> Array:
        y = more_targets(self._layout, y)
        if not self._layout.names:
            self.model_.likelihood.check_targets(y)
        return self._to_units_of_model(y)

    def _grown(
        self, model: GrowingModel, X: Array, targets: Array, likelihood: Likelihood | None
    ) -> tuple[GrowingModel, Array]:
        grown = super()._grown(model, *self._layout.rows(X, targets), likelihood)
        self._layout = self._layout.with_rows(targets)
        return grown

    def _of_rows_of_model(self, values: Array, targets: Array) -> Array:
        return self._layout.spread(values, targets)

    def _likelihood_with(self, targets: Array, noise_variance: Any = None) -> Likelihood | None:
        likelihood = self.model_.likelihood
        known = likelihood.known if isinstance(likelihood, Gaussian | OutputNoise) else None
        if (known is None) != (noise_variance is None):
            raise InvalidInput("give 'noise_variance' to fit and to append, or to neither: each row has one or none.")
        if known is None or not isinstance(likelihood, Gaussian | OutputNoise):
            return None
        return replace(likelihood, known=known + self._known_noise(likelihood, noise_variance, targets))

    def _likelihood_of_rows(self, X: Array, targets: Array, noise_variance: Any = None) -> str | Likelihood:
        likelihood = Gaussian() if lowered(self.likelihood) == "gaussian" else self.likelihood
        if noise_variance is not None:
            if not isinstance(likelihood, Gaussian | OutputNoise):
                raise InvalidInput(f"'noise_variance' goes with the likelihood 'gaussian'; got {likelihood!r}.")
            likelihood = replace(likelihood, known=self._known_noise(likelihood, noise_variance, targets))
        likelihood = self._layout.likelihood(likelihood)
        if isinstance(likelihood, Gaussian | OutputNoise) and likelihood.noise == 0.0:
            self._refuse_copies(X, targets, likelihood)
        return likelihood

    def _known_noise(
        self, likelihood: Gaussian | OutputNoise, noise_variance: Any, targets: Array
    ) -> tuple[float, ...]:
        """Known variances of the rows of the model, on its scale."""
        given, scaled = self._layout.known_noise(noise_variance, targets, self._target_scaling)
        replace(likelihood, known=tuple(given.tolist()))  # checked in the user's units
        return tuple(scaled.tolist())

    def _parts_of_model(
        self, X: Array, targets: Array, kernel: Kernel | None
    ) -> tuple[Array, Array, Kernel | None, list[str]]:
        rows, y = self._layout.rows(X, targets)
        self._layout = self._layout.with_rows(targets)
        return rows, y, self._layout.kernel(kernel, X.shape[1]), self._layout.input_names(self._input_names())

    def _refuse_copies(self, X: Array, targets: Array, likelihood: Gaussian | OutputNoise) -> None:
        """Two rows at one place, both without noise, contradict each other or make K singular."""
        X, _ = self._layout.rows(X, targets)
        exact = np.arange(len(X)) if likelihood.known is None else np.flatnonzero(np.array(likelihood.known) == 0.0)
        _, first, place = np.unique(X[exact], axis=0, return_index=True, return_inverse=True)
        copies = np.flatnonzero(first[place.ravel()] != np.arange(len(exact)))
        if len(copies):
            one, other = exact[first[place.ravel()[copies[0]]]], exact[copies[0]]
            whose = self._layout.with_rows(targets).together
            one, other = (one, other) if whose is None else whose[[one, other]]
            raise InvalidInput(
                f"rows {one} and {other} have the same inputs and no noise ({len(copies)} such rows): the covariance "
                "is singular. Drop the copies, or leave the noise to be inferred (likelihood='gaussian')."
            )
