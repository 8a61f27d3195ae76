"""Predictions of numbers: mixtures of Gaussians, one for each draw, in the units of y."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.number_targets import NumberTargets
from hmcgp.model import Model
from hmcgp.posterior import leave_one_out as leaving_out
from hmcgp.posterior import predict
from hmcgp.runtime.checks import check_count
from hmcgp.runtime.typing import Array


class NumbersMixin(GaussianProcess):
    """Predictions and leave-one-out of a fitted `GPRegressor`."""

    _targets: NumberTargets

    def _new_inputs(self, X: Any) -> tuple[Model, Array, Array]:
        model, draws, X = super()._new_inputs(X)
        return model, draws, self._targets.layout.prediction_inputs(X)

    def _moments(self, X: Any, *, observed: bool) -> tuple[Array, Array]:
        """Mean and variance of new observations or of the function, in the units of y, of shape (m,) or (m, k)."""
        moments = predict.mixture_moments(*self._new_inputs(X), observed=observed, n_jobs=self.n_jobs)
        mean, variance = map(self._targets.layout.unstack, moments)
        return self._targets.in_units(mean), self._targets.unit**2 * variance

    # -- new rows ----------------------------------------------------------------------------------------------------

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
        Means and standard deviations are updated draw by draw: beside two n x n matrices and 32 MB per worker, the
        memory is that of a few results, and 256 MB at most for those of groups of draws.  A covariance takes a few
        arrays of its size.
        """
        if return_std and return_cov:
            raise InvalidInput(
                "ask for 'return_std' or 'return_cov', not both: the square root of the diagonal of one is the other."
            )
        if return_cov:
            return self._predict_jointly(X)
        if not return_std:
            return self.latent_mean_and_variance(X)[0]
        mean, variance = self._moments(X, observed=True)
        return mean, np.sqrt(variance)

    def _predict_jointly(self, X: Any) -> tuple[Array, Array]:
        model, draws, X = self._new_inputs(X)
        centre: Any = 0.0
        covariance: Any = 0.0
        for s, (mean, S) in enumerate(predict.observed_jointly(model, draws, X)):
            deviation = (
                self._targets.layout.unstack(mean) - centre
            )  # from the mean of those before, as in mixture.merge
            centre = centre + deviation / (s + 1)
            between = np.einsum("i...,j...->ij...", deviation, deviation * (s / (s + 1)))
            covariance = covariance + between + self._targets.layout.per_output_covariance(S)
        return self._targets.in_units(centre), self._targets.unit**2 * covariance / len(draws)

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
        A quantile needs its row under all draws at once.  Rows come in blocks that hold 256 MB at most, 16,000 rows of
        one output with 500 draws, and the posterior of every draw is solved anew for each block: little beside the
        predictions for so many rows, unless the training rows are many more.
        """
        q = np.atleast_1d(np.asarray(quantiles, dtype=float))
        if q.ndim != 1 or not ((q > 0.0) & (q < 1.0)).all():
            raise InvalidInput(f"'quantiles' must be numbers strictly between 0 and 1; got {quantiles}.")
        model, draws, X = self._new_inputs(X)
        found = self._targets.layout.unstack(predict.quantiles(model, draws, X, q, n_jobs=self.n_jobs))
        found = np.moveaxis(self._targets.in_units(found), 0, -1)
        return found[..., 0] if np.ndim(quantiles) == 0 else found

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
        log_p = self._targets.layout.log_density(self._targets.standardise(y), *self._new_inputs(X), n_jobs=self.n_jobs)
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
        rng = check_random_state(random_state)
        model, draws, X = self._new_inputs(X)
        chosen = np.sort(rng.randint(len(draws), size=n_samples))
        groups, counts = np.unique(chosen, return_counts=True)
        samples = [
            self._targets.layout.draw(rng, mean, covariance, count)
            for (mean, covariance), count in zip(predict.observed_jointly(model, draws[groups], X), counts, strict=True)
        ]
        shuffled = rng.permutation(np.concatenate(samples))  # samples of one draw need not lie side by side
        return np.moveaxis(self._targets.in_units(shuffled), 0, -1)

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the function, without noise, in the units of y; each of shape (m,) or (m, k)."""
        return self._moments(X, observed=False)

    # -- looking at it -----------------------------------------------------------------------------------------------

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
            one place.  For the draws that predictions average over; their mean is `.mean(axis=0)`.
        """
        draws = self._kept_draws()
        B = np.array([self._targets.layout.output_covariance(self.model_.kernel_at(theta)) for theta in draws])
        B *= np.multiply.outer(self._targets.unit, self._targets.unit)
        sd = np.sqrt(np.diagonal(B, axis1=1, axis2=2))
        return B / (sd[:, :, None] * sd[:, None, :]) if correlation else B

    def loo(self) -> leaving_out.LeaveOneOut:
        """How well each training row is predicted by all others: log densities in the units of y, exact for each draw.

        Returns
        -------
        LeaveOneOut
            As of `GPClassifier.loo`.  Several outputs of a row are left out together, as cross-validation does, and
            `pointwise`, of shape (n,), is their joint density: "independent" and "coregional" can be compared by it.
        """
        log_unit = self._targets.log_unit(self._targets.observed(self.model_))
        return self._leave_out(self._targets.layout.row_groups).in_units(log_unit)
