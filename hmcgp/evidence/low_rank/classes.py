"""Low-rank covariances of the latent functions of several classes, coupled at each row by the softmax.

Class c has the prior covariance C_c = V_c V_c' + diag d_c (`structure`).  With p = ωπ, the curvature of the softmax at
row i is W_i = diag p - pp'/ω, a matrix of the classes, and with s_c = p_c/(1 + p_c d_c), s̄ = Σ_a s_a,

    T_i = (W_i⁺ + D_i)⁻¹ = diag s - ss'/s̄,     e_i = (I + W_i D_i)⁻¹ = I - T_i D_i,
    A = I + 𝒱'T𝒱,  whose blocks are A_ab = δ_ab I + Σ_i T_i[a, b] v_ai v_bi'   (Cm, Cm),
    log|I + W𝒞| = Σ_i log(s̄_i/ω_i Π_c (1 + p_c d_c)) + log|A|,
    x = (I + W𝒞)⁻¹ r = er - T𝒱z,   𝒞x = D er + e'𝒱z,   z = A⁻¹𝒱'er,
    S_i = D_i e_i + e_i'Q_i e_i,    R_i = T_i - T_i Q_i T_i,    Q_i[a, b] = v_ai'(A⁻¹)_ab v_bi,
    (R_cc V_c)_i = Σ_a T_i[c, a] v_ai'(A⁻¹)_ac,     V_c'R_cc V_c = I - (A⁻¹)_cc:

everything in O(n(Cm)²) operations and O(nm) memory for each class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.low_rank.structure import LowRank, LowRankAdjoint, inverse
from hmcgp.numerics.lapack import cholesky_inplace, log_determinant
from hmcgp.numerics.row_blocks import add_weighted_gram, solve_inplace
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class LowRankClasses:
    """One low-rank covariance for the latent function of each class."""

    parts: tuple[LowRank, ...]

    @classmethod
    def of(cls, K: Array, k: Array) -> Self:
        """Structure from stacked covariances, of shape (C, m + n, m), and variances (see `LowRank.of`)."""
        return cls(tuple(LowRank.of(own, variances) for own, variances in zip(K, k, strict=True)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, n, n), as of stacked dense covariances."""
        return (len(self.parts), *self.parts[0].shape)

    def dense(self) -> Array:
        """Matrices of shape (C, n, n)."""
        return np.stack([part.dense() for part in self.parts])


class Coupled(NamedTuple):
    """Posterior covariances of the latent values of each row, and the parts of the cotangent that they share."""

    S: Array  # (n, C, C)
    R: Array  # (C, n) diagonals R_cc,ii
    RV: list[Array]  # R_cc V_c below m rows of work space, (m + n, m): of each part; empty without the gradient


@dataclass(frozen=True)
class ConditionedClasses:
    """Covariances of classes with the curvature of the softmax; make it by `of`."""

    priors: tuple[LowRank, ...]  # one, or one for each class
    e: Array  # (C, n) 1/(1 + pd)
    d: Array  # (C, n)
    s: Array  # (C, n) p/(1 + pd)
    L: Array  # (Cm, Cm) lower Cholesky factor of A
    log_det: float  # log|I + WC|

    @classmethod
    def of(cls, priors: tuple[LowRank, ...], p: Array) -> Self:
        """Algebra of the covariances of one or each class with p = ωπ, of shape (C, n)."""
        n_classes, m = len(p), priors[0].rank
        d = np.stack([prior.d for prior in priors]) if len(priors) > 1 else np.broadcast_to(priors[0].d, p.shape)
        stretch = 1.0 + p * d
        s = p / stretch
        total = s.sum(axis=0)
        A = np.eye(n_classes * m)
        for a in range(n_classes):
            for b in range(a + 1):
                others = s.sum(axis=0, where=np.arange(n_classes)[:, None] != a) if a == b else -s[b]
                A[a * m : (a + 1) * m, b * m : (b + 1) * m] += _gram(priors, a, b, s[a] * others / total)
        if not cholesky_inplace(A):
            raise NotPositiveDefinite("I + WC of the classes has no Cholesky factor.")
        log_det = float(np.log(stretch).sum() + np.log(total / p.sum(axis=0)).sum()) + log_determinant(A)
        if not np.isfinite(log_det):
            raise NotPositiveDefinite("the determinant of I + WC of the classes is not finite.")
        return cls(priors, 1.0 / stretch, d, s, np.tril(A), log_det)

    def respond(self, r: Array) -> tuple[Array, Array]:
        """Return x = (I + WC)⁻¹ r and Cx, flat, class after class, as r."""
        r = r.reshape(self.s.shape)
        total = self.s.sum(axis=0)
        er = self.e * r + self.s * (np.einsum("cn,cn->n", self.s * self.d, r) / total)
        z = np.concatenate([row @ self._rows(c) for c, row in enumerate(er)])
        solve_inplace(self.L, z)
        h = np.stack([self._rows(c) @ part for c, part in enumerate(z.reshape(len(r), -1))])
        mean = np.einsum("cn,cn->n", self.s, h) / total
        x = er - self.s * (h - mean)
        return x.ravel(), (self.d * er + self.e * h + self.d * self.s * mean).ravel()

    def _rows(self, c: int) -> Array:
        return self.priors[c % len(self.priors)].V

    def coupled(self, gradient: bool) -> Coupled:
        """Posterior covariances of each row, and with the gradient R_cc V_c of each part, summed where it is shared."""
        (n_classes, n), m = self.s.shape, self.priors[0].rank
        A_inverse, total = inverse(self.L), self.s.sum(axis=0)
        Q, RV = np.empty((n, n_classes, n_classes)), [np.zeros((m + n, m)) for _ in self.priors if gradient]
        for a in range(n_classes):
            for c in range(n_classes if gradient else a + 1):
                block = np.ascontiguousarray(A_inverse[a * m : (a + 1) * m, c * m : (c + 1) * m])
                rows = self._rows(a) @ block
                Q[:, a, c] = np.einsum("nm,nm->n", rows, self._rows(c))
                if gradient:
                    rows *= (self.s[a] * ((a == c) - self.s[c] / total))[:, None]
                    RV[c % len(RV)][m:] += rows
                else:
                    Q[:, c, a] = Q[:, a, c]
        T = np.einsum("cn,ca->nca", self.s, np.eye(n_classes)) - np.einsum("an,bn,n->nab", self.s, self.s, 1.0 / total)
        ds = (self.d * self.s).T
        e = np.einsum("cn,ca->nca", self.e, np.eye(n_classes)) + np.einsum("nc,an,n->nca", ds, self.s, 1.0 / total)
        S = np.einsum("cn,ca->nca", self.d * self.e, np.eye(n_classes)) + np.einsum("na,nb,n->nab", ds, ds, 1.0 / total)
        S += e @ Q @ e.transpose(0, 2, 1)
        R = np.einsum("ncc->cn", T) - np.einsum("nca,nab,nbc->cn", T, Q, T, optimize=True)
        return Coupled(S, R, RV)

    def pull_back(self, x: Array, z: Array, coupled: Coupled) -> list[LowRankAdjoint]:
        """Cotangent of each part for G_c = ½(x_c z_c' + z_c x_c' - R_cc), x and z of shape (C, n)."""
        m = self.priors[0].rank
        A_inverse = inverse(self.L)
        VRV = [np.eye(m) - A_inverse[c * m : (c + 1) * m, c * m : (c + 1) * m] for c in range(len(x))]
        dd = x * z - 0.5 * coupled.R
        found = []
        for k, (prior, work) in enumerate(zip(self.priors, coupled.RV, strict=True)):
            own = slice(k, None, len(self.priors))  # all classes where they share it
            found.append(prior.pull_back(x[own].T, z[own].T, work, np.sum(VRV[own], axis=0), dd[own].sum(axis=0)))
        return found


def _gram(priors: tuple[LowRank, ...], a: int, b: int, t: Array) -> Array:
    """Σ_i t_i v_ai v_bi'."""
    left, right = priors[a % len(priors)].V, priors[b % len(priors)].V
    if left is not right:
        return np.asarray((t[:, None] * left).T @ right)
    out = np.zeros((left.shape[1], left.shape[1]))
    add_weighted_gram(left, t, out)
    return out
