"""The sampler of a fit that names none: the surrogate where it pays, HMC elsewhere.

A rule in numbers that a fit knows beforehand, so that the same fit always takes the same sampler.  On tables of 100 to
200 rows a fit by the surrogate makes 2,700 to 2,800 evaluations, 550 to 580 of them with gradient, and one by HMC
13,000 to 16,000 (`scripts.benchmarks.figures`); the surrogate takes about a second for itself.  So it pays where the
evaluations that it saves take longer than that, and for long runs.  With nine or ten hyperparameters under the wide
priors of other kernels half of the fits of 150 and 300 rows were abandoned in the end, or left fewer effective draws
than HMC.  With the default kernel that was 7 of 8 with eleven hyperparameters, and 1 of 16 with nine or ten.  With many
rows, where it is minutes against an hour, the surrogate is tried with up to twelve.  Failures were counted for two
classes under Laplace's approximation, dense and through inducing inputs (`scripts.benchmarks.surrogate --silent`), and
it is the default only there.
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
