"""Stationary covariance functions of each input's own difference: a power of it, or its phase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hmcgp.kernels.arguments import needs_names
from hmcgp.kernels.base import Parameter, Pullback, Value, check_columns, parameter, sum_if_shared, value_of
from hmcgp.kernels.compiled import power as power_core
from hmcgp.kernels.compiled import stationary as core
from hmcgp.kernels.stationary import Stationary
from hmcgp.runtime.typing import Array


@needs_names("power", 1.0, most=1)
@dataclass(frozen=True)
class ExponentialPower(Stationary):
    """variance * exp(-Σ_k |x_k - x'_k|^power / length_scale_k^power), 0 < power <= 2.

    At power 2 it is smooth (`SquaredExponential` with length_scale/√2), below 2 continuous without derivatives, and the
    rougher the smaller; at 1, in one dimension, Ornstein and Uhlenbeck's process.

    Parameters
    ----------
    variance, length_scale, ard
        As of `SquaredExponential`.
    power : float or prior, optional
        Below 2 in a prior; a fixed number may be 2.
    """

    power: Value = parameter("power", support=(0.0, 2.0), allowed=(2.0,))

    def _own_parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        # d terms |x - x'|^power of order 1/d each need length scales that grow as d^(1/power), not d^½; at the mean
        # power of 4/3 that is what the default prior, which takes a square root, gives to d^1.5 inputs
        return [
            p._replace(n_inputs=round(len(inputs) ** 1.5)) if p.name == "length_scale" else p
            for p in super()._own_parameters(inputs)
        ]

    def _numbers(self) -> tuple[float, float]:
        return float(value_of(self, "power")), float(value_of(self, "variance"))

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        power, variance = self._numbers()
        Z = self._scaled(X)
        K = power_core.covariance(Z, Z, power, variance, True)

        def pullback(G: Array) -> Array:
            sums, logs = power_core.pull_back(G, K, Z, power)
            return self._assemble(np.vdot(G, K) / variance, power * sums, -logs)

        return K, pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Derivatives with respect to X (see `Kernel.input_vjp`); 0 between rows that share a value (a cusp)."""
        power, variance = self._numbers()
        Z = self._scaled(X)
        K = power_core.covariance(Z, Z, power, variance, True)
        dZ = power_core.pull_back_inputs(G, K, Z, power)
        return -2.0 * dZ.T / value_of(self, "length_scale")

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return power_core.covariance(*self._scaled_pair(X, X2), *self._numbers(), X2 is None)


@needs_names("period", 12.0, most=1)
@dataclass(frozen=True)
class Periodic(Stationary):
    """variance * exp(-2 Σ_k sin²(π (x_k - x'_k) / period_k) / length_scale_k²): repeats itself along every input.

    The squared exponential of the points (cos φ_k, sin φ_k), φ_k = 2π x_k/period_k, on circles (MacKay 1998), which is
    how it is computed: |e - e'|² = 4 sin²(½(φ - φ')).  Multiply by a `SquaredExponential` for a shape that changes
    slowly from one period to the next.

    Parameters
    ----------
    variance : float or prior, optional
    length_scale : float, sequence of float or prior, optional
        In units of the circle's radius: one for all inputs or, with `ard`, one per input.
    ard : bool, default=False
        One length scale, and one period if that is inferred, per input.
    period : float, sequence of float or prior, optional
        In units of the inputs: 12.0 for years of monthly rows.
    """

    length_scale: Value = parameter("length_scale", per_input=True, dimension=(0.0, 0.0))
    period: Value = parameter("period", per_input=True)

    def _circles(self, X: Array) -> tuple[Array, Array]:
        """Phases, of shape (d, n), and cosines above sines, divided by length scales, of shape (2d, n)."""
        phases = 2.0 * math.pi * (np.asarray(X, dtype=float) / value_of(self, "period")).T
        ell = np.reshape(value_of(self, "length_scale"), (-1, 1))
        return phases, np.vstack([np.cos(phases) / ell, np.sin(phases) / ell])

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        variance, period = float(value_of(self, "variance")), value_of(self, "period")
        phases, Z = self._circles(X)
        K = core.covariance(Z, variance)
        d = len(phases)

        def pullback(G: Array) -> Array:
            total, squares = core.pull_back(G, K, Z)
            # ∂φ/∂period = -φ/period; only differences of phases matter, so centre them against cancellation
            centred = phases - phases.mean(axis=1, keepdims=True)
            turns = -np.sum(self._pull_phases(G, K, Z) * centred, axis=1) / period
            return self._assemble(total / variance, squares[:d] + squares[d:], *sum_if_shared(period, turns))

        return K, pullback

    @staticmethod
    def _pull_phases(G: Array, K: Array, Z: Array) -> Array:
        """Σ_ij G_ij ∂K_ij/∂φ_ik, of shape (d, n): from z = (cos φ, sin φ)/ℓ, whose slopes are (-z_sin, z_cos)."""
        d = len(Z) // 2
        D = core.pull_back_inputs(G, K, Z)
        return np.asarray(2.0 * (D[:d] * Z[d:] - D[d:] * Z[:d]))

    def input_vjp(self, X: Array, G: Array) -> Array:
        _, Z = self._circles(X)
        K = core.covariance(Z, float(value_of(self, "variance")))
        return 2.0 * math.pi * self._pull_phases(G, K, Z).T / value_of(self, "period")

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        variance, (_, Z) = float(value_of(self, "variance")), self._circles(X)
        Z2 = Z if X2 is None else self._circles(X2)[1]
        check_columns(len(Z) // 2, len(Z2) // 2)
        return core.covariance(Z, variance) if X2 is None else core.cross_covariance(Z, Z2, variance)
