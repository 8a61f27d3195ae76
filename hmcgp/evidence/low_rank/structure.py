"""A prior covariance of low rank plus a diagonal, for rows that see each other through m inducing inputs.

    C = VV' + diag d,   V = K_nm L⁻ᵀ (n, m),   LL' = K_mm + jitter,   d = diag K - diag VV' >= 0

(FITC, the fully independent training conditional: Snelson & Ghahramani 2006; Quiñonero-Candela & Rasmussen 2005.)  Its
diagonal is that of K.  With site precisions w,

    e = 1/(1 + wd),   s = we,   A = I + Σ s_i v_i v_i' = L_A L_A',   q_i = v_i'A⁻¹v_i,
    log|I + WC| = Σ log(1 + w_i d_i) + log|A|,
    (I + WC)⁻¹ r = er - s Vz,   C(I + WC)⁻¹ r = e(dr + Vz),   z = A⁻¹V'(er),
    S = (C⁻¹ + W)⁻¹:  S_ii = e_i (d_i + e_i q_i),     R = (C + W⁻¹)⁻¹:  R_ii = s_i (1 - s_i q_i),   RV = s V A⁻¹,

all in O(nm²) operations and O(nm) memory, and stable as w tends to 0.  Every approximation of this package has a
cotangent of C of the form

    G = ½ Σ_k (x_k z_k' + z_k x_k') - ½ κR,     which is in V and d

    V̄ = 2GV = Σ_k x_k (V'z_k)' + z_k (V'x_k)' - κ s V A⁻¹,     d̄_i = G_ii,

and by way of d = diag K - diag VV' and V = K_nm L⁻ᵀ, with V̄ now less 2 d̄ V, in what the kernel computed

    K̄_nm = V̄L⁻¹,     K̄_mm = -½ L⁻ᵀ (V̄'V) L⁻¹,     k̄ = d̄

(the last but one since VV' = K_nm K_mm⁻¹ K_mn depends on K_mm through its inverse alone).  The jitter is a fixed share
of the mean of diag K_mm: part of the model, and of its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from hmcgp.errors import NotPositiveDefinite
from hmcgp.numerics.lapack import cholesky_inplace, log_determinant
from hmcgp.numerics.row_blocks import add_weighted_gram, solve_inplace, solve_rows_inplace, solved_squares
from hmcgp.runtime.typing import Array

JITTER = 1e-8  # share of the mean prior variance of the inducing inputs that is added to K_mm
_ROUNDING = 1e-8  # share of a variance by which rounding, at most, may leave d below 0


class LowRankAdjoint(NamedTuple):
    """Cotangents of the covariances K = [K_mm; K_nm] and of the variances, those of the inducing inputs first."""

    covariances: Array  # (m + n, m)
    variances: Array  # (m + n,)


@dataclass(frozen=True)
class LowRank:
    """Covariance VV' + diag d of n rows; make it by `of`.

    Attributes
    ----------
    V : ndarray of shape (n, m)
    d : ndarray of shape (n,)
        Variance that the inducing inputs do not explain.
    L : ndarray of shape (m, m)
        Lower Cholesky factor of K_mm with jitter, zeros above.
    variances : ndarray of shape (n,)
        Prior variances.
    """

    V: Array
    d: Array
    L: Array
    variances: Array

    @classmethod
    def of(cls, K: Array, k: Array) -> Self:
        """Structure from covariances [K_mm; K_nm] with m inducing inputs, of shape (m + n, m), and variances (m + n,).

        Raises NotPositiveDefinite where these are not parts of one covariance.
        """
        m = K.shape[1]
        L = np.tril(K[:m])
        L[np.diag_indices(m)] += JITTER * np.trace(L) / m
        if not (cholesky_inplace(L) and np.isfinite(L[-1, -1])):
            raise NotPositiveDefinite(f"the covariance of the {m} inducing inputs has no Cholesky factor.")
        V = K[m:].copy()
        solve_rows_inplace(L, V, False)
        variances = k[m:].copy()
        d = variances - np.einsum("nm,nm->n", V, V)
        if not (d >= -_ROUNDING * variances).all():  # NaN fails too
            raise NotPositiveDefinite("covariances with the inducing inputs exceed the prior variances, or are NaN.")
        return cls(V, np.maximum(d, 0.0), L, variances)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n), as of a dense covariance."""
        return len(self.d), len(self.d)

    @property
    def rank(self) -> int:
        """Number m of inducing inputs."""
        return self.V.shape[1]

    def __truediv__(self, divisor: float) -> Self:
        """C divided by a positive number."""
        root = divisor**0.5
        return replace(self, V=self.V / root, d=self.d / divisor, L=self.L / root, variances=self.variances / divisor)

    def times(self, x: Array) -> Array:
        """Cx, for x of shape (n,)."""
        return np.asarray(self.V @ (x @ self.V) + self.d * x)

    def dense(self) -> Array:
        """C as a matrix, of shape (n, n)."""
        return self.V @ self.V.T + np.diag(self.d)

    def pull_back(self, x: Array, z: Array, work: Array, VRV: Array, dd: Array) -> LowRankAdjoint:
        """Cotangent of what the kernel computed, for G = ½ Σ_k (x_k z_k' + z_k x_k') - ½ R.

        Parameters
        ----------
        x, z : ndarrays of shape (n, k)
        work : ndarray of shape (m + n, m)
            RV below its first m rows; it becomes the result.
        VRV : ndarray of shape (m, m)
            V'RV.
        dd : ndarray of shape (n,)
            Cotangent of d: the diagonal of G.
        """
        m, rows = self.rank, work[self.rank :]
        Vx, Vz = self.V.T @ x, self.V.T @ z  # (m, k)
        rows *= -1.0
        rows -= (2.0 * dd)[:, None] * self.V
        rows += x @ Vz.T
        rows += z @ Vx.T
        solve_rows_inplace(self.L, rows, True)
        M = Vz @ Vx.T + Vx @ Vz.T - VRV  # V̄'V, less 2 Σ d̄_i v_i v_i'
        add_weighted_gram(self.V, -2.0 * dd, M)
        work[:m] = inducing_cotangent(self.L, M)
        return LowRankAdjoint(work, np.concatenate([np.zeros(m), dd]))

    def conditioned(self, w: Array) -> Conditioned:
        """Algebra of C with site precisions w, of shape (n,); raises NotPositiveDefinite where C⁻¹ + W is not."""
        stretch = 1.0 + w * self.d
        if not stretch.min(initial=1.0) > 0.0:
            raise NotPositiveDefinite("negative sites outweigh the prior.")
        s, m = w / stretch, self.rank
        A = np.eye(m)
        add_weighted_gram(self.V, s, A)
        sizes = np.diag(A).copy()
        if not cholesky_inplace(A):
            raise NotPositiveDefinite(f"I + √W C √W has no Cholesky factor (largest prior variance {self._scale:.1e}).")
        log_det = float(np.log(stretch).sum()) + log_determinant(A)
        if not np.isfinite(log_det):
            raise NotPositiveDefinite("the determinant of I + √W C √W is not finite.")
        return Conditioned(self, w, 1.0 / stretch, s, np.tril(A), log_det, float(np.sum(sizes / np.diag(A) ** 2)))

    @property
    def _scale(self) -> float:
        return float(self.variances.max(initial=0.0))


@dataclass(frozen=True)
class Conditioned:
    """A structure C with site precisions w: the Gaussian (C⁻¹ + W)⁻¹ and what belongs to it."""

    prior: LowRank
    w: Array  # (n,)
    e: Array  # (n,) 1/(1 + wd)
    s: Array  # (n,) w/(1 + wd)
    L: Array  # (m, m) lower Cholesky factor of A
    log_det: float  # log|I + WC|
    cancellation: float  # Σ A_jj/L_jj²: by how much the pivots of A have cancelled

    def respond(self, r: Array) -> tuple[Array, Array]:
        """Return x = (I + WC)⁻¹ r and Cx, each of shape (n,)."""
        scaled = self.e * r
        z = scaled @ self.prior.V
        solve_inplace(self.L, z)
        h = self.prior.V @ z
        return scaled - self.s * h, self.prior.d * scaled + self.e * h

    def variances(self) -> Array:
        """Posterior variances S_ii, of shape (n,)."""
        return self._variances(solved_squares(self.L, self.prior.V))

    def _variances(self, q: Array) -> Array:
        return np.asarray(self.e * (self.prior.d + self.e * q))

    def solved_rows(self) -> SolvedRows:
        """A⁻¹v_i of every row: what posterior variances and the cotangent have in common."""
        prior, m = self.prior, self.prior.rank
        work = np.empty((m + len(self.s), m))
        rows = work[m:]
        rows[:] = prior.V
        solve_rows_inplace(self.L, rows, False)
        solve_rows_inplace(self.L, rows, True)
        q = np.einsum("nm,nm->n", prior.V, rows)
        return SolvedRows(work, q, self._variances(q))

    def pull_back(
        self, x: Array, z: Array, solved: SolvedRows, share: float = 1.0, dd: Array | None = None
    ) -> LowRankAdjoint:
        """Cotangent of what the kernel computed, for G = ½ Σ_k (x_k z_k' + z_k x_k') - ½ share R.

        Parameters
        ----------
        x, z : ndarrays of shape (n, k)
        solved : SolvedRows
            Of `solved_rows`; its work space becomes the result.
        share : float, default=1
        dd : ndarray of shape (n,), optional
            Cotangent of d, where it is not the diagonal of G.
        """
        m = self.prior.rank
        dd = self.pull_back_diagonal(x, z, solved, share) if dd is None else dd
        rows = solved.work[m:]
        rows *= (share * self.s)[:, None]  # share RV
        return self.prior.pull_back(x, z, solved.work, share * (np.eye(m) - inverse(self.L)), dd)

    def pull_back_diagonal(self, x: Array, z: Array, solved: SolvedRows, share: float = 1.0) -> Array:
        """Diagonal of G, of shape (n,): the derivative in any variance that is added to C."""
        return np.asarray(np.einsum("nk,nk->n", x, z) - 0.5 * share * self.s * (1.0 - self.s * solved.q))


class SolvedRows(NamedTuple):
    """A⁻¹v_i of all rows, and the posterior variances that follow."""

    work: Array  # (m + n, m), with A⁻¹v_i in row m + i
    q: Array  # (n,) v_i'A⁻¹v_i
    variances: Array  # (n,) S_ii


def inducing_cotangent(L: Array, M: Array) -> Array:
    """Cotangent of K_mm, -½ L⁻ᵀ M L⁻¹ for M = V̄'V, and by way of the jitter."""
    m = len(L)
    M = M.copy()
    solve_rows_inplace(L, M, True)
    M = np.ascontiguousarray(M.T)
    solve_rows_inplace(L, M, True)
    out = np.asarray(-0.25 * (M + M.T))
    out[np.arange(m), np.arange(m)] += JITTER / m * np.trace(out)
    return out


def inverse(L: Array) -> Array:
    """(LL')⁻¹, of shape (m, m)."""
    out = np.eye(len(L))
    solve_rows_inplace(L, out, False)
    solve_rows_inplace(L, out, True)
    return out
