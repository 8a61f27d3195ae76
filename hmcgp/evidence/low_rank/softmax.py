"""Laplace's approximation of several classes under low-rank covariances; symbols as in `evidence.laplace.softmax`.

The mode is found by `mode_search`, with the algebra of `classes`.  There log Z = Ψ - ½ log|I + WC| and, with
Ŝ_c the posterior variance of f_c - Σ_a π_a f_a at a row, s_c = -½ ωπ_c (Ŝ_c - Σ_a π_a Ŝ_a) and u = (I + WC)⁻¹ s,

    G_c = ½((u_c + ½g_c)g_c' + g_c(u_c + ½g_c)' - R_cc),

exact by the implicit function theorem.

Latent predictions, with v*_c = L_c⁻¹k_c: means v*_c'V_c'α_c, covariance between classes
δ_ab (k** - v*_a'v*_a) + v*_a'(A⁻¹)_ab v*_b.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.laplace.softmax_terms import log_joint
from hmcgp.evidence.low_rank.classes import ConditionedClasses, LowRankClasses
from hmcgp.evidence.low_rank.mode_search import find_mode
from hmcgp.evidence.low_rank.structure import LowRank, LowRankAdjoint
from hmcgp.evidence.protocols import Evidence, Structure
from hmcgp.evidence.status import leave_classes_out
from hmcgp.likelihoods import Softmax
from hmcgp.numerics.compiled import compiled
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class LowRankClassesPosterior:
    """N(f, (C⁻¹ + W)⁻¹) with f the mode, over all classes together; W = diag p - pp'/Σp at each row."""

    L: Array  # (k, m, m) factors of K_mm, one for all classes or one for each
    L_A: Array  # (Cm, Cm) factor of A
    weight: Array  # (C, m) V_c'α_c
    f: Array  # (C, n) mode
    alpha: Array  # (C, n) C⁻¹f
    p: Array  # (C, n) ωπ
    S: Array  # (n, C, C) posterior covariance of the latent values of each row

    @property
    def start(self) -> Array:
        """The mode, flat: the next solution starts from it."""
        return self.f.ravel()

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean (n, C) and covariance (n, C, C) of the latents of every row, by linear response."""
        return leave_classes_out(self.f, self.alpha, self.S, self.p)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Mean (q, C) and covariance (q, C, C) of the C latents at each of q new inputs.

        K_cross, of shape (m, q) or (C, m, q), covariances with the inducing inputs, and k_diag, (q,) or (C, q), are of
        all classes or of each.
        """
        mean, prior, after = self._parts(K_cross)
        covariance = np.einsum("akq,bkq->qab", after, after, optimize=True)
        own = np.atleast_2d(k_diag) - np.einsum("cmq,cmq->cq", prior, prior)
        covariance[:, range(len(after)), range(len(after))] += np.maximum(own, 0.0).T
        return mean, covariance

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Mean (q, C) and covariance (q, C, q, C) of the latents of all classes at all new inputs together."""
        mean, prior, after = self._parts(K_cross)
        covariance = np.tensordot(after, after, axes=(1, 1)).transpose(1, 0, 3, 2)
        own = np.broadcast_to(K_new, (len(after), *K_new.shape[-2:]))
        for c in range(len(after)):
            v = prior[c % len(prior)]
            covariance[:, c, :, c] += own[c] - v.T @ v
        return mean, covariance

    def _parts(self, K_cross: Array) -> tuple[Array, Array, Array]:
        """Mean (q, C), L_c⁻¹k_c, of shape (1 or C, m, q), and L_A⁻¹ of these at the place of each class, (C, Cm, q)."""
        crosses = K_cross.reshape(-1, *K_cross.shape[-2:])
        prior = np.stack([_solve(self.L[c % len(self.L)], cross) for c, cross in enumerate(crosses)])
        n_classes, m = self.weight.shape
        after = np.zeros((n_classes, n_classes * m, prior.shape[-1]))
        mean = np.empty((prior.shape[-1], n_classes))
        for c in range(n_classes):
            v = prior[c % len(prior)]
            mean[:, c] = self.weight[c] @ v
            after[c, c * m : (c + 1) * m] = v
            after[c, c * m :] = _solve(self.L_A[c * m :, c * m :], after[c, c * m :])  # zero above
        return mean, prior, after


def _solve(L: Array, right: Array) -> Array:
    return np.asarray(solve_triangular(L, right, lower=True, check_finite=False))


class _Iterate(NamedTuple):
    alpha: Array
    f: Array
    psi: float
    g: Array
    w: Array  # diagonal of W
    pi: Array


@compiled
def _terms(y: Array, weights: Array, alpha: Array, f: Array) -> tuple[float, Array]:
    """Ψ, and a state whose rows have π, g and the diagonal of W."""
    state = np.zeros((row.ROWS, f.shape[0]))
    for k in range(f.shape[0]):
        state[row.WEIGHT, k] = weights[k % y.shape[0]]
    return log_joint(y, alpha, f, state), state


class _Classes(NamedTuple):
    """Classes 0, 1, … under low-rank covariances (see `mode_search.Problem`)."""

    priors: tuple[LowRank, ...]
    y: Array
    n_classes: int
    weights: Array
    tol: float

    @property
    def rank(self) -> int:
        return self.n_classes * self.priors[0].rank

    @property
    def variances(self) -> Array:
        own = [prior.variances for prior in self.priors]
        return np.concatenate(own if len(own) == self.n_classes else own * self.n_classes)

    @property
    def total_weight(self) -> float:
        return float(self.weights.sum())  # |W| <= ½ω at each row

    @property
    def zero(self) -> Array:
        return np.zeros(self.n_classes * len(self.y))

    def at(self, alpha: Array, f: Array) -> _Iterate:
        psi, state = _terms(self.y, self.weights, alpha, f)
        return _Iterate(alpha, f, psi, state[row.SLOPE], state[row.CURVATURE], state[row.PROBABILITY])

    def factor(self, here: _Iterate) -> ConditionedClasses:
        return ConditionedClasses.of(self.priors, self.weights * self.by_class(here.pi))

    def by_class(self, x: Array) -> Array:
        return x.reshape(self.n_classes, -1)

    def pushed(self, there: _Iterate) -> Array:
        pi, f = self.by_class(there.pi), self.by_class(there.f)
        return np.asarray((self.weights * pi * (f - np.einsum("cn,cn->n", pi, f))).ravel() + there.g)

    def left(self, sites: ConditionedClasses, here: _Iterate, df: Array) -> float:
        """A step whose range over the classes of a row is δ changes log π(1 - π) by 2δ at most."""
        reach = np.ptp(self.by_class(df), axis=0)
        ratio = self.by_class(here.w * self.variances)
        return float((ratio / (1.0 + ratio) * np.expm1(np.minimum(2.0 * reach, 700.0)) * 0.5).sum())


def softmax_evidence(
    provider: SolverProvider,
    C: Structure,
    y: Array,
    likelihood: Softmax,
    start: Array | None,
    gradient: bool,
) -> Evidence:
    """Evidence of classes y under f_c ~ N(0, C_c) (see `Provider.__call__`)."""
    n_classes, weights = likelihood.count(y), likelihood.row_weights(len(y))
    priors = C.parts if isinstance(C, LowRankClasses) else (C,)
    problem = _Classes(priors, y, n_classes, weights, provider.tol)
    begin, warm = provider.starting_point(start, y, n_classes * len(y))
    here, sites, n_factor, residual = find_mode(provider, problem, begin if warm else None)
    coupled = sites.coupled(gradient)
    dK = None
    if gradient:
        found = sites.pull_back(*_rank_two(problem, here, sites, coupled.S), coupled)
        dK = found[0]
        if isinstance(C, LowRankClasses):
            dK = LowRankAdjoint(*(np.stack(parts) for parts in zip(*found, strict=True)))
    f, alpha, pi = (problem.by_class(x) for x in (here.f, here.alpha, here.pi))
    weight = np.stack([priors[c % len(priors)].V.T @ own for c, own in enumerate(alpha)])
    posterior = LowRankClassesPosterior(
        np.stack([prior.L for prior in priors]), sites.L, weight, f, alpha, weights * pi, coupled.S
    )
    return Evidence(here.psi - 0.5 * sites.log_det, dK, np.empty(0), posterior, n_factor - 1, residual)


def _rank_two(problem: _Classes, here: _Iterate, sites: ConditionedClasses, S: Array) -> tuple[Array, Array]:
    """The two factors u + ½g and g of the cotangent, each of shape (C, n)."""
    pi = problem.by_class(here.pi)
    deviation = np.eye(len(pi)) - pi.T[:, None, :]  # of f_c from Σ_a π_a f_a, (n, C, C)
    spread = np.einsum("nca,nab,ncb->cn", deviation, S, deviation, optimize=True)
    s = -0.5 * problem.weights * pi * (spread - np.einsum("cn,cn->n", pi, spread))
    u = problem.by_class(sites.respond(s.ravel())[0])
    g = problem.by_class(here.g)
    return u + 0.5 * g, g
