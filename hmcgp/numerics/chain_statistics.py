"""Convergence statistics of chains: effective sample sizes, R-hat, Monte Carlo standard errors, BFMI.

Draws of one quantity are an array x of shape (chains, draws).  All statistics are NaN for fewer than four draws, and
for draws that are not finite.  Chains are split in two, so that a trend counts as disagreement.  With W the mean
variance within the M chains of N draws, B/N the variance of their means and V = (N - 1)/N W + B/N,

    R-hat = √(V/W),    ρ_t = 1 - (W - mean autocovariance at lag t)/V,    ESS = MN/(1 + 2 Σ_{t≥1} ρ_t),

the sum ended by Geyer's initial monotone sequence.  Bulk statistics are of normal scores of the ranks, tail statistics
of whether a quantile is exceeded, or of the distance from the median.  arviz computes the same numbers, which tests
hold to rounding; importing it takes longer than a small fit.

References
----------
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), Rank-normalization, folding, and localization: an improved R-hat.
Geyer (1992), Practical Markov chain Monte Carlo.  Betancourt (2016), Diagnosing suboptimal cotangent disintegrations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from hmcgp.runtime.typing import Array

TAIL = (0.05, 0.95)  # quantiles of the tail ESS
MIN_DRAWS = 4  # each chain is split in two, and a variance needed of each half
_RESOLUTION = 1e-15  # a range below which draws are constant


def _where_defined(statistic: Callable[[Array], float]) -> Callable[[Array], float]:
    """Let a statistic be NaN where it is not defined; a chain that never moved may divide 0 by 0."""

    @wraps(statistic)
    def defined(x: Array) -> float:
        if x.shape[1] < MIN_DRAWS or not np.isfinite(x).all():
            return math.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            return statistic(x)

    return defined


@_where_defined
def rhat(x: Array) -> float:
    """Larger R-hat of the bulk and of the tails, by ranks; NaN for a single chain."""
    if x.shape[0] == 1:
        return math.nan
    halves = _split(x)
    return max(_rhat(_normal_scores(halves)), _rhat(_normal_scores(np.abs(halves - np.median(halves)))))


@_where_defined
def ess_bulk(x: Array) -> float:
    """Effective sample size of the bulk."""
    return _ess(_normal_scores(_split(x)))


@_where_defined
def ess_mean(x: Array) -> float:
    """Effective sample size for the mean."""
    return _ess(_split(x))


@_where_defined
def ess_tail(x: Array) -> float:
    """Smaller effective sample size of the 5 % and 95 % quantiles."""
    return min(ess_mean((x <= q).astype(float)) for q in np.quantile(x, TAIL))


@_where_defined
def mcse_mean(x: Array) -> float:
    """Monte Carlo standard error of the mean."""
    return float(np.std(x, ddof=1) / math.sqrt(ess_mean(x)))


def bfmi(energy: Array) -> Array:
    """Bayesian fraction of missing information of each chain, of shape (chains,); of four draws at least."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.square(np.diff(energy, axis=1)).mean(axis=1) / np.var(energy, axis=1, ddof=1))


def _split(x: Array) -> Array:
    """Halves of the chains, of shape (2 chains, draws // 2)."""
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _normal_scores(x: Array) -> Array:
    """Normal quantiles of the ranks of all draws, equal draws having their mean rank (Blom 1958)."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - 0.5 * (count - 1)
    return np.asarray(ndtri((rank - 0.375) / (x.size + 0.25))[place.reshape(x.shape)])


def _rhat(x: Array) -> float:
    n = x.shape[1]
    between, within = n * np.var(x.mean(axis=1), ddof=1), np.mean(np.var(x, axis=1, ddof=1))
    return float(np.sqrt((between / within + n - 1) / n))


def _autocovariance(x: Array) -> Array:
    """Mean over the chains of the autocovariance at every lag, of shape (draws,)."""
    n = x.shape[1]
    size = next_fast_len(2 * n, real=True)
    spectrum = rfft(x - x.mean(axis=1, keepdims=True), size, axis=1)
    return np.asarray(irfft(np.abs(spectrum) ** 2, size, axis=1)[:, :n].mean(axis=0) / n)


def _ess(x: Array) -> float:
    """Effective sample size of chains as they are, at most MN log10(MN); MN where all draws are equal."""
    if np.ptp(x) < _RESOLUTION:
        return float(x.size)
    chains, n = x.shape
    covariance = _autocovariance(x)
    within = covariance[0] * n / (n - 1.0)
    total = covariance[0] + (np.var(x.mean(axis=1), ddof=1) if chains > 1 else 0.0)
    rho = 1.0 - (within - covariance) / total
    rho[0] = 1.0
    if np.isnan(rho[1]):
        return math.nan
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)  # ρ_2k + ρ_2k+1, positive and falling in a reversible chain
    last = _last_pair(pairs, n)
    # the sum of the pairs before the first that is negative, made monotone, and of that one its first half
    tau = -1.0 + 2.0 * np.minimum.accumulate(pairs[:last]).sum() + max(float(rho[2 * last]), 0.0)
    return x.size / max(tau, 1.0 / math.log10(x.size))


def _last_pair(pairs: Array, n: int) -> int:
    """Pairs before the one at which Geyer's initial positive sequence ends."""
    last = 0
    while 2 * last + 1 < n - 3 and pairs[last] > 0.0:
        last += 1
    return last
