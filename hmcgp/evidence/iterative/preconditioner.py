"""A low-rank model of C = K + diag s that can be inverted, drawn from and differentiated (symbols as in `estimate`).

    P = W'W + diag s,          W = L⁻¹ K_S,             LL' = K_SS + jitter        (partial Cholesky, pivots S)
    P⁻¹ = diag(1/s) - E'E,     E = R⁻¹ W diag(1/s),     RR' = I + W diag(1/s) W'   (Woodbury)
    log|P| = log|RR'| + Σ log s

The pivots S are a random subset of the rows, the same for every K of this size.  Greedy pivots are better at the same
rank, but change from one K to the next, and with them what is estimated with P: along a line of hyperparameters
(n = 1,000, noise 0.01, rank 200) log Z then jumps by 0.2, where with fixed pivots it is smooth to 0.001.
K - W'W is positive semidefinite, so that all eigenvalues of P⁻¹C are at least 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import NotPositiveDefinite
from hmcgp.numerics.lapack import cholesky_inplace, log_determinant, triangular_solve_inplace
from hmcgp.runtime.typing import Array

_JITTER = 1e-6  # of the mean prior variance at the pivots: they may coincide


class Preconditioner(NamedTuple):
    """P and its factors; vectors are rows, so that matrices of many of them are (m, n)."""

    pivots: NDArray[np.intp]  # (k,) indices S
    L: Array  # (k, k)
    W: Array  # (k, n)
    R: Array  # (k, k)
    E: Array  # (k, n)
    noise: Array  # (n,)

    def log_determinant(self) -> float:
        """Log |P|."""
        return float(log_determinant(self.R) + np.log(self.noise).sum())

    def solve(self, V: Array) -> Array:
        """P⁻¹v for each row v of V, of shape (m, n)."""
        return V / self.noise - (V @ self.E.T) @ self.E

    def inverse_diagonal(self) -> Array:
        """Diagonal of P⁻¹, of shape (n,)."""
        return 1.0 / self.noise - np.einsum("kn,kn->n", self.E, self.E)

    def factor_solve(self) -> Array:
        """W P⁻¹, of shape (k, n)."""
        out = self.E.copy()
        triangular_solve_inplace(self.R, out, True)
        return out

    def pull_back(self, dW: Array) -> Array:
        """Derivatives in the rows S of K from those in W, of shape (k, n).

        The sum of the result and its mirror image, in the rows and the columns S of K, is Σ dW ∂W/∂K.
        """
        L, k = self.L, len(self.pivots)
        dK = dW.copy()
        triangular_solve_inplace(L, dK, True)  # in K_S
        adjoint = L.T @ np.tril(-dK @ self.W.T)  # in L: its lower triangle; then through the Cholesky factorisation
        adjoint = np.tril(adjoint) - 0.5 * np.diag(np.diag(adjoint))
        triangular_solve_inplace(L, adjoint, True)
        adjoint = np.ascontiguousarray(adjoint.T)
        triangular_solve_inplace(L, adjoint, True)
        adjoint = 0.5 * (adjoint + adjoint.T)
        adjoint[np.diag_indices(k)] += _JITTER * np.trace(adjoint) / k
        square = dK[:, self.pivots] + adjoint
        dK *= 0.5  # what the mirror image doubles
        dK[:, self.pivots] = 0.25 * (square + square.T)
        return dK


def precondition(K: Array, noise: Array, pivots: NDArray[np.intp]) -> Preconditioner:
    """Model of K + diag noise by the rows `pivots` of K, which must be those of a finite covariance matrix."""
    W = K[pivots]  # (k, n), a copy
    L = np.ascontiguousarray(W[:, pivots])
    L[np.diag_indices_from(L)] += _JITTER * np.mean(np.diag(L))
    if not cholesky_inplace(L):
        raise NotPositiveDefinite(
            f"Iterative: {len(L)} rows of K are not positive definite to working precision; is K a finite covariance "
            "matrix?"
        )
    L = np.tril(L)
    triangular_solve_inplace(L, W, False)
    E = W / np.sqrt(noise)
    R = E @ E.T
    R[np.diag_indices_from(R)] += 1.0
    if not cholesky_inplace(R):
        raise NotPositiveDefinite(
            f"Iterative: the noise is lost beside the prior variance (least noise {noise.min():.1e}, largest prior "
            f"variance {np.max(np.diag(K)):.1e})."
        )
    E /= np.sqrt(noise)
    triangular_solve_inplace(R, E, False)
    return Preconditioner(pivots, L, W, R, E, noise)
