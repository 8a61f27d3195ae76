"""Pareto-smoothed importance weights (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25).

The largest M = min(S/5, 3√(S/r_eff)) of S weights are replaced by expected order statistics of a generalised Pareto
distribution fitted to what they exceed the others by, at most the largest weight.  Its shape k says which moments the
weights have.  The fit is Zhang & Stephens' (2009) quasi-Bayesian one: with b = -k/σ and profile likelihood L(b),

    k(b) = mean log(1 - b x),   L(b) = (-b/k e^(-k-1))^M,   b̂ = Σ b L(b)/Σ L(b),   σ = -k(b̂)/b̂

over a grid of b; then k is drawn towards ½ as by ten observations.  arviz computes the same numbers, which tests hold
to rounding; importing it takes longer than a small fit.
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.runtime.typing import Array

_LEAST = math.log(np.finfo(float).tiny)  # of a log weight relative to the largest, in a tail
_MIN_TAIL = 5  # values to which a distribution is fitted


def smooth(log_ratios: Array, r_eff: float) -> tuple[Array, Array]:
    """Logarithms of Pareto-smoothed importance weights, normalised, and shapes k of the tails.

    The importance ratios of S draws for each of n targets come as logarithms of shape (n, S); r_eff is the number of
    effective draws per draw.  Where a tail holds too few different draws, k is infinite, and the weights are left as
    they are; it is 0 where all ratios of a target are equal.
    """
    x = np.array(log_ratios, dtype=float)
    n_draws = x.shape[1]
    x -= x.max(axis=1, keepdims=True)
    tail = math.ceil(min(n_draws / 5.0, 3.0 * math.sqrt(n_draws / r_eff)))
    k = np.where(np.ptp(x, axis=1) > 0.0, np.inf, 0.0)
    for i in np.flatnonzero(k):
        k[i] = _smooth_inplace(x[i], tail)
    return x - np.logaddexp.reduce(x, axis=1, keepdims=True), k


def _smooth_inplace(x: Array, tail: int) -> float:
    """Replace the largest of some log weights, of which the largest is 0; returns k."""
    order = np.argsort(x, kind="stable")
    cutoff = max(float(x[order[-min(tail, len(x) - 1) - 1]]), _LEAST)
    largest = order[x[order] > cutoff]
    if len(largest) < _MIN_TAIL:
        return math.inf
    foot = math.exp(cutoff)
    k, scale = _fit(np.exp(x[largest]) - foot)
    if math.isfinite(k) and scale > 0.0:
        middles = np.arange(0.5, len(largest)) / len(largest)
        excess = -np.log1p(-middles) if k == 0.0 else np.expm1(-k * np.log1p(-middles)) / k
        x[largest] = np.minimum(np.log(scale * excess + foot), 0.0)
    return k


def _fit(excess: Array) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto distribution, from sorted positive values."""
    n = len(excess)
    size = 30 + int(math.sqrt(n))
    b = 1.0 / excess[-1] + (1.0 - np.sqrt(size / (np.arange(1, size + 1) - 0.5))) / (3.0 * excess[int(n / 4 + 0.5) - 1])
    k = np.log1p(-b[:, None] * excess).mean(axis=1)
    log_likelihood = n * (np.log(-b / k) - k - 1.0)
    weight = np.exp(log_likelihood - log_likelihood.max())
    weight /= weight.sum()
    weight[weight < 10.0 * np.finfo(float).eps] = 0.0
    mean_b = float(np.sum(b * weight) / weight.sum())
    shape = float(np.log1p(-mean_b * excess).mean())
    return (n * shape + 5.0) / (n + 10.0), -shape / mean_b
