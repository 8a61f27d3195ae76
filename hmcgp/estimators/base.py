"""What estimators share: from a checked table to draws, and what is kept of them."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user
from hmcgp.estimators.columns import Columns
from hmcgp.estimators.inspection import PosteriorMixin
from hmcgp.estimators.saving import load_estimator, save_estimator
from hmcgp.estimators.scaling import Scaling
from hmcgp.estimators.settings import check_settings, sampler_setting, validated
from hmcgp.estimators.table_warnings import warn_about_constants, warn_about_hyperparameters, warn_about_scales
from hmcgp.estimators.weights import joined, rows_that_count
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Categorical, Constant, Kernel, SquaredExponential
from hmcgp.likelihoods import Likelihood
from hmcgp.model import GrowingModel, Model
from hmcgp.model.growing import effective_share
from hmcgp.optimize import find_map, find_modes
from hmcgp.optimize.maximum import point_trace
from hmcgp.reporting import diagnostics
from hmcgp.runtime.fingerprint import table_identity
from hmcgp.runtime.interrupts import check_interrupt, deferred_interrupts, take_interrupt
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import JumpingHMC, Sampler, Trace, sample
from hmcgp.samplers.chains.checkpoint import checkpoint_path

REFIT_BELOW = 0.5  # effective share of the draws after `append`


Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(method: Method) -> Method:
    """Decorate a method to leave its estimator as it was when it fails or is interrupted."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with deferred_interrupts():
            before = dict(self.__dict__)
            try:
                result = method(self, *args, **kwargs)
                check_interrupt()
                return result
            except BaseException:
                self.__dict__ = before
                raise

    return cast(Method, call)


class GaussianProcess(PosteriorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators; see `GPClassifier` and `GPRegressor` for the parameters."""

    targets: ClassVar[str]  # "labels" or "numbers": what y holds

    def __init__(
        self,
        kernel: Kernel | None,
        *,
        likelihood: str | Likelihood,
        evidence: str | EvidenceProvider | None,
        sampler: str | Sampler | None,
        draws: int,
        tune: int,
        chains: int,
        predict_draws: int | None,
        n_jobs: int | None,
        standardize: bool,
        random_state: RandomStateLike,
        progressbar: bool,
        max_time: float | None,
        checkpoint: str | os.PathLike[str] | None,
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

    # -- fitting -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _check_table(self, X: Any, y: Any, weights: Array | None) -> tuple[Array, Array, Array | None]:
        """Validated inputs, the targets as the model takes them, and the weights of the rows."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Sample the hyperparameters given a table and its targets.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Numeric, finite inputs.  A DataFrame may be of pandas or polars (or whatever narwhals reads).  Its columns
            of categories, Enums or text are categories: the default kernel is then that of the others times
            `kernels.Categorical`.  Booleans are the numbers 0 and 1.
        y : array-like or Series of shape (n,)
            A classifier takes two or more different labels (numbers, strings or booleans), a regressor finite numbers.
        sample_weight : array-like of shape (n,), optional
            Numbers >= 0 that multiply the log likelihoods of the rows: 2 is the same as the row twice, 0 as without it
            (in `loo` and wherever rows come back, too).  They are not normalised.  They count in the standardisation as
            well.  A multinomial probit takes none.

        Returns
        -------
        self

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            When the chains do not agree, or hold too few effective draws, or diverged.
        ApproximationWarning
            For constant inputs, duplicate rows, categories with more levels than half the rows or an order (which is
            ignored), inputs of very different scales with `standardize=False`, more hyperparameters than rows,
            failures of the solver, and after Ctrl-C.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C before there are draws to keep.  The estimator is as it was before the call.
        """
        return self._fit(X, y, sample_weight)

    @all_or_nothing  # no new model beside old draws
    def _fit(self, X: Any, y: Any, sample_weight: Any, **about_rows: Any) -> Self:
        check_settings(self)
        self._fit_table(*rows_that_count(X, y, sample_weight, about_rows))
        if take_interrupt():
            warn_user(
                "the fit was interrupted when it was all but done: it was finished, and is whole.", ApproximationWarning
            )
        return self

    def _fit_table(self, X: Any, y: Any, sample_weight: Array | None, about_rows: dict[str, Any]) -> Self:
        self._columns = Columns.learn(X)
        X, targets, weights = self._check_table(self._columns.encode(X), y, sample_weight)
        weights = joined((weights, len(X)))
        if isinstance(self.likelihood, Likelihood) and self.likelihood.weights is not None:
            raise InvalidInput("give weights to fit, as 'sample_weight', not to the likelihood.")
        categories = self._columns.mask(self._input_names())
        likelihood = self._likelihood_of_rows(X, targets, **about_rows)
        self._scaling = Scaling.learn(X, standardize=self.standardize, keep=categories, weights=weights)
        warn_about_constants(self._input_names(), self._scaling.constant)
        self._warn_about_copies(X, targets)
        identity = None
        if self.checkpoint is not None:
            given = {"X": X, "y": self._targets_as_given(y, targets), "weights": weights, **about_rows}
            identity = self._identity(given)
        weights = None if weights is None else self._of_rows_of_model(weights, targets)
        rows, targets, kernel, input_names = self._parts_of_model(
            self._scaling.apply(X), targets, self._kernel_of_targets(categories)
        )
        self.model_ = Model(
            rows,
            targets,
            kernel=kernel,
            likelihood=likelihood,
            evidence=self.evidence,
            input_names=input_names,
            weights=weights,
        )
        of_kernel = self.model_.kernel.parameters(self.model_.input_names)
        if not self.standardize:
            warn_about_scales(X, self._input_names(), of_kernel)
        warn_about_hyperparameters(self.model_.n_dim, len(X), self.model_.kernel, of_kernel)
        self.trace_ = self._sample(identity)
        if self.trace_.sampler != "map":
            diagnostics.warn(self.trace_, standardized=bool(self.standardize))
        self._keep_best()
        return self

    def _keep_best(self) -> None:
        """Note the draw of highest posterior density, and the kernel there."""
        self._best = self.trace_.flat[np.argmax(self.trace_.stats["lp"])]
        self.kernel_ = self.model_.kernel_at(self._best)

    def _identity(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Identity of the table, for a checkpoint: digests of its numbers as given, and its names."""
        categories = {name: known.tolist() for name, known in self._columns.categories.items()}
        return table_identity(numbers, {"list of columns": self._input_names(), "list of categories": categories})

    def _targets_as_given(self, y: Any, targets: Array) -> Array:
        """Targets in the units of the user."""
        return targets

    def _sample(self, identity: dict[str, Any] | None) -> Trace:
        sampler = sampler_setting(self.sampler)
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
        if sampler == "jumps":
            seed = 0 if self.random_state is None else self.random_state  # a run resumed must find the same modes
            if self.checkpoint is not None:
                checkpoint_path(self.checkpoint)
            sampler = JumpingHMC(modes=find_modes(self.model_, random_state=seed, n_jobs=self.n_jobs))
        return sample(
            self.model_ if identity is None else self.model_.with_identity(identity),
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

    def _parts_of_model(
        self, X: Array, targets: Array, kernel: Kernel | None
    ) -> tuple[Array, Array, Kernel | None, list[str]]:
        """Inputs, targets and kernel as the model takes them, and the names of its inputs."""
        return X, targets, kernel, self._input_names()

    def _kernel_of_targets(self, categories: NDArray[np.bool_]) -> Kernel | None:
        """The kernel, once inputs and targets are known."""
        return _default_kernel(categories) if self.kernel is None else self.kernel

    def _likelihood_of_rows(self, X: Array, targets: Array) -> str | Likelihood:
        """The likelihood, with whatever else `fit` was told about the rows."""
        return self.likelihood

    def _warn_about_copies(self, X: Array, targets: Array) -> None:
        """Say what works, but perhaps not as meant: repeated rows."""

    def _input_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    # -- more rows ---------------------------------------------------------------------------------------------------

    def append(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take more rows into account without sampling again.

        The latent function is updated for each draw that predictions average over; the draws are given weights,
        p(y_new | y, θ), and drawn again in proportion to these (`model.growing`).  `summary` and `to_arviz` still show
        the draws of the fit.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        y : array-like of shape (m,)
            Targets, of the classes that were among the first rows if they are labels.
        sample_weight : array-like of shape (m,), optional
            As of `fit`; default: 1 each.  Weights of classes are those of the fit.

        Returns
        -------
        self

        Warns
        -----
        ApproximationWarning
            When the weights leave fewer than half of the draws effective: it is time to fit again with all rows.
        """
        return self._append(X, y, sample_weight)

    @abstractmethod
    def _more_targets(self, y: Any) -> Array:
        """New targets as the model takes them."""

    @all_or_nothing
    def _append(self, X: Any, y: Any, sample_weight: Any, **about_rows: Any) -> Self:
        check_is_fitted(self)
        X, y, sample_weight, about_rows = rows_that_count(X, y, sample_weight, about_rows)
        X = validated(self, self._columns.encode(X), reset=False)
        targets = self._more_targets(y)
        check_consistent_length(X, targets)
        model = self.model_
        if not isinstance(model, GrowingModel):
            model = GrowingModel(model, self._kept_draws())
            self._log_weight = np.zeros(len(model.draws))
        likelihood = self._likelihood_with(targets, **about_rows)
        old, new = model.likelihood.weights, self._weights_of(targets, sample_weight)
        new = self._of_rows_of_model(np.ones(len(X)) if new is None else new, targets)
        weights = joined((old, len(model.y)), (new, len(new)))
        if weights is not None:
            likelihood = (likelihood or model.likelihood).weighted(weights)
        self.model_, log_weight = self._grown(model, self._scaling.apply(X), targets, likelihood)
        self._log_weight = self._log_weight + log_weight
        _, share = effective_share(self._log_weight)
        if share < REFIT_BELOW:
            warn_user(
                f"the rows appended since the fit leave {100 * share:.0f} % of the draws of the hyperparameters "
                f"effective (of {len(self._log_weight)}, below {100 * REFIT_BELOW:.0f} %): these rows say something "
                "new about the hyperparameters. Fit again with all rows.",
                ApproximationWarning,
            )
        return self

    def _grown(
        self, model: GrowingModel, X: Array, targets: Array, likelihood: Likelihood | None
    ) -> tuple[GrowingModel, Array]:
        return model.grown(X, targets, likelihood)

    def _weights_of(self, targets: Array, sample_weight: Array | None) -> Array | None:
        """Weights of new rows, those of their classes included."""
        return sample_weight

    def _of_rows_of_model(self, values: Array, targets: Array) -> Array:
        """What is known of the rows of a table with these targets, for the rows that the model makes of them."""
        return values

    def _likelihood_with(self, targets: Array) -> Likelihood | None:
        """The likelihood of all rows, where it has to be told about the new ones."""
        return None

    def _new_inputs(self, X: Any) -> tuple[Model, Array, Array]:
        """What functions of `hmcgp.posterior.predict` take: the model, the draws, and new inputs on its scale."""
        check_is_fitted(self)
        X = validated(self, self._columns.encode(X), reset=False)
        return self.model_, self._kept_draws(), self._scaling.apply(X)

    # -- keeping it --------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the estimator, fitted or not, to one file, atomically.

        The file holds settings as JSON and arrays as `.npy`, no code.  Classes of your own (a kernel, a prior) are
        written by name, with their attributes; functions by name; a lambda is refused.

        Parameters
        ----------
        path : path-like
            By custom ``*.hmcgp``.  An old file is replaced only once the new one is complete.
        """
        save_estimator(self, path)

    @classmethod
    def load(cls, path: str | Path, *, trusted: Sequence[Any] = ()) -> Self:
        """Read an estimator written by `save`; nothing in the file is executed.

        Parameters
        ----------
        path : path-like
        trusted : sequence of classes and functions
            Those of your own that the estimator uses: ``trusted=[MyKernel]``.  A file that names others is refused.

        Returns
        -------
        estimator
            With the same predictions, to the last bit.

        Raises
        ------
        InvalidInput
            If the file is damaged, of another format or class, or uses classes that are not trusted.

        Warns
        -----
        sklearn.exceptions.InconsistentVersionWarning
            If the file was written by another version of hmcgp or numpy.
        """
        return load_estimator(path, cls, trusted)


def _default_kernel(categories: NDArray[np.bool_]) -> Kernel | None:
    """A kernel for quantities and categories; None, the model's own, where all are quantities."""
    if not categories.any():
        return None
    quantities, names = np.flatnonzero(~categories).tolist(), np.flatnonzero(categories).tolist()
    first = SquaredExponential(ard=True).on(quantities) if quantities else Constant()
    return first * Categorical(ard=True).on(names)
