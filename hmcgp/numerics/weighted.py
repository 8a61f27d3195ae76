"""Weights from ratios of densities, how many values they leave, and quantiles of weighted values.

The largest weights are smoothed by a Pareto distribution (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25).  Its
shape k says whether averages settle at all as draws are added, the effective number (Σw)²/Σw² how many draws are left:
weights need both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmcgp.numerics import pareto
from hmcgp.runtime.typing import Array

K_LIMIT = 0.7  # Pareto k up to which averages are reliable


def effective_number(weight: Array) -> float:
    """Return (Σw)²/Σw², the number of values of equal weight that tell as much."""
    return float(weight.sum() ** 2 / np.sum(weight * weight))


class Weights(NamedTuple):
    """Normalised weights of draws, and whether to trust them."""

    log_weight: Array  # (S,), of which the exponentials sum to 1
    pareto_k: float  # shape of the tail; averages are reliable up to K_LIMIT
    effective: float  # (Σw)²/Σw²


def pareto_smoothed(log_ratios: Array, r_eff: float = 1.0) -> Weights:
    """Weights from the logarithms of the ratios of densities, the largest smoothed.

    Parameters
    ----------
    log_ratios : ndarray of shape (S,)
        Up to a constant; -inf for a draw that the wanted density excludes.
    r_eff : float, default=1.0
        Effective draws per draw: decides how many weights count as the tail.
    """
    possible = np.isfinite(log_ratios)
    log_weight = np.full(len(log_ratios), -np.inf)
    smoothed, k = pareto.smooth(log_ratios[None, possible], r_eff)
    log_weight[possible] = smoothed[0]
    return Weights(log_weight, float(k[0]), effective_number(np.exp(log_weight)))


def weighted_quantile(x: Array, q: ArrayLike, weight: Array | None = None) -> Any:
    """Quantiles along the first axis of x; with equal weights those of `numpy.quantile`.

    The sorted value x_k stands at (c_k - c_1)/(c_S - c_1), with c_k the sum of the weights below it and half its own,
    and quantiles lie on the straight lines between.  Values of weight 0 do not count.

    Parameters
    ----------
    x : ndarray of shape (S, ...)
    q : float or array-like of shape (k,)
        Probabilities, from 0 to 1.
    weight : ndarray of shape (S,), optional
        Numbers >= 0, not all 0.  None: equal.

    Returns
    -------
    ndarray of shape (...) or (k, ...)
    """
    q = np.asarray(q, dtype=float)
    if weight is None or np.ptp(weight) == 0.0:
        return np.quantile(x, np.asarray(q, dtype=float), axis=0)
    there = weight > 0.0
    x, weight = np.asarray(x)[there], weight[there]
    columns = x.reshape(len(x), -1)
    order = np.argsort(columns, axis=0, kind="stable")
    w = weight[order]  # (S, columns)
    place = np.cumsum(w, axis=0) - 0.5 * w
    place = (place - place[0]) / np.maximum(place[-1] - place[0], np.finfo(float).tiny)
    values = np.take_along_axis(columns, order, axis=0)
    found = np.array([np.interp(q.ravel(), p, v) for p, v in zip(place.T, values.T, strict=True)])  # (columns, k)
    return found.T.reshape(q.shape + x.shape[1:])


def resampled(weight: Array) -> NDArray[np.intp]:
    """Systematic resampling: S positions, each draw as often as its weight says, up to rounding."""
    S = len(weight)
    return np.minimum(np.searchsorted(np.cumsum(weight / weight.sum()), (np.arange(S) + 0.5) / S), S - 1)
