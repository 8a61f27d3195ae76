"""Laplace approximation for the Student-t likelihood under a low-rank covariance C.

Symbols, and the two curvatures, as in `evidence.laplace.student_t`.

The search begins from the regression in which every row counts in full, takes two steps of expectation maximisation,

    f ← (C⁻¹ + E)⁻¹ E y,     along which Ψ never falls,

and then Newton's, halved while Ψ falls; where C⁻¹ + W is not positive definite, with what is positive of W in its
place, and where that does not help either, with E.  Factors are used again (chord steps).  This is another search than
that of dense covariances, and where there are several maxima it may end in another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.laplace.student_t import StudentProblem, student_cavities
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import refuse_lost_digits
from hmcgp.likelihoods import HeavyTerms, StudentT
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.row_blocks import solve_rows_inplace
from hmcgp.runtime.typing import Array

_CHORDS, _DOUBLINGS = 3, 8  # steps away from a saddle by one factor, and doublings of each
_EXPECTATIONS = 2  # factors with weights E
_HALVINGS = 30


class _Iterate(NamedTuple):
    """A pair (α, f = Cα) with Ψ and the terms of the likelihood there."""

    alpha: Array
    f: Array
    psi: float
    terms: HeavyTerms

    @property
    def residual(self) -> Array:
        return self.terms.g - self.alpha

    def decrement(self, step: tuple[Array, Array]) -> float:
        """√(r'δf), the size of the step."""
        return math.sqrt(max(float(self.residual @ step[1]), 0.0))


class _Search:
    """Search for a maximum of Ψ, counting factorisations."""

    def __init__(self, provider: SolverProvider, C: LowRank, y: Array, likelihood: StudentT) -> None:
        self.provider, self.C, self.y, self.likelihood = provider, C, y, likelihood
        self.scale = float(np.max(self.C.variances))
        self.patience = 2.0 + len(y) / 100.0  # chord steps that cost as much as a factorisation
        self.n_factor = 0
        self.decrement = math.inf

    def at(self, alpha: Array) -> _Iterate:
        f = self.C.times(alpha)
        terms = self.likelihood.terms(self.y, f)
        return _Iterate(alpha, f, float(terms.log_p.sum()) - 0.5 * float(alpha @ f), terms)

    def target(self, here: _Iterate) -> float:
        """Decrement to reach: rounding in f = Cα alone makes one of eps |K||α| √Σ|W|."""
        size = float(np.abs(here.alpha).sum())
        return max(self.provider.tol, EPS * self.scale * size * math.sqrt(float(np.abs(here.terms.w).sum())))

    def run(self) -> tuple[_Iterate, Conditioned]:
        """Maximum, and the covariance with W there."""
        here = self._regression()
        for _ in range(_EXPECTATIONS):
            here = self._steps(here, self._conditioned(here.terms.pull), math.inf)
        while True:
            try:
                sites = self._conditioned(here.terms.w)
            except NotPositiveDefinite:
                here = self._away_from_saddle(here)
                continue
            self.decrement, target = here.decrement(sites.respond(here.residual)), self.target(here)
            if self.decrement <= target:
                return here, sites
            there = self._steps(here, sites, 0.1 * target)
            here = there if there is not here else self._away_from_saddle(here)

    def _conditioned(self, w: Array) -> Conditioned:
        self.n_factor += 1
        if self.n_factor > self.provider.max_iter:
            raise NotConverged(
                f"{type(self.provider).__name__}: decrement {self.decrement:.1e} > tol {self.provider.tol:.1e} after "
                f"{self.provider.max_iter} factorisations; {self.provider.remedy}."
            )
        return self.C.conditioned(w)

    def _regression(self) -> _Iterate:
        """Where every row counts in full, as it would at its own target."""
        full = self.likelihood.terms(self.y, self.y).pull
        return self.at(self._conditioned(full).respond(full * self.y)[0])

    def _away_from_saddle(self, here: _Iterate) -> _Iterate:
        """Steps where Ψ bends upwards: with what is positive of W or, where Ψ would fall, with E."""
        sites = self._conditioned(np.maximum(here.terms.w, 0.0))
        there = self._steps(here, sites, math.inf)
        if there is here:
            return self._steps(here, self._conditioned(here.terms.pull), math.inf)
        for _ in range(_CHORDS):
            step = sites.respond(there.residual)
            self.decrement = there.decrement(step)
            ahead = self._ascend(there, step[0], 0)
            if ahead is None:
                break
            there = self._lengthened(there, ahead)
        return there

    def _lengthened(self, here: _Iterate, there: _Iterate) -> _Iterate:
        """Where twice the step, and twice that, leads, as long as Ψ rises: steps away from a saddle are short."""
        step = there.alpha - here.alpha
        for k in range(1, _DOUBLINGS):
            ahead = self.at(here.alpha + 2.0**k * step)
            if not ahead.psi > there.psi:
                break
            there = ahead
        return there

    def _steps(self, here: _Iterate, sites: Conditioned, enough: float) -> _Iterate:
        """Steps by one factor: the first halved until Ψ does not fall, others while a new factor would not pay."""
        step = sites.respond(here.residual)
        self.decrement = here.decrement(step)
        there = self._ascend(here, step[0], _HALVINGS)
        while there is not None:
            here = there
            if enough == math.inf:
                break
            step = sites.respond(here.residual)
            last, self.decrement = self.decrement, here.decrement(step)
            if self.decrement <= enough:
                break
            rate = self.decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(enough / self.decrement) < self.patience * math.log(rate):
                break
            there = self._ascend(here, step[0], 0)
        return here

    def _ascend(self, here: _Iterate, dalpha: Array, halvings: int) -> _Iterate | None:
        size = float(np.abs(here.alpha).sum())
        least = here.psi - 1e-13 * abs(here.psi) - 4.0 * EPS * self.scale * size * size
        for k in range(halvings + 1):
            there = self.at(here.alpha + 0.5**k * dalpha)
            if there.psi >= least:
                return there
        return None


@dataclass(frozen=True)
class LowRankStudentPosterior(LowRankPosterior):
    """N(f, (C⁻¹ + W)⁻¹) with f a maximum of Ψ, and W the expected curvature, or the observed one of either sign."""

    observed: Conditioned  # C with the observed curvature
    problem: StudentProblem

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of the latent values (see `StudentPosterior.cavity`)."""
        C, sites = self.observed.prior, self.observed
        rows, shifts = C.V.copy(), np.zeros(len(self.f))
        solve_rows_inplace(sites.L, rows, False)
        share = sites.e * (1.0 - sites.s * np.einsum("nm,nm->n", rows, rows))
        rows *= sites.e[:, None]  # S°_ij = rows_i'rows_j off the diagonal
        for i in range(len(shifts)):
            column = np.abs(rows @ rows[i])
            column[i] = 0.0
            shifts[i] = abs(self.alpha[i]) * column.max()
        variances = sites.variances()

        def solved_without(i: int) -> tuple[float, float]:
            rest, y, likelihood = self.problem.without(i)
            part = replace(C, V=C.V[rest], d=C.d[rest], variances=C.variances[rest])
            evidence = student_evidence(
                self.problem.provider, part, y, likelihood, gradient=False, observed=self.problem.observed
            )
            mean, variance = evidence.posterior.predict(C.L @ C.V[[i]].T, C.variances[[i]])
            return float(mean[0]), float(variance[0])

        return student_cavities(
            self.f, self.alpha, self.w, self.variances, variances, share, shifts, self.problem, solved_without
        )


def student_evidence(
    provider: SolverProvider, C: LowRank, y: Array, likelihood: StudentT, gradient: bool, *, observed: bool = False
) -> Evidence:
    """Evidence of numbers y under f ~ N(0, C) (see `Provider.__call__`), with the expected or observed curvature."""
    search = _Search(provider, C, y, likelihood)
    here, observed_sites = search.run()
    sites = observed_sites if observed else C.conditioned(likelihood.expected_curvature(len(y)))
    refuse_lost_digits(provider, here.alpha, sites.w, C.variances, search.n_factor)
    dK, dlik, g = None, np.empty(0), here.terms.g
    if gradient:
        solved = sites.solved_rows()
        variances = solved.variances
        if observed:
            u, shift = sites.respond(0.5 * variances * here.terms.third)
            dlik = likelihood.laplace_gradient(y, here.f, variances, shift)
            dK = sites.pull_back((u + 0.5 * g)[:, None], g[:, None], solved)
        else:
            dlik = likelihood.expected_laplace_gradient(y, here.f, variances)
            dK = sites.pull_back(0.5 * g[:, None], g[:, None], solved)
    else:
        variances = sites.variances()
    inducing = InducingPosterior.of(sites, here.alpha)
    parts = inducing.L, inducing.L_A, inducing.weight, here.f, here.alpha, sites.w, variances
    posterior = LowRankStudentPosterior(*parts, observed_sites, StudentProblem(provider, y, likelihood, observed))
    log_z = here.psi - 0.5 * sites.log_det
    return Evidence(log_z, dK, dlik, posterior, search.n_factor - 1, search.decrement)
