"""Convergence statistics of the draws: arviz's, and NaN where they are not defined.

Draws of one hyperparameter are an array of shape (chains, draws).

References
----------
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Rank-normalization, folding, and localization:
an improved R-hat.  Betancourt (2016), Diagnosing suboptimal cotangent disintegrations (BFMI).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hmcgp.numerics.weighted import weighted_quantile
from hmcgp.runtime import arviz_compat
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

MIN_DRAWS = 4  # arviz splits each chain in two and needs a variance in each half


def rhat(x: Array) -> float:
    """Rank-normalised split R-hat; NaN for a single chain."""
    return _defined(arviz_compat.rhat, x) if x.shape[0] > 1 else np.nan


def ess(x: Array) -> tuple[float, float]:
    """Effective sample sizes of the bulk and of the tails."""
    return _defined(arviz_compat.ess_bulk, x), _defined(arviz_compat.ess_tail, x)


def weighted_ess(x: Array, weight: Array) -> tuple[float, float]:
    """Effective sample sizes of the mean, and of the 5 % and 95 % quantiles, of draws with weights w.

    The mean is that of w(x - μ) up to a factor, so that ESS = ESS[w(x - μ)] Var_w(x)/E[w²(x - μ)²] with E[w] = 1: the
    autocorrelation of the chains and the spread of the weights both count.  Of a quantile, x is whether it is exceeded.
    """
    weight = weight / weight.mean()

    def effective(values: Array) -> float:
        deviation = values - np.mean(weight * values)
        spread, noise = np.mean(weight * deviation**2), np.mean((weight * deviation) ** 2)
        return float(_defined(arviz_compat.ess_mean, weight * deviation) * spread / noise) if noise > 0.0 else np.nan

    tails = weighted_quantile(x.ravel(), arviz_compat.TAIL, weight.ravel())
    return effective(x), min(effective((x <= q).astype(float)) for q in tails)


def mcse_mean(x: Array) -> float:
    """Monte Carlo standard error of the mean."""
    return _defined(arviz_compat.mcse_mean, x)


def bfmi(trace: Trace) -> Array:
    """Bayesian fraction of missing information of each chain, of shape (chains,).

    NaN where it is not defined: fewer than four draws, or a sampler without momentum.
    """
    energy = np.asarray(trace.stats["energy"], dtype=np.float64)  # (chains, draws)
    if trace.sampler == "metropolis" or energy.shape[1] < MIN_DRAWS:
        return np.full(energy.shape[0], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # a chain that never moved gives 0/0
        return arviz_compat.bfmi(energy)


def _defined(statistic: Callable[[Array], float], x: Array) -> float:
    """Evaluate a statistic, or NaN where arviz would refuse or divide 0 by 0."""
    if x.shape[1] < MIN_DRAWS or not np.isfinite(x).all():
        return np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        return statistic(x)
