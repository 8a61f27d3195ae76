"""Covariance functions that are not functions of x - x' alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp._typing import Array
from hmcgp.kernels.base import Kernel, Pullback, Value, bound_value, parameter


@dataclass(frozen=True)
class Constant(Kernel):
    """variance, everywhere: an unknown offset of the function, b ~ N(0, variance).

    Parameters
    ----------
    variance : float or prior, optional
    """

    variance: Value = parameter("variance")

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        """Covariance matrix and pullback (see `Kernel.vjp`)."""
        return self(X), lambda G: np.array([G.sum()])

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Zero: the inputs do not matter."""
        return np.zeros(X.shape)

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        return np.full((len(X), len(X if X2 is None else X2)), float(bound_value(self, "variance")))

    def diag(self, X: Array) -> Array:
        """Prior variance at each row of X."""
        return np.full(len(X), float(bound_value(self, "variance")))


@dataclass(frozen=True)
class Linear(Kernel):
    """Σ_k variance_k x_k x'_k: a linear function with independent slopes of these variances.

    Parameters
    ----------
    variance : float, sequence of float or prior, optional
        One for all inputs or, with `ard`, one per input.
    ard : bool, default=False
        One variance per input.
    """

    variance: Value = parameter("variance", per_input=True)
    ard: bool = False

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        """Covariance matrix and pullback (see `Kernel.vjp`)."""

        def pullback(G: Array) -> Array:
            slopes = np.einsum("nk,nk->k", X, G @ X)  # Σ_ij G_ij x_ik x_jk
            return slopes if np.ndim(self.variance) == 1 else slopes.sum(keepdims=True)

        return self(X), pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Derivatives with respect to X (see `Kernel.input_vjp`)."""
        return np.asarray(2.0 * (G @ X) * bound_value(self, "variance"))

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        root = np.sqrt(bound_value(self, "variance"))  # on both sides: the product is then symmetric to the last bit
        S = X * root
        return np.asarray(S @ (S if X2 is None else X2 * root).T)

    def diag(self, X: Array) -> Array:
        """Prior variance at each row of X."""
        return np.asarray((X**2 * bound_value(self, "variance")).sum(axis=1))


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
        """Covariance matrix and pullback (see `Kernel.vjp`)."""
        return self(X), lambda G: np.array([np.trace(G)])

    def input_vjp(self, X: Array, G: Array) -> Array:
        """Zero: the inputs do not matter."""
        return np.zeros(X.shape)

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        if X2 is not None:
            return np.zeros((len(X), len(X2)))
        return np.diag(self.diag(X))

    def diag(self, X: Array) -> Array:
        """Prior variance at each row of X."""
        return np.full(len(X), float(bound_value(self, "variance")))
