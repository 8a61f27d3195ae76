"""The estimators: scikit-learn's contract, with hyperparameters integrated out."""

from __future__ import annotations

from hmcgp.estimators.classifier import GPClassifier
from hmcgp.estimators.counts import GPCounts
from hmcgp.estimators.ordinal import GPOrdinal
from hmcgp.estimators.regressor import GPRegressor

__all__ = ["GPClassifier", "GPCounts", "GPOrdinal", "GPRegressor"]
