"""Gaussian-process classification and regression with hyperparameters integrated by Hybrid Monte Carlo.

from hmcgp import GPClassifier
gp = GPClassifier().fit(X, y)
gp.predict_proba(X_new); gp.summary(); gp.to_arviz()
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from hmcgp import datasets, errors, evidence, kernels, likelihoods, plots, priors, samplers
from hmcgp.estimators import GPClassifier, GPCounts, GPOrdinal, GPRegressor
from hmcgp.estimators.comparison import EvidenceComparison, compare_evidence
from hmcgp.estimators.model_comparison import ModelComparison, compare
from hmcgp.joint import JointSample, sample_jointly
from hmcgp.model import Model, RowBlocks, SpreadModel
from hmcgp.optimize import find_map, find_modes
from hmcgp.posterior import evidence_bounds, label_noise, leave_one_out, marginal_evidence, predict
from hmcgp.reporting import diagnostics
from hmcgp.samplers import sample

try:
    __version__ = version("hmcgp")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "unknown"

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
