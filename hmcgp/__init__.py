"""Gaussian-process classification and regression with hyperparameters integrated by Hybrid Monte Carlo.

from hmcgp import GPClassifier
gp = GPClassifier().fit(X, y)
gp.predict_proba(X_new); gp.summary(); gp.to_arviz()

A public name is imported when it is first used (PEP 562): `import hmcgp` and `hmcgp --help` load no other library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; the same names as in __all__
    from hmcgp import datasets, diagnostics, errors, evidence, kernels, likelihoods, plots, priors, samplers
    from hmcgp.estimators import GPClassifier, GPCounts, GPOrdinal, GPRegressor
    from hmcgp.estimators.comparison import EvidenceComparison, compare_evidence
    from hmcgp.estimators.model_comparison import ModelComparison, compare
    from hmcgp.joint import JointSample, sample_jointly
    from hmcgp.model import Model, RowBlocks, SpreadModel
    from hmcgp.optimize import find_map, find_modes
    from hmcgp.posterior import evidence_bounds, label_noise, leave_one_out, marginal_evidence, predict
    from hmcgp.samplers import sample

    __version__: str

__all__ = [
    "EvidenceComparison",
    "GPClassifier",
    "GPCounts",
    "GPOrdinal",
    "GPRegressor",
    "JointSample",
    "Model",
    "ModelComparison",
    "RowBlocks",
    "SpreadModel",
    "compare",
    "compare_evidence",
    "datasets",
    "diagnostics",
    "errors",
    "evidence",
    "evidence_bounds",
    "find_map",
    "find_modes",
    "kernels",
    "label_noise",
    "leave_one_out",
    "likelihoods",
    "marginal_evidence",
    "plots",
    "predict",
    "priors",
    "sample",
    "sample_jointly",
    "samplers",
]

# modules that are attributes of the package: public ones, and rooms that are attributes since 0.1
_PUBLIC = ["datasets", "diagnostics", "errors", "evidence", "kernels", "likelihoods", "plots", "priors", "samplers"]
_ROOMS = ["estimators", "joint", "model", "numerics", "optimize", "parameters", "posterior", "reporting", "runtime"]
_OF_POSTERIOR = ["evidence_bounds", "label_noise", "leave_one_out", "marginal_evidence", "predict"]
_MODULES = {name: f"hmcgp.{name}" for name in (*_PUBLIC, *_ROOMS)}
_MODULES |= {name: f"hmcgp.posterior.{name}" for name in _OF_POSTERIOR}
# classes and functions, and the module that each is imported from
_OBJECTS = {
    "EvidenceComparison": "hmcgp.estimators.comparison",
    "GPClassifier": "hmcgp.estimators",
    "GPCounts": "hmcgp.estimators",
    "GPOrdinal": "hmcgp.estimators",
    "GPRegressor": "hmcgp.estimators",
    "JointSample": "hmcgp.joint",
    "Model": "hmcgp.model",
    "ModelComparison": "hmcgp.estimators.model_comparison",
    "RowBlocks": "hmcgp.model",
    "SpreadModel": "hmcgp.model",
    "compare": "hmcgp.estimators.model_comparison",
    "compare_evidence": "hmcgp.estimators.comparison",
    "find_map": "hmcgp.optimize",
    "find_modes": "hmcgp.optimize",
    "sample": "hmcgp.samplers",
    "sample_jointly": "hmcgp.joint",
}

if not TYPE_CHECKING:  # type checkers would accept any attribute

    def __getattr__(name):
        """Import a public name on first use, and remember it."""
        from importlib import import_module

        if name in _OBJECTS:
            value = getattr(import_module(_OBJECTS[name]), name)
        elif name in _MODULES:
            value = import_module(_MODULES[name])
        elif name == "__version__":
            value = import_module("hmcgp.runtime.files").library_version("hmcgp")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
