"""Prior and posterior predictive checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import is_gaussian
from hmcgp.posterior import predict, quantile_residuals
from hmcgp.posterior.prior import prior_functions
from hmcgp.posterior.weights import WeightedDraws, resampled
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.checks import check_count, check_flag
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array


@dataclass(frozen=True, eq=False)
class Residuals:
    """Observed targets compared with their predictive distributions; `plots.residuals` draws them.

    Attributes
    ----------
    predicted : ndarray of shape (n,) or (n, k)
        Predictive means: in the units of y, of counts, or of positions of the classes (0 for the first).
    observed : ndarray of shape (n,) or (n, k)
        Observations.
    pit : ndarray of shape (n,) or (n, k)
        Probability integral transform: the predictive probability of an observation no larger than the one made.  For
        counts and classes a random number between the probability of less and that of no more (randomised quantile
        residuals, Dunn & Smyth 1996).  Uniform where predictions are calibrated.
    left_out : bool
        Whether each prediction is from the other rows.
    """

    predicted: Array
    observed: NDArray[Any]
    pit: Array
    left_out: bool

    @property
    def normalised(self) -> Array:
        """Normal quantiles of `pit`: standard normal where predictions are calibrated."""
        return np.asarray(ndtri(np.clip(self.pit, 1e-300, 1.0 - 1e-16)))

    def coverage(self, levels: Any) -> Array:
        """Share of the observations within central predictive intervals of these probabilities."""
        reach = 2.0 * np.abs(self.pit[np.isfinite(self.pit)] - 0.5)
        return np.array([np.mean(reach <= level) for level in np.atleast_1d(levels)])


class PredictiveChecks:
    """Methods of estimators that say what the model, or its prior, would have you observe."""

    def residuals(
        self, X: Any = None, y: Any = None, *, sizes: Any = None, random_state: RandomStateLike = 0
    ) -> Residuals:
        """Compare observations with their predictive distributions: quantile residuals.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), optional
            Rows not used in the fit.  Default: the training rows, each predicted by the others (one output).
        y : array-like of shape (m,) or (m, k), optional
        sizes : array-like of shape (m,), optional
            Exposures or numbers of trials of these rows, for counts that were fitted with them.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0
            For counts and classes, whose residuals are randomised.

        Returns
        -------
        Residuals
        """
        check_is_fitted(self)
        return residuals_of(self, X, y, sizes, random_state)

    def posterior_predictive(self, n_draws: int = 100, random_state: RandomStateLike = 0) -> NDArray[Any]:
        """Targets drawn anew at the training rows, under draws of the hyperparameters.

        Parameters
        ----------
        n_draws : int, default=100
            Tables, each under another draw while there are as many; draws are resampled by their weights.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0

        Returns
        -------
        ndarray of shape (n_draws, n), or (n_draws, n, k) for k outputs
            Labels, or numbers in the units of y.
        """
        check_is_fitted(self)
        check_count("n_draws", n_draws, 1)
        gp: Any = self
        kept = gp._kept_draws()
        theta = kept.theta[resampled(kept.weight)]
        theta = theta[np.linspace(0, len(theta) - 1, n_draws).astype(int)]
        draws = WeightedDraws.of(theta)
        with single_blas_thread():
            return np.asarray(gp._targets.replicates(as_generator(random_state), gp.model_, draws, gp.n_jobs))

    def prior_predictive(
        self,
        X: Any = None,
        y: Any = None,
        *,
        at: Any = None,
        n_draws: int = 100,
        observed: bool = False,
        random_state: RandomStateLike = 0,
    ) -> Array:
        """What the priors say before the data: probabilities, or functions, at given rows.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        y : array-like of shape (m,) or (m, k), optional
            Targets of these rows, for an estimator that is not fitted: classes, and the scales of inputs and targets
            that the priors are about, are taken from them; nothing else is.
        at : array-like or DataFrame of shape (m, d), optional
            Rows at which to draw, if they are others than X.
        n_draws : int, default=100
            Draws of hyperparameters and function.
        observed : bool, default=False
            Of numbers, new observations with their noise instead of the function; of counts, counts instead of rates.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0

        Returns
        -------
        ndarray of shape (n_draws, m, C), or (n_draws, m) or (n_draws, m, k)
            Probabilities of the classes; or numbers in the units of y, or rates.  All rows of a draw belong to one
            function.

        Examples
        --------
        >>> from hmcgp import GPClassifier
        >>> drawn = GPClassifier().prior_predictive([[0.0], [1.0], [2.0]], ["a", "b", "b"])
        """
        check_count("n_draws", n_draws, 1)
        check_flag("observed", observed)
        gp = _with_prior(self, X, y)
        rng, model = as_generator(random_state), gp.model_
        rows = gp._targets.layout.prediction_inputs(gp._scaled(X if at is None else at))
        with single_blas_thread():
            thetas, functions = prior_functions(rng, model, rows, n_draws)
        likelihoods = [model.likelihood_at(theta) for theta in thetas]
        pairs = zip(likelihoods, functions, strict=True)
        if model.likelihood.targets == "counts":
            one = np.ones(len(rows))
            return np.array([own.draw(rng, f, one) if observed else own.rate(f) for own, f in pairs])
        if model.likelihood.targets != "numbers":
            return np.array([own.probabilities_given(f) for own, f in pairs])
        if observed:
            functions = np.array([_with_noise(rng, own, f, rows) for own, f in pairs])
        return np.asarray(gp._targets.in_units(gp._targets.layout.unstack(functions)))


def _with_noise(rng: np.random.Generator, likelihood: Any, f: Array, rows: Array) -> Array:
    """Observations of a function at some rows, of shape (m,) or (m, k)."""
    if not is_gaussian(likelihood):
        return np.asarray(likelihood.draw(rng, f))
    return np.asarray(f + (rng.standard_normal(f.shape).T * np.sqrt(likelihood.noise_at(rows))).T)


def _with_prior(gp: Any, X: Any, y: Any) -> Any:
    """The estimator, if it is fitted and no targets are given; else a copy that knows the table and the priors only."""
    if y is None:
        if not hasattr(gp, "model_"):
            raise InvalidInput(
                "this estimator is not fitted: give 'y' too, so that classes and the scales of inputs and targets, "
                "which the priors are about, are known."
            )
        return gp
    gp = clone(gp)
    table = gp._training_table(X, y, None, None)
    gp._keep_table(table.inputs, table.targets)
    gp.model_ = table.model(gp.evidence, standardize=bool(gp.standardize))
    return gp


def residuals_of(gp: Any, X: Any, y: Any, row_data: Any, random_state: RandomStateLike) -> Residuals:
    """Residuals of a fitted estimator; arguments as for `GPRegressor.residuals`."""
    if (X is None) != (y is None):
        raise InvalidInput("give both 'X' and 'y', or neither for the training rows, each predicted by the others.")
    targets, rng = gp._targets, as_generator(random_state)
    numbers = gp.model_.likelihood.targets == "numbers"
    if X is None:
        if targets.layout.names:
            raise InvalidInput("rows are left out for one output: give 'X' and 'y' of rows not used in the fit.")
        draws = gp._kept_draws()
        found = quantile_residuals.left_out(gp.model_, draws, r_eff=gp._r_eff(draws), n_jobs=gp.n_jobs)
        mean = targets.in_units(found.mean) if numbers else found.mean
        return Residuals(mean, targets.observed(gp.model_), _randomised(rng, found), True)
    if numbers and is_gaussian(gp.model_.likelihood):  # one output or several
        return _residuals_of_gaussian(gp, X, y)
    check_consistent_length(X, y)
    model, draws, rows = gp._new_inputs(X)
    codes, sizes = targets.encode(y, model.likelihood), None
    if model.likelihood.targets == "counts":
        sizes = targets.sizes(model.likelihood, len(codes), row_data)
    found = quantile_residuals.at_new_rows(model, draws, rows, codes, sizes, n_jobs=gp.n_jobs)
    mean = targets.in_units(found.mean) if numbers else found.mean
    return Residuals(mean, np.asarray(y), _randomised(rng, found), False)


def _randomised(rng: np.random.Generator, found: quantile_residuals.PredictiveDistribution) -> Array:
    """A uniform number between P(y* < y) and P(y* <= y) for each row."""
    return found.below + rng.random(len(found.upto)) * (found.upto - found.below)


def _residuals_of_gaussian(gp: Any, X: Any, y: Any) -> Residuals:
    """Residuals of new rows with Gaussian noise, of one output or several."""
    targets = gp._targets
    y = targets.validate(y)
    check_consistent_length(X, y)
    model, draws, rows = gp._new_inputs(X)
    means, variances = map(targets.layout.unstack, predict.observed_moments(model, draws, rows, n_jobs=gp.n_jobs))
    share = draws.weight / draws.total
    if variances.ndim < means.ndim:  # outputs that share it
        variances = variances[..., None]
    pit = np.tensordot(share, ndtr((targets.standardise(y) - means) / np.sqrt(variances)), axes=1)
    return Residuals(targets.in_units(np.tensordot(share, means, axes=1)), y, pit, False)
