"""From a table of numbers to averaged predictions with their uncertainty."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.imputation import (
    Rows,
    average,
    average_log,
    average_moments,
    gaussian_quantiles,
    response_quantiles,
)
from hmcgp.estimators.number_targets import NumberTargets, number_table
from hmcgp.estimators.table import TrainingTable
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood, StudentT, is_gaussian
from hmcgp.posterior import leave_one_out as leaving_out
from hmcgp.posterior import outliers, predict
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.checks import check_between, check_count, check_quantiles, lowered, name_among
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Sampler


class GPRegressor(RegressorMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process regression with the hyperparameters integrated out.

    Every prediction is of a mixture, one Gaussian per draw of the hyperparameters: of new observations, noise included,
    in the units of y.  `latent_mean_and_variance` is of the function alone.

    With several outputs, y of shape (n, k), predictions have a last axis for them: `predict` returns (m, k).

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function.  Numbers and priors that you write are in the units of the inputs and of y (a variance in
        those of y²), unless the kernel says `standardized=True`; in a product one factor is, the others are relative.
        Default: `SquaredExponential(ard=True)` under default priors.  Add `Constant()` or `Linear()` for such a mean.
    likelihood : {"gaussian", "varying_noise", "student_t"} or Likelihood, default="gaussian"
        `likelihoods.Gaussian(noise=0.1)` fixes the variance of the noise, in the units of y²;
        `likelihoods.VaryingNoise(basis=...)` lets it depend on the inputs (not of coregional outputs).  "student_t" has
        heavy tails, of inferred scale and degrees of freedom: rows far off hardly count (`outlier_probability`).
    outputs : {"independent", "coregional"}, default="independent"
        What several columns of y have in common.  "independent": given the hyperparameters and the noise, which on the
        standardised scale are the same for all, nothing; at the cost of one output.  "coregional": outputs are
        correlated, cov(f_a(x), f_b(x')) = B_ab C(x, x') with B inferred (`kernels.Coregional`; see
        `output_covariance`), each with a noise of its own, and may be missing (NaN) in some rows.  An output then
        learns from the others, at a cost of O((nk)³).  B carries the variances: one of `kernel` that is left to its
        default prior is fixed to 1 (in a sum that of the first term, in a product each).
    evidence : {"exact", "laplace"} or EvidenceProvider, optional
        How the latent function is integrated out.  Default: "exact" for Gaussian noise, "laplace" for "student_t".
    inducing : "auto", int, array-like of shape (m, d) or None, default="auto"
        As of `GPClassifier`, with either evidence; `evidence.Exact(variational=True)` takes Titsias' bound.
    sampler : {"surrogate", "hmc", "nuts", "jumps", "metropolis", "map"} or Sampler, optional
        How the hyperparameters are integrated, as of `GPClassifier`.  Default: "hmc".
    draws, tune, chains, n_jobs, missing, random_state, progressbar, max_time, checkpoint
        As of `GPClassifier`.
    predict_draws : int, "auto" or None, default="auto"
        As for `GPClassifier`.  On two tables, means under "auto" differ from those of 500 draws by at most 0.008
        predictive standard deviations, and ends of 90 % intervals by at most 0.03.
    standardize : bool, default=True
        Give every input, and the target, mean 0 and standard deviation 1, which is what the default priors expect.

    Attributes
    ----------
    trace_, model_, parameters_, kernel_, n_features_in_, feature_names_in_, target_name_
        As of `GPClassifier`; variances and length scales are on the standardised scale.
    output_names_ : ndarray of shape (k,)
        Columns of y if it is a DataFrame, else "0", "1", …  Only with several outputs.

    Examples
    --------
    >>> from hmcgp import GPRegressor, datasets
    >>> X, y = datasets.load_motorcycle(return_X_y=True)
    >>> gp = GPRegressor(sampler="map").fit(X, y)
    >>> mean, sd = gp.predict(X, return_std=True)
    """

    targets: ClassVar[str] = "numbers"
    _targets: NumberTargets

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str | Likelihood = "gaussian",
        outputs: str = "independent",
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
        one_output = isinstance(self.likelihood, StudentT) or lowered(self.likelihood) == "student_t"
        tags.target_tags.multi_output = not one_output
        return tags

    def _training_table(self, X: Any, y: Any, row_data: Any, sample_weight: Any) -> TrainingTable:
        return number_table(self, X, y, row_data, sample_weight)

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

    # -- predictions -------------------------------------------------------------------------------------------------

    def _moments(self, X: Any, *, observed: bool) -> tuple[Array, Array]:
        """Mean and variance of new observations or of the function, in the units of y, of shape (m,) or (m, k)."""
        check_is_fitted(self)
        layout = self._targets.layout

        def moments(draws: WeightedDraws, inputs: Array, _: Rows, copies: int) -> Array:
            mean, variance = predict.mixture_moments(self.model_, draws, inputs, observed=observed, n_jobs=self.n_jobs)
            return average_moments(layout.unstack(mean), layout.unstack(variance), copies)

        found = self._predict_rows(X, moments)
        return self._targets.in_units(found[:, 0]), self._targets.unit**2 * found[:, 1]

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of new observations, averaged over the draws, and how sure that is.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        return_std : bool, default=False
            Return the standard deviation of a new observation, noise included, too.
        return_cov : bool, default=False
            Return the covariance of new observations instead, of shape (m, m), or (m, m, k): within each output.

        Returns
        -------
        mean : ndarray of shape (m,) or (m, k)
        sd or covariance : ndarray of shape (m,) or (m, m); (m, k) or (m, m, k)
            Only if requested.

        Notes
        -----
        Means and standard deviations are updated draw by draw: beside what is kept between calls (`clear_cache`), two
        n x n matrices and 8 MB per worker, the memory is that of a few results, and 256 MB at most for those of groups
        of draws.  A covariance takes a few arrays of its size.

        From 4096 rows on, and with 400 training rows or more, variances come from as few of the training rows as leave
        those of 256 of the rows within 1 % (`posterior.reduction`); means are exact.
        """
        if return_std and return_cov:
            raise InvalidInput(
                "ask for 'return_std' or 'return_cov', not both: the square root of the diagonal of one is the other."
            )
        if return_cov:
            return self._predict_jointly(X)
        if not return_std:
            check_is_fitted(self)
            layout = self._targets.layout
            mean = self._predict_rows(
                X,
                lambda draws, inputs, _, copies: average(
                    layout.unstack(predict.mean(self.model_, draws, inputs, n_jobs=self.n_jobs)), copies
                ),
            )
            return self._targets.in_units(mean)
        mean, variance = self._moments(X, observed=True)
        return mean, np.sqrt(variance)

    def _predict_jointly(self, X: Any) -> tuple[Array, Array]:
        with single_blas_thread():
            mean, covariance = self._targets.layout.mixture_covariance(*self._new_inputs(X))
        return self._targets.in_units(mean), self._targets.unit**2 * covariance

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of new observations under the mixture over draws.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        quantiles : float or sequence of float, default=(0.05, 0.5, 0.95)
            Strictly between 0 and 1.

        Returns
        -------
        ndarray of shape (m, q), or (m,) for one number
            Of shape (m, k, q) or (m, k) for k outputs.

        Notes
        -----
        A quantile needs its row under all draws at once.  Rows come in blocks that hold 256 MB at most, 160,000 rows of
        one output with 50 draws, and draws of which nothing could be kept (`clear_cache`) are solved anew for each
        block: little beside the predictions for so many rows, unless the training rows are many more.
        """
        found = self._quantiles(X, check_quantiles(quantiles), observed=True)
        return found[..., 0] if np.ndim(quantiles) == 0 else found

    def _quantiles(self, X: Any, q: Array, *, observed: bool) -> Array:
        check_is_fitted(self)
        unstack = self._targets.layout.unstack

        def quantiles(draws: WeightedDraws, inputs: Array, _: Rows, copies: int) -> Array:
            model, n_jobs = self.model_, self.n_jobs
            if observed and not is_gaussian(model.likelihood):
                found = unstack(response_quantiles(model, draws, inputs, q, copies, n_jobs=n_jobs))
            else:
                found = gaussian_quantiles(
                    model, draws, inputs, q, copies, observed=observed, unstack=unstack, n_jobs=n_jobs
                )
            return np.swapaxes(found, 0, 1)  # (m, q) or (m, q, k)

        found = np.swapaxes(self._predict_rows(X, quantiles), 0, 1)
        return np.moveaxis(self._targets.in_units(found), 0, -1)

    def predict_interval(self, X: Any, level: float = 0.9, of: str = "y") -> Array:
        """Interval that holds a new observation, or the function, with the probability `level`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        level : float, default=0.9
            Strictly between 0 and 1.
        of : {"y", "f"}, default="y"
            "y": a new observation, noise included.  "f": the function itself, as `latent_mean_and_variance` is.

        Returns
        -------
        ndarray of shape (m, 2), or (m, k, 2) for k outputs
            Lower and upper end: central quantiles of the mixture over draws (see `predict_quantiles`).
        """
        check_between("level", level, 0.0, 1.0)
        observed = name_among("of", of, ("y", "f")) == "y"
        return self._quantiles(X, np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level]), observed=observed)

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log density of observed targets under the mixture over draws.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        y : array-like of shape (m,) or (m, k)

        Returns
        -------
        ndarray of shape (m,)
            Their mean is what cross-validation should compare.  Of several outputs, the joint density of those that
            are not missing in the row.
        """
        check_is_fitted(self)
        y = self._targets.validate(y)
        check_consistent_length(X, y)
        targets, layout = self._targets.standardise(y), self._targets.layout
        log_p = self._predict_rows(
            X,
            lambda draws, inputs, rows, copies: average_log(
                layout.log_density(
                    np.repeat(targets[rows], copies, axis=0), self.model_, draws, inputs, n_jobs=self.n_jobs
                ),
                copies,
            ),
        )
        return log_p - self._targets.log_unit(y)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw new observations at all inputs jointly, each sample under another draw of the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        n_samples : int, default=1
        random_state : None, int or RandomState, default=0

        Returns
        -------
        ndarray of shape (m, n_samples) or (m, k, n_samples)
        """
        check_count("n_samples", n_samples, 1)
        rng, inputs = check_random_state(random_state), self._new_inputs(X, each_draw=True)
        with single_blas_thread():
            samples = self._targets.layout.samples(rng, *inputs, n_samples)
        return np.moveaxis(self._targets.in_units(samples), 0, -1)

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the function, without noise, in the units of y; each of shape (m,) or (m, k)."""
        return self._moments(X, observed=False)

    def output_covariance(self, correlation: bool = False) -> Array:
        """B for each draw, with outputs="coregional": how the outputs vary together.

        Parameters
        ----------
        correlation : bool, default=False
            B_ab/√(B_aa B_bb) instead.

        Returns
        -------
        ndarray of shape (S, k, k)
            In the units of y; times C(x, x), which is 1 for the default kernel, the prior covariance of the outputs at
            one place.  For the draws that predictions average over; their mean is `.mean(axis=0)`, or, after
            `append`, the average with the weights `trace_.weight`.
        """
        draws = self._kept_draws()
        B = np.array([self._targets.layout.output_covariance(self.model_.kernel_at(theta)) for theta in draws.theta])
        B *= np.multiply.outer(self._targets.unit, self._targets.unit)
        sd = np.sqrt(np.diagonal(B, axis1=1, axis2=2))
        return B / (sd[:, :, None] * sd[:, None, :]) if correlation else B

    def outlier_probability(self, threshold: float = 3.0) -> Array:
        """Posterior probability that each training row is an outlier, with the likelihood "student_t".

        P(|y_i - f(x_i)| > threshold s | y) (Chaloner & Brant 1988).  Of Gaussian noise, 0.3 % are beyond 3 s.

        Parameters
        ----------
        threshold : float, default=3.0

        Returns
        -------
        ndarray of shape (n,)
        """
        check_between("threshold", threshold, 0.0, np.inf)
        return outliers.outlier_probability(self.model_, self._kept_draws(), float(threshold), n_jobs=self.n_jobs)

    def loo(self) -> leaving_out.LeaveOneOut:
        """How well each training row is predicted by all others: log densities in the units of y, exact for each draw.

        Returns
        -------
        LeaveOneOut
            As of `GPClassifier.loo`.  Several outputs of a row are left out together, as cross-validation does, and
            `pointwise`, of shape (n,), is their joint density: "independent" and "coregional" can be compared by it.
        """
        return super().loo()
