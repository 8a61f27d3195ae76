"""Sums of which all terms are evaluated in one compiled call: a squared exponential, a line and constants.

That is the default kernel of classifiers.  The numbers are those of the terms, up to rounding.  With few rows, passes
over matrices and Python around them are a good part of an evaluation: together, line and constant cost half of what
they cost one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hmcgp.kernels.base import Kernel, Pullback, value_of
from hmcgp.kernels.compiled import curve_and_line as core
from hmcgp.kernels.compiled import linear, stationary
from hmcgp.kernels.nonstationary import Constant, Linear
from hmcgp.kernels.stationary import SquaredExponential
from hmcgp.runtime.typing import Array

_ORDER = [SquaredExponential, Linear, Constant]  # of the derivatives


class CurveAndLine(NamedTuple):
    """A squared exponential plus a line plus constants, at rows that fit them."""

    terms: Sequence[Kernel]
    curve: SquaredExponential
    X: Array  # (n, d), in C order
    variance: float
    length_scale: Array  # (1,) or (d,)
    slope: Array  # (1,) or (d,)
    offset: float

    @staticmethod
    def of(terms: Sequence[Kernel], X: Array) -> CurveAndLine | None:
        """Such a sum, or None: other terms, or rows that do not fit them, which the terms themselves refuse."""
        curve: SquaredExponential | None = None
        line: Linear | None = None
        offset = 0.0
        for term in terms:
            kind = type(term)  # a subclass may have formulas of its own
            if kind is Constant:
                offset += float(value_of(term, "variance"))
            elif kind is SquaredExponential and curve is None:
                curve = term  # type: ignore[assignment]
            elif kind is Linear and line is None:
                line = term  # type: ignore[assignment]
            else:
                return None
        if curve is None or line is None or X.ndim != 2 or not X.size:
            return None
        length_scale, slope = _vector(curve, "length_scale"), _vector(line, "variance")
        if not {length_scale.size, slope.size} <= {1, X.shape[1]}:  # compiled code does not look
            return None
        X = np.ascontiguousarray(X, dtype=float)
        return CurveAndLine(terms, curve, X, float(value_of(curve, "variance")), length_scale, slope, offset)

    def covariance(self) -> Array:
        """Covariance of the rows."""
        return core.covariance(self.X, self.variance, self.length_scale, self.slope, self.offset)[0]

    def vjp(self) -> tuple[Array, Pullback]:
        """Covariance of the rows, and the pullback of `Kernel.vjp`."""
        K, curve, Z, T = core.covariance(self.X, self.variance, self.length_scale, self.slope, self.offset)

        def pullback(G: Array) -> Array:
            G = np.ascontiguousarray(G, dtype=float)  # which compiled code is for
            whole, squares = stationary.pull_back(G, curve, Z)
            products = linear.pull_back(G, T)
            # ∂K/∂slope_k = x_k x'_k; the offset is the slope of the row of ones
            slopes = products if len(self.slope) > 1 else (products[:-1].sum(), products[-1])
            grad = self.curve._assemble(whole / self.variance, squares, *slopes)
            if [type(term) for term in self.terms] == _ORDER:
                return grad
            first = -1 - len(self.slope)  # of the line
            parts = {SquaredExponential: grad[:first], Linear: grad[first:-1], Constant: grad[-1:]}
            return np.concatenate([parts[type(term)] for term in self.terms])

        return K, pullback


def _vector(kernel: Kernel, name: str) -> Array:
    """Value of a parameter, as a vector of float64."""
    value = value_of(kernel, name)
    if type(value) is float:
        return np.array([value])
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype == np.float64 and value.flags.c_contiguous:
        return value
    return np.atleast_1d(np.array(value, dtype=float))
