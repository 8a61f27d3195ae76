"""Signs that the posterior has several modes: chains at different levels, or that seldom change between two sides.

*Chains at different levels.*  Within one mode the log density of draws fluctuates with a standard deviation s of about
sqrt(d/2); the means of chains that explore the same mode differ by a fraction of that.  Where two neighbouring means
are further apart than s, and than four standard errors (by batch means, which are wide where a chain still drifts), the
chains above and below are taken to be in different modes.

*Two modes on one axis.*  Modes of equal height, and chains that visit both, show on the axis of a hyperparameter,
split where the variance between the halves is largest (Otsu 1979).  Chains go from one mode to another seldom, and
within each move quickly: there are two time scales.  A slow chain on a single hill has only one, and a fast one changes
sides all the time.  So two modes are reported where

    share of changes < 0.2 * 2 p (1 - p),   a fifth of those of independent draws with a share p on one side,
    mean squared step > 0.6 * variance,     both within the sides: the autocorrelation there is below 0.7, and
    the medians of the sides are at least three standard deviations apart (2.2 for the halves of a Gaussian).

An autoregression x' = a x + e fulfils the first for a > 0.95 only, and the second for a < 0.89 only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

MAX_SWITCH_RATE = 0.2  # changes of side, relative to independent draws
MIN_STEP_RATIO = 0.6  # mean squared step within a side, relative to its variance
MIN_SEPARATION = 3.0  # of the medians of the sides, in standard deviations within
MIN_DRAWS = 100  # on either side: below, one visit to a tail looks like a mode
BATCHES = 5  # of each chain, for the standard error of its mean


class Level(NamedTuple):
    """Chains that agree on the log density."""

    chains: list[int]
    logdensity: float  # mean over their draws


def levels(lp: Array) -> list[Level]:
    """Group chains by the mean of their log densities, of shape (chains, draws), highest first."""
    means = lp.mean(axis=1)
    order = np.argsort(-means, kind="stable")
    spread = np.sqrt(np.mean(lp.var(axis=1)))  # s, pooled within chains
    k = min(BATCHES, lp.shape[1])
    batches = lp[:, lp.shape[1] % k :].reshape(len(lp), k, -1).mean(axis=2)
    error2 = batches.var(axis=1) / max(k - 1, 1)  # (chains,), of the means
    least = np.maximum(spread, 4.0 * np.sqrt(error2[order[1:]] + error2[order[:-1]]))
    cuts = np.flatnonzero(-np.diff(means[order]) > least) + 1
    return [Level(sorted(group.tolist()), float(means[group].mean())) for group in np.split(order, cuts)]


def two_sides(x: Array) -> NDArray[np.bool_] | None:
    """Tell the draws of two modes apart by one unconstrained hyperparameter, of shape (chains, draws).

    Returns whether each draw lies on the upper side; None where there is no sign of two modes.
    """
    values = np.sort(x, axis=None)
    n = len(values)
    if n < 2 * MIN_DRAWS or values[0] == values[-1]:
        return None
    below = np.arange(1, n)
    gap = np.cumsum(values)[:-1] / below - (values.sum() - np.cumsum(values)[:-1]) / (n - below)
    cut = int(np.argmax(below * (n - below) * gap**2))
    side = np.asarray(x > values[cut])
    p = side.mean()
    if n * min(p, 1.0 - p) < MIN_DRAWS:
        return None
    changed = side[:, 1:] != side[:, :-1]
    is_rare = changed.mean() < MAX_SWITCH_RATE * 2.0 * p * (1.0 - p)
    within = p * x[side].var() + (1.0 - p) * x[~side].var()
    is_quick = np.square(np.diff(x, axis=1))[~changed].mean() > MIN_STEP_RATIO * within
    is_apart = np.median(x[side]) - np.median(x[~side]) > MIN_SEPARATION * np.sqrt(within)
    return side if is_rare and is_quick and is_apart else None


def describe_modes(trace: Trace, columns: Sequence[int]) -> str | None:
    """Name the modes that the chains occupy, and the remedy; None where there is no sign of several.

    The chains disagree on the hyperparameters in `columns`, the worst first; medians of one tell the modes apart.
    """
    found = _by_level(trace, columns[0]) or next(filter(None, (_by_side(trace, j) for j in columns)), None)
    if found is None:
        return None
    where, name = found
    remedy = (
        "The list of modes lacks one of them: raise n_restarts of hmcgp.find_modes"
        if trace.sampler == "jumps"
        else "sampler='jumps' finds modes beforehand and visits them in proportion (hmcgp.find_modes lists them)"
    )
    return (
        f"They {where}. Unless the warm-up was too short to leave one of them, how many draws are in each mode says "
        f"little about its probability: the draws together are no posterior. {remedy}. Or raise tune= (now "
        f"{trace.warmup_unconstrained.shape[1]}) and chains= to see whether the modes stay, and rule out by the "
        f"prior of '{name}' those that you do not believe in."
    )


def _by_level(trace: Trace, column: int) -> tuple[str, str] | None:
    found, name = levels(np.asarray(trace.stats["lp"], dtype=np.float64)), trace.names[column]
    if len(found) == 1:
        return None
    modes = "; ".join(
        f"chains {level.chains} at mean log density {level.logdensity:.1f}, with median "
        f"{np.median(trace.draws[level.chains, :, column]):.3g} of '{name}'"
        for level in found
    )
    return f"occupy {len(found)} modes: {modes}", name


def _by_side(trace: Trace, column: int) -> tuple[str, str] | None:
    upper, name = two_sides(trace.unconstrained[:, :, column]), trace.names[column]
    if upper is None:
        return None
    lp, x = np.asarray(trace.stats["lp"], dtype=np.float64), trace.draws[:, :, column]
    modes = "; ".join(
        f"'{name}' about {np.median(x[here]):.3g}, with mean log density {lp[here].mean():.1f} and the shares "
        f"{here.mean(axis=1).round(2).tolist()} of the chains' draws"
        for here in (~upper, upper)
    )
    return f"occupy 2 modes, or seldom change between them: {modes}", name
