"""Settings and tables of an estimator, checked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from hmcgp.errors import InvalidInput
from hmcgp.estimators.columns import check_finite, input_names, plain_targets
from hmcgp.estimators.inducing import check_inducing_setting
from hmcgp.model.compatibility import as_likelihood, as_provider
from hmcgp.runtime.checks import check_count, check_flag, name_among, refuse_class
from hmcgp.runtime.parallel import resolve_n_jobs
from hmcgp.runtime.random import check_random_state
from hmcgp.samplers import Sampler
from hmcgp.samplers.chains.independent import check_seconds
from hmcgp.samplers.chains.run import SAMPLERS, check_counts

MISSING = ("auto", "error", "indicator")
REFINEMENTS = ("auto", "ep", "exact")
ESTIMATOR_SAMPLERS = (*SAMPLERS, "jumps", "map")


def check_settings(estimator: Any) -> str | Sampler | None:
    """Refuse settings of a wrong type or name, whether this fit would use them or not; return the sampler, if given."""
    likelihood = as_likelihood(estimator.likelihood, type_of_targets=estimator.targets)
    if likelihood.weights is not None:
        raise InvalidInput("give weights to fit, as 'sample_weight', not to the likelihood.")
    if estimator.evidence is not None:
        as_provider(estimator.evidence)
    sampler = _sampler(estimator.sampler)
    if getattr(estimator, "refine", None) is not None:
        name_among("refine", estimator.refine, REFINEMENTS, ", or None for the evidence that was sampled")
    check_inducing_setting(estimator.inducing)
    check_counts(draws=estimator.draws, tune=estimator.tune, chains=estimator.chains)
    _check_predict_draws(estimator.predict_draws)
    resolve_n_jobs(estimator.n_jobs, 1)
    check_flag("standardize", estimator.standardize)
    name_among("missing", estimator.missing, MISSING)
    check_random_state(estimator.random_state)
    check_flag("progressbar", estimator.progressbar)
    check_seconds("max_time", estimator.max_time)
    if estimator.checkpoint is not None and not isinstance(estimator.checkpoint, str | os.PathLike):
        raise InvalidInput(f"'checkpoint' must be the path of a file, or None; got {estimator.checkpoint!r}.")
    return sampler


def _check_predict_draws(predict_draws: Any) -> None:
    if isinstance(predict_draws, str) and predict_draws != "auto":
        raise InvalidInput(
            f"'predict_draws' must be an integer >= 1, 'auto', or None for all draws; got {predict_draws!r}."
        )
    if predict_draws not in ("auto", None):
        check_count("predict_draws", predict_draws, 1)


def _sampler(sampler: Any) -> str | Sampler | None:
    """Sampler of an estimator: "map", "jumps", or one that `hmcgp.sample` takes; None where the fit chooses."""
    if sampler is None:
        return None
    refuse_class("sampler", sampler)
    if not isinstance(sampler, str) and hasattr(sampler, "build_step"):
        return sampler  # type: ignore[no-any-return]
    return name_among("sampler", sampler, ESTIMATOR_SAMPLERS, " or a sampler with settings, such as HMC()")


def gaps_allowed(estimator: Any) -> list[str] | None:
    """Columns in which training rows may have gaps: all (None) or none."""
    return [] if estimator.missing == "error" else None


def validated(
    estimator: Any,
    X: Any,
    with_gaps: Sequence[str] | None,
    y: Any = "no_validation",
    *,
    reset: bool = True,
    **wanted: Any,
) -> Any:
    """Inputs of `Columns.encode`, and targets if any, by scikit-learn's `validate_data`; NaN in X is refused by column.

    The estimator learns the names of the columns if `reset`; otherwise they must be those.  NaN may be in the columns
    `with_gaps`, or in all if that is None.
    """
    targets = y if isinstance(y, str) else plain_targets(y)
    checked = validate_data(estimator, X, targets, dtype=np.float64, ensure_all_finite=False, reset=reset, **wanted)
    inputs = checked[0] if isinstance(checked, tuple) else checked
    columns = getattr(X, "columns", range(inputs.shape[1]))
    check_finite(inputs, input_names(list(columns)), with_gaps, learnt=estimator.missing != "error")
    return checked
