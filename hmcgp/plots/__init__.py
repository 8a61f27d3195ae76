"""Pictures of a fitted Gaussian process, in plain matplotlib.

Every function takes a fitted estimator first, draws into `ax` (or `axes`) when given and into a new
figure otherwise, and returns what it drew into.  None shows or saves anything, and none changes the
global settings of matplotlib.
"""

from __future__ import annotations

from hmcgp.plots._audit import audit
from hmcgp.plots._calibration import calibration
from hmcgp.plots._compare import compare_evidence
from hmcgp.plots._compare_models import compare
from hmcgp.plots._confusion import confusion
from hmcgp.plots._effect import effect, effects
from hmcgp.plots._loo import loo
from hmcgp.plots._pairs import evidence_surface, pairs
from hmcgp.plots._posterior_predictive import posterior_predictive
from hmcgp.plots._predictive import predictive, predictive_1d, predictive_2d
from hmcgp.plots._prior import prior, prior_posterior
from hmcgp.plots._ranking import precision_recall, roc
from hmcgp.plots._regression import regression_1d, regression_2d
from hmcgp.plots._relevance import relevance
from hmcgp.plots._residuals import residuals
from hmcgp.plots._trace import trace

__all__ = [
    "audit",
    "calibration",
    "compare",
    "compare_evidence",
    "confusion",
    "effect",
    "effects",
    "evidence_surface",
    "loo",
    "pairs",
    "posterior_predictive",
    "precision_recall",
    "predictive",
    "predictive_1d",
    "predictive_2d",
    "prior",
    "prior_posterior",
    "regression_1d",
    "regression_2d",
    "relevance",
    "residuals",
    "roc",
    "trace",
]
