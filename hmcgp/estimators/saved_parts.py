"""The parts of a saved estimator, and checks that they fit together.

A file may be damaged or crafted, and compiled code trusts the shapes that it is given: everything is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.estimators.columns import input_names
from hmcgp.estimators.count_targets import CountTargets
from hmcgp.estimators.inducing_error import InducingError
from hmcgp.estimators.labels import LabelTargets
from hmcgp.estimators.level_targets import LevelTargets
from hmcgp.estimators.number_targets import NumberTargets
from hmcgp.estimators.outputs import CoregionalOutputs
from hmcgp.estimators.refinement import Refinement
from hmcgp.estimators.scaling import Scaling
from hmcgp.estimators.table import Inputs
from hmcgp.evidence import Evidence, EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Classes, Counts, Likelihood, Ordinal
from hmcgp.model import GrowingModel, Model
from hmcgp.reporting.conformity import misfits
from hmcgp.reporting.encoding import Refused
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Trace

# attributes of fitted estimators: those of all, and of each
COMMON: dict[str, Any] = {
    "n_features_in_": int,
    "feature_names_in_": NDArray[np.object_] | None,
    "target_name_": str | None,
    "warnings_": list[str] | None,
    "_inputs": Inputs,
    "trace_": Trace,
    "sampling_trace_": Trace | None,
    "refinement_": Refinement | None,
    "inducing_error_": InducingError | None,
    "model_": dict[str, Any],
}
OWN: dict[str, dict[str, Any]] = {  # by the type of targets of the estimator
    "labels": {"_targets": LabelTargets},
    "numbers": {"_targets": NumberTargets},
    "counts": {"_targets": CountTargets},
    "levels": {"_targets": LevelTargets},
}
MODEL: dict[str, Any] = {
    "X": Array,
    "y": Array,
    "kernel": Kernel,
    "likelihood": Likelihood,
    "evidence": EvidenceProvider,
    "input_names": list[str],
    "inducing": Array | None,
    "draws": Array | None,
    "posteriors": list[Evidence | None] | None,
}
_ROUNDING = 1e-10  # relative: exp and its kin differ in the last digits from one machine to the next


def check_types(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Refuse values that are not of the types hinted at."""
    wrong = misfits(values, hints)
    if wrong:
        raise Refused(f"holds values of the wrong types: {wrong}")


def _demand(condition: Any, what: str) -> None:
    if not condition:
        raise Refused(f"holds {what}")


def check_fitted(estimator: Any, fitted: Mapping[str, Any], model: Model) -> None:
    """Compare the fitted attributes with the model and with each other."""
    unknown = set(fitted) - set(COMMON | OWN[estimator.targets])
    if unknown and type(estimator).__module__.startswith("hmcgp."):  # a subclass may have more
        raise Refused(f"has attributes that are not part of a fitted estimator: {', '.join(sorted(unknown))}")
    _check_inputs(fitted, model)
    for trace in (fitted["trace_"], fitted["sampling_trace_"]):
        if trace is not None:
            check_trace(trace, model)
    _check_appended(model, fitted["trace_"])
    _TARGET_CHECKS[estimator.targets](fitted["_targets"], model)


def _check_inputs(fitted: Mapping[str, Any], model: Model) -> None:
    d, names = fitted["n_features_in_"], fitted["feature_names_in_"]
    inputs: Inputs = fitted["_inputs"]
    coregional = isinstance(fitted["_targets"].layout, CoregionalOutputs)
    gaps = inputs.gaps
    k = len(gaps.columns)
    _demand(d >= 1 and model.X.shape[1] == d + k + coregional, "another number of inputs than of columns of the table")
    inside = all(0 <= j < d for j in gaps.columns) and _increasing(np.array(gaps.columns))
    _demand(inside and len(gaps.fill) == k and np.isfinite(gaps.fill).all(), "gaps that do not fit the columns")
    fit = names is None or (names.shape == (d,) and all(isinstance(name, str) for name in names))
    _demand(fit, "names that do not fit the columns of the table")
    expected = gaps.names(input_names(list(range(d) if names is None else names)))
    _demand(inputs.names == expected == [*model.input_names[: d + k]], "a model of other inputs than the table's")
    _check_scaling(inputs.scaling, d + k)
    for levels in inputs.columns.categories.values():
        _demand(levels.ndim == 1 and levels.dtype.kind == "U" and _increasing(levels), "categories that are not sorted")


def _increasing(values: NDArray[Any]) -> bool:
    return bool(np.all(values[:-1] < values[1:]))


def _check_scaling(scaling: Scaling, d: int) -> None:
    parts = (scaling.size, scaling.mean, scaling.sd, scaling.constant)
    _demand(all(part.shape == (d,) and np.isfinite(part).all() for part in parts), "a scale for other columns")
    _demand((scaling.size > 0.0).all() and (scaling.sd > 0.0).all(), "a scale that is not positive")


def check_trace(trace: Trace, model: Model) -> None:
    """Refuse draws that are not those of the model's hyperparameters, or do not agree with themselves."""
    _demand(trace.names == model.names, "draws of other hyperparameters than the model's")
    _demand(trace.draws.ndim == 3 and len(trace) > 0, "no draws")
    chains = trace.n_chains
    for draws, unconstrained, stats in (
        (trace.draws, trace.unconstrained, trace.stats),
        (trace.warmup_draws, trace.warmup_unconstrained, trace.warmup_stats),
    ):
        shape = (chains, draws.shape[1] if draws.ndim == 3 else -1, model.n_dim)
        _demand(draws.shape == unconstrained.shape == shape, "draws of the wrong shape")
        _demand(np.isfinite(draws).all() and np.isfinite(unconstrained).all(), "draws that are not finite")
        again = model.constrain(unconstrained.reshape(shape[0] * shape[1], model.n_dim).T).T.reshape(shape)
        agree = np.allclose(draws, again, rtol=_ROUNDING, atol=0.0)
        _demand(agree, "draws that contradict their unconstrained coordinates")
        _demand(set(stats) == set(trace.stats), "statistics of warm-up that differ from those of the draws")
        fit = all(v.shape == shape[:2] and v.dtype.kind in "biuf" for v in stats.values())
        _demand(fit, "statistics of the wrong shape")
    _demand("lp" in trace.stats and np.isfinite(trace.stats["lp"]).all(), "log densities that are not finite")
    metric, shapes = trace.inv_metric, ((chains, model.n_dim), (chains, model.n_dim, model.n_dim))
    _demand(metric.shape in shapes and np.isfinite(metric).all(), "a metric of the wrong shape")
    _demand(0.0 <= trace.sampling_time < np.inf, "a sampling time that is none")
    if trace.log_weight is not None:
        fit = trace.log_weight.shape == trace.draws.shape[:2] and not np.isnan(trace.log_weight).any()
        _demand(fit and abs(np.logaddexp.reduce(trace.log_weight, axis=None)) < 1e-6, "weights that do not sum to 1")


def _check_appended(model: Model, trace: Trace) -> None:
    if not isinstance(model, GrowingModel):
        return
    _demand(np.array_equal(model.draws, trace.flat), "posteriors at hyperparameters that are not the draws")
    _demand(trace.log_weight is not None, "appended rows without weights of the draws")
    for kept in model._kept.values():
        _demand(np.isfinite(kept.log_z) and kept.dK is None, "a log evidence that is not finite")
        _check_posterior(kept.posterior, model)


def _check_posterior(posterior: Any, model: Model) -> None:
    """Refuse arrays of other shapes than the solver's, which compiled code would read beyond."""
    if not is_dataclass(posterior):  # of a provider of the user's own
        return
    shapes = _posterior_shapes(model)
    parts = {field.name: getattr(posterior, field.name) for field in fields(posterior)}
    _check_posterior(parts.get("scaled"), model)
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            _demand(part.shape in shapes.get(name, [part.shape]), f"a posterior with {name} of {part.shape}")
            _demand(np.isfinite(np.tril(part) if part.ndim > 1 else part).all(), "a posterior that is not finite")


def _posterior_shapes(model: Model) -> dict[str, list[tuple[int, ...]]]:
    """Shapes that the arrays of a posterior may have, by name."""
    likelihood, y, n = model.likelihood, model.y, len(model.y)
    classes = isinstance(likelihood, Classes)
    C = likelihood.count(y) if classes else 1
    f = (C, n) if classes else y.shape
    m = len(model.support)
    square: list[tuple[int, ...]] = [(C * m, C * m), (m, m), (1, m, m), (C, m, m)]
    if model.inducing is None:
        square = [(n, n)]
    return {
        **{name: [f] for name in ("f", "alpha", "p")},
        **{name: [(n,)] for name in ("root_w", "noise", "w", "mu", "v", "y", "nu", "b", "root")},
        **dict.fromkeys(("L", "R", "M", "L_A"), square),
        "weight": [(C, m) if classes else (m, *y.shape[1:])],
        "S": [(n, C, C)],
        "variances": [(n,)],
        "K": [(n, n), (1, n, n), (C, n, n)],
        "B_inverse": [(C, n, n)],
        "sites": [(2 * n * (C - 1),)],
    }


def _check_labels(targets: LabelTargets, model: Model) -> None:
    classes, of_class = targets.classes, targets.class_weights
    codes = model.y if targets.has_codes else (model.y + 1.0) / 2.0
    fits = model.likelihood.targets == ("classes" if targets.has_codes else "labels")
    _demand(fits and classes.ndim == 1 and len(classes) >= 2, "other classes than the model's")
    _demand(codes.max() < len(classes) and _increasing(classes), "classes that do not fit the labels of the rows")
    if of_class is not None:
        one_each = of_class.shape == classes.shape and np.isfinite(of_class).all() and (of_class > 0.0).all()
        _demand(one_each, "other weights than one for each class")


def _check_numbers(targets: NumberTargets, model: Model) -> None:
    layout, k = targets.layout, max(1, len(targets.layout.names))
    _demand(model.likelihood.targets == "numbers", "a model of labels in a regressor")
    _check_scaling(targets.scaling, k)
    if isinstance(layout, CoregionalOutputs):
        row = layout.row
        steps = np.diff(row, prepend=-1) if len(row) else row
        fit = row.shape == model.y.shape and np.isin(steps, (0, 1)).all() and steps[0] == 1 and k >= 2
    else:
        fit = model.y.shape[1:] == ((k,) if layout.names else ())
    _demand(fit, "outputs that do not fit the rows")


def _check_counts(targets: CountTargets, model: Model) -> None:
    likelihood = model.likelihood
    _demand(isinstance(likelihood, Counts), "a model of other targets than counts")
    assert isinstance(likelihood, Counts)
    _demand(targets.size_name == likelihood.size_name, "sizes of rows of another kind than the likelihood's")
    told = getattr(likelihood, likelihood.size_name) is not None
    _demand(targets.has_sizes == told, "rows of which the likelihood does not know the sizes")


def _check_levels(targets: LevelTargets, model: Model) -> None:
    levels, likelihood = targets.classes, model.likelihood
    _demand(isinstance(likelihood, Ordinal), "a model of other targets than levels")
    assert isinstance(likelihood, Ordinal)
    different = levels.ndim == 1 and len(set(levels.tolist())) == len(levels) == len(likelihood.levels)
    _demand(different and targets.has_codes and targets.class_weights is None, "other levels than the model's")


_TARGET_CHECKS: dict[str, Callable[[Any, Model], None]] = {
    "labels": _check_labels,
    "numbers": _check_numbers,
    "counts": _check_counts,
    "levels": _check_levels,
}
