"""Chains that sit at different levels of log density: the mark of a posterior with several modes.

Within one mode the log density of draws fluctuates with a standard deviation s of about sqrt(d/2); the means of chains
that explore the same mode differ by a fraction of that.  Where two neighbouring means are further apart than s,
the chains above and below are taken to sit in different modes.  (Modes of equal height are not told apart.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hmcgp._typing import Array

if TYPE_CHECKING:
    from hmcgp.samplers.trace import Trace


class Level(NamedTuple):
    """Chains that agree on the log density."""

    chains: list[int]
    logdensity: float  # mean over their draws


def levels(lp: Array) -> list[Level]:
    """Group chains by their mean log density, highest first.

    Parameters
    ----------
    lp : ndarray of shape (chains, draws)
        Log density of every draw.

    Returns
    -------
    list of Level
        A single one when the chains agree.
    """
    means = lp.mean(axis=1)
    order = np.argsort(-means, kind="stable")
    spread = np.sqrt(np.mean(lp.var(axis=1)))  # s, pooled within chains
    cuts = np.flatnonzero(-np.diff(means[order]) > spread) + 1
    return [Level(sorted(group.tolist()), float(means[group].mean())) for group in np.split(order, cuts)]


def describe_modes(trace: Trace, column: int) -> str | None:
    """Say where the chains sit, and what to do about it; None when they are at one level.

    Parameters
    ----------
    trace : Trace
        A run whose chains disagree.
    column : int
        The hyperparameter on which they disagree most; its medians go with the levels.

    Returns
    -------
    str or None
    """
    found, name = levels(np.asarray(trace.stats["lp"], dtype=np.float64)), trace.names[column]
    if len(found) == 1:
        return None
    places = "; ".join(
        f"chains {level.chains} at mean log density {level.logdensity:.1f}, with median "
        f"{np.median(trace.draws[level.chains, :, column]):.3g} of '{name}'"
        for level in found
    )
    return (
        f"They sit in {len(found)} places: {places}. Unless the warm-up was too short to leave one of them, these are "
        "modes, and how many chains are in each says little about its probability: the draws together are no "
        f"posterior. Raise tune= (now {trace.warmup_unconstrained.shape[1]}) and chains= to see whether the places "
        f"stay, and rule out by the prior of '{name}' those that you do not believe in."
    )
