"""Gaussian-process classification with hyperparameters integrated by Hybrid Monte Carlo.

from hmcgp import GPClassifier
gp = GPClassifier().fit(X, y)
gp.predict_proba(X_new); gp.summary(); gp.to_arviz()
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from hmcgp import (
    brackets,
    datasets,
    diagnostics,
    errors,
    evidence,
    kernels,
    label_noise,
    likelihoods,
    loo,
    plots,
    predict,
    priors,
    samplers,
)
from hmcgp.compare import EvidenceComparison, compare_evidence
from hmcgp.estimators import GPClassifier, GPRegressor
from hmcgp.model import Model
from hmcgp.modes import find_modes
from hmcgp.optimize import find_map
from hmcgp.samplers import sample

try:
    __version__ = version("hmcgp")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

__all__ = [
    "EvidenceComparison",
    "GPClassifier",
    "GPRegressor",
    "Model",
    "brackets",
    "compare_evidence",
    "datasets",
    "diagnostics",
    "errors",
    "evidence",
    "find_map",
    "find_modes",
    "kernels",
    "label_noise",
    "likelihoods",
    "loo",
    "plots",
    "predict",
    "priors",
    "sample",
    "samplers",
]
