"""Likelihood of ordered levels: a cumulative probit.

A level is where the latent value, with noise e ~ N(0, 1), falls between cut points b_1 < b_2 < … < b_{C-1}:

    p(y = c | f) = P(b_c < f + e < b_{c+1}) = Φ(b_{c+1} - f) - Φ(b_c - f),     c = 0, …, C - 1,  b_0 = -∞, b_C = ∞.

(McCullagh 1980; Chu & Ghahramani 2005, JMLR 6.)  The cut points are the first one and the widths of the inner levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Likelihood
from hmcgp.likelihoods.log_concave_average import log_concave_average
from hmcgp.likelihoods.terms import ORDINAL, likelihood_terms
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import REAL, Value, value_of
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Ordinal(Likelihood):
    """p(y = c | f) = Φ(b_{c+1} - f) - Φ(b_c - f): levels 0, 1, …, C - 1 in their order.

    Parameters
    ----------
    levels : sequence of str
        Names of the levels, two or more, the lowest first.  `GPOrdinal` fills them in.
    first_cut : float or prior, optional
        Cut point between the two lowest levels.  Default: the prior Normal(-1.5, 3).
    width : float, sequence of float or prior, optional
        Widths of the inner levels, between cut points.  Default: the prior LogNormal(0, 1) each, with median 1.
    """

    levels: tuple[str, ...] = ()
    first_cut: Value = parameter("cut", support=REAL)
    width: Value = parameter("width", per_basis=True)
    kind: ClassVar[int] = ORDINAL
    targets: ClassVar[str] = "levels"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(map(str, self.levels)))
        if len(self.levels) == 1 or len(set(self.levels)) < len(self.levels):
            raise InvalidInput(
                f"'levels' of Ordinal must be two or more different names, the lowest first; got {self.levels}."
            )
        super().__post_init__()

    def _own_fields(self) -> tuple[Any, ...]:
        """First cut point and, where there are inner levels, their widths."""
        return super()._own_fields()[: 1 if len(self.levels) == 2 else 2]

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return self.levels[1:-1]

    def count(self, y: Array) -> int:
        """Number of levels."""
        return len(self.levels)

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless y holds numbers of levels, 0, 1, …, at least two of them different."""
        if not self.levels:
            raise InvalidInput("Ordinal has not been told the names of its levels: take Ordinal(levels), or GPOrdinal.")
        known = np.isin(y, np.arange(len(self.levels)))
        if not known.all():
            raise InvalidInput(
                f"'y' must hold the numbers of the levels, 0 to {len(self.levels) - 1}; got {y[~known][0]:g}. Encode "
                "levels with GPOrdinal."
            )
        if len(np.unique(y)) < 2:
            raise InvalidInput(f"'y' holds one level only, {self.levels[int(y[0])]!r}: there is nothing to tell apart.")

    def cut_points(self) -> Array:
        """Cut points b_1 < … < b_{C-1}."""
        return self._ends()[1:-1]

    def row_numbers(self, y: Array) -> Array:
        """Cut points below and above the level of each row, of shape (2, n)."""
        ends, code, out = self._ends(), np.asarray(y).astype(np.intp), np.empty((2, len(y)))
        out[0], out[1] = ends[code], ends[1:][code]
        return out

    def _ends(self) -> Array:
        """Cut points and, before and behind them, -∞ and ∞."""
        ends = np.empty(len(self.levels) + 1)
        ends[0], ends[1] = -math.inf, float(value_of(self, "first_cut"))
        if len(self.levels) > 2:
            ends[2:-1] = value_of(self, "width")
            ends[1:-1].cumsum(out=ends[1:-1])
        ends[-1] = math.inf
        return ends

    def parameter_gradient(self, y: Array, slopes: Array) -> Array:
        """Derivatives in the first cut point and in the widths (see `Likelihood.parameter_gradient`)."""
        below, above = slopes
        code, C = np.asarray(y, dtype=np.intp), len(self.levels)
        dcut = np.bincount(code, weights=below, minlength=C)[1:] + np.bincount(code, weights=above, minlength=C)[:-1]
        onwards = np.cumsum(dcut[::-1])[::-1]  # a width moves all cut points above it
        if C > 2 and not np.ndim(value_of(self, "width")):
            return np.array([onwards[0], onwards[1:].sum()])
        return np.asarray(onwards)

    def average(self, mean: Array, variance: Array) -> Array:
        """Refused: there are more than two levels, and no P(y = +1)."""
        raise InvalidInput("Ordinal explains several levels: ask for their probabilities.")

    def class_probabilities(self, mean: Array, variance: Array) -> Array:
        """Probabilities of the levels for Gaussian latent values, exactly, of shape (C, ...)."""
        root = np.sqrt(1.0 + variance)
        ends = (self._ends().reshape(-1, *[1] * np.ndim(mean)) - mean) / root
        low, high = ends[:-1], ends[1:]
        upper = low + high > 0.0  # P = Φ(-low) - Φ(-high) there: no tail is lost in 1 - Φ
        return np.asarray(np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))

    def probabilities_given(self, f: Array) -> Array:
        """Probabilities of the levels given latent values, of shape (..., C)."""
        return np.moveaxis(self.class_probabilities(f, np.zeros(np.shape(f))), 0, -1)

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive probability of levels, exactly (see `Likelihood.log_average`)."""
        root = np.sqrt(1.0 + variance)
        log_p, g, w, ratio = np.empty((4, len(y)))
        y = np.ascontiguousarray(y, dtype=float)
        likelihood_terms(ORDINAL, y, *(self.row_numbers(y) / root), mean / root, np.ones(len(y)), log_p, g, w, ratio)
        return log_p

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), to 1e-9."""
        y, mean, variance = (np.ascontiguousarray(part, dtype=float) for part in (y, mean, variance))
        return log_concave_average(ORDINAL, y, *self.row_numbers(y), mean, variance, self.row_weights(len(y)))
