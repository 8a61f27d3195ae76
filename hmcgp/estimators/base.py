"""Base of the estimators: from a training table to draws of the hyperparameters."""

from __future__ import annotations

import os
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hmcgp.compilation import shown_compilation
from hmcgp.errors import ApproximationWarning, InterruptedWarning, recorded_warnings, warn_user
from hmcgp.estimators.columns import target_name
from hmcgp.estimators.conventions import Conventions
from hmcgp.estimators.default_sampler import default_sampler
from hmcgp.estimators.imputation import RowParts, Rows, TrainingValues, warn_about_missing
from hmcgp.estimators.inducing import checked_error, may_use_inducing, with_chosen_inducing
from hmcgp.estimators.inducing_error import InducingError
from hmcgp.estimators.inspection import Inspection
from hmcgp.estimators.prediction_draws import PredictionDraws, n_each
from hmcgp.estimators.refinement import Refinement, refined, reweighted, wanted_models
from hmcgp.estimators.settings import check_settings
from hmcgp.estimators.table import Inputs, Targets, TrainingTable
from hmcgp.estimators.weights import drop_zero_weight_rows
from hmcgp.evidence import EvidenceProvider
from hmcgp.likelihoods import Likelihood
from hmcgp.model import GrowingModel, Model
from hmcgp.optimize import find_map, find_modes
from hmcgp.optimize.maximum import point_trace
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.reporting import diagnostics
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.fingerprint import digest
from hmcgp.runtime.interrupts import check_interrupt, deferred_interrupts, take_interrupt
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import JumpingHMC, Sampler, Trace, sample
from hmcgp.samplers.chains.checkpoint import checkpoint_path
from hmcgp.samplers.single_draw import FIXED

REFIT_BELOW = 0.5  # effective share of the draws after `append`


def compilation_name(estimator: Any, model: Model) -> str:
    """Name by which the compiled functions of a fit are listed: its likelihood, dense or with inducing inputs."""
    likelihood = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(model.likelihood).__name__).lower()
    return f"{likelihood}-inducing" if may_use_inducing(estimator, model) else likelihood


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if the block fails or is interrupted."""
    with deferred_interrupts():
        before = dict(vars(estimator))
        try:
            yield
            check_interrupt()
        except BaseException:
            estimator.__dict__ = before
            raise


class GaussianProcess(Inspection, Conventions):
    """Base class of `GPClassifier`, `GPRegressor`, `GPCounts` and `GPOrdinal`, which list the parameters."""

    targets: ClassVar[str]  # what y holds: "labels", "numbers", "counts" or "levels"
    kernel: Any
    likelihood: str | Likelihood
    evidence: str | EvidenceProvider | None
    sampler: str | Sampler | None
    draws: int
    tune: int
    chains: int
    predict_draws: int | str | None
    n_jobs: int | None
    standardize: bool
    random_state: RandomStateLike
    progressbar: bool
    max_time: float | None
    checkpoint: str | os.PathLike[str] | None
    refine: str | None = None
    inducing: Any
    missing: str
    refinement_: Refinement | None
    inducing_error_: InducingError | None
    target_name_: str
    warnings_: list[str]

    # -- fitting -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Sample the hyperparameters given a table and its targets.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d)
            Numeric, finite inputs; NaN where one is missing, unless `missing="error"`.  A DataFrame may be of pandas,
            polars or pyarrow (or whatever narwhals reads); new rows may have its columns in another order.  Its columns
            of categories, Enums or text are categories: the default kernel is then that of the others times
            `kernels.Categorical`, and in `GPClassifier` their effects are added.  Text that is mostly numbers is an
            error.  Booleans are the numbers 0 and 1.
        y : array-like or Series of shape (n,)
            `GPClassifier` takes two or more different labels (numbers, strings or booleans), `GPOrdinal` ordered
            classes, `GPCounts` whole numbers >= 0, and `GPRegressor` finite real numbers.
        sample_weight : array-like of shape (n,), optional
            Numbers >= 0 that multiply the log likelihoods of the rows: 2 is the same as the row twice, 0 as without it
            (in `loo` and wherever rows come back, too).  They are not normalised.  They count in the standardisation as
            well.  A multinomial probit takes whole numbers.

        Returns
        -------
        self

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            When the chains do not agree, or hold too few effective draws, or diverged.
        DataWarning
            For constant inputs, duplicate rows, missing values with `missing="auto"`, categories with more levels than
            half the rows, with an order (which is ignored) or that differ in case or spaces only, inputs of very
            different scales with `standardize=False`, and more hyperparameters than rows.
        ApproximationWarning
            For failures of the solver.
        InterruptedWarning
            After Ctrl-C, or `max_time`.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C before there are draws to keep.  The estimator is as it was before the call.
        """
        return self._fit(X, y, sample_weight)

    @abstractmethod
    def _training_table(self, X: Any, y: Any, row_data: Any, sample_weight: Any) -> TrainingTable:
        """Validated rows of a fit."""

    def _fit(self, X: Any, y: Any, sample_weight: Any, row_data: Any = None) -> Self:
        with all_or_nothing(self), single_blas_thread(), recorded_warnings() as given:  # no new model with old draws
            sampler = check_settings(self)
            table = self._training_table(X, y, row_data, sample_weight)
            self._keep_table(table.inputs, table.targets)
            self._keep_target_name(y)
            model = table.model(self.evidence, standardize=bool(self.standardize))
            self._fit_model(model, sampler, table)
            self.warnings_ = given
        return self

    def _fit_model(self, model: Model, sampler: str | Sampler | None, table: TrainingTable) -> None:
        """Choose inducing inputs, sample and refine."""
        with shown_compilation([compilation_name(self, model)], enabled=self.progressbar):
            self.model_, pilot, subset = with_chosen_inducing(self, model)
            models = wanted_models(self, self.model_)  # refused before any sampling, if they do not fit
            self.sampling_trace_ = self.trace_ = self._sample(
                sampler or default_sampler(self, self.model_),
                None if self.checkpoint is None else table.identity() | self._inducing_identity(),
                pilot,
            )
            if self.trace_.sampler not in ("map", FIXED):
                diagnostics.warn(self.trace_, standardized=bool(self.standardize))
            self.refinement_ = None
            if models:
                self._refine(models)
            self._keep_best()
            self.inducing_error_ = checked_error(self, subset)
            if take_interrupt():
                warn_user(
                    "the fit was interrupted when it was all but done: it was finished, and is whole.",
                    InterruptedWarning,
                )

    def _inducing_identity(self) -> dict[str, str]:
        """Digest of the inducing inputs, of which a checkpoint must have the same."""
        Z = self.model_.inducing
        return {} if Z is None else {"inducing inputs": digest(Z)}

    def _refine(self, models: list[Model]) -> None:
        """Let the draws stand for a better evidence; Ctrl-C leaves them as they were sampled."""
        try:
            found = refined(self, self.model_, self.sampling_trace_, models)
        except KeyboardInterrupt:
            warn_user(
                "the refinement of the draws was interrupted: probabilities are those of the evidence that was "
                "sampled. Fit again, with checkpoint= to keep the draws, for better ones.",
                InterruptedWarning,
            )
            return
        if found is not None:
            self.model_, self.trace_, self.refinement_ = found
            if self.refinement_.method == "sampled":
                diagnostics.warn(self.trace_, standardized=bool(self.standardize))

    def _keep_table(self, inputs: Inputs, targets: Targets) -> None:
        """Keep what new rows and predictions need of the training table."""
        self.__dict__.pop("output_names_", None)  # of an earlier fit
        self._inputs, self._targets = inputs, targets
        self.__dict__.update(targets.attributes())

    def _keep_target_name(self, y: Any) -> None:
        """Set `target_name_` where the targets have a name, as `feature_names_in_` is set where columns have names."""
        self.__dict__.pop("target_name_", None)  # of an earlier fit
        name = target_name(y)
        if name is not None:
            self.target_name_ = name

    def _keep_best(self) -> None:
        """Note the draw of highest posterior density, and the kernel there; drop what predictions kept."""
        self._predictions = PredictionDraws()
        self._best = self.trace_.flat[np.argmax(self.trace_.stats["lp"])]
        self.kernel_ = self.model_.kernel_at(self._best)

    def _sample(self, sampler: str | Sampler, identity: dict[str, Any] | None, pilot: Array | None = None) -> Trace:
        """Draws of a sampler, or the maximum; after a pilot, the one where that ended."""
        if sampler == "map":
            begin = time.perf_counter()
            find = partial(find_map, self.model_, random_state=self.random_state, n_jobs=self.n_jobs)
            optimum = find() if pilot is None else find(start=self.model_.unconstrain(pilot), n_restarts=1)
            if not optimum.converged:
                warn_user(
                    "the search for the most probable hyperparameters ended before the gradient vanished: its maximum "
                    "may not be one. Narrow the widest priors, or sample instead (sampler='hmc').",
                    ApproximationWarning,
                )
            return point_trace(optimum, time.perf_counter() - begin)
        if sampler == "jumps" and self.model_.n_dim == 0:
            sampler = "hmc"  # nothing to jump between
        elif sampler == "jumps":
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

    # -- more rows ---------------------------------------------------------------------------------------------------

    def append(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take more rows into account without sampling again.

        The latent function is updated for each draw that predictions average over, and the draws are given weights,
        p(y_new | y, θ), with which everything from then on is averaged (`model.growing`).

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

    def _append(self, X: Any, y: Any, sample_weight: Any, row_data: Any = None) -> Self:
        with all_or_nothing(self), single_blas_thread(), recorded_warnings() as given:
            check_is_fitted(self)
            X, y, weights, row_data = drop_zero_weight_rows(X, y, sample_weight, row_data)
            X = self._scaled(X)
            targets = self._targets.encode(y, self.model_.likelihood)
            check_consistent_length(X, targets)
            model = self.model_
            if not isinstance(model, GrowingModel):
                self.trace_ = self.trace_.thinned(n_each(self.predict_draws))
                model = GrowingModel(model, self.trace_.flat)
            new = self._targets.new_rows(model, X, targets, weights, row_data)
            self.model_, log_ratios = model.grown(new.X, new.y, new.likelihood)
            check_interrupt()
            self.trace_, self._targets = reweighted(self.trace_, log_ratios), new.targets
            self._keep_best()
            share = self.trace_.n_effective / (len(self.trace_) * self._share_at_fit())
            if share < REFIT_BELOW:
                warn_user(
                    f"the rows appended since the fit leave {100 * share:.0f} % of the draws of the hyperparameters "
                    f"effective (of {len(self.trace_)}, below {100 * REFIT_BELOW:.0f} %): these rows say "
                    "something new about the hyperparameters. Fit again with all rows.",
                    ApproximationWarning,
                )
            self.warnings_ = [*self.warnings_, *given]
        return self

    def _share_at_fit(self) -> float:
        """Share of the draws that were effective before rows were appended."""
        found = self.refinement_
        if found is None:
            return self.sampling_trace_.n_effective / len(self.sampling_trace_)
        return found.effective / found.n_draws if found.method == "weighted" else 1.0

    def _scaled(self, X: Any) -> Array:
        """Validated new inputs on the scale of the model."""
        return self._inputs.encode(self, X)

    def _new_inputs(self, X: Any, *, each_draw: bool = False) -> tuple[Model, WeightedDraws, Array]:
        """Arguments of functions of `hmcgp.posterior.predict`: the model, the draws, and new inputs on its scale.

        The draws are those to average over or, with `each_draw`, those that results for each draw are for.
        """
        check_is_fitted(self)
        X = self._targets.layout.prediction_inputs(self._scaled(X))
        return self.model_, self._prediction_draws(each_draw=each_draw), X

    def _prediction_draws(self, *, each_draw: bool) -> WeightedDraws:
        averaged = self._averaged_draws()
        if not (each_draw and isinstance(self.predict_draws, str)):
            return averaged
        kept = None if averaged.kept is None else averaged.kept.part("each draw")
        return replace(self._kept_draws(), kept=kept, progressbar=averaged.progressbar)

    def _row_parts(self, X: Any, *, each_draw: bool = False) -> RowParts:
        """Return new rows to predict one by one, those with missing values without an indicator as copies."""
        check_is_fitted(self)
        inputs = self._inputs.encode_incomplete(self, X)
        warn_about_missing(inputs, self._inputs.names)
        draws = self._prediction_draws(each_draw=each_draw)
        return RowParts(inputs, self._training_values, self._targets.layout.prediction_inputs, draws)

    def _predict_rows(
        self, X: Any, predicted: Callable[[WeightedDraws, Array, Rows, int], Array], *, each_draw: bool = False
    ) -> Array:
        """Predict each new row by itself; missing values without an indicator are averaged over training values.

        `predicted` takes the draws, inputs of the model, the rows that they belong to and their number for each row,
        and returns an array with an entry for each row.
        """
        parts = self._row_parts(X, each_draw=each_draw)
        return parts.merged([predicted(parts.draws, *part) for part in parts])

    def _training_values(self) -> TrainingValues:
        """Inputs of the training rows, one for each row of the user, with their weights."""
        X, weights = self.model_.X, self.model_.likelihood.weights
        both = self._targets.layout.inputs(np.column_stack([np.ones(len(X)) if weights is None else weights, X]))
        return TrainingValues(both[:, 1:], both[:, 0])

    def _averaged_draws(self) -> WeightedDraws:
        """Draws that averages are over, with what predictions keep of them."""
        check_is_fitted(self)
        return self._predictions.get(self.trace_, self.model_, self.predict_draws, bool(self.progressbar))

    def clear_cache(self) -> None:
        """Drop what predictions keep between calls.

        The first prediction after a fit solves the latent posterior of each draw and keeps what later ones need of it:
        an n x n matrix of 4 or 8 bytes per number for each draw (for C classes C + 1 of them), and half as much again
        from the first prediction of up to four rows on, until 1 GiB is full.  Of that, results for each draw
        (`predict_proba_draws`) and joint ones (`sample_y`, `return_cov`), which keep one or two such matrices of 8
        bytes per number, take 512 MiB at most, and make room where averages need it.  Draws beyond are solved in every
        call.  Results are the same with and without, up to rounding; `fit` and `append` drop everything, and pickles
        and files of `save` hold none of it.
        """
        check_is_fitted(self)
        self._predictions.clear()
