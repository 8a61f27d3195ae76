"""The sampler of a fit that names none: the surrogate where it pays, HMC elsewhere.

A rule in numbers that a fit knows beforehand, so that the same fit always takes the same sampler.  The surrogate makes
some 600 evaluations with gradient before its first draw, and takes about a second for itself: it pays for evaluations
that take longer than that, and for long runs.  With nine or ten hyperparameters under the wide priors of other kernels
half of the fits of 150 and 300 rows were given up in the end, or left fewer effective draws than HMC.  With the default
kernel that was 7 of 8 with eleven hyperparameters, and 1 of 16 with nine or ten.  An attempt that fails costs 2,000 to
5,000 evaluations and HMC 10,000 to 30,000: with many rows, where that is minutes against an hour, it is made with up to
twelve.  Failures were counted for two classes under Laplace's approximation, dense and through inducing inputs
(`scripts.benchmarks.surrogate --silent`), and only there it is chosen.
"""

from __future__ import annotations

from typing import Any

from hmcgp.evidence import Laplace
from hmcgp.likelihoods import Logistic, Probit
from hmcgp.model import Model

LEAST_ROWS = 150
MOST_PARAMETERS = {"default": 10, "other": 8}  # of kernels
MANY_ROWS, MOST_OF_MANY = 1000, 12  # from so many rows on
LEAST_DRAWS = 2000  # of all chains, warm-up included


def default_sampler(gp: Any, model: Model) -> str:
    """Name of the sampler for an estimator and its model."""
    long = gp.tune > 0 and gp.chains * (gp.tune + gp.draws) >= LEAST_DRAWS
    rows = len(model.y)
    most = MOST_OF_MANY if rows >= MANY_ROWS else MOST_PARAMETERS["default" if gp.kernel is None else "other"]
    apt = rows >= LEAST_ROWS and 0 < model.n_dim <= most
    measured = isinstance(model.likelihood, Logistic | Probit) and isinstance(model.evidence, Laplace)
    return "surrogate" if long and apt and measured and gp.checkpoint is None else "hmc"
