"""Kernels of transformed inputs, k(u(x), u(x')), and of rescaled functions, a(x) k(x, x') a(x').

Where u has parameters of its own, their derivatives come from those with respect to the transformed inputs U:

    dU = kernel.input_vjp(U, G),     Σ_ij G_ij ∂K_ij/∂θ = Σ dU ∘ ∂U/∂θ.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.algebra import Mapped, Wrapped
from hmcgp.kernels.base import (
    InducingPullback,
    Kernel,
    Parameter,
    Pullback,
    Value,
    check_inputs,
    parameter,
    value_of,
)
from hmcgp.numerics.basis import Basis, basis_names, basis_values
from hmcgp.parameters.declaration import REAL
from hmcgp.parameters.units import Units
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class _ParametricMap(Mapped):
    """k(u(x), u(x')) where u has parameters."""

    @abstractmethod
    def _pull(self, X: Array, U: Array, dU: Array) -> tuple[Array, list[Array]]:
        """Pull dU back to dX, of shape (n, d), and to the derivatives in each own parameter."""

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        U = self._map(X)
        K, pull = self.kernel.vjp(U)
        return K, lambda G: np.concatenate([pull(G), *self._pull_own(X, U, G)])

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        return Kernel.inducing_vjp(self, X, Z)  # by `vjp`: the inducing inputs move with the parameters of the map, too

    def _pull_own(self, X: Array, U: Array, G: Array) -> list[Array]:
        if self.kernel.has_input_vjp:
            return self._pull(X, U, self.kernel.input_vjp(U, G))[1]
        # fixed numbers, or `_own_parameters` would have refused: nobody reads their derivatives
        return [np.full(np.size(getattr(self, f.name)), np.nan) for f in self._own_fields()]

    def input_vjp(self, X: Array, G: Array) -> Array:
        U = self._map(X)
        return self._pull(X, U, self.kernel.input_vjp(U, G))[0]

    def _own_parameters(self, inputs: Sequence[str]) -> list[Parameter]:
        found = super()._own_parameters(inputs)
        asked = [p.name for p in found if p.is_free]
        if asked and not self.kernel.has_input_vjp:
            raise InvalidInput(
                f"{', '.join(asked)} of {type(self).__name__} cannot be inferred, as {self.kernel!r} does not know its "
                "derivatives with respect to the inputs (input_vjp): give numbers, or use another kernel inside."
            )
        return found


@dataclass(frozen=True)
class Warped(Mapped):
    """k(u(x), u(x')) with a function u of your own.

    Parameters
    ----------
    kernel : Kernel
    warp : callable
        Takes inputs of shape (n, d), in the units of the table, to an array of shape (n, d'), row by row; `numpy.log`
        for one.  The kernel inside sees its values as they are, of which the default priors expect standard deviations
        near 1.  A named function of a module rather than a lambda, if the fit is to be saved.
    """

    warp: Callable[[Array], Array]
    _functions = ("warp",)

    def _child_units(self, units: Units, role: str) -> Units:
        """Those of the warp: the kernel inside sees it as it is."""
        return Units.plain(len(self._child_inputs([""] * len(units.spread))), units.target)

    def _map(self, X: Array) -> Array:
        U = np.asarray(self.warp(X), dtype=float)
        if U.ndim != 2 or len(U) != len(X):
            raise InvalidInput(
                f"'warp' must take inputs of shape (n, d) to an array of shape (n, d'); {X.shape} gave {U.shape}."
            )
        return np.ascontiguousarray(U)

    def _child_inputs(self, inputs: Sequence[str]) -> Sequence[str]:
        with np.errstate(all="ignore"):  # log(0), say: only the shape matters
            n_outputs = self._map(np.zeros((1, len(inputs)))).shape[1]
        return inputs if n_outputs == len(inputs) else [f"u{k}" for k in range(n_outputs)]


@dataclass(frozen=True)
class SinhArcsinh(_ParametricMap):
    """k(u(x), u(x')), u_k = sinh(tail_k asinh(x_k) - skew_k): inputs stretched by an increasing function.

    tail = 1 and skew = 0 change nothing.  A smaller tail draws far inputs in, as a logarithm does, and a larger one
    stretches them; skew makes one side's distances longer than the other's.  For standardised inputs; length scales
    inside are in the units of the inputs where the map changes nothing.

    Parameters
    ----------
    kernel : Kernel
        Must know its derivatives with respect to the inputs (`has_input_vjp`), unless tail and skew are fixed.
    tail, skew : float, sequence of float or prior, optional
        One for all inputs or, with `ard`, one per input.
    ard : bool, default=False
        One tail and one skew per input.
    """

    tail: Value = parameter("tail", per_input=True)
    skew: Value = parameter("skew", per_input=True, support=REAL)
    ard: bool = False

    def _inside(self, X: Array) -> Array:
        return np.asarray(value_of(self, "tail") * np.arcsinh(X) - value_of(self, "skew"))

    def _map(self, X: Array) -> Array:
        return np.sinh(self._inside(X))

    def _pull(self, X: Array, U: Array, dU: Array) -> tuple[Array, list[Array]]:
        dinside = dU * np.cosh(self._inside(X))
        dX = dinside * value_of(self, "tail") / np.sqrt(1.0 + X**2)
        return dX, [_gathered(self.tail, dinside * np.arcsinh(X)), _gathered(self.skew, -dinside)]


@dataclass(frozen=True)
class MonotoneWarp(_ParametricMap):
    """k(u(x), u(x')) of one input, u increasing and smooth: u'(x) is slope_m at knot_m and linear between knots.

    Where u is steep, the function changes fast.  Beyond the first and the last knot u is a straight line; with all
    slopes 1 it is the identity.  u is a sum of integrals of hats h_m, u(x) = knot_0 + Σ_m slope_m ∫ h_m from knot_0 to
    x.  Length scales inside are in the units of the input where the slope is 1.  Outputs that `GPRegressor` takes as
    independent share u as they share the other hyperparameters, and find it together (MacKay 1998).

    Parameters
    ----------
    kernel : Kernel
        Must know its derivatives with respect to the inputs (`has_input_vjp`), unless the slopes are fixed.
    knots : sequence of float
        Two or more, increasing, in the units of the input.
    slope : float, sequence of float or prior, optional
        One per knot.
    """

    knots: tuple[float, ...]
    slope: Value = parameter("slope", per_basis=True)
    _most_inputs = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            knots = np.asarray(self.knots, dtype=float)
        except (TypeError, ValueError):
            knots = np.empty(0)
        if knots.ndim != 1 or knots.size < 2 or not (np.isfinite(knots).all() and (np.diff(knots) > 0.0).all()):
            raise InvalidInput(f"'knots' of MonotoneWarp must be two or more increasing numbers; got {self.knots}.")
        object.__setattr__(self, "knots", tuple(knots.tolist()))

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.knots))))

    def _own_in_standard_units(self, units: Units) -> dict[str, Any]:
        check_inputs(self, len(units.spread))
        centre, spread = (0.0, 1.0) if self.standardized else (units.centre[0], units.spread[0])
        return super()._own_in_standard_units(units) | {"knots": tuple((k - centre) / spread for k in self.knots)}

    def warped(self, X: Array) -> Array:
        """Warped inputs u(x) of inputs of shape (n, 1), once the slopes are numbers: of shape (n, 1)."""
        return self._map(X)

    def _integrals(self, X: Array) -> Array:
        """Integrals of the hats from the first knot to each row of X, of shape (n, m)."""
        t = np.array(self.knots)
        widths = np.diff(t)
        a = np.clip((X - t[:-1]) / widths, 0.0, 1.0)  # share of each interval that lies below X
        rising = 0.5 * widths * a**2  # of the hat at the upper end of an interval
        integrals = np.zeros((len(X), len(t)))
        integrals[:, 1:] = rising
        integrals[:, :-1] += widths * a - rising
        integrals[:, 0] += np.minimum(X[:, 0] - t[0], 0.0)
        integrals[:, -1] += np.maximum(X[:, 0] - t[-1], 0.0)
        return integrals

    def _slopes(self) -> Array:
        return np.broadcast_to(np.asarray(value_of(self, "slope"), dtype=float), len(self.knots))

    def _map(self, X: Array) -> Array:
        check_inputs(self, X.shape[1])
        return np.asarray(self.knots[0] + self._integrals(X) @ self._slopes()[:, None])

    def _pull(self, X: Array, U: Array, dU: Array) -> tuple[Array, list[Array]]:
        steepness = np.interp(X, self.knots, self._slopes())
        return dU * steepness, [_gathered(self.slope, dU * self._integrals(X))]


@dataclass(frozen=True)
class Embedded(_ParametricMap):
    """k((cos φ, sin φ), (cos φ', sin φ')), φ_k = 2π x_k/period_k: any kernel made periodic (MacKay 1998).

    The kernel inside sees twice as many inputs, `cos(a)` and `sin(a)` in place of an input `a`.  `Periodic` is the
    squared exponential with one length scale per circle.

    Parameters
    ----------
    kernel : Kernel
        Must know its derivatives with respect to the inputs (`has_input_vjp`), unless the period is fixed.
    period : float, sequence of float or prior, optional
        One for all inputs or, with `ard`, one per input.
    ard : bool, default=False
        One period per input.
    """

    period: Value = parameter("period", per_input=True)
    ard: bool = False

    def _map(self, X: Array) -> Array:
        phases = 2.0 * math.pi * X / value_of(self, "period")
        return np.stack([np.cos(phases), np.sin(phases)], axis=2).reshape(len(X), -1)

    def _pull(self, X: Array, U: Array, dU: Array) -> tuple[Array, list[Array]]:
        period = value_of(self, "period")
        dphases = dU[:, 1::2] * U[:, ::2] - dU[:, ::2] * U[:, 1::2]
        return 2.0 * math.pi * dphases / period, [_gathered(self.period, -2.0 * math.pi * dphases * X / period**2)]

    def _child_units(self, units: Units, role: str) -> Units:
        return Units.plain(2 * len(units.spread), units.target)

    def _child_inputs(self, inputs: Sequence[str]) -> Sequence[str]:
        return [f"{turn}({name})" for name in inputs for turn in ("cos", "sin")]


@dataclass(frozen=True)
class Rescaled(Wrapped):
    """a(x) k(x, x') a(x'): a function whose amplitude a varies over the input space.

    The amplitude is a function of your own, or log-linear, a(x) = exp(Σ_m weight_m φ_m(x)).

    Parameters
    ----------
    kernel : Kernel
    amplitude : callable, optional
        Takes inputs of shape (n, d), in the units of the table, to an array of shape (n,).  Then there is nothing to
        infer about it.
    weight : float, sequence of float or prior, optional
        Without `amplitude`: one weight per basis function.
    basis : callable, optional
        Takes inputs of shape (n, d), in the units of the table, to basis functions φ of shape (n, m), such as
        `RadialBasis`.  Default: the inputs themselves (where an estimator standardises, from their means).
    """

    amplitude: Callable[[Array], Array] | None = None
    weight: Value = parameter("log_slope", per_basis=True, support=REAL)
    basis: Basis | None = None
    _functions = ("amplitude", "basis")

    def __post_init__(self) -> None:
        if self.amplitude is not None and not (self.weight is None and self.basis is None):
            raise InvalidInput("give Rescaled an 'amplitude', or 'weight' and 'basis', not both.")
        super().__post_init__()

    def _own_fields(self) -> tuple[Any, ...]:
        return super()._own_fields() if self.amplitude is None else ()

    def _basis_names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        return basis_names(self.basis, inputs)

    def _amplitudes(self, X: Array) -> Array:
        if self.amplitude is None:
            B = basis_values(self.basis, X)
            return np.exp(B @ np.broadcast_to(value_of(self, "weight"), B.shape[1]))
        a = np.asarray(self.amplitude(X), dtype=float)
        if a.shape != (len(X),):
            raise InvalidInput(
                f"'amplitude' must take inputs of shape (n, d) to an array of shape (n,); {X.shape} gave {a.shape}."
            )
        return a

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        a = self._amplitudes(X)
        C, pull = self.kernel.vjp(X)
        outer = np.outer(a, a)
        K = outer * C

        def pullback(G: Array) -> Array:
            inner = pull(G * outer)
            if self.amplitude is not None:
                return inner
            # ∂K_ij/∂w_m = K_ij (φ_m(x_i) + φ_m(x_j))
            parts = 2.0 * np.sum(G * K, axis=1)[:, None] * basis_values(self.basis, X)
            return np.concatenate([inner, _gathered(self.weight, parts)])

        return K, pullback

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        a, b = self._amplitudes(X), self._amplitudes(Z)
        C, c, pull = self.kernel.inducing_vjp(X, Z)
        K, k = np.outer(a, b) * C, a**2 * c

        def pullback(G: Array, g: Array) -> Array:
            inner = pull(G * np.outer(a, b), g * a**2)
            if self.amplitude is not None:
                return inner
            # ∂K_ij/∂w_m = K_ij (φ_m(x_i) + φ_m(z_j)),  ∂k_i/∂w_m = 2 k_i φ_m(x_i)
            S = G * K
            rows = np.concatenate([S.sum(axis=1) + 2.0 * g * k, S.sum(axis=0)])
            basis = np.vstack([basis_values(self.basis, X), basis_values(self.basis, Z)])
            return np.concatenate([inner, _gathered(self.weight, rows[:, None] * basis)])

        return K, k, pullback

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        a = self._amplitudes(X)
        b = a if X2 is None else self._amplitudes(X2)
        return np.outer(a, b) * self.kernel(X, X2)

    def diag(self, X: Array) -> Array:
        return np.asarray(self._amplitudes(X) ** 2 * self.kernel.diag(X))


def _gathered(value: Value, parts: Array) -> Array:
    """Sum over the rows of parts: one number for each column if the parameter has as many, else one for all."""
    return np.asarray(parts.sum(axis=0) if np.ndim(value) == 1 else parts.sum(keepdims=True).ravel())
