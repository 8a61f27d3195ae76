"""Gibbs's covariance function, whose length scales vary over the input space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hmcgp.kernels.base import Kernel, Pullback, Value, check_columns, parameter, sum_if_shared, transposed, value_of
from hmcgp.kernels.compiled import gibbs as core
from hmcgp.numerics.basis import Basis, basis_names, basis_values
from hmcgp.parameters.declaration import REAL
from hmcgp.parameters.units import Unit, Units
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Gibbs(Kernel):
    """variance * Π_k (2 r_k r'_k / q_k)^½ exp(-Σ_k (x_k - x'_k)² / q_k), q_k = r_k² + r'_k², r_k at x, r'_k at x'.

    A smooth function that changes faster in some regions than in others (Gibbs 1997; MacKay 1998), with length scales

        log r_k(x) = log length_scale_k + Σ_m weight_m φ_m(x),

    and with all weights 0 it is `SquaredExponential`.

    Parameters
    ----------
    variance : float or prior, optional
    length_scale : float, sequence of float or prior, optional
        r where all basis functions are 0: one for all inputs or, with `ard`, one per input.
    weight : float, sequence of float or prior, optional
        One per basis function or, with `ard`, one per input and basis function, those of the first input first.
    basis : callable, optional
        Takes inputs of shape (n, d) to basis functions φ of shape (n, m), such as `RadialBasis`.  Default: the inputs
        themselves, φ_m(x) = x_m (where an estimator standardises, from their means).
    ard : bool, default=False
        Length scales that vary independently along each input.
    """

    variance: Value = parameter("variance")
    length_scale: Value = parameter("length_scale", per_input=True)
    weight: Value = parameter("log_length_slope", per_basis=True, support=REAL)
    basis: Basis | None = None
    ard: bool = False
    _functions = ("basis",)

    def _unit_of(self, f: Any, units: Units) -> Unit:
        unit = super()._unit_of(f, units)
        if f.name == "weight" and self.ard and isinstance(unit, tuple):
            return unit * len(units.spread)  # those of the first input first
        return unit

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        names = basis_names(self.basis, inputs)
        return tuple(f"{i}: {name}" for i in inputs for name in names) if self.ard else names

    def _scales(self, X: Array, B: Array) -> Array:
        """r_k at each row of X, of shape (d, n), from the basis functions there."""
        weight = np.asarray(value_of(self, "weight"), dtype=float)
        m, d = B.shape[1], X.shape[1]
        W = np.broadcast_to(weight if weight.ndim == 0 else weight.reshape(-1, m), (d, m))  # all rows equal unless ard
        ell = np.reshape(value_of(self, "length_scale"), (-1, 1))
        return np.ascontiguousarray(ell * np.exp(W @ B.T))

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        variance, length_scale = float(value_of(self, "variance")), value_of(self, "length_scale")
        B, XT = basis_values(self.basis, X), transposed(X)
        R = self._scales(X, B)
        K = core.covariance(XT, R, XT, R, variance, True)

        def pullback(G: Array) -> Array:
            D = core.pull_back(G, K, XT, R)  # (d, n), with respect to log r
            scales, weights = sum_if_shared(length_scale, D.sum(axis=1)), D @ B  # (d,), (d, m)
            weights = weights.sum(axis=0) if np.size(self.weight) <= B.shape[1] else weights.ravel()
            weights = sum_if_shared(self.weight, weights)
            return np.concatenate([[np.vdot(G, K) / variance], scales / length_scale, weights])

        return K, pullback

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        variance, same, X2 = float(value_of(self, "variance")), X2 is None, X if X2 is None else X2
        check_columns(X.shape[1], X2.shape[1])
        R, R2 = (self._scales(x, basis_values(self.basis, x)) for x in (X, X2))
        return core.covariance(transposed(X), R, transposed(X2), R2, variance, same)

    def diag(self, X: Array) -> Array:
        return np.full(len(X), float(value_of(self, "variance")))
