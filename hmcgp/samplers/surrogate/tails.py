"""Probability that lies beyond the outermost draws.

Weights tell how wrong a surrogate is where it has draws.  Where the density has heavy tails, a surrogate, whose tails
are those of a Gaussian, has none, and all weights may look fine.  So the outermost draws A = {|z| > R} are moved out by
a factor λ, and the log density is evaluated there.  The probability beyond λR follows in two ways,

    P(|z| > λR) = λ^d E[1_A p(λz)/p(z)],     and by the weights of the draws that lie there:

where the first is clearly larger, draws are missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hmcgp.runtime.typing import Array

OUTERMOST = 1.0 / 16.0  # share of the draws
PROBES = 48  # of them that are moved, at most
FACTOR = 1.5  # λ
TOLERATED = 0.01  # probability that may be missing


def outermost(z: Array) -> NDArray[np.intp]:
    """Return which of the whitened draws, of shape (S, d), lie farthest out, the nearest of them first."""
    order = np.argsort(np.sum(z * z, axis=1), kind="stable")
    return order[len(z) - max(int(OUTERMOST * len(z)), 1) :]


def probes(outer: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of the outermost draws that are moved, evenly spaced."""
    return outer[np.linspace(0, len(outer) - 1, min(PROBES, len(outer))).round().astype(int)]


def missing_probability(z: Array, weight: Array, log_gain: Array) -> float:
    """Return the probability that lies beyond the draws and is not among them, two standard errors below its estimate.

    Parameters
    ----------
    z : ndarray of shape (S, d)
        Whitened draws.
    weight : ndarray of shape (S,)
        Their weights, of sum 1.
    log_gain : ndarray of shape (m,)
        Log density at the probes, moved out, minus that at the probes; -inf where it failed.
    """
    outer = outermost(z)
    moved = probes(outer)
    terms = weight[moved] * np.exp(log_gain + z.shape[1] * np.log(FACTOR)) * len(outer)  # each estimates P(|z| > λR)
    radius = FACTOR * np.sqrt(np.sum(z[outer[0]] ** 2))
    found = float(weight[np.sqrt(np.sum(z * z, axis=1)) > radius].sum())
    error = float(np.std(terms)) / np.sqrt(len(terms))
    return float(np.mean(terms)) - found - 2.0 * error
