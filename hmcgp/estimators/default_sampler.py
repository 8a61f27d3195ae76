"""The sampler of a fit that names none: the surrogate where it pays, HMC elsewhere.

A rule in numbers that a fit knows beforehand, so that the same fit always takes the same sampler.  The surrogate makes
about 500 evaluations before its first draw and half a second of work of its own, and then about as many evaluations per
effective draw as there are effective draws: it pays for evaluations that take longer than that work, and for long runs.
Beyond a dozen hyperparameters a Gaussian process of some hundred points no longer follows the posterior.
(`scripts.benchmarks.surrogate` has the measurements.)
"""

from __future__ import annotations

from typing import Any

from hmcgp.evidence import Iterative
from hmcgp.model import Model

LEAST_ROWS = 150
MOST_PARAMETERS = 12
LEAST_DRAWS = 2000  # of all chains, warm-up included


def default_sampler(gp: Any, model: Model) -> str:
    """Name of the sampler for an estimator and its model."""
    long = gp.chains * (gp.tune + gp.draws) >= LEAST_DRAWS and gp.tune > 0
    apt = len(model.y) >= LEAST_ROWS and 0 < model.n_dim <= MOST_PARAMETERS
    noisy = isinstance(model.evidence, Iterative)  # estimates by random probes
    return "surrogate" if long and apt and not noisy and gp.checkpoint is None else "hmc"
