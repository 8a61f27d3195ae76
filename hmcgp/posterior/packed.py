"""Latent predictions of few new rows under all draws at once, without Python for each draw.

One row under 50 draws takes 50 products with a triangle of n x n numbers each, 4 µs at n = 200 where it lies in cache,
and as long again for each in Python, and to wait for memory.  Here the triangles of all draws lie one after the other,
and compiled code walks over them.  The numbers are those of the predictors of the draws, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence.products import FEW_ROWS, Product
from hmcgp.kernels.several import SeveralKernels, several
from hmcgp.numerics.triangular import inner_products, packed, packed_squared_lengths
from hmcgp.posterior.kept import KeptPredictors
from hmcgp.posterior.predictors import AnyPredictor, Predictor, refuse_overflow
from hmcgp.runtime.typing import Array

_KEY = "packed"


@dataclass(frozen=True, eq=False)
class PackedPredictors:
    """Predictors of draws whose products have one form and precision."""

    numbers: NDArray[np.intp]  # (S,), of the draws
    kernels: SeveralKernels
    X: Array  # (n, d) training inputs
    alpha: Array  # (S, n)
    scale: Array | None  # (S, n) by which covariances are multiplied first
    F: Array  # (S, n(n + 1)/2), float64 or float32
    lower: bool

    @staticmethod
    def of(numbers: list[int], predictors: list[Predictor]) -> PackedPredictors:
        """Pack the predictors of draws of these numbers."""
        products = [one.products for one in predictors]
        triangles = [one.explained for one in products if isinstance(one.explained, Product)]
        scales = [one.scale for one in products if one.scale is not None]
        return PackedPredictors(
            np.array(numbers),
            several([one.kernel for one in predictors]),
            predictors[0].X,
            np.array([one.alpha for one in products]),
            np.array(scales) if scales else None,
            np.array([packed(one.F, one.lower) for one in triangles]),
            triangles[0].lower,
        )

    def moments(self, X: Array) -> tuple[Array, Array]:
        """Latent means and variances at few new rows, of shape (S, m)."""
        K = self.kernels.cross_covariances(X, self.X)  # (S, m, n)
        if self.scale is not None:
            K = K * self.scale[:, None]
        mean = np.array([inner_products(k, a) for k, a in zip(K, self.alpha, strict=True)])
        explained = packed_squared_lengths(K, self.F, self.lower)
        return mean, np.maximum(self.kernels.variances(X) - explained, 0.0)


def packed_moments(kept: KeptPredictors, n_draws: int, X: Array) -> Array | None:
    """Latent moments of all draws, of shape (2, S, m), if their predictors are kept and can be packed; else None."""
    if len(X) > FEW_ROWS:
        return None
    packs = kept.get(_KEY)
    if packs is None:
        packs = _packs(kept, n_draws)
        if packs is None or not kept.keep(_KEY, packs):
            return None
    out = np.empty((2, n_draws, len(X)))
    with np.errstate(over="ignore", invalid="ignore"):
        for pack in packs:
            out[:, pack.numbers] = pack.moments(X)
    refuse_overflow(X, out[0].T, out[1].T)
    return out


def _packs(kept: KeptPredictors, n_draws: int) -> tuple[PackedPredictors, ...] | None:
    """Packs of all draws, one for each form and precision; None where they are not kept, or not triangular products."""
    known = kept.all_of(n_draws)
    if known is None:
        return None
    predictors = [one.predictor for one in known]
    forms: dict[tuple[str, bool, bool], list[int]] = {}
    for s, one in enumerate(predictors):
        form = _form(one)
        if form is None:
            return None
        forms.setdefault(form, []).append(s)
    if not kept.has_room(_packed_bytes(predictors)):
        return None
    return tuple(PackedPredictors.of(numbers, [predictors[s] for s in numbers]) for numbers in forms.values())


def _form(one: AnyPredictor) -> tuple[str, bool, bool] | None:
    """Precision and form of triangular products, of one column; None of others."""
    if not isinstance(one, Predictor) or one.products.alpha.ndim > 1:
        return None
    explained = one.products.explained
    if not isinstance(explained, Product):
        return None
    return explained.F.dtype.name, explained.lower, one.products.scale is not None


def _packed_bytes(predictors: Sequence[Predictor]) -> int:
    """Memory of packs of these predictors, nearly."""
    n = len(predictors[0].X)
    each = [one.products.explained.F.itemsize for one in predictors if isinstance(one.products.explained, Product)]
    return n * (n + 1) // 2 * sum(each) + 16 * n * len(each)
