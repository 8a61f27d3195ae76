"""From a table of counts to averaged rates, and to counts at new rows."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples, check_consistent_length, check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.count_targets import CountTargets, count_table, sizes_for
from hmcgp.estimators.imputation import (
    Rows,
    average,
    average_log,
    average_moments,
    gaussian_quantiles,
    response_quantiles,
)
from hmcgp.estimators.table import TrainingTable
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Counts, Likelihood
from hmcgp.model.compatibility import as_likelihood
from hmcgp.posterior import predict, responses
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.checks import check_between, check_count, check_quantiles, name_among
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Sampler


class GPCounts(RegressorMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process regression of counts with the hyperparameters integrated out.

    The logarithm of a rate, or the logit of a probability, is a Gaussian process; y counts events in an exposure, or
    successes of trials.  Predictions are of mixtures, one component per draw of the hyperparameters: `predict_rate` of
    the rate (events per unit of exposure, probability of success), all others of counts.

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function of the logarithm of the rate (the logit of the probability).  Numbers and priors that you
        write are in the units of the inputs, unless the kernel has `standardized=True`; default priors are for
        standardised inputs.  Default: `SquaredExponential(ard=True)` under default priors.
    likelihood : {"poisson", "negative_binomial", "binomial"} or Likelihood, default="poisson"
        "poisson": events whose variance is their mean.  "negative_binomial": with more scatter, variance m + α m², and
        the dispersion α inferred.  "binomial": successes of `trials`.
    evidence : {"laplace", "ep"} or EvidenceProvider, optional
        How the latent function is integrated out: "ep" more accurately, at several times the cost.  Default: "laplace".
    inducing, sampler, draws, tune, chains, predict_draws, n_jobs, missing, random_state, progressbar
        As of `GPClassifier`, without a refinement of the evidence.
    max_time, checkpoint
        As of `GPClassifier`.
    standardize : bool, default=True
        Give every input mean 0 and standard deviation 1, and count the latent function from the mean rate of all rows,
        which is what the default priors expect.

    Attributes
    ----------
    trace_, model_, parameters_, kernel_, n_features_in_, feature_names_in_, target_name_
        As of `GPClassifier`.

    Examples
    --------
    >>> from hmcgp import GPCounts, datasets
    >>> X, y = datasets.load_coal_mining(return_X_y=True)
    >>> gp = GPCounts(sampler="map").fit(X, y)
    >>> rate = gp.predict_rate(X, level=0.9)
    """

    targets: ClassVar[str] = "counts"
    _targets: CountTargets

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str | Likelihood = "poisson",
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _training_table(self, X: Any, y: Any, row_data: Any, sample_weight: Any) -> TrainingTable:
        return count_table(self, X, y, row_data, sample_weight)

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, exposure: Any = None, trials: Any = None, sample_weight: Any = None
    ) -> Self:
        """Sample the hyperparameters given a table and its counts.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs, as of `GPClassifier.fit`.
        y : array-like of shape (n,)
            Whole numbers, 0 or more.
        exposure : float or array-like of shape (n,), optional
            Time, area or population, in any unit, in which the events of each row were counted.  Default: the same for
            all, and rates are per row.
        trials : int or array-like of shape (n,)
            For "binomial": number of trials of each row.
        sample_weight : array-like of shape (n,), optional
            As of `GPClassifier.fit`.

        Returns
        -------
        self

        Notes
        -----
        Warns and raises as `GPClassifier.fit`.
        """
        self._check_likelihood()
        return self._fit(X, y, sample_weight, self._row_sizes(X, exposure, trials))

    def append(  # type: ignore[override]
        self, X: Any, y: Any, exposure: Any = None, trials: Any = None, sample_weight: Any = None
    ) -> Self:
        """Take more rows into account without sampling again, as `GPClassifier.append`; arguments as of `fit`."""
        check_is_fitted(self)
        return self._append(X, y, sample_weight, self._row_sizes(X, exposure, trials))

    def _check_likelihood(self) -> Counts:
        likelihood = as_likelihood(self.likelihood, "counts")
        assert isinstance(likelihood, Counts)
        if getattr(likelihood, likelihood.size_name) is not None:
            raise InvalidInput(
                f"give '{likelihood.size_name}' to fit and to predictions, not to the likelihood: it belongs to rows."
            )
        return likelihood

    def _row_sizes(self, X: Any, exposure: Any, trials: Any) -> Any:
        """Exposures or numbers of trials as given, a single number repeated for all rows."""
        sizes = sizes_for(self._check_likelihood(), exposure, trials)
        return np.full(len(X), sizes) if sizes is not None and np.ndim(sizes) == 0 else sizes

    def _likelihood(self) -> Counts:
        likelihood = self.model_.likelihood
        assert isinstance(likelihood, Counts)
        return likelihood

    def _new_sizes(self, n: int, exposure: Any, trials: Any) -> Array:
        likelihood = self._likelihood()
        return self._targets.sizes(likelihood, n, sizes_for(likelihood, exposure, trials))

    # -- rates -------------------------------------------------------------------------------------------------------

    def predict_rate(self, X: Any, level: float | None = None) -> Any:
        """Rate per unit of exposure, or probability of success in a trial, averaged over the draws.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        level : float, optional
            Return the central interval that holds the rate with this probability, too: over the latent function and the
            hyperparameters.

        Returns
        -------
        rate : ndarray of shape (m,)
        interval : ndarray of shape (m, 2)
            Only with `level`: lower and upper end.
        """
        if level is None:
            return self._predict_rows(X, self._mean_rates)
        check_between("level", level, 0.0, 1.0)

        def rates(draws: WeightedDraws, inputs: Array, rows: Rows, copies: int) -> Array:
            interval = self._rate_intervals(draws, inputs, level, copies)
            return np.column_stack([self._mean_rates(draws, inputs, rows, copies), interval])

        found = self._predict_rows(X, rates)
        return found[:, 0], found[:, 1:]

    def _mean_rates(self, draws: WeightedDraws, inputs: Array, _: Rows, copies: int) -> Array:
        return average(responses.mean_rates(self.model_, draws, inputs, n_jobs=self.n_jobs), copies)

    def _rate_intervals(self, draws: WeightedDraws, inputs: Array, level: float, copies: int) -> Array:
        q = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        f = gaussian_quantiles(self.model_, draws, inputs, q, copies, observed=False, n_jobs=self.n_jobs)
        return self._likelihood().rate(f).T  # an increasing function, the same for all draws

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance, each of shape (m,), of the logarithm of the rate, or the logit of the probability."""
        found = self._predict_rows(
            X,
            lambda draws, inputs, _, copies: average_moments(
                *predict.mixture_moments(self.model_, draws, inputs, n_jobs=self.n_jobs), copies
            ),
        )
        return found[:, 0] + self._likelihood().offset, found[:, 1]

    # -- counts ------------------------------------------------------------------------------------------------------

    def predict(self, X: Any, exposure: Any = None, trials: Any = None, return_std: bool = False) -> Any:
        """Mean of new counts, averaged over the draws, and their standard deviation.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        exposure, trials : float or array-like of shape (m,)
            Of the new rows, where `fit` was given that of the training rows.
        return_std : bool, default=False
            Return the standard deviation of a new count, too: that of the count given its rate, and of the rate.

        Returns
        -------
        mean : ndarray of shape (m,)
        sd : ndarray of shape (m,)
            Only if requested.
        """
        check_is_fitted(self)
        sizes = self._new_sizes(_num_samples(X), exposure, trials)
        if not return_std:
            return sizes * self._predict_rows(X, self._mean_rates)

        def moments(draws: WeightedDraws, inputs: Array, rows: Rows, copies: int) -> Array:
            own = np.repeat(sizes[rows], copies)
            return average_moments(*responses.moments(self.model_, draws, inputs, own, n_jobs=self.n_jobs), copies)

        found = self._predict_rows(X, moments)
        return found[:, 0], np.sqrt(found[:, 1])

    def predict_quantiles(
        self, X: Any, quantiles: Any = (0.05, 0.5, 0.95), exposure: Any = None, trials: Any = None
    ) -> Array:
        """Quantiles of new counts under the mixture over draws.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        quantiles : float or sequence of float, default=(0.05, 0.5, 0.95)
            Strictly between 0 and 1.
        exposure, trials
            As of `predict`.

        Returns
        -------
        ndarray of shape (m, q), or (m,) for one number
            Whole numbers: the smallest count that is not exceeded with this probability, or more, computed to 2e-3.
        """
        q = check_quantiles(quantiles)
        check_is_fitted(self)
        sizes = self._new_sizes(_num_samples(X), exposure, trials)

        def row_quantiles(draws: WeightedDraws, inputs: Array, rows: Rows, copies: int) -> Array:
            own = np.repeat(sizes[rows], copies)
            return response_quantiles(self.model_, draws, inputs, q, copies, own, n_jobs=self.n_jobs).T

        found = self._predict_rows(X, row_quantiles)
        return found[:, 0] if np.ndim(quantiles) == 0 else found

    def predict_interval(
        self, X: Any, level: float = 0.9, of: str = "y", exposure: Any = None, trials: Any = None
    ) -> Array:
        """Interval that holds a new count, or the rate, with the probability `level`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        level : float, default=0.9
            Strictly between 0 and 1.
        of : {"y", "f"}, default="y"
            "y": a new count.  "f": its expectation, the rate times exposure or trials.
        exposure, trials
            As of `predict`.

        Returns
        -------
        ndarray of shape (m, 2)
            Lower and upper end: central quantiles of the mixture over draws.  Counts are whole, so that the interval
            of a count may hold it more often.
        """
        check_between("level", level, 0.0, 1.0)
        if name_among("of", of, ("y", "f")) == "y":
            return self.predict_quantiles(X, (0.5 - 0.5 * level, 0.5 + 0.5 * level), exposure, trials)
        interval = self._predict_rows(
            X, lambda draws, inputs, _, copies: self._rate_intervals(draws, inputs, level, copies)
        )
        return interval * self._new_sizes(len(interval), exposure, trials)[:, None]

    def log_predictive_density(self, X: Any, y: Any, exposure: Any = None, trials: Any = None) -> Array:
        """Log probability of observed counts under the mixture over draws, of shape (m,).

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        y : array-like of shape (m,)
        exposure, trials
            As of `predict`.
        """
        check_is_fitted(self)
        y = self._targets.validate(y)
        check_consistent_length(X, y)
        sizes = self._new_sizes(len(y), exposure, trials)
        self._likelihood().at_sizes(sizes).check_targets(y)

        def log_density(draws: WeightedDraws, inputs: Array, rows: Rows, copies: int) -> Array:
            targets, own = np.repeat(y[rows], copies), np.repeat(sizes[rows], copies)
            return average_log(
                responses.log_density(self.model_, draws, inputs, targets, own, n_jobs=self.n_jobs), copies
            )

        return self._predict_rows(X, log_density)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, exposure: Any = None, trials: Any = None
    ) -> Array:
        """Draw new counts at all inputs jointly, each sample under another draw of the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        n_samples : int, default=1
        random_state : None, int or RandomState, default=0
        exposure, trials
            As of `predict`.

        Returns
        -------
        ndarray of shape (m, n_samples)
        """
        check_count("n_samples", n_samples, 1)
        model, draws, X = self._new_inputs(X, each_draw=True)
        sizes = self._new_sizes(len(X), exposure, trials)
        with single_blas_thread():
            return responses.samples(check_random_state(random_state), model, draws, X, sizes, n_samples).T

    def score(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, trials: Any = None
    ) -> float:
        """Coefficient of determination R² of the mean counts; see `log_predictive_density` for a better measure."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X, exposure, trials), sample_weight=sample_weight))
