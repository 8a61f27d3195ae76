"""Laplace's approximation behind Student's t under a low-rank covariance C; symbols as in `evidence.laplace.student_t`.

The search begins from the regression in which every row counts in full, takes two steps of expectation maximisation,

    f ← (C⁻¹ + E)⁻¹ E y,     along which Ψ never falls,

and then Newton's, halved while Ψ falls; where C⁻¹ + W is not positive definite, with what is positive of W in its
place, and where that does not help either, with E.  Factors are used again (chord steps).  This is another search than
that of dense covariances, and where there are several maxima it may end in another one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import refuse_lost_digits
from hmcgp.likelihoods import HeavyTerms, StudentT
from hmcgp.numerics.constants import EPS
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


def student_evidence(provider: SolverProvider, C: LowRank, y: Array, likelihood: StudentT, gradient: bool) -> Evidence:
    """Evidence of numbers y under f ~ N(0, C) (see `Provider.__call__`)."""
    search = _Search(provider, C, y, likelihood)
    here, sites = search.run()
    refuse_lost_digits(provider, here.alpha, here.terms.w, C.variances, search.n_factor)
    dK, dlik = None, np.empty(0)
    if gradient:
        solved = sites.solved_rows()
        variances = solved.variances
        u, shift = sites.respond(0.5 * variances * here.terms.third)
        dlik = likelihood.laplace_gradient(y, here.f, variances, shift)
        dK = sites.pull_back((u + 0.5 * here.terms.g)[:, None], here.terms.g[:, None], solved)
    else:
        variances = sites.variances()
    inducing = InducingPosterior.of(sites, here.alpha)
    parts = inducing.L, inducing.L_A, inducing.weight, here.f, here.alpha, here.terms.w, variances
    log_z = here.psi - 0.5 * sites.log_det
    return Evidence(log_z, dK, dlik, LowRankPosterior(*parts), search.n_factor - 1, search.decrement)
