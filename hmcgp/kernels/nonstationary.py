"""Covariance functions that are not functions of x - x' alone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm

from hmcgp.kernels.base import (
    InducingPullback,
    Kernel,
    Pullback,
    Value,
    check_inputs,
    inner_products,
    parameter,
    sum_if_shared,
    transposed,
    value_of,
)
from hmcgp.kernels.compiled import linear as core
from hmcgp.parameters.units import Units
from hmcgp.runtime.checks import check_count
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Constant(Kernel):
    """variance, everywhere: an unknown offset of the function, b ~ N(0, variance).

    Parameters
    ----------
    variance : float or prior, optional
    """

    variance: Value = parameter("variance")

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        return self(X), pull_constant

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        return self(X, Z), self.diag(X), lambda G, g: np.array([G.sum() + g.sum()])

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Zero: the inputs do not matter."""
        return np.zeros(X.shape)

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return np.full((len(X), len(X if X2 is None else X2)), float(value_of(self, "variance")))

    def diag(self, X: Array) -> Array:
        return np.full(len(X), float(value_of(self, "variance")))


def pull_constant(G: Array) -> Array:
    """Pullback of a constant covariance matrix, Σ_ij G_ij."""
    return np.array([G.sum()])


@dataclass(frozen=True)
class Linear(Kernel):
    """Σ_k variance_k x_k x'_k: a linear function with independent slopes of these variances.

    Parameters
    ----------
    variance : float, sequence of float or prior, optional
        One for all inputs or, with `ard`, one per input.
    ard : bool, default=False
        One variance per input.

    Notes
    -----
    Where an estimator standardises, inputs are measured from their means: add `Constant` for the value there.
    """

    variance: Value = parameter("variance", per_input=True, dimension=(-2.0, 2.0))
    ard: bool = False

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        return self(X), self._pull(transposed(X))

    def add_vjp(self, K: Array, X: Array, offset: float, out: Array) -> Pullback:
        Z = self._added(K, X, offset, out)
        return super().add_vjp(K, X, offset, out) if Z is None else self._pull(Z)

    def _added(self, K: Array, X: Array, offset: float, out: Array) -> Array | None:
        """Write K + offset + kernel(X) into `out`, and return the transpose of X; None where K or X do not fit."""
        (n, d), weight = X.shape, np.atleast_1d(np.asarray(value_of(self, "variance"), dtype=float))
        fits = K.shape == out.shape == (n, n) and d > 0 and len(weight) in (1, d)  # compiled code does not look
        if type(self) is not Linear or not (fits and K.dtype == out.dtype and K.flags.c_contiguous):
            return None
        Z = transposed(X)
        core.add_inner_products(K, Z, weight, offset, out)
        return Z

    def _pull(self, Z: Array) -> Pullback:
        return lambda G: sum_if_shared(self.variance, core.pull_back(G, Z))

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        def pullback(G: Array, g: Array) -> Array:
            return sum_if_shared(self.variance, np.einsum("nk,nk->k", X, G @ Z) + g @ X**2)

        return self(X, Z), self.diag(X), pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        return np.asarray(2.0 * (G @ X) * value_of(self, "variance"))

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return inner_products(X, X2, value_of(self, "variance"))

    def add_to(self, K: Array, X: Array, X2: Array | None) -> None:
        own = type(self) is Linear and K.dtype == np.float64 and K.flags.carray and K.size > 0
        if own and X2 is not None and K.shape == (len(X), len(X2)) and X.shape[1] == X2.shape[1] > 0:
            root = np.sqrt(value_of(self, "variance"))  # on both sides, as in `inner_products`
            S, S2 = np.ascontiguousarray(X * root), np.ascontiguousarray(X2 * root)
            # BLAS sees the transposes, in its own order: K' + S2 S'
            dgemm(1.0, S2.T, S.T, beta=1.0, c=K.T, trans_a=True, overwrite_c=True)
        elif not (own and X2 is None and self._added(K, X, 0.0, K) is not None):
            super().add_to(K, X, X2)

    def diag(self, X: Array) -> Array:
        return np.asarray((X**2 * value_of(self, "variance")).sum(axis=1))


@dataclass(frozen=True)
class White(Kernel):
    """variance where x and x' are the same row, else 0: independent noise on the latent function.

    Between two different sets of rows it is zero, even where their values coincide.

    Parameters
    ----------
    variance : float or prior, optional
    """

    variance: Value = parameter("variance")

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        return self(X), lambda G: np.array([np.trace(G)])

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        return self(X, Z), self.diag(X), lambda G, g: np.array([g.sum()])

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Zero: the inputs do not matter."""
        return np.zeros(X.shape)

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        if X2 is not None:
            return np.zeros((len(X), len(X2)))
        return np.diag(self.diag(X))

    def diag(self, X: Array) -> Array:
        return np.full(len(X), float(value_of(self, "variance")))


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(bias + Σ_k weight_k x_k x'_k)^degree: a polynomial of this degree with independent normal coefficients.

    Parameters
    ----------
    weight : float, sequence of float or prior, optional
        One for all inputs or, with `ard`, one per input.
    bias : float or prior, optional
        Lets terms of lower degree in; 0 leaves those of the full degree alone.
    degree : int, default=2
    ard : bool, default=False
        One weight per input.
    """

    weight: Value = parameter("coefficient", per_input=True)
    bias: Value = parameter("bias", allowed=(0.0,))
    degree: int = 2
    ard: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("degree", self.degree, 1)

    def _dimension(self, f: Any) -> tuple[float, float]:
        return (-2.0 if f.name == "weight" else 0.0, 2.0 / self.degree)

    def _base(self, X: Array, X2: Array | None = None) -> Array:
        return np.asarray(inner_products(X, X2, value_of(self, "weight")) + value_of(self, "bias"))

    def _adjoint(self, B: Array, G: Array) -> Array:
        return G * (self.degree * B ** (self.degree - 1))

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        B = self._base(X)

        def pullback(G: Array) -> Array:
            S = self._adjoint(B, G)
            weights = np.einsum("nk,nk->k", X, S @ X)  # Σ_ij S_ij x_ik x_jk
            return np.append(sum_if_shared(self.weight, weights), S.sum())

        return B**self.degree, pullback

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        B, own = self._base(X, Z), (X**2 * value_of(self, "weight")).sum(axis=1) + value_of(self, "bias")

        def pullback(G: Array, g: Array) -> Array:
            S, s = self._adjoint(B, G), self._adjoint(own, g)
            weights = np.einsum("nk,nk->k", X, S @ Z) + s @ X**2
            return np.append(sum_if_shared(self.weight, weights), S.sum() + s.sum())

        return np.asarray(B**self.degree), self.diag(X), pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        return np.asarray(2.0 * (self._adjoint(self._base(X), G) @ X) * value_of(self, "weight"))

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return np.asarray(self._base(X, X2) ** self.degree)

    def diag(self, X: Array) -> Array:
        own = (X**2 * value_of(self, "weight")).sum(axis=1) + value_of(self, "bias")
        return np.asarray(own**self.degree)


@dataclass(frozen=True)
class _Walk(Kernel):
    """variance * r(t, t'), t = x - origin, for one input; walks to either side of the origin are independent."""

    variance: Value = parameter("variance", dimension=(-1.0, 2.0))
    origin: float = 0.0
    _most_inputs = 1

    def _own_in_standard_units(self, units: Units) -> dict[str, Any]:
        check_inputs(self, len(units.spread))
        origin = self.origin if self.standardized else (self.origin - units.centre[0]) / units.spread[0]
        return super()._own_in_standard_units(units) | {"origin": origin}

    @abstractmethod
    def _unit(self, t: Array, t2: Array) -> Array:
        """r(t, t') for |t| and |t'| that broadcast, on one side."""

    @abstractmethod
    def _slope(self, t: Array, t2: Array) -> Array:
        """∂r/∂|t|."""

    def _times(self, X: Array) -> Array:
        check_inputs(self, X.shape[1])
        return np.asarray(X[:, 0] - self.origin)

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        K = self(X)
        return K, lambda G: np.array([np.vdot(G, K) / self.variance])

    def inducing_vjp(self, X: Array, Z: Array) -> tuple[Array, Array, InducingPullback]:
        K, k = self(X, Z), self.diag(X)
        return K, k, lambda G, g: np.array([(np.vdot(G, K) + g @ k) / self.variance])

    def input_vjp(self, X: Array, G: Array) -> Array:
        t = self._times(X)
        slopes = np.sign(t)[:, None] * _same_side(t, t) * self._slope(np.abs(t)[:, None], np.abs(t))
        return np.asarray(2.0 * value_of(self, "variance") * np.sum(G * slopes, axis=1, keepdims=True))

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        t = self._times(X)
        t2 = t if X2 is None else self._times(X2)
        return np.asarray(value_of(self, "variance") * _same_side(t, t2) * self._unit(np.abs(t)[:, None], np.abs(t2)))

    def diag(self, X: Array) -> Array:
        t = np.abs(self._times(X))
        return np.asarray(value_of(self, "variance") * self._unit(t, t))


def _same_side(t: Array, t2: Array) -> Array:
    return np.asarray(np.sign(t)[:, None] == np.sign(t2))


@dataclass(frozen=True)
class Wiener(_Walk):
    """variance * min(|t|, |t'|), t = x - origin, for one input: a random walk that is 0 at the origin.

    The walks to either side of the origin are independent.

    Parameters
    ----------
    variance : float or prior, optional
        Growth of the variance per unit of x.
    origin : float, default=0
        Where the walk starts.
    """

    def _unit(self, t: Array, t2: Array) -> Array:
        return np.asarray(np.minimum(t, t2))

    def _slope(self, t: Array, t2: Array) -> Array:
        return 0.5 * (1.0 + np.sign(t2 - t))  # ½ where t = t': its two sides, averaged


@dataclass(frozen=True)
class IntegratedWiener(_Walk):
    """variance * a² (3b - a)/6, a = min(|t|, |t'|), b = max(|t|, |t'|), t = x - origin, for one input.

    The integral of a random walk: functions whose second derivative is white noise, 0 at the origin with their slope.
    With a line under wide priors, `IntegratedWiener(v, origin=below) + Linear(1e4) + Constant(1e4)`, and noise of
    variance s, the posterior mean is the cubic smoothing spline, the minimum of Σ (y - f)² + (s/v) ∫ f''²
    (Wahba 1978; MacKay 1998, section 2.3).  Take an origin at or below the smallest input.

    Parameters
    ----------
    variance : float or prior, optional
        Variance of f'' per unit of x.
    origin : float, default=0
        Where the walk starts.
    """

    variance: Value = parameter("variance", dimension=(-3.0, 2.0))

    def _unit(self, t: Array, t2: Array) -> Array:
        a, b = np.minimum(t, t2), np.maximum(t, t2)
        return np.asarray(a**2 * (3.0 * b - a) / 6.0)

    def _slope(self, t: Array, t2: Array) -> Array:
        a = np.minimum(t, t2)
        return np.asarray(a * (t2 - 0.5 * a))  # a = t: t t' - t²/2; a = t': t'²/2
