"""Inducing inputs of a fit: chosen once, before sampling, so that the sampler sees one smooth function.

Rows spread over the inputs by k-means++ serve a pilot, a search for the most probable hyperparameters; then rows are
chosen anew for the kernel found there (`hmcgp.model.inducing`).  The choice depends on table and settings alone.
With ``sampler="map"`` the search for the maximum goes on from the pilot's, so that most of its steps are cheap ones.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

from hmcgp.errors import ApproximationWarning, InvalidInput, NotConverged, NotPositiveDefinite, warn_user
from hmcgp.estimators.inducing_error import InducingError, inducing_error
from hmcgp.likelihoods import Classes
from hmcgp.model import Model
from hmcgp.model.inducing import pivoted_inputs, spread_inputs, with_inducing
from hmcgp.optimize import find_map
from hmcgp.runtime.checks import check_count, lowered
from hmcgp.runtime.typing import Array

AUTO_ROWS = 1500  # up to which "auto" takes no inducing inputs: dense matrices are exact, and a fit takes minutes
DENSE_ROWS = 3000  # up to which it takes none where the largest of the following would be too few
AUTO_NUMBERS = (100, 200, 400)  # of inducing inputs that "auto" tries
AUTO_NATS = 0.3  # by which log Z may change when they are doubled
PILOT = 50  # inducing inputs of the pilot,
PILOT_STARTS = 3  # its searches,
PILOT_ITERATIONS = 30  # and iterations of each


def check_inducing_setting(inducing: Any) -> None:
    """Refuse a setting that is no number, no "auto" and no table."""
    if isinstance(inducing, str):
        if lowered(inducing) != "auto":
            raise InvalidInput(f"'inducing' must be None, a number, 'auto' or an array of inputs; got {inducing!r}.")
    elif isinstance(inducing, Integral | float):
        check_count("inducing", inducing, 1)


class Chosen(NamedTuple):
    """A model with its inducing inputs, if any, and the hyperparameters that a pilot found, if there was one."""

    model: Model
    pilot: Array | None = None  # (p,), natural


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
        return Chosen(with_inducing(model, gp._targets.layout.prediction_inputs(gp._scaled(wanted))))
    m, n = int(wanted), len(model.X)
    if m > n:
        raise InvalidInput(
            f"inducing={m} asks for more inducing inputs than there are rows ({n}): take fewer, or inducing=None."
        )
    Z, theta = _chosen(gp, model, m)
    return Chosen(with_inducing(model, Z), theta)


def _automatic(gp: Any, model: Model) -> Chosen:
    """Dense where nothing else is supported; otherwise with as many inducing inputs as log Z asks for."""
    if _refined_densely(gp, model):
        return Chosen(model)
    try:
        with_inducing(model, model.X[:1])
    except InvalidInput:
        return Chosen(model)
    Z, theta = _chosen(gp, model, 2 * AUTO_NUMBERS[-1])
    log_z = with_inducing(model, Z[: AUTO_NUMBERS[0]]).posterior(theta)[1].log_z
    for m in AUTO_NUMBERS:
        twice = with_inducing(model, Z[: 2 * m]).posterior(theta)[1].log_z
        if abs(twice - log_z) <= AUTO_NATS:
            return Chosen(with_inducing(model, Z[:m]), theta)
        log_z = twice
    return Chosen(model if len(model.X) <= DENSE_ROWS else with_inducing(model, Z[:m]), theta)


def _refined_densely(gp: Any, model: Model) -> bool:
    """Whether the refinement that was asked for by name knows dense covariances only."""
    refine = lowered(getattr(gp, "refine", None))
    return refine == "exact" or (refine == "ep" and isinstance(model.likelihood, Classes))


def _chosen(gp: Any, model: Model, m: int) -> tuple[Array, Array]:
    """Choose m rows as inducing inputs, by k-means++ for a pilot and then by pivoted Cholesky for the kernel it found.

    Returns them, and the hyperparameters of the pilot: roughly the most probable ones.
    """
    pilot = with_inducing(model, spread_inputs(model.X, min(m, PILOT)))
    found = find_map(pilot, n_restarts=PILOT_STARTS, random_state=0, n_jobs=gp.n_jobs, maxiter=PILOT_ITERATIONS)
    return pivoted_inputs(model.kernel_at(found.parameters), model.X, m), found.parameters


def checked_error(gp: Any) -> InducingError | None:
    """Error of a fit with inducing inputs, with a warning if it is large; None without them."""
    if gp.model_.inducing is None:
        return None
    try:
        found = inducing_error(gp.model_, gp._kept_draws(), n_jobs=gp.n_jobs)
    except (NotConverged, NotPositiveDefinite) as error:
        warn_user(f"the error of the inducing inputs could not be told: {error}", ApproximationWarning)
        return None
    if not found.small:
        n = len(gp.model_.X)
        enough = f"inducing={found.n_enough}" if found.n_enough < n else "inducing=None, without an approximation"
        warn_user(f"{found}. Fit again with {enough} (see inducing_error_).", ApproximationWarning)
    return found
