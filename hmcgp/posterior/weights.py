"""Draws of the hyperparameters with weights: one way to average over them, wherever the weights come from.

Draws θ_s of a density p_a, which is cheap to follow, stand for another one, p_b, with the weights

    w_s ∝ p_b(θ_s)/p_a(θ_s),

whether p_b has a better evidence (`refinement`) or more rows (`hmcgp.model.growing`).  The largest are smoothed by a
Pareto distribution (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25).  Its shape k says whether averages settle at
all as draws are added, the effective number (Σw)²/Σw² how many draws are left: weights need both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hmcgp.numerics import pareto
from hmcgp.numerics.weighted import effective_number
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.runtime.typing import Array

K_LIMIT = 0.7  # Pareto k up to which averages are reliable


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

    def __getitem__(self, some: slice) -> WeightedDraws:
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


def resampled(weight: Array) -> NDArray[np.intp]:
    """Systematic resampling: S positions, each draw as often as its weight says, up to rounding."""
    S = len(weight)
    return np.minimum(np.searchsorted(np.cumsum(weight / weight.sum()), (np.arange(S) + 0.5) / S), S - 1)
