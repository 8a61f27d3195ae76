"""From a table of ordered levels to their averaged probabilities."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from hmcgp.errors import InvalidInput
from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.imputation import average, average_moments, probability_intervals
from hmcgp.estimators.level_targets import LevelTargets, level_table
from hmcgp.estimators.table import TrainingTable
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood, Ordinal
from hmcgp.posterior import joint, predict
from hmcgp.runtime.checks import check_between, check_flag
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Sampler


class GPOrdinal(ClassifierMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process classification of ordered levels with the hyperparameters integrated out.

    A cumulative probit: one latent function with noise of variance 1, and cut points between the levels, which are
    inferred with the hyperparameters.  Where an order is known, it takes one function instead of one for each class
    (`GPClassifier`), and fewer rows.

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function of the latent function, whose noise has variance 1.  Numbers and priors that you write are
        in the units of the inputs, unless the kernel has `standardized=True`; default priors are for standardised
        inputs.  Default: `SquaredExponential(ard=True)` under default priors.
    levels : sequence, optional
        All levels, the lowest first.  Default: those of an ordered categorical Series; else those found in y, sorted.
    likelihood : {"ordinal"} or Likelihood, default="ordinal"
        `likelihoods.Ordinal(width=...)` gives other priors to cut points.
    evidence : {"laplace", "ep"} or EvidenceProvider, optional
        How the latent function is integrated out: "ep" more accurately, at several times the cost.  Default: "laplace".
    inducing, sampler, draws, tune, chains, predict_draws, n_jobs, missing, standardize, random_state, progressbar
        As of `GPClassifier`, without a refinement of the evidence.
    max_time, checkpoint
        As of `GPClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The levels, the lowest first; columns of `predict_proba` follow them.
    trace_, model_, parameters_, kernel_, n_features_in_, feature_names_in_, target_name_
        As of `GPClassifier`.

    Examples
    --------
    >>> from hmcgp import GPOrdinal
    >>> gp = GPOrdinal(levels=["low", "middle", "high"], sampler="map")
    >>> gp.fit([[0.0], [1.0], [2.0], [3.0]], ["low", "low", "middle", "high"]).predict_proba([[1.5]]).shape
    (1, 3)
    """

    targets: ClassVar[str] = "levels"
    _targets: LevelTargets
    classes_: NDArray[Any]

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        levels: Sequence[Any] | None = None,
        likelihood: str | Likelihood = "ordinal",
        evidence: str | EvidenceProvider | None = None,
        sampler: str | Sampler | None = None,
        draws: int = 1000,
        tune: int = 500,
        chains: int = 4,
        predict_draws: int | str | None = "auto",
        n_jobs: int | None = None,
        standardize: bool = True,
        random_state: RandomStateLike = None,
        progressbar: bool = True,
        max_time: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        inducing: int | str | Any | None = "auto",
        missing: str = "auto",
    ) -> None:
        self._keep_settings(locals())

    def _training_table(self, X: Any, y: Any, row_data: Any, sample_weight: Any) -> TrainingTable:
        return level_table(self, X, y, sample_weight)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the levels, averaged over the latent function and the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)

        Returns
        -------
        ndarray of shape (m, C)
            Columns in the order of `classes_`; rows sum to 1.  The average over the latent function is exact.
        """
        parts, found = self._row_parts(X), []
        for part in parts:
            p = predict.probabilities(self.model_, parts.draws, part.inputs, n_jobs=self.n_jobs)
            found.append(average(p, part.copies))
        return parts.merged(found)

    def predict(self, X: Any) -> Any:
        """The most probable level of each row, of shape (m,)."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]

    def predict_mean(self, X: Any, values: Any = None) -> Array:
        """Mean level of each row, Σ_c value_c P(level c), of shape (m,).

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        values : array-like of shape (C,), optional
            Number that each level stands for.  Default: the levels themselves if they are numbers, else 0, 1, 2, ….
        """
        p = self.predict_proba(X)
        if values is None:
            numbers = self.classes_.dtype.kind in "iuf"
            values = self.classes_ if numbers else np.arange(len(self.classes_))
        values = np.asarray(values, dtype=float)
        if values.shape != self.classes_.shape:
            raise InvalidInput(
                f"'values' must have a number for each of the {len(self.classes_)} levels; got {values}."
            )
        return np.asarray(p @ values)

    def predict_proba_interval(self, X: Any, level: float = 0.9) -> Array:
        """Interval of the probability of each level, which holds it with the probability `level`.

        Central, over the latent function, the cut points and the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        level : float, default=0.9
            Strictly between 0 and 1.

        Returns
        -------
        ndarray of shape (m, C, 2)
            Lower and upper end for each of `classes_`, by quasi-Monte Carlo, to about 0.01 (`posterior.intervals`).
            Intervals hold one level each: their ends do not sum to 1.  Rows that are averaged over missing values have
            the union of the intervals of these values, which is wider than `level` asks for.
        """
        check_between("level", level, 0.0, 1.0)
        return self._predict_rows(
            X,
            lambda draws, inputs, _, copies: probability_intervals(
                self.model_, draws, inputs, float(level), copies, n_jobs=self.n_jobs
            ),
        )

    def predict_proba_draws(self, X: Any, latent: bool = False, random_state: RandomStateLike = 0) -> Array:
        """Probabilities of the levels under each draw, or samples of all that is not known about them.

        Parameters, result and cost as of `GPClassifier.predict_proba_draws`.
        """
        check_flag("latent", latent)
        if latent:
            return joint.probability_samples(*self._new_inputs(X, each_draw=True), random_state, n_jobs=self.n_jobs)
        by_row = self._predict_rows(
            X,
            lambda draws, inputs, _, copies: average(
                predict.probabilities_per_draw(self.model_, draws, inputs, n_jobs=self.n_jobs).swapaxes(0, 1), copies
            ),
            each_draw=True,
        )
        return by_row.swapaxes(0, 1)

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the latent function, each of shape (m,), hyperparameters integrated out."""
        found = self._predict_rows(
            X,
            lambda draws, inputs, _, copies: average_moments(
                *predict.mixture_moments(self.model_, draws, inputs, n_jobs=self.n_jobs), copies
            ),
        )
        return found[:, 0], found[:, 1]

    def cut_points(self) -> Array:
        """Cut points between the levels, on the scale of the latent function, for each draw: of shape (S, C - 1).

        For the draws that results for each draw are for (see `predict_draws`).
        """
        found = []
        for theta in self._kept_draws().theta:
            likelihood = self.model_.likelihood_at(theta)
            assert isinstance(likelihood, Ordinal)
            found.append(likelihood.cut_points())
        return np.array(found)
