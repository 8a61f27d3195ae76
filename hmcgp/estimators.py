"""The estimator: from a table to averaged probabilities.

`GPClassifier` follows scikit-learn's contract (fit, predict, predict_proba, clone, pickle, pipelines,
cross-validation); the hyperparameters of its Gaussian process are integrated by Hybrid Monte Carlo, and every
prediction is averaged over the draws.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from hmcgp import diagnostics, export, predict
from hmcgp._checks import check_count
from hmcgp._inspection import PosteriorMixin
from hmcgp._random import RandomStateLike
from hmcgp._scaling import Scaling
from hmcgp._typing import Array
from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood
from hmcgp.model import Model
from hmcgp.optimize import find_map, point_trace
from hmcgp.samplers import Sampler, Trace, sample


class GPClassifier(PosteriorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian-process classification with the hyperparameters integrated out.

    Parameters
    ----------
    kernel : Kernel, optional
        Covariance function.  A number is a fact, a prior is a question: `SquaredExponential(length_scale=1.0)` infers
        the variance only.  Default: `SquaredExponential(ard=True)`, one length scale per input, under default priors.
    likelihood : {"logistic", "probit", "label_noise"} or Likelihood, default="logistic"
    evidence : {"laplace", "ep", "tap", "naive", "lower"} or EvidenceProvider, default="laplace"
        How the latent function is integrated out.  "ep" is the most accurate, at about three times the cost of
        "laplace" behind a probit, four to eight times behind a logistic; label noise needs "ep", "tap" or "naive";
        "lower" is, for the logistic likelihood, the lower bound of Jaakkola & Jordan.
    sampler : {"nuts", "hmc", "metropolis", "map"} or Sampler, optional
        How the hyperparameters are integrated; "map" takes their single most probable value.  Default: "hmc",
        which needed fewer evaluations per effective draw than "nuts" on every data set measured so far.
    draws : int, default=1000
        Posterior draws kept from each chain.
    tune : int, default=500
        Warm-up draws of each chain, used to set the sampler and then kept apart.
    chains : int, default=4
    predict_draws : int or None, default=500
        Predictions average over this many draws, evenly spaced among all; None takes all.  Each costs a factorisation.
    n_jobs : int, optional
        Workers for chains and predictions; default: all cores (one inside a joblib worker).  Threads, unless
        `joblib.parallel_config` names a backend: "loky" for processes, "dask" for a cluster.  Draws do not depend
        on it.
    standardize : bool, default=True
        Give every input mean 0 and standard deviation 1.  Length scales then are in units of standard deviations, which
        is what the default priors expect.
    random_state : None, int, SeedSequence, Generator or RandomState
        An int makes the fit reproducible.
    progressbar : bool, default=True
        One bar for all chains, shown in terminals and notebooks only.
    max_time : float, optional
        Seconds after which sampling stops with the draws so far, and says so.
    checkpoint : path-like, optional
        File (say "run.nc") to which the draws are written while chains run.  The same fit again, after a crash or an
        interruption, goes on from there; see `hmcgp.sample`.  Not for "map".

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels, sorted; columns of `predict_proba` follow them.
    trace_ : Trace
        Draws of the hyperparameters with the sampler's statistics.
    model_ : Model
        The log density that was sampled.
    parameters_ : list of Parameter
        The free hyperparameters with their priors.
    kernel_ : Kernel
        The kernel at the draw of highest posterior density.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from hmcgp import GPClassifier, datasets
    >>> X, y = datasets.load_crabs(return_X_y=True)
    >>> gp = GPClassifier(draws=200, tune=200, chains=2, random_state=1).fit(X[::2], y[::2])  # doctest: +SKIP
    >>> gp.predict_proba(X[1::2])  # doctest: +SKIP
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str | Likelihood = "logistic",
        evidence: str | EvidenceProvider = "laplace",
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
        self.kernel = kernel
        self.likelihood = likelihood
        self.evidence = evidence
        self.sampler = sampler
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.predict_draws = predict_draws
        self.n_jobs = n_jobs
        self.standardize = standardize
        self.random_state = random_state
        self.progressbar = progressbar
        self.max_time = max_time
        self.checkpoint = checkpoint

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # -- fitting -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Sample the hyperparameters given a table and its labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Numeric, finite inputs.
        y : array-like of shape (n,)
            Two different labels: numbers, strings or booleans.

        Returns
        -------
        self

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            When the chains do not agree, or hold too few effective draws, or diverged.
        ApproximationWarning
            For constant inputs, duplicate rows, failures of the solver, and after Ctrl-C.
        """
        before = dict(self.__dict__)
        try:
            return self._fit(X, y)
        except BaseException:  # all or nothing: no new model beside old draws
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        if self.predict_draws is not None:
            check_count("predict_draws", self.predict_draws, 1)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        labels = self._encode(y)
        self._scaling = Scaling.learn(X, standardize=self.standardize)
        self._warn_about_data(X, y)
        self.model_ = Model(
            self._scaling.apply(X),
            labels,
            kernel=self.kernel,
            likelihood=self.likelihood,
            evidence=self.evidence,
            input_names=self._input_names(),
        )
        if self.model_.likelihood.targets != "labels":
            raise InvalidInput(
                f"'likelihood' {self.model_.likelihood!r} is for numbers, not for classes. "
                "Take 'logistic' or 'probit', or Model and sample for regression."
            )
        self.trace_ = self._sample()
        if self.trace_.sampler != "map":
            diagnostics.warn(self.trace_)
        self._best = self.trace_.flat[np.argmax(self.trace_.stats["lp"])]
        self.kernel_ = self.model_.bound_kernel(self._best)
        return self

    def _sample(self) -> Trace:
        sampler = "hmc" if self.sampler is None else self.sampler
        if sampler == "map":
            begin = time.perf_counter()
            optimum = find_map(self.model_, random_state=self.random_state, n_jobs=self.n_jobs)
            if not optimum.converged:
                warn_user(
                    "the search for the most probable hyperparameters ended before the gradient vanished: its maximum "
                    "may not be one. Narrow the widest priors, or sample instead (sampler='hmc').",
                    ApproximationWarning,
                )
            return point_trace(optimum, time.perf_counter() - begin)
        return sample(
            self.model_,
            sampler,
            draws=self.draws,
            tune=self.tune,
            chains=self.chains,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            progressbar=self.progressbar,
            max_time=self.max_time,
            checkpoint=self.checkpoint,
        )

    def _encode(self, y: Any) -> Array:
        """Labels as -1 and +1, the second of the sorted classes being +1."""
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            raise InvalidInput(
                f"'y' holds one class only, {self.classes_[0]}: there is nothing to tell apart. "
                "Check the selection of rows, or stratify the split."
            )
        if len(self.classes_) > 2:
            raise InvalidInput(
                f"Only binary classification is supported. The type of the target is {type_of_target(y)}: "
                f"'y' holds {len(self.classes_)} classes. Wrap the estimator in sklearn.multiclass.OneVsRestClassifier."
            )
        return np.asarray(2.0 * codes - 1.0, dtype=np.float64)

    def _warn_about_data(self, X: Array, y: Any) -> None:
        """Say what works, but perhaps not as meant: constant inputs and repeated rows."""
        constant = [name for name, flag in zip(self._input_names(), self._scaling.constant, strict=True) if flag]
        if constant:
            warn_user(
                f"{len(constant)} of {X.shape[1]} inputs are constant in the training rows ({', '.join(constant[:5])}"
                f"{', …' if len(constant) > 5 else ''}): they cannot inform the fit, and their length scales follow "
                "the prior. Drop these columns.",
                ApproximationWarning,
            )
        n_distinct = len(np.unique(X, axis=0))
        if n_distinct < len(X):
            n_labelled = len(np.unique(np.column_stack([X, np.searchsorted(self.classes_, y)]), axis=0))
            conflict = f", {n_labelled - n_distinct} of them with another label" if n_labelled > n_distinct else ""
            warn_user(
                f"{len(X) - n_distinct} of {len(X)} rows repeat the inputs of another row{conflict}. The fit works and "
                "counts each as a case of its own, which is right where few or rounded inputs coincide; accidental "
                "copies would make the probabilities over-confident: drop those.",
                ApproximationWarning,
            )

    def _input_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    # -- prediction --------------------------------------------------------------------------------------------------

    def _new_inputs(self, X: Any) -> tuple[Model, Array, Array]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.model_, self._kept_draws(), self._scaling.apply(X)

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the latent function and the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)

        Returns
        -------
        ndarray of shape (m, 2)
            Columns in the order of `classes_`.
        """
        return predict.probabilities(*self._new_inputs(X), n_jobs=self.n_jobs)

    def predict(self, X: Any) -> Any:
        """The more probable class of each row, of shape (m,)."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]

    def predict_proba_draws(self, X: Any) -> Array:
        """Class probabilities under each draw of the hyperparameters.

        Their spread shows how sure the probability itself is; their mean is `predict_proba`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)

        Returns
        -------
        ndarray of shape (n_draws, m, 2)
            For the draws that predictions average over (see `predict_draws`).
        """
        return predict.probabilities_per_draw(*self._new_inputs(X), n_jobs=self.n_jobs)

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the latent function, hyperparameters integrated out.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)

        Returns
        -------
        mean, variance : ndarrays of shape (m,)
            Of the mixture over draws.
        """
        return predict.mixture_moments(*self._new_inputs(X), n_jobs=self.n_jobs)

    # -- keeping it --------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the estimator, fitted or not, to one file, atomically."""
        export.save_estimator(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator written by `save`.

        The file holds a pickle: load only files that you trust.
        """
        return export.load_estimator(path, cls)
