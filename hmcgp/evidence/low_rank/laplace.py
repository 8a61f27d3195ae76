"""Laplace's approximation under a low-rank covariance, in O(nm²) a Newton step; symbols as in `evidence.laplace`.

At the mode (`mode_search`) log Z = Ψ - ½ log|I + WC| and, with c_i = ½ S_ii ∂³log p and u = (I + WC)⁻¹ c,

    G = ½((u + ½g)g' + g(u + ½g)' - R),

the exact derivative, the motion of the mode included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.low_rank.mode_search import find_mode
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.evidence.protocols import Evidence
from hmcgp.likelihoods import Likelihood
from hmcgp.likelihoods.number_slopes import laplace_slopes
from hmcgp.likelihoods.terms import first_guess, likelihood_terms, log_constants
from hmcgp.runtime.typing import Array


class _Iterate(NamedTuple):
    """A pair (α, f = Cα) with the terms of the likelihood there."""

    alpha: Array
    f: Array
    psi: float
    g: Array  # ∇ log p
    w: Array  # -∇∇ log p
    ratio: Array  # third derivative over w


class Labels(NamedTuple):
    """Labels -1 and +1 under a low-rank covariance (see `mode_search.Problem`)."""

    C: LowRank
    y: Array
    numbers: Array  # (2, n)
    kind: int
    weights: Array
    tol: float

    @property
    def rank(self) -> int:
        return self.C.rank

    @property
    def variances(self) -> Array:
        return self.C.variances

    @property
    def total_weight(self) -> float:
        return float(self.weights.sum())

    @property
    def zero(self) -> Array:
        return np.zeros(len(self.y))

    def at(self, alpha: Array, f: Array) -> _Iterate:
        log_p, g, w, ratio = np.empty((4, len(f)))
        total = likelihood_terms(self.kind, self.y, *self.numbers, f, self.weights, log_p, g, w, ratio)
        return _Iterate(alpha, f, total - 0.5 * float(alpha @ f), g, w, ratio)

    def factor(self, here: _Iterate) -> Conditioned:
        return self.C.conditioned(here.w)

    def pushed(self, there: _Iterate) -> Array:
        return there.w * there.f + there.g

    def left(self, sites: Conditioned, here: _Iterate, df: Array) -> float:
        return float(np.abs(0.5 * sites.variances() * here.w * here.ratio * df).sum())


def laplace_evidence(
    provider: SolverProvider, C: LowRank, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
) -> Evidence:
    """Evidence of targets y under f ~ N(0, C) (see `Provider.__call__`)."""
    problem = Labels(C, y, likelihood.row_numbers(y), likelihood.kind, likelihood.row_weights(len(y)), provider.tol)
    begin, warm = provider.starting_point(start, np.zeros(len(y)), len(y))
    guessed = not warm and first_guess(problem.kind, y, *problem.numbers, C.variances, begin)
    here, sites, n_factor, residual = find_mode(provider, problem, begin if warm or guessed else None)
    log_z = here.psi - 0.5 * sites.log_det
    log_z += float(problem.weights @ log_constants(problem.kind, y, problem.numbers[1]))
    dK, variances, dlik = None, None, np.empty(0)
    if gradient:
        solved = sites.solved_rows()
        variances = solved.variances
        u, shift = sites.respond(0.5 * variances * here.w * here.ratio)
        dK = sites.pull_back((u + 0.5 * here.g)[:, None], here.g[:, None], solved)
        slopes = laplace_slopes(problem.kind, y, problem.numbers, here.f, problem.weights, variances * here.w, shift)
        dlik = likelihood.parameter_gradient(y, slopes)
    else:
        variances = sites.variances()
    inducing = InducingPosterior.of(sites, here.alpha)
    posterior = LowRankPosterior(inducing.L, inducing.L_A, inducing.weight, here.f, here.alpha, here.w, variances)
    return Evidence(log_z, dK, dlik, posterior, n_factor - 1, residual)
