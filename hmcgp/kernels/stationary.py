"""Covariance functions of the difference x - x'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput
from hmcgp.kernels import _stationary_core as core
from hmcgp.kernels.base import Kernel, Pullback, Value, bound_value, parameter


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    """variance * exp(-½ Σ_k (x_k - x'_k)² / length_scale_k²).

    Parameters
    ----------
    variance : float or prior, optional
        Prior variance of the function.
    length_scale : float, sequence of float or prior, optional
        Distance over which the function changes, one for all inputs or, with `ard`, one per input.
        Barber & Williams' weight is w = 1/length_scale².
    ard : bool, default=False
        Automatic relevance determination: one length scale per input.  An input whose length scale is long hardly
        matters.
    """

    variance: Value = parameter("variance")
    length_scale: Value = parameter("length_scale", per_input=True)
    ard: bool = False

    def _scaled(self, X: Array) -> Array:
        length_scale = np.atleast_1d(np.asarray(bound_value(self, "length_scale"), dtype=float))
        X = np.ascontiguousarray(X, dtype=float)
        if X.ndim != 2 or len(length_scale) not in {1, X.shape[1]}:  # compiled code does not look
            raise InvalidInput(f"'X' must have shape (n, d), and d = {len(length_scale)} length scales; got {X.shape}.")
        return core.scaled_transpose(X, length_scale)

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        """Covariance matrix and pullback (see `Kernel.vjp`)."""
        variance = float(bound_value(self, "variance"))
        length_scale = bound_value(self, "length_scale")
        Z = self._scaled(X)  # (d, n)
        K = core.covariance(Z, variance)

        def pullback(G: Array) -> Array:
            # ∂K/∂variance = K/variance,  ∂K/∂ℓ_k = K (z_k - z'_k)²/ℓ_k
            total, squares = core.pull_back(G, K, Z)
            if np.ndim(length_scale) == 0:
                return np.array([total / variance, squares.sum() / length_scale])
            grad = np.empty(1 + len(squares))
            grad[0] = total / variance
            grad[1:] = squares / length_scale
            return grad

        return K, pullback

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        variance = float(bound_value(self, "variance"))
        Z = self._scaled(X)
        if X2 is None:
            return core.covariance(Z, variance)
        Z2 = self._scaled(X2)
        if len(Z) != len(Z2):
            raise InvalidInput(f"'X' and 'X2' must have the same inputs; got {len(Z)} and {len(Z2)} columns.")
        return core.cross_covariance(Z, Z2, variance)

    def diag(self, X: Array) -> Array:
        """Prior variance at each row of X."""
        return np.full(len(X), float(bound_value(self, "variance")))
