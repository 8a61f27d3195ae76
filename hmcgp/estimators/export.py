"""A fitted estimator as arviz's container, with log likelihoods and replicated targets of each row under each draw."""

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
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.reporting import units as reporting_units
from hmcgp.reporting.arviz_export import build_tree
from hmcgp.reporting.sensitivity import log_prior_terms
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.checks import check_count, check_flag
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Trace
from hmcgp.samplers.arviz_groups import ALL_SAMPLED, EQUAL, NOT_RESAMPLED, RESAMPLED, describe_weights


def to_arviz(
    gp: Any,
    *,
    log_likelihood: bool,
    posterior_predictive: bool,
    prior: int,
    resample: bool,
    audit: Audit | None,
    units: str,
    random_state: RandomStateLike,
) -> Any:
    """Fitted estimator as arviz's container; arguments as of `GPClassifier.to_arviz`."""
    check_is_fitted(gp)
    check_count("prior", prior, 0)
    check_flag("resample", resample)
    if not (audit is None or isinstance(audit, Audit)):
        raise InvalidInput(f"'audit' must be what gp.audit() returns, or None; got {audit!r}.")
    kept = gp.trace_.thinned(n_each(gp.predict_draws)) if log_likelihood or posterior_predictive else gp.trace_
    kept = replace(kept, stats={**kept.stats, "log_evidence": log_evidence(gp, kept)})
    trace, positions = kept, np.arange(len(kept))
    if resample and kept.log_weight is not None:
        positions = kept.equal_positions()
        trace = kept.chosen(positions)
    rng, model, scale = as_generator(random_state), gp.model_, reporting_units.factors(gp.parameters_, units)
    observed = gp._targets.observed(model)
    groups: dict[str, Any] = {"observed_data": {"y": observed}}
    if log_likelihood:
        groups["log_likelihood"] = {"y": _in_chains(trace, _log_predictive(gp, kept)[positions])}
    else:  # two terms, as arviz.loo would take a single one for the only row
        groups["log_likelihood"] = {
            "evidence": trace.stats["log_evidence"],
            "units": np.full(trace.draws.shape[:2], -gp._log_unit()),
        }
    if posterior_predictive:
        draws = WeightedDraws(kept.flat, kept.weight)[positions]
        with single_blas_thread():
            drawn = _in_chains(trace, gp._targets.replicates(rng, model, draws, gp.n_jobs))
        groups |= {"observed_data": _with_codes(gp, observed), "posterior_predictive": _with_codes(gp, drawn)}
    if prior:
        drawn = np.array([model.constrain(model.initial(rng)) for _ in range(prior)])
        groups["prior"] = drawn * scale
    run, averaged = _run(gp, kept), gp._averaged_draws()
    same = np.array_equal(trace.draws, run.draws)
    noted = {"units": units, "refinement": gp.refinement_, "inducing": gp.inducing_error_}
    noted["draws_note"] = f"{how_drawn(gp)} {_groups_note(gp, kept, trace, None if same else run)}"
    return build_tree(
        reporting_units.in_units(trace, gp.parameters_, units),
        gp.parameters_,
        constant_data={"X": gp._inputs.scaling.undo(gp._targets.layout.inputs(model.X))},
        features=gp._inputs.names if hasattr(gp, "feature_names_in_") else None,
        outputs=getattr(gp, "output_names_", ()),
        attrs={name: str(found) for name, found in noted.items() if found is not None},
        audit=None if audit is None else audit.to_dict(),
        log_prior=log_prior_terms(trace.draws, gp.parameters_) - np.log(scale),
        run=None if same else reporting_units.in_units(run, gp.parameters_, units),
        averaged=(averaged.theta * scale, averaged.log_weight - np.log(averaged.total)),
        **groups,
    )


def log_evidence(gp: Any, trace: Trace) -> Array:
    """Log p(y | hyperparameters) of each draw, of shape (chains, draws), from the log density that was noted."""
    log_prior = [[gp.model_.log_prior(u)[0] for u in chain] for chain in trace.unconstrained]
    return np.asarray(trace.stats["lp"], dtype=float) - np.array(log_prior).reshape(trace.draws.shape[:2])


def how_drawn(gp: Any) -> str:
    """Describe in words which draws a fit has, and how many of those that were sampled."""
    run, trace, refinement = gp.sampling_trace_, gp.trace_, gp.refinement_
    if len(run) == 1:
        return f"One set of hyperparameters ({run.sampler})."
    parts = [f"{_size(run)} were sampled{'' if refinement is None else f' under {refinement.sampled}'}."]
    if refinement is not None and refinement.method == "sampled":
        parts.append(
            f"Their importance weights under {refinement.averaged} were unreliable, so {_size(trace)} were sampled "
            "under it, starting from these."
        )
    elif len(trace) < len(run):
        why = "were kept" if refinement is None else f"were evaluated under {refinement.averaged}"
        parts.append(f"{_size(trace)}, evenly spaced (see predict_draws), {why}.")
    if trace.log_weight is not None:
        parts.append(f"They carry importance weights ({describe_weights(trace)}).")
    return " ".join(parts)


def _groups_note(gp: Any, kept: Trace, trace: Trace, run: Trace | None) -> str:
    """Describe what the groups with draws hold."""
    parts = []
    if len(kept) < len(gp.trace_):
        parts.append(f"log_likelihood and posterior_predictive take a solve for each draw: {_size(kept)} are exported.")
    if kept.log_weight is None:
        parts.append(EQUAL)
    else:
        parts.append(NOT_RESAMPLED if trace is kept else RESAMPLED)
    if run is not None:
        weights = "" if run.log_weight is None else ", with log_weight (-inf: not evaluated)"
        parts.append(f"{ALL_SAMPLED}{weights}.")
    averaged = len(gp._averaged_draws())
    return " ".join(
        [*parts, f"averaged_posterior: the {averaged} draws that predictions average over, with log_weight."]
    )


def _size(trace: Trace) -> str:
    return f"{trace.n_chains} chains of {trace.n_draws} draws"


def _run(gp: Any, kept: Trace) -> Trace:
    """All draws that were sampled, with the weights of those that are kept, and weight 0 of the others."""
    run = gp.sampling_trace_
    if kept.log_weight is None or run.log_weight is kept.log_weight:
        return run
    chains, draws = run.spaced(kept.n_chains, kept.n_draws)
    if not np.array_equal(run.draws[chains, draws], kept.draws):  # sampled again
        return run
    log_weight = np.full(run.draws.shape[:2], -np.inf)
    log_weight[chains, draws] = kept.log_weight
    return replace(run, log_weight=log_weight, pareto_k=kept.pareto_k)


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
