"""Draws of the hyperparameters with weights: one way to average over them, wherever the weights come from.

Draws θ_s of a density p_a, which is cheap to follow, stand for another one, p_b, with the weights

    w_s ∝ p_b(θ_s)/p_a(θ_s),

whether p_a is a surrogate of it (`hmcgp.samplers.surrogate`), or p_b has a better evidence (`refinement`) or more rows
(`hmcgp.model.growing`).  `hmcgp.numerics.weighted` smooths the largest, and says whether to trust them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics.weighted import K_LIMIT, Weights, pareto_smoothed, resampled
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.runtime.typing import Array

__all__ = ["K_LIMIT", "Draws", "WeightedDraws", "Weights", "pareto_smoothed", "resampled"]


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """Draws of the hyperparameters with a weight each."""

    theta: Array  # (S, p), natural hyperparameters
    weight: Array  # (S,), of mean 1: draws of equal weight have exactly 1 each
    kept: KeptPredictors | None = None  # what predictions keep of the draws between calls
    progressbar: bool = False  # show one where predictions take more than two seconds

    @staticmethod
    def of(draws: Draws) -> WeightedDraws:
        """Draws with weights; an array of shape (S, p) has equal ones."""
        if isinstance(draws, WeightedDraws):
            return draws
        theta = np.asarray(draws, dtype=float)
        return WeightedDraws(theta, np.ones(len(theta)))

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, some: slice | NDArray[np.intp]) -> WeightedDraws:
        """Some of the draws, of which nothing is kept; their weights are not normalised again."""
        return WeightedDraws(self.theta[some], self.weight[some])

    @property
    def log_weight(self) -> Array:
        """Logarithms of the weights, which are 0 where these are equal."""
        with np.errstate(divide="ignore"):
            return np.log(self.weight)

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.weight.sum())


Draws: TypeAlias = Array | WeightedDraws  # of shape (S, p), with equal weights or with their own
