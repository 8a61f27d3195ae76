"""Inducing inputs of a fit: chosen once, before sampling, so that the sampler sees one smooth function.

A pilot searches for the most probable hyperparameters, in a subset of the rows and then in all of them, with rows
spread over the inputs by k-means++ (`estimators.dense_subset`); then rows are chosen again for the kernel found there
(`hmcgp.model.inducing`).  The choice depends on table and settings alone.
With ``sampler="map"`` the search for the maximum continues from the pilot's, so that most of its steps are cheap ones.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

from hmcgp.errors import ApproximationWarning, InvalidInput, NotConverged, NotPositiveDefinite, warn_user
from hmcgp.estimators.dense_subset import DenseSubset, fit_subset, run_pilot
from hmcgp.estimators.inducing_error import InducingError, inducing_error
from hmcgp.likelihoods import Classes
from hmcgp.model import Model
from hmcgp.model.inducing import pivoted_inputs, with_inducing
from hmcgp.runtime.checks import check_count, lowered
from hmcgp.runtime.typing import Array

AUTO_ROWS = 1500  # up to which "auto" takes no inducing inputs: dense matrices are exact, and a fit takes minutes
DENSE_ROWS = 3000  # up to which it takes none where the largest of the following would be too few
AUTO_NUMBERS = (100, 200, 400)  # of inducing inputs that "auto" tries
AUTO_NATS = 0.3  # by which log Z may change when they are doubled
PILOT = 50  # inducing inputs of the pilot


def check_inducing_setting(inducing: Any) -> None:
    """Refuse a setting that is no number, no "auto" and no table."""
    if isinstance(inducing, str):
        if lowered(inducing) != "auto":
            raise InvalidInput(f"'inducing' must be None, a number, 'auto' or an array of inputs; got {inducing!r}.")
    elif isinstance(inducing, Integral | float):
        check_count("inducing", inducing, 1)


class Chosen(NamedTuple):
    """A model with its inducing inputs, if any, the hyperparameters of a pilot, and a dense subset to compare with."""

    model: Model
    pilot: Array | None = None  # (p,), natural
    subset: DenseSubset | None = None


def may_use_inducing(gp: Any, model: Model) -> bool:
    """Return whether the setting `inducing` asks for inducing inputs, or may choose them for this many rows."""
    return gp.inducing is not None and not (isinstance(gp.inducing, str) and len(model.X) <= AUTO_ROWS)


def with_chosen_inducing(gp: Any, model: Model) -> Chosen:
    """Model with the inducing inputs that the setting `inducing` of an estimator asks for."""
    wanted = gp.inducing
    if not may_use_inducing(gp, model):
        return Chosen(model)
    if isinstance(wanted, str):
        return _automatic(gp, model)
    if not isinstance(wanted, Integral):
        chosen = with_inducing(model, gp._targets.layout.prediction_inputs(gp._scaled(wanted)))
        return Chosen(chosen, subset=fit_subset(model, gp.n_jobs))
    m, n = int(wanted), len(model.X)
    if m > n:
        raise InvalidInput(
            f"inducing={m} asks for more inducing inputs than there are rows ({n}): take fewer, or inducing=None."
        )
    with_inducing(model, model.X[:1])  # refused before the pilot, where likelihood or evidence are dense only
    subset = fit_subset(model, gp.n_jobs)
    theta = run_pilot(model, subset, min(m, PILOT))
    return Chosen(with_inducing(model, pivoted_inputs(model.kernel_at(theta), model.X, m)), theta, subset)


def _automatic(gp: Any, model: Model) -> Chosen:
    """Dense where nothing else is supported; otherwise with as many inducing inputs as log Z asks for."""
    if _refined_densely(gp, model):
        return Chosen(model)
    try:
        with_inducing(model, model.X[:1])
    except InvalidInput:
        return Chosen(model)
    subset = fit_subset(model, gp.n_jobs)
    theta = run_pilot(model, subset, PILOT)
    Z = pivoted_inputs(model.kernel_at(theta), model.X, 2 * AUTO_NUMBERS[-1])
    log_z = with_inducing(model, Z[: AUTO_NUMBERS[0]]).posterior(theta)[1].log_z
    for m in AUTO_NUMBERS:
        twice = with_inducing(model, Z[: 2 * m]).posterior(theta)[1].log_z
        if abs(twice - log_z) <= AUTO_NATS:
            return Chosen(with_inducing(model, Z[:m]), theta, subset)
        log_z = twice
    if len(model.X) <= DENSE_ROWS:
        return Chosen(model, theta)
    return Chosen(_more(model, Z, theta, subset), theta, subset)


def _more(model: Model, Z: Array, theta: Array, subset: DenseSubset) -> Model:
    """Model with the largest of AUTO_NUMBERS, or as many more as explain held-out rows no worse than a dense subset.

    At most as many as take the operations of DENSE_ROWS without an approximation: n m² = DENSE_ROWS³.
    """
    m, most = AUTO_NUMBERS[-1], int((DENSE_ROWS**3 / len(model.X)) ** 0.5)
    chosen = with_inducing(model, Z[:m])
    while 2 * m <= most and subset.refutes(chosen, theta):
        m *= 2
        if len(Z) < m:
            Z = pivoted_inputs(model.kernel_at(theta), model.X, m, first=Z)
        chosen = with_inducing(model, Z[:m])
    return chosen


def _refined_densely(gp: Any, model: Model) -> bool:
    """Whether the refinement that was asked for by name knows dense covariances only."""
    refine = lowered(getattr(gp, "refine", None))
    return refine == "exact" or (refine == "ep" and isinstance(model.likelihood, Classes))


def checked_error(gp: Any, subset: DenseSubset | None) -> InducingError | None:
    """Error of a fit with inducing inputs, with a warning if it is large; None without them."""
    if gp.model_.inducing is None:
        return None
    try:
        error = inducing_error(gp.model_, gp._kept_draws(), subset=subset, n_jobs=gp.n_jobs)
    except (NotConverged, NotPositiveDefinite) as failure:
        warn_user(f"the error of the inducing inputs could not be computed: {failure}", ApproximationWarning)
        return None
    if not error.small:
        n = len(gp.model_.X)
        enough = f"inducing={error.n_enough}" if error.n_enough < n else "inducing=None, without an approximation"
        warn_user(f"{error}. Fit again with {enough} (see inducing_error_).", ApproximationWarning)
    return error
