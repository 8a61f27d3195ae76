"""From a table of numbers to averaged predictions with their uncertainty."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

from sklearn.base import RegressorMixin

from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.number_targets import number_table
from hmcgp.estimators.numbers import NumbersMixin
from hmcgp.estimators.table import TrainingTable
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood
from hmcgp.runtime.random import RandomStateLike
from hmcgp.samplers import Sampler


class GPRegressor(RegressorMixin, NumbersMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process regression with the hyperparameters integrated out.

    Every prediction is of a mixture, one Gaussian per draw of the hyperparameters: of new observations, noise included,
    in the units of y.  `latent_mean_and_variance` is of the function alone.

    With several outputs, y of shape (n, k), predictions have a last axis for them: `predict` returns (m, k).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function, on the scale of standardised inputs and target.
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
        self._keep_settings(locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _training_table(self, X: Any, y: Any, noise_variance: Any, sample_weight: Any) -> TrainingTable:
        return number_table(self, X, y, noise_variance, sample_weight)

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
            As of `GPClassifier.fit`.  A weight ω makes the noise of its row ω times smaller, and is as much evidence
            about the noise as ω rows; where only its variance is known, give `noise_variance` instead.

        Returns
        -------
        self

        Notes
        -----
        Warns and raises as `GPClassifier.fit`.
        """
        return self._fit(X, y, sample_weight, noise_variance)

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
        return self._append(X, y, sample_weight, noise_variance)
