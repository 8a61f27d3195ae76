"""Probability where a surrogate has too few draws to notice it.

Weights tell how wrong a surrogate is where it has draws.  Beyond its points it is a Gaussian: where the density falls
off more slowly in some direction, as that of a length scale does whose input may or may not matter, there are no draws,
and all weights look fine.  So the outermost draws in each direction, A = {u_j > q} and {u_j < q}, are moved further out
by a vector v, and the log density is evaluated there.  The probability beyond q + v_j is

    P(u_j > q + v_j) = E[1_A p(u + v)/p(u)],

of which the part counts that is missing: where a draw would have a weight above LARGE, so that hardly any is made.
Three vectors take turns: σ_j and 2σ_j along the axis, where the density is flat in u_j alone, and 1.5 Σe_j/σ_j, by
which the mean of all coordinates changes with u_j in a Gaussian.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.weighted import weighted_quantile
from hmcgp.runtime.typing import Array

OUTERMOST = 0.25  # probability of A
AXIS_STEPS, JOINT_STEP = (1.0, 2.0), 1.5  # standard deviations
PROBES = 12  # draws of A that are moved, at most
LARGE = 10.0  # weight, in units of the mean weight of the draws
TOLERATED = 0.005  # probability that may be missing in one direction
_LARGEST_GAIN = 50.0  # of the log density: beyond, all is missing


class Group(NamedTuple):
    """Draws that are moved in one direction."""

    draws: NDArray[np.intp]  # (m,)
    moved: Array  # (m, d)
    probability: float  # of all draws of A


def groups(u: Array, weight: Array) -> list[Group]:
    """Return the outermost draws in each direction, moved out.

    Parameters
    ----------
    u : ndarray of shape (S, d)
        Draws.
    weight : ndarray of shape (S,)
        Their weights, of sum 1; draws of weight 0 are not moved.
    """
    centred = u - weight @ u
    covariance = centred.T @ (weight[:, None] * centred)
    found = []
    for j, sd in enumerate(np.sqrt(np.diagonal(covariance))):
        axis = sd * np.eye(u.shape[1])[j]
        steps = np.array([*(s * axis for s in AXIS_STEPS), JOINT_STEP * covariance[j] / sd])
        for sign in (-1.0, 1.0):
            x = sign * u[:, j]
            outer = np.flatnonzero((x >= weighted_quantile(x, 1.0 - OUTERMOST, weight)) & (weight > 0.0))
            outer = outer[np.argsort(x[outer], kind="stable")]
            some = outer[np.linspace(0, len(outer) - 1, min(PROBES, len(outer))).round().astype(int)]
            moved = u[some] + sign * steps[np.arange(len(some)) % len(steps)]
            found.append(Group(some, moved, float(weight[outer].sum())))
    return found


def missing_probability(group: Group, weight: Array, log_gain: Array, log_weight: Array) -> float:
    """Return the probability where moved draws are, as far as they would have large weights.

    Parameters
    ----------
    group : Group
    weight : ndarray of shape (S,)
        Weights of all draws.
    log_gain : ndarray of shape (m,)
        Log density at the moved draws, minus that at the draws; -inf where it failed.
    log_weight : ndarray of shape (m,)
        Logarithms of the weights that the moved draws would have, in units of the mean weight of the draws.
    """
    own = weight[group.draws]
    gain = np.where(is_missing(log_weight), np.exp(np.minimum(log_gain, _LARGEST_GAIN)), 0.0)
    return group.probability * float(own @ gain / own.sum())


def is_missing(log_weight: Array) -> NDArray[np.bool_]:
    """Whether moved draws would have large weights."""
    return np.asarray(log_weight > np.log(LARGE))
