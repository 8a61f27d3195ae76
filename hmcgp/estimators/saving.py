"""Saving and loading of estimators.

A file holds parameters, data, draws, scales, classes and columns, and the posteriors of appended rows.  The model is
built from its data, kernel, likelihood and evidence, as by `fit`.  Parts are compared with each other (`saved_parts`)
both when an estimator is saved and when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

import sklearn

from hmcgp.errors import InvalidInput
from hmcgp.estimators.saved_parts import COMMON, MODEL, OWN, check_fitted, check_types
from hmcgp.model import GrowingModel, Model
from hmcgp.reporting import saving
from hmcgp.reporting.conformity import field_types
from hmcgp.reporting.encoding import Refused, full_name

T = TypeVar("T")

# computed from the rest
DERIVED = ("_best", "_predictions", "kernel_", "classes_", "output_names_", "_metadata_request")
OPTIONAL = ("feature_names_in_", "target_name_")  # None in a file where there is none
LATER = ("target_name_", "warnings_")  # attributes that files of earlier versions lack


def save_estimator(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write an estimator, fitted or not, to one file, whole or not at all (see `GaussianProcess.save`)."""
    name = type(estimator).__name__
    parameters = estimator.get_params(deep=False)
    try:
        check_types(parameters, field_types(type(estimator).__init__))
        fitted = _fitted(estimator, parameters) if "trace_" in vars(estimator) else None
        if fitted is not None:
            check_types(fitted, COMMON | OWN[estimator.targets])
            check_fitted(estimator, fitted, estimator.model_)
    except Refused as error:
        raise InvalidInput(f"this {name} cannot be saved: it {error}.") from error
    content = {"class": _name(type(estimator)), "parameters": parameters, "requests": _requests(estimator)}
    saving.save({**content, "fitted": fitted}, path, name)


def load_estimator(path: str | os.PathLike[str], expected_class: type[T], trusted: Iterable[Any] = ()) -> T:
    """Read an estimator of `expected_class`, or derived from it, that was saved (see `GaussianProcess.load`)."""
    trusted = list(trusted)
    wrong = [thing for thing in trusted if not isinstance(thing, type | FunctionType)]
    if wrong:
        raise InvalidInput(f"'trusted' lists classes and functions; got {wrong[0]!r}.")
    with saving.reading(path) as file:
        content = saving.load(file, trusted)
        if not isinstance(content, dict) or set(content) != {"class", "parameters", "requests", "fitted"}:
            raise Refused("holds no estimator")
        cls = _class(content["class"], expected_class, trusted)
        estimator = _restored(cls, content["parameters"], content["fitted"])
        _restore_requests(estimator, content["requests"])
        return estimator


# -- classes ---------------------------------------------------------------------------------------------------------


def _own_estimators() -> dict[str, type[Any]]:
    from hmcgp.estimators import GPClassifier, GPCounts, GPOrdinal, GPRegressor

    return {cls.__name__: cls for cls in (GPClassifier, GPCounts, GPOrdinal, GPRegressor)}


def _name(cls: type[Any]) -> str:
    return cls.__name__ if _own_estimators().get(cls.__name__) is cls else full_name(cls)


def _class(name: Any, expected: type[T], trusted: Sequence[Any]) -> type[T]:
    """Find the class of a saved estimator among ours, the expected one and those trusted."""
    given = [cls for cls in (expected, *trusted) if isinstance(cls, type)]
    known = {**_own_estimators(), **{full_name(cls): cls for cls in given}}
    known |= {f"__main__.{cls.__qualname__}": cls for cls in given}
    if not isinstance(name, str):
        raise Refused("does not name the class of its estimator")
    if name not in known:
        raise saving.Foreign(f"holds a {name}, not a {expected.__name__}. Use the load of that class.")
    if not issubclass(known[name], expected):
        raise saving.Foreign(f"holds a {name}, not a {expected.__name__}. Use {name}.load.")
    return known[name]


# -- there and back --------------------------------------------------------------------------------------------------


def _requests(estimator: Any) -> dict[str, dict[str, Any]]:
    """Requests to scikit-learn's metadata routing, as made by `set_fit_request`, by method."""
    told = vars(estimator).get("_metadata_request")
    methods = {} if told is None else vars(told)
    return {method: dict(own.requests) for method, own in methods.items() if getattr(own, "requests", None)}


def _restore_requests(estimator: Any, requests: Mapping[str, Mapping[str, Any]]) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        for method, own in requests.items():
            getattr(estimator, f"set_{method}_request")(**own)


def _fitted(estimator: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fitted attributes, with the parts of the model in its place."""
    found = {name: value for name, value in vars(estimator).items() if name not in parameters and name not in DERIVED}
    model = estimator.model_
    appended = isinstance(model, GrowingModel)
    found["model_"] = {
        **{name: getattr(model, name) for name in MODEL if name not in ("draws", "posteriors")},
        "draws": model.draws if appended else None,
        "posteriors": [model._kept.get(theta.tobytes()) for theta in model.draws] if appended else None,
    }
    for name in OPTIONAL:
        found.setdefault(name, None)
    if estimator.sampling_trace_ is estimator.trace_:
        found["sampling_trace_"] = None  # not twice
    return found


def _restored(cls: type[Any], parameters: Any, fitted: Any) -> Any:
    """Build an estimator from its parameters and fitted attributes."""
    if not isinstance(parameters, dict) or set(parameters) != set(cls._get_param_names()):
        raise Refused(f"holds other parameters than those of {cls.__name__}")
    check_types(parameters, field_types(cls.__init__))
    estimator = cls(**parameters)
    if fitted is None:
        return estimator
    hints = COMMON | OWN[cls.targets]
    if isinstance(fitted, dict):
        fitted = fitted | {name: None for name in LATER if name not in fitted}  # in the order of the file
    if not isinstance(fitted, dict) or not set(hints) <= set(fitted):
        raise Refused(f"lacks attributes of a fitted {cls.__name__}")
    check_types(fitted, hints)
    model = _model(fitted["model_"])
    check_fitted(estimator, fitted, model)
    absent = {name for name in OPTIONAL if fitted[name] is None}
    vars(estimator).update({name: value for name, value in fitted.items() if name not in absent})
    estimator.model_ = model
    if estimator.sampling_trace_ is None:
        estimator.sampling_trace_ = estimator.trace_
    estimator.warnings_ = fitted["warnings_"] or []  # None in files of earlier versions
    estimator._keep_table(fitted["_inputs"], fitted["_targets"])
    estimator._keep_best()
    return estimator


def _model(parts: dict[str, Any]) -> Model:
    """Build the model as `fit` does, and give it the posteriors of appended rows."""
    if set(parts) != set(MODEL):
        raise Refused("lacks parts of the model")
    check_types(parts, MODEL)
    names = ("kernel", "likelihood", "evidence", "input_names", "inducing")
    model = Model(parts["X"], parts["y"], **{name: parts[name] for name in names})
    draws, posteriors = parts["draws"], parts["posteriors"]
    if draws is None:
        return model
    if posteriors is None or draws.ndim != 2 or len(posteriors) != len(draws):
        raise Refused("holds another number of posteriors than of draws that they belong to")
    growing = GrowingModel(model, draws)
    growing._kept = {u.tobytes(): kept for u, kept in zip(draws, posteriors, strict=True) if kept is not None}
    return growing
