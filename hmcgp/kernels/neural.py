"""Covariance function of a neural network with infinitely many hidden units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hmcgp.kernels.base import Kernel, Pullback, Value, inner_products, parameter, sum_if_shared, value_of
from hmcgp.kernels.compiled import neural as core
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class NeuralNetwork(Kernel):
    """variance * (2/π) asin(N(x, x') / sqrt((1 + N(x, x)) (1 + N(x', x')))), N(x, x') = 2 (b + Σ_k w_k x_k x'_k).

    The covariance of f(x) = Σ_h v_h erf(u_h0 + Σ_k u_hk x_k) with infinitely many hidden units h, whose biases u_h0 and
    weights u_hk are independent normals of variance b and w_k (Williams 1998, Neural Computation 10, with
    Σ = diag(b, w_1, …, w_d)).  It saturates: far out, f becomes constant along every ray from the origin.

    With `variance=1`, `bias_variance=0` and `weight_variance` the diagonal of ½Λ it is the form that Opper & Winther
    use (1999, NIPS 11, eq. 1): (2/π) asin(x·Λx' / sqrt((1 + x·Λx) (1 + x'·Λx'))).  Where x carries a constant 1, half
    its element of Λ is `bias_variance`.

    Parameters
    ----------
    variance : float or prior, optional
        Limit of k(x, x) far from the origin; smaller near it, (2/π) variance asin(2b/(1 + 2b)) at the origin itself.
    bias_variance : float or prior, optional
        Variance b of the biases of the hidden units.  0 makes f odd: f(-x) = -f(x).
    weight_variance : float, sequence of float or prior, optional
        Variance w of the weights into the hidden units, one for all inputs or, with `ard`, one per input.  Hidden units
        turn over a distance of about 1/sqrt(w).
    ard : bool, default=False
        One weight variance per input.  An input whose weights have a small variance hardly matters.
    """

    variance: Value = parameter("variance")
    bias_variance: Value = parameter("bias", allowed=(0.0,))
    weight_variance: Value = parameter("weight", per_input=True, dimension=(-2.0, 0.0))
    ard: bool = False

    def _gram(self, X: Array, X2: Array | None = None) -> Array:
        """N(x, x') for all pairs of rows."""
        N = inner_products(X, X2, 2.0 * value_of(self, "weight_variance"))
        N += 2.0 * value_of(self, "bias_variance")
        return N

    def _own(self, X: Array) -> Array:
        """N(x, x) of each row."""
        return 2.0 * (value_of(self, "bias_variance") + (X**2 * value_of(self, "weight_variance")).sum(axis=1))

    def _scale(self) -> float:
        return 2.0 / math.pi * float(value_of(self, "variance"))

    def vjp(self, X: Array) -> tuple[Array, Pullback]:
        N, scale = self._gram(X), self._scale()
        K = core.covariance(N, scale)

        def pullback(G: Array) -> Array:
            S = core.pull_back(G, N, scale)
            weights = 2.0 * np.einsum("nk,nk->k", X, S @ X)  # ∂N_ij/∂w_k = 2 x_ik x_jk
            weights = sum_if_shared(self.weight_variance, weights)
            return np.concatenate([[np.vdot(G, K) / self.variance, 2.0 * S.sum()], weights])

        return K, pullback

    def input_vjp(self, X: Array, G: Array) -> Array:
        S = core.pull_back(G, self._gram(X), self._scale())
        return np.asarray(4.0 * (S @ X) * value_of(self, "weight_variance"))

    def __call__(self, X: Array, X2: Array | None = None) -> Array:
        if X2 is None:
            return core.covariance(self._gram(X), self._scale())
        return core.cross_covariance(self._gram(X, X2), self._own(X), self._own(X2), self._scale())

    def diag(self, X: Array) -> Array:
        N = self._own(X)
        return np.asarray(self._scale() * np.arctan2(N, np.sqrt(1.0 + 2.0 * N)))
