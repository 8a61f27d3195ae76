"""Latent predictions by products with a matrix, computed once for a posterior, instead of a triangular solve each time.

    μ(x) = k'α,     σ²(x) = k** - k'Rk = k** - |k'F|²,     FF' = R

with k the prior covariances between x and the training rows.  A triangular product runs at 1.4 to 2 times the speed of
a triangular solve, in float32 at twice that.  Which of the forms a posterior takes:

`Product`   F, triangular: diag(s) L⁻ᵀ from a Cholesky factor with R = diag(s) (LL')⁻¹ diag(s), or the factor of R.
            Computing L⁻¹ and multiplying loses up to about eps cond(L) of k**, where solving loses eps (Higham 2002,
            ch. 14): F is used while the condition number of L stays below CONDITION, so that 1e-10 of k** is lost.
`Solve`     L, beyond that.
`Quadratic` R itself, where it has no factor: sites of negative precision, or rows that say next to nothing.
`Reduced`   an approximation from k at some training rows only (`hmcgp.posterior.reduction`).

*float32.*  Means are always computed in float64.  Let u = 2⁻²⁴.  Rounding F, k and the sums of g = F'k by independent
relative errors of standard deviation at most u (Higham & Mary 2019, SIAM J. Sci. Comput. 41) changes |g|² by

    2 Σ_j g_j δ_j,   of standard deviation at most 8u |F| |k|_∞ |g| <= 8u |F| κ^(3/2),

as |k_i| <= κ, the prior variance, |g|² <= κ, and about ten rounded terms enter each g_j beside those of F and k.  A
class probability behind a probit of variance 1, or a logistic, moves by at most φ(1)/2 = 0.121 times the error of the
variance.  So three standard deviations stay below SINGLE_ERROR where |F| κ^(3/2) <= SINGLE_ERROR/(0.121 * 3 * 8u).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrmm, strmm
from scipy.linalg.lapack import dtrcon

from hmcgp.numerics.lapack import cholesky_inplace, inverse_triangle_inplace
from hmcgp.numerics.triangular import inner_products, squared_lengths
from hmcgp.runtime.typing import Array

CONDITION = 4e5  # of a Cholesky factor, below which its inverse is as good as solving with it
SINGLE_ERROR = 1e-5  # of a probability, by float32
_SLOPE = 0.121  # of a probability in the variance of its latent value, at most
FEW_ROWS = 4  # up to which BLAS is not faster
_POWERS = 10  # iterations for the norm of F, which they underestimate by
_NORM_MARGIN = 1.5  # at most this, but for rare accidents


class Explained(Protocol):
    """The part of the prior variance that the targets explain, k'Rk."""

    def of_rows(self, K: Array) -> Array:
        """K'Rk for each row k of K, of shape (m, n), as (m,)."""

    def between(self, K: Array) -> Array:
        """K R K', of shape (m, m)."""


@dataclass(frozen=True)
class Product:
    """|k'F|² with F triangular, zeros in its other half."""

    F: Array  # (n, n), float64 or float32
    lower: bool

    def of_rows(self, K: Array) -> Array:
        if len(K) <= FEW_ROWS:
            return squared_lengths(np.ascontiguousarray(K), self.F, self.lower)
        G = self._times(K.astype(self.F.dtype))
        return np.einsum("mn,mn->m", G, G).astype(float)

    def between(self, K: Array) -> Array:
        G = self._times(K.astype(self.F.dtype)).astype(float)
        return np.asarray(G @ G.T)

    def _times(self, K: Array) -> Array:
        """K F, in the place of K."""
        trmm = dtrmm if self.F.dtype == np.float64 else strmm
        # BLAS sees the transposes, in its own order: (KF)' = F'K'
        return np.asarray(trmm(1.0, self.F.T, K.T, lower=not self.lower, overwrite_b=True).T)

    def in_single(self) -> Product:
        """These products in float32."""
        return Product(self.F.astype(np.float32), self.lower)

    def norm(self) -> float:
        """Largest singular value of F, by power iterations, and at most _NORM_MARGIN times it."""
        x = np.random.default_rng(0).normal(size=len(self.F))
        size = 0.0
        for _ in range(_POWERS):
            x = self.F @ (self.F.T @ (x / max(float(np.linalg.norm(x)), 1e-300)))
            size = float(np.linalg.norm(x))
        return _NORM_MARGIN * float(np.sqrt(size))


@dataclass(frozen=True)
class Solve:
    """|L⁻¹(s k)|² by solving."""

    L: Array  # (n, n), of which the lower triangle is read
    scale: Array | None  # (n,) s; None: 1

    def of_rows(self, K: Array) -> Array:
        V = self._solved(K)
        return np.einsum("nm,nm->m", V, V)

    def between(self, K: Array) -> Array:
        V = self._solved(K)
        return np.asarray(V.T @ V)

    def _solved(self, K: Array) -> Array:
        scaled = K.T if self.scale is None else self.scale[:, None] * K.T
        return np.asarray(solve_triangular(self.L, scaled, lower=True, check_finite=False))


@dataclass(frozen=True)
class Quadratic:
    """k'Rk by R."""

    R: Array  # (n, n)

    def of_rows(self, K: Array) -> Array:
        return np.einsum("mn,mn->m", K @ self.R, K)

    def between(self, K: Array) -> Array:
        return np.asarray(K @ self.R @ K.T)


@dataclass(frozen=True)
class Reduced:
    """An approximation |k_z'F|², with k_z the covariances to the first of the rows."""

    product: Product  # of order M

    def of_rows(self, K: Array) -> Array:
        return self.product.of_rows(K[:, : len(self.product.F)])

    def between(self, K: Array) -> Array:
        return self.product.between(K[:, : len(self.product.F)])


@dataclass(frozen=True)
class LatentProducts:
    """Latent mean k'α and variance k** - k'Rk."""

    alpha: Array  # (n,), or (n, c) for c columns of targets
    explained: Explained | None  # None: the variance is that of the prior
    scale: Array | None = None  # (n,) by which k is multiplied first; None: 1

    def predict_rows(self, K: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean and variance at m new inputs.

        Parameters
        ----------
        K : ndarray of shape (m, n)
            Prior covariance between the new and the training inputs.
        k_diag : ndarray of shape (m,)
            Prior variance at the new inputs.

        Returns
        -------
        mean : ndarray of shape (m,) or (m, c)
        variance : ndarray of shape (m,)
        """
        K = K if self.scale is None else K * self.scale
        mean = self._times_alpha(K)
        if self.explained is None:
            return mean, np.array(k_diag, dtype=float)
        # rounding can leave a variance of -1e-16 where it is 0
        return mean, np.maximum(k_diag - self.explained.of_rows(K), 0.0)

    def mean_of_rows(self, K: Array) -> Array:
        """Latent mean at new inputs (see `predict_rows`)."""
        return self._times_alpha(K if self.scale is None else K * self.scale)

    def _times_alpha(self, K: Array) -> Array:
        if self.alpha.ndim == 1 and len(K) <= FEW_ROWS:
            return inner_products(np.ascontiguousarray(K), self.alpha)
        return np.asarray(K @ self.alpha)

    def in_single(self, variance: float) -> LatentProducts:
        """Products in float32 if probabilities allow it where the prior variance is that, else these."""
        allowed = SINGLE_ERROR / (_SLOPE * 3.0 * 8.0 * 2.0**-24)
        if not isinstance(self.explained, Product) or not self.explained.norm() * variance**1.5 <= allowed:
            return self
        return LatentProducts(self.alpha, self.explained.in_single(), self.scale)


@runtime_checkable
class SupportsProducts(Protocol):
    """A posterior whose latent predictions are products."""

    def products(self) -> LatentProducts:
        """Matrices from which latent means and variances follow (see `LatentProducts`)."""


def by_factor(L: Array, scale: Array | None = None) -> Explained:
    """K'Rk for R = diag(s) (LL')⁻¹ diag(s), from the lower triangle of L: without s, of (LL')⁻¹."""
    reciprocal, info = dtrcon(L.T, norm="1", uplo="U")
    if info != 0 or not reciprocal * CONDITION >= 1.0:
        return Solve(L, scale)
    T = np.tril(L)
    inverse_triangle_inplace(T)
    return Product(np.ascontiguousarray((T if scale is None else T * scale).T), lower=False)


def by_precision(R: Array) -> Explained:
    """K'Rk for a symmetric R, both of whose triangles are there."""
    F = np.tril(R)
    if not (cholesky_inplace(F) and np.isfinite(F).all()):
        return Quadratic(R)
    return Product(F, lower=True)
