"""Covariance functions of the difference x - x', each input divided by its length scale.

`Triangle` and `Spherical` are zero beyond a finite distance.  They come from blurring: white noise convolved with the
indicator of an interval, or a ball, of diameter length_scale; values farther apart share no noise (MacKay 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.arguments import needs_names
from hmcgp.kernels.base import (
    InducingPullback,
    Kernel,
    Pullback,
    Value,
    check_columns,
    check_inputs,
    parameter,
    value_of,
)
from hmcgp.kernels.compiled import radial
from hmcgp.kernels.compiled import stationary as core
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Stationary(Kernel):
    """Base class of kernels of x - x', with a variance and length scales that divide the inputs."""

    variance: Value = parameter("variance")
    length_scale: Value = parameter("length_scale", per_input=True)
    ard: bool = False

    def _scaled(self, X: Array) -> Array:
        """Inputs divided by their length scales, of shape (d, n)."""
        length_scale = value_of(self, "length_scale")
        if type(length_scale) is not np.ndarray or length_scale.dtype != np.float64 or length_scale.ndim != 1:
            length_scale = np.atleast_1d(np.asarray(length_scale, dtype=float))
        X = np.ascontiguousarray(X, dtype=float)
        if X.ndim != 2 or len(length_scale) not in {1, X.shape[1]}:  # compiled code does not look
            raise InvalidInput(f"'X' must have shape (n, d), and d = {len(length_scale)} length scales; got {X.shape}.")
        check_inputs(self, X.shape[1])
        return core.scaled_transpose(X, length_scale)

    def _scaled_pair(self, X: Array, X2: Array | None) -> tuple[Array, Array]:
        Z = self._scaled(X)
        Z2 = Z if X2 is None else self._scaled(X2)
        check_columns(len(Z), len(Z2))
        return Z, Z2

    def _assemble(self, dvariance: float, squares: Array, *more: float) -> Array:
        """Derivatives in the order of the parameters, from Σ_ij G_ij ∂K_ij/∂log ℓ_k for every input k."""
        length_scale = value_of(self, "length_scale")
        if np.ndim(length_scale) == 0:
            return np.array([dvariance, squares.sum() / length_scale, *more])
        grad = np.empty(1 + len(squares) + len(more))
        grad[0] = dvariance
        grad[1 : 1 + len(squares)] = squares / length_scale
        grad[1 + len(squares) :] = more
        return grad

    def diag(self, X: Array) -> Array:
        return np.full(len(X), float(value_of(self, "variance")))


@dataclass(frozen=True)
class SquaredExponential(Stationary):
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

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        variance = float(value_of(self, "variance"))
        Z = self._scaled(X)  # (d, n)
        K = core.covariance(Z, variance)

        def pullback(G: Array) -> Array:
            # ∂K/∂variance = K/variance,  ∂K/∂ℓ_k = K (z_k - z'_k)²/ℓ_k
            total, squares = core.pull_back(G, K, Z)
            return self._assemble(total / variance, squares)

        return K, pullback

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        variance, (left, right) = float(value_of(self, "variance")), self._scaled_pair(X, Z)
        K = core.cross_covariance(left, right, variance)

        def pullback(G: Array, g: Array) -> Array:
            total, squares = core.pull_back_cross(G, K, left, right)
            return self._assemble(total / variance + g.sum(), squares)

        return K, self.diag(X), pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        Z = self._scaled(X)
        K = core.covariance(Z, float(value_of(self, "variance")))
        return -2.0 * core.pull_back_inputs(G, K, Z).T / value_of(self, "length_scale")

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        variance = float(value_of(self, "variance"))
        Z, Z2 = self._scaled_pair(X, X2)
        return core.covariance(Z, variance) if X2 is None else core.cross_covariance(Z, Z2, variance)


@dataclass(frozen=True)
class Radial(Stationary):
    """Variance * φ(r²) with r² = Σ_k (x_k - x'_k)² / length_scale_k²; subclasses say which φ."""

    _kind: ClassVar[int]

    def _profile(self) -> tuple[int, float]:
        """Code of φ, and its shape parameter if it has one."""
        return self._kind, 0.0

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        variance = float(value_of(self, "variance"))
        Z = self._scaled(X)  # (d, n)
        K, W = radial.covariance(*self._profile(), Z, Z, variance, True, True)

        def pullback(G: Array) -> Array:
            _, squares = core.pull_back(G, W, Z)
            return self._assemble(np.vdot(G, K) / variance, squares, *self._pull_shape(G, K, W))

        return K, pullback

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        variance, (left, right) = float(value_of(self, "variance")), self._scaled_pair(X, Z)
        K, W = radial.cross_covariance(*self._profile(), left, right, variance)

        def pullback(G: Array, g: Array) -> Array:
            _, squares = core.pull_back_cross(G, W, left, right)
            dvariance = np.vdot(G, K) / variance + g.sum()
            return self._assemble(dvariance, squares, *self._pull_shape_cross(G, K, W))

        return K, self.diag(X), pullback

    def _pull_shape(self, G: Array, K: Array, W: Array) -> tuple[float, ...]:
        """Derivatives in parameters beyond variance and length scales."""
        return ()

    def _pull_shape_cross(self, G: Array, K: Array, W: Array) -> tuple[float, ...]:
        """Derivatives in these parameters of a rectangular block of covariances."""
        return ()

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Derivatives with respect to X (see `Kernel.input_vjp`); 0 between coincident rows where φ has a cusp."""
        Z = self._scaled(X)
        _, W = radial.covariance(*self._profile(), Z, Z, float(value_of(self, "variance")), True, True)
        return -2.0 * core.pull_back_inputs(G, W, Z).T / value_of(self, "length_scale")

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        variance = float(value_of(self, "variance"))
        return radial.covariance(*self._profile(), *self._scaled_pair(X, X2), variance, X2 is None, False)[0]


@needs_names("nu", 0.5)
@dataclass(frozen=True, kw_only=True)
class Matern(Radial):
    """variance * φ(r), r² = Σ_k (x_k - x'_k)² / length_scale_k², of smoothness ν = 1/2, 3/2 or 5/2.

    ν = 1/2: φ = exp(-r), continuous but nowhere smooth (Ornstein and Uhlenbeck's process in one dimension);
    ν = 3/2: φ = (1 + t) exp(-t), t = √3 r, with one derivative;
    ν = 5/2: φ = (1 + t + t²/3) exp(-t), t = √5 r, with two.
    As ν grows it tends to `SquaredExponential`.

    Parameters are given by name only, as the order differs between libraries: ``Matern(nu=0.5)``.

    Parameters
    ----------
    variance, length_scale, ard
        As for `SquaredExponential`.
    nu : {0.5, 1.5, 2.5}, default=1.5
    """

    variance: Value = parameter("variance")
    length_scale: Value = parameter("length_scale", per_input=True)
    ard: bool = False
    nu: float = 1.5

    _kinds: ClassVar[dict[float, int]] = {0.5: radial.MATERN12, 1.5: radial.MATERN32, 2.5: radial.MATERN52}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in self._kinds:
            raise InvalidInput(f"'nu' of Matern must be 0.5, 1.5 or 2.5; got {self.nu!r}.")

    def _profile(self) -> tuple[int, float]:
        return self._kinds[self.nu], 0.0


@needs_names("shape", 2, most=1)
@dataclass(frozen=True)
class RationalQuadratic(Radial):
    """variance * (1 + r²/(2 shape))^-shape, r² = Σ_k (x_k - x'_k)² / length_scale_k².

    A mixture of squared exponentials whose inverse squared length scales follow a gamma distribution of this shape:
    structure at many scales when it is small, a single `SquaredExponential` as it tends to infinity.

    Parameters
    ----------
    variance, length_scale, ard
        As of `SquaredExponential`.
    shape : float or prior, optional
        A single positional argument raises an error, as it could be meant for the shape or for the variance.
    """

    shape: Value = parameter("shape")

    def _profile(self) -> tuple[int, float]:
        return radial.RATIONAL, float(value_of(self, "shape"))

    def _pull_shape(self, G: Array, K: Array, W: Array) -> tuple[float, ...]:
        return (radial.pull_back_rational(G, K, W),)

    def _pull_shape_cross(self, G: Array, K: Array, W: Array) -> tuple[float, ...]:
        return (radial.pull_back_rational_cross(G, K, W),)


@dataclass(frozen=True)
class Triangle(Radial):
    """variance * max(0, 1 - |x - x'|/length_scale), for one input: a moving average of white noise.

    Parameters
    ----------
    variance : float or prior, optional
    length_scale : float or prior, optional
        Width of the average; values farther apart are independent.
    ard : bool, default=False
        Changes the name of the length scale only, as there is one input.
    """

    _kind = radial.TRIANGLE
    _most_inputs = 1


@dataclass(frozen=True)
class Spherical(Radial):
    """variance * (1 - 3/2 r + 1/2 r³) for r < 1, else 0, with r² = Σ_k (x_k - x'_k)² / length_scale_k², up to 3 inputs.

    The average of white noise over a ball of diameter 1 (in three dimensions; in fewer, its restriction).

    Parameters
    ----------
    variance : float or prior, optional
    length_scale : float, sequence of float or prior, optional
        Diameter of the ball along each input: one for all or, with `ard`, one per input.
    ard : bool, default=False
        One length scale per input.
    """

    _kind = radial.SPHERICAL
    _most_inputs = 3
