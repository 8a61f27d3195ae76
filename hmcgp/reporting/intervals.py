"""Medians and central intervals of draws, with their weights if they carry any."""

from __future__ import annotations

import numpy as np

from hmcgp.numerics.weighted import resampled, weighted_quantile
from hmcgp.runtime.typing import Array

__all__ = ["central_interval", "median", "resampled"]


def median(draws: Array, weight: Array | None = None) -> Array:
    """Median of each column of draws of shape (S, m), of weights (S,)."""
    return np.asarray(weighted_quantile(draws, 0.5, weight))


def central_interval(draws: Array, prob: float, weight: Array | None = None) -> tuple[Array, Array]:
    """Lower and upper end of the central interval of this probability, of each column of draws (see `median`)."""
    low, high = weighted_quantile(draws, [0.5 - prob / 2.0, 0.5 + prob / 2.0], weight)
    return low, high
