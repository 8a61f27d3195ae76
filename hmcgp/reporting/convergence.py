"""Convergence statistics of runs and of weighted draws, beyond those of `hmcgp.numerics.chain_statistics`.

Draws of one hyperparameter are an array of shape (chains, draws).
"""

from __future__ import annotations

import numpy as np

from hmcgp.numerics import chain_statistics
from hmcgp.numerics.chain_statistics import MIN_DRAWS, TAIL, ess_bulk, ess_mean, ess_tail
from hmcgp.numerics.weighted import weighted_quantile
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace


def ess(x: Array) -> tuple[float, float]:
    """Effective sample sizes of the bulk and of the tails."""
    return ess_bulk(x), ess_tail(x)


def weighted_ess(x: Array, weight: Array) -> tuple[float, float]:
    """Effective sample sizes of the mean, and of the 5 % and 95 % quantiles, of draws with weights w.

    The mean is that of w(x - μ) up to a factor, so that ESS = ESS[w(x - μ)] Var_w(x)/E[w²(x - μ)²] with E[w] = 1: the
    autocorrelation of the chains and the spread of the weights both count.  Of a quantile, x is whether it is exceeded.
    """
    weight = weight / weight.mean()

    def effective(values: Array) -> float:
        deviation = values - np.mean(weight * values)
        spread, noise = np.mean(weight * deviation**2), np.mean((weight * deviation) ** 2)
        return float(ess_mean(weight * deviation) * spread / noise) if noise > 0.0 else np.nan

    tails = weighted_quantile(x.ravel(), TAIL, weight.ravel())
    return effective(x), min(effective((x <= q).astype(float)) for q in tails)


def bfmi(trace: Trace) -> Array:
    """Bayesian fraction of missing information of each chain, of shape (chains,).

    NaN where it is not defined: fewer than four draws, a sampler without momentum, or one that leaves draws out.
    """
    energy = np.asarray(trace.stats["energy"], dtype=np.float64)  # (chains, draws)
    if trace.sampler in ("metropolis", "surrogate") or energy.shape[1] < MIN_DRAWS:
        return np.full(energy.shape[0], np.nan)
    return chain_statistics.bfmi(energy)
