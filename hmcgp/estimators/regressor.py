"""From a table of numbers to averaged predictions with their uncertainty."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from hmcgp import loo as leaving_out
from hmcgp import mixture, predict
from hmcgp._checks import check_count
from hmcgp._random import RandomStateLike
from hmcgp._scaling import Scaling
from hmcgp._typing import Array
from hmcgp.errors import InvalidInput
from hmcgp.estimators._base import GaussianProcess
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Gaussian, Likelihood
from hmcgp.samplers import Sampler


class GPRegressor(RegressorMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process regression with the hyperparameters integrated out.

    Every prediction is of a mixture, one Gaussian per draw of the hyperparameters: of new observations, noise included,
    in the units of y.  `latent_mean_and_variance` is of the function alone.

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function, on the scale of standardised inputs and target.  A number is a fact, a prior is a question.
        Default: `SquaredExponential(ard=True)` under default priors.  Add `Constant()` or `Linear()` for a mean that
        is a constant or a linear function with unknown coefficients.
    likelihood : {"gaussian", "varying_noise"} or Likelihood, default="gaussian"
        `likelihoods.Gaussian(noise=0.1)` fixes the variance of the noise, on the scale of the standardised target;
        `likelihoods.VaryingNoise(basis=...)` lets it depend on the inputs.
    evidence : {"exact"} or EvidenceProvider, default="exact"
    sampler : {"nuts", "hmc", "metropolis", "map"} or Sampler, optional
        How the hyperparameters are integrated; "map" takes their single most probable value.  Default: "hmc".
    draws, tune, chains, predict_draws, n_jobs, random_state, progressbar, max_time, checkpoint
        As of `GPClassifier`.
    standardize : bool, default=True
        Give every input, and the target, mean 0 and standard deviation 1, which is what the default priors expect.

    Attributes
    ----------
    trace_, model_, parameters_, kernel_, n_features_in_, feature_names_in_
        As of `GPClassifier`; variances and length scales are on the standardised scale.

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

    def _check_table(self, X: Any, y: Any, weights: Array | None) -> tuple[Array, Array, Array | None]:
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        self._target_scaling = Scaling.learn(y[:, None], standardize=self.standardize, weights=weights)
        if self._target_scaling.constant[0]:
            raise InvalidInput(
                f"all {len(y)} targets are {y[0]:g}: there is nothing to explain. "
                "Check the selection of rows and of the target column."
            )
        return X, self._target_scaling.apply(y[:, None])[:, 0], weights

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, noise_variance: Any = None, sample_weight: Any = None
    ) -> Self:
        """Sample the hyperparameters given a table and its targets.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Inputs, as of `GPClassifier.fit`.
        y : array-like of shape (n,)
            Finite numbers.
        noise_variance : array-like of shape (n,), optional
            Known variance of each target, in the units of y squared.  The noise of `likelihoods.Gaussian` is inferred
            on top of it: `likelihood=Gaussian(noise=0.0)` says that there is no other.
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
        ApproximationWarning
            For constant inputs, failures of the solver, and after Ctrl-C.
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
        y : array-like of shape (m,)
        noise_variance : array-like of shape (m,), optional
            Known variances of the new targets, where `fit` was given those of the first.
        sample_weight : array-like of shape (m,), optional
            As of `fit`; default: 1 each.
        """
        return self._append(X, y, sample_weight, noise_variance=noise_variance)

    def _more_targets(self, y: Any) -> Array:
        y = column_or_1d(y, dtype=np.float64)
        self.model_.likelihood.check_targets(y)
        return self._target_scaling.apply(y[:, None])[:, 0]

    def _likelihood_with(self, n_new: int, noise_variance: Any = None) -> Likelihood | None:
        likelihood = self.model_.likelihood
        known = likelihood.known if isinstance(likelihood, Gaussian) else None
        if (known is None) != (noise_variance is None):
            raise InvalidInput("give 'noise_variance' to fit and to append, or to neither: each row has one or none.")
        if known is None or not isinstance(likelihood, Gaussian):
            return None
        more = column_or_1d(noise_variance, dtype=np.float64)
        replace(likelihood, known=more)  # checked in the user's units
        return replace(likelihood, known=(*known, *(more / self._unit**2).tolist()))

    def _likelihood_of_rows(self, X: Array, noise_variance: Any = None) -> str | Likelihood:
        likelihood = (
            Gaussian() if isinstance(self.likelihood, str) and self.likelihood == "gaussian" else self.likelihood
        )
        if noise_variance is not None:
            if not isinstance(likelihood, Gaussian):
                raise InvalidInput(f"'noise_variance' goes with the likelihood 'gaussian'; got {likelihood!r}.")
            known = column_or_1d(noise_variance, dtype=np.float64)
            check_consistent_length(X, known)
            likelihood = replace(likelihood, known=known)  # checked in the user's units
            likelihood = replace(likelihood, known=known / self._unit**2)
        if isinstance(likelihood, Gaussian) and likelihood.noise == 0.0:
            self._refuse_copies(X, likelihood)
        return likelihood

    def _refuse_copies(self, X: Array, likelihood: Gaussian) -> None:
        """Two rows at one place, both without noise, contradict each other or make K singular."""
        exact = np.arange(len(X)) if likelihood.known is None else np.flatnonzero(np.array(likelihood.known) == 0.0)
        _, first, place = np.unique(X[exact], axis=0, return_index=True, return_inverse=True)
        copies = np.flatnonzero(first[place.ravel()] != np.arange(len(exact)))
        if len(copies):
            one, other = exact[first[place.ravel()[copies[0]]]], exact[copies[0]]
            raise InvalidInput(
                f"rows {one} and {other} have the same inputs and no noise ({len(copies)} such rows): the covariance "
                "is singular. Drop the copies, or leave the noise to be inferred (likelihood='gaussian')."
            )

    # -- prediction --------------------------------------------------------------------------------------------------

    @property
    def _unit(self) -> float:
        """One unit of the standardised target, in those of y."""
        return float(self._target_scaling.spread[0])

    def _in_units(self, z: Array) -> Array:
        return self._target_scaling.undo(z[..., None])[..., 0]

    def _mixture(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of a new observation for each draw, in the units of y, each of shape (S, m)."""
        mean, variance = predict.observed_moments(*self._new_inputs(X), n_jobs=self.n_jobs)
        return self._in_units(mean), self._unit**2 * variance

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of new observations, averaged over the draws, and how sure that is.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        return_std : bool, default=False
            Return the standard deviation of a new observation, noise included, too.
        return_cov : bool, default=False
            Return the covariance of new observations instead, of shape (m, m).

        Returns
        -------
        mean : ndarray of shape (m,)
        sd or covariance : ndarray of shape (m,) or (m, m)
            Only where asked for.
        """
        if return_std and return_cov:
            raise InvalidInput(
                "ask for 'return_std' or 'return_cov', not both: the square root of the diagonal of one is the other."
            )
        if return_cov:
            return self._predict_jointly(X)
        if not return_std:
            return self._in_units(predict.mixture_moments(*self._new_inputs(X), n_jobs=self.n_jobs)[0])
        mean, variance = mixture.moments(*self._mixture(X))
        return mean, np.sqrt(variance)

    def _predict_jointly(self, X: Any) -> tuple[Array, Array]:
        model, draws, X = self._new_inputs(X)
        means, covariance = [], np.zeros((len(X), len(X)))
        for mean, S in predict.observed_jointly(model, draws, X):
            means.append(mean)
            covariance += S / len(draws)
        between = np.array(means) - np.mean(means, axis=0)
        covariance += between.T @ between / len(draws)
        return self._in_units(np.mean(means, axis=0)), self._unit**2 * covariance

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> Array:
        """Quantiles of new observations under the mixture over draws.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        quantiles : float or sequence of float, default=(0.05, 0.5, 0.95)
            Strictly between 0 and 1.

        Returns
        -------
        ndarray of shape (m, k), or (m,) for one number
        """
        q = np.atleast_1d(np.asarray(quantiles, dtype=float))
        if q.ndim != 1 or not ((q > 0.0) & (q < 1.0)).all():
            raise InvalidInput(f"'quantiles' must be numbers strictly between 0 and 1; got {quantiles}.")
        found = mixture.quantiles(q, *self._mixture(X)).T
        return found[:, 0] if np.ndim(quantiles) == 0 else found

    def log_predictive_density(self, X: Any, y: Any) -> Array:
        """Log density of observed targets under the mixture over draws.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        y : array-like of shape (m,)

        Returns
        -------
        ndarray of shape (m,)
            Their mean is what cross-validation should compare.
        """
        y = column_or_1d(y, dtype=np.float64)
        check_consistent_length(X, y)
        return mixture.log_density(y, *self._mixture(X))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw new observations at all inputs jointly, each sample under another draw of the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        n_samples : int, default=1
        random_state : None, int or RandomState, default=0

        Returns
        -------
        ndarray of shape (m, n_samples)
        """
        check_count("n_samples", n_samples, 1)
        rng = check_random_state(random_state)
        model, draws, X = self._new_inputs(X)
        chosen = np.sort(rng.randint(len(draws), size=n_samples))
        groups, counts = np.unique(chosen, return_counts=True)
        samples = [
            rng.multivariate_normal(mean, covariance, size=count, check_valid="ignore")
            for (mean, covariance), count in zip(predict.observed_jointly(model, draws[groups], X), counts, strict=True)
        ]
        together = rng.permutation(np.concatenate(samples))  # samples of one draw need not lie side by side
        return self._in_units(together).T

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the function, without noise, in the units of y; each of shape (m,)."""
        mean, variance = predict.mixture_moments(*self._new_inputs(X), n_jobs=self.n_jobs)
        return self._in_units(mean), self._unit**2 * variance

    def loo(self) -> leaving_out.LeaveOneOut:
        """How well each training row is predicted by all others: log densities in the units of y, exact for each draw.

        Returns
        -------
        LeaveOneOut
            As of `GPClassifier.loo`.
        """
        return super().loo().in_units(self._unit)

    def _observed(self) -> NDArray[Any]:
        return self._in_units(self.model_.y)
