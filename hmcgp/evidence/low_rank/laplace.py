"""Laplace's approximation under a low-rank covariance, in O(nm²) a Newton step; symbols as in `evidence.laplace`.

    Ψ = Σ log p(y_i | f_i) - ½ α'f,   f = Cα;     Newton's step with r = g - α: δα = (I + WC)⁻¹ r, δf = Cδα,

and at the mode log Z = Ψ - ½ log|I + WC| and, with c_i = ½ S_ii ∂³log p and u = (I + WC)⁻¹ c,

    G = ½((u + ½g)g' + g(u + ½g)' - R),

the exact derivative, the motion of the mode included.  A factorisation of A costs nm², a step with one at hand 4nm: a
factor is used again (chord steps) while it converges quickly enough.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hmcgp.errors import NotConverged
from hmcgp.evidence.base import Evidence, SolverProvider
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.evidence.newton import HALVINGS
from hmcgp.evidence.rounding import LEFT_NATS, LOST_NATS, ROUNDED_AWAY
from hmcgp.likelihoods import Likelihood
from hmcgp.likelihoods.terms import likelihood_terms
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_PATIENCE = 0.25  # chord steps, in units of m, that cost as much as a factorisation


class _Iterate(NamedTuple):
    """A pair (α, f = Cα) with the terms of the likelihood there."""

    alpha: Array
    f: Array
    psi: float
    g: Array  # ∇ log p
    w: Array  # -∇∇ log p
    ratio: Array  # third derivative over w

    @property
    def size(self) -> float:
        """Σ|α|; at the start, where α = 0, that of the mode if it is there already."""
        return max(float(np.abs(self.alpha).sum()), float(np.abs(self.g).sum()))


class _Problem(NamedTuple):
    C: LowRank
    y: Array
    kind: int
    weights: Array
    tol: float

    def at(self, alpha: Array, f: Array) -> _Iterate:
        log_p, g, w, ratio = np.empty((4, len(f)))
        total = likelihood_terms(self.kind, self.y, f, self.weights, log_p, g, w, ratio)
        return _Iterate(alpha, f, total - 0.5 * float(alpha @ f), g, w, ratio)

    @property
    def scale(self) -> float:
        return float(self.C.variances.max())

    def target(self, here: _Iterate) -> float:
        """Decrement to reach: rounding in f = Cα alone makes one of eps |C||α| √ΣW."""
        return max(self.tol, EPS * self.scale * here.size * math.sqrt(float(here.w.sum())))


def laplace_evidence(
    provider: SolverProvider, C: LowRank, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
) -> Evidence:
    """Evidence of labels y under f ~ N(0, C) (see `Provider.__call__`)."""
    begin, warm = provider.starting_point(start, y, len(y))
    problem = _Problem(C, y, likelihood.kind, likelihood.row_weights(len(y)), provider.tol)
    here, sites, n_factor, residual = _find_mode(provider, problem, begin if warm else None)
    log_z = here.psi - 0.5 * sites.log_det
    _check_rounding(provider, problem, here, n_factor)
    dK, variances = None, None
    if gradient:
        solved = sites.solved_rows()
        variances = solved.variances
        u, _ = sites.respond(0.5 * variances * here.w * here.ratio)
        dK = sites.pull_back((u + 0.5 * here.g)[:, None], here.g[:, None], solved)
    else:
        variances = sites.variances()
    inducing = InducingPosterior.of(sites, here.alpha)
    posterior = LowRankPosterior(inducing.L, inducing.L_A, inducing.weight, here.f, here.alpha, here.w, variances)
    return Evidence(log_z, dK, np.empty(0), posterior, n_factor - 1, residual)


def _find_mode(
    provider: SolverProvider, problem: _Problem, start: Array | None
) -> tuple[_Iterate, Conditioned, int, float]:
    """Mode, the factor there, factorisations made, and Newton's decrement."""
    zero = np.zeros(len(problem.y))
    here, decrement, first = problem.at(zero, zero), np.inf, 1
    if start is not None:
        here, first = _warm_step(problem, start, here), 2
    for n_factor in range(first, provider.max_iter + 1):
        sites = problem.C.conditioned(here.w)
        last, (direction, decrement) = decrement, _direction(sites, here)
        if decrement <= problem.target(here):
            left = float(np.abs(0.5 * sites.variances() * here.w * here.ratio * direction[1]).sum())
            if left <= LEFT_NATS or decrement > 0.5 * last:
                return here, sites, n_factor, decrement
        moved = _ascend(problem, here, direction, HALVINGS)
        if moved is None:
            break
        here = _chords(problem, sites, moved, decrement)
    raise NotConverged(
        f"{type(provider).__name__}: decrement {decrement:.1e} > tol {provider.tol:.1e} after {provider.max_iter} "
        f"factorisations; {provider.remedy}."
    )


def _warm_step(problem: _Problem, start: Array, zero: _Iterate) -> _Iterate:
    """One Newton step from f alone, α = (I + WC)⁻¹(W f + g), and chords; zero where it lands below Ψ(0)."""
    there = problem.at(zero.alpha, start)
    sites = problem.C.conditioned(there.w)
    here = problem.at(*sites.respond(there.w * start + there.g))
    return _chords(problem, sites, here, np.inf) if here.psi >= zero.psi else zero


def _direction(sites: Conditioned, here: _Iterate) -> tuple[tuple[Array, Array], float]:
    """Newton's step (δα, δf) by the factor at hand, and the decrement √(r'δf)."""
    r = here.g - here.alpha
    step = sites.respond(r)
    return step, math.sqrt(max(float(r @ step[1]), 0.0))


def _ascend(problem: _Problem, here: _Iterate, step: tuple[Array, Array], halvings: int) -> _Iterate | None:
    """Take the step, halved while Ψ falls by more than rounding; None where it cannot be taken."""
    least = here.psi - 1e-13 * abs(here.psi) - 4.0 * EPS * problem.scale * here.size**2
    for k in range(halvings + 1):
        there = problem.at(here.alpha + 0.5**k * step[0], here.f + 0.5**k * step[1])
        if there.psi >= least:
            return there
    return None


def _chords(problem: _Problem, sites: Conditioned, here: _Iterate, decrement: float) -> _Iterate:
    """Steps with an old factor, until converged or a new factor would pay."""
    patience = 2.0 + _PATIENCE * problem.C.rank
    while True:
        last, (direction, decrement) = decrement, _direction(sites, here)
        target = problem.target(here)
        if decrement <= 0.1 * target:
            return here
        there = _ascend(problem, here, direction, 0)
        if there is None:
            return here
        here = there
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(target / decrement) < patience * math.log(rate):
                return here


def _check_rounding(provider: SolverProvider, problem: _Problem, here: _Iterate, n_factor: int) -> None:
    """Refuse an answer that rounding eats: the two bounds of `evidence.rounding`, for a bounded third derivative."""
    error = EPS * problem.scale * here.size
    nats = 0.5 * (error * here.size + EPS * float(here.w @ problem.C.variances))
    lost = max(nats / LOST_NATS, error * math.sqrt(float(problem.weights.sum())) / ROUNDED_AWAY)
    if not lost <= 1.0:
        raise NotConverged(
            f"{type(provider).__name__}: rounding alone makes a decrement of {ROUNDED_AWAY * lost:.1e} (largest prior "
            f"variance {problem.scale:.1e}, after {n_factor} factorisations); {provider.remedy}."
        )
