"""A fitted estimator as arviz's container, with what the model says of each row under each draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.prediction_draws import n_each
from hmcgp.posterior.audit_report import Audit
from hmcgp.posterior.leave_one_out import log_predictive_per_draw
from hmcgp.posterior.weights import WeightedDraws, resampled
from hmcgp.reporting import units as reporting_units
from hmcgp.reporting.arviz_export import build_tree
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.checks import check_count, check_flag
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Trace


def to_arviz(
    gp: Any,
    *,
    log_likelihood: bool,
    posterior_predictive: bool,
    prior: int,
    resample: bool | None,
    audit: Audit | None,
    units: str,
    random_state: RandomStateLike,
) -> Any:
    """Fitted estimator as arviz's container; arguments as of `GPClassifier.to_arviz`."""
    check_is_fitted(gp)
    check_count("prior", prior, 0)
    check_flag("resample", resample, optional=True)
    if not (audit is None or isinstance(audit, Audit)):
        raise InvalidInput(f"'audit' must be what gp.audit() returns, or None; got {audit!r}.")
    by_row = log_likelihood or posterior_predictive
    trace, positions = _exported_draws(gp, by_row, by_row if resample is None else resample)
    rng, model = as_generator(random_state), gp.model_
    observed = gp._targets.observed(model)
    groups: dict[str, Any] = {"observed_data": {"y": observed}}
    if log_likelihood:
        groups["log_likelihood"] = {"y": _in_chains(trace, _log_predictive(gp, trace)[positions])}
    if posterior_predictive:
        draws = WeightedDraws(trace.flat, trace.weight)[positions]
        with single_blas_thread():
            drawn = _in_chains(trace, gp._targets.replicates(rng, model, draws, gp.n_jobs))
        groups |= {"observed_data": _with_codes(gp, observed), "posterior_predictive": _with_codes(gp, drawn)}
    if prior:
        drawn = np.array([model.constrain(model.initial(rng)) for _ in range(prior)])
        groups["prior"] = drawn * reporting_units.factors(gp.parameters_, units)
    trace = trace if isinstance(positions, slice) else trace.chosen(positions)
    told = {"units": units, "refinement": gp.refinement_, "inducing": gp.inducing_error_}
    return build_tree(
        reporting_units.in_units(trace, gp.parameters_, units),
        gp.parameters_,
        constant_data={"X": gp._inputs.scaling.undo(gp._targets.layout.inputs(model.X))},
        features=gp._inputs.names if hasattr(gp, "feature_names_in_") else None,
        outputs=getattr(gp, "output_names_", ()),
        attrs={name: str(found) for name, found in told.items() if found is not None},
        audit=None if audit is None else audit.to_dict(),
        **groups,
    )


def _exported_draws(gp: Any, few: bool, resample: bool) -> tuple[Trace, Any]:
    """Draws with their log evidence, thinned as for predictions if few will do, and which of them to take."""
    trace = gp.trace_.thinned(n_each(gp.predict_draws)) if few else gp.trace_
    log_prior = np.array([[gp.model_.log_prior(u)[0] for u in chain] for chain in trace.unconstrained])
    trace = replace(trace, stats={**trace.stats, "log_evidence": np.asarray(trace.stats["lp"] - log_prior)})
    return trace, resampled(trace.weight) if resample and trace.log_weight is not None else slice(None)


def _log_predictive(gp: Any, trace: Trace) -> Array:
    """Log p(y_i | y_-i, θ_s) in the units of y, of shape (S, n)."""
    if gp.model_.likelihood.weights is not None:
        raise InvalidInput(
            "log_likelihood=True is for rows without weights: a row of weight 2 is left out twice, and predicted once, "
            "for which arviz has no place. gp.loo() does that; gp.loo().to_arviz() is its result for arviz.compare."
        )
    draws, groups = WeightedDraws(trace.flat, trace.weight), gp._targets.layout.row_groups
    log_p = log_predictive_per_draw(gp.model_, draws, row_groups=groups, n_jobs=gp.n_jobs)
    return log_p - gp._targets.log_units(gp.model_)


def _in_chains(trace: Trace, values: NDArray[Any]) -> NDArray[Any]:
    """Values of all draws, by chain and draw."""
    return values.reshape(trace.n_chains, trace.n_draws, *values.shape[1:])


def _with_codes(gp: Any, y: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Targets; of text and booleans also the positions among the classes, numbers that arviz can plot."""
    if y.dtype.kind in "iuf":
        return {"y": y}
    return {"y": y, "y_code": gp._targets.positions(y)}
