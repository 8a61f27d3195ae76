"""Bounds on the evidence of the logistic likelihood under a low-rank covariance; symbols as in `evidence.bounds`.

Lower.  Every EM step ν² ← S_ii + m_i² raises log Z', and costs 2nm² operations (Newton's method in 1/w would need a
matrix of order n).  The steps are accelerated by Anderson's method in log ν; where that lets log Z' fall, a plain step
follows.  They end where ν no longer changes by a share of `tol`: log Z' is stationary in ν, so that its own error is of
the square of that, and by the envelope theorem G = ½(αα' - R).

Upper.  The minimum is the mode that Laplace's approximation seeks (`mode_search`), b = α there, and G = ½ bb'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import entr

from hmcgp.errors import NotConverged
from hmcgp.evidence.anderson import accelerated
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.low_rank.laplace import Labels
from hmcgp.evidence.low_rank.mode_search import find_mode
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.evidence.protocols import Evidence
from hmcgp.likelihoods import Likelihood
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_KEPT = 7  # steps that Anderson's method remembers
_SMALLEST = 1e-9  # of ν: w no longer depends on it


@dataclass(frozen=True)
class LowRankBoundPosterior(LowRankPosterior):
    """N(Cα, (C⁻¹ + diag w)⁻¹), the lower bound normalised."""

    nu: Array  # (n,) where the bound touches the sigmoid

    @property
    def start(self) -> Array:
        """ν; only its size matters."""
        return self.nu

    def start_with(self, mean: Array, variance: Array) -> Array:
        """ν and, of new rows, the value √(m² + S) that it has at the maximum."""
        return np.concatenate([self.nu, np.sqrt(mean**2 + variance)])


@dataclass(frozen=True)
class LowRankUpperPosterior(InducingPosterior):
    """N(Cb, C), the upper bound normalised: the prior, moved."""

    f: Array  # (n,) mean, Cb

    @property
    def start(self) -> Array:
        """The mean, which is the mode of p(f | y)."""
        return self.f


@dataclass(frozen=True)
class _Bound:
    """The lower bound at some ν, and where its EM step leads."""

    nu: Array
    value: float
    sites: Conditioned
    f: Array
    alpha: Array
    variances: Array

    @classmethod
    def at(cls, C: LowRank, y: Array, weights: Array, nu: Array) -> _Bound:
        z = 0.5 * nu
        tanh = np.tanh(z)
        sites = C.conditioned(0.25 * weights * tanh / z)
        d = 0.5 * weights * y
        alpha, f = sites.respond(d)
        terms = weights * (0.5 * z * tanh - z - np.log1p(np.exp(-nu)))
        value = float(terms.sum() + d @ f - 0.5 * (alpha @ f) - 0.5 * (sites.w * f) @ f) - 0.5 * sites.log_det
        return cls(nu, value, sites, f, alpha, sites.variances())

    @property
    def next(self) -> Array:
        return np.sqrt(self.variances + self.f**2)

    @property
    def slack(self) -> float:
        """Bound on how far rounding alone may let log Z' fall."""
        C = self.sites.prior
        size = float(np.abs(self.alpha).sum())
        rounded = float(C.variances.max()) * size**2 + float(self.sites.w @ C.variances) + float(self.nu.sum())
        return 1e-13 * abs(self.value) + 4.0 * EPS * rounded


def lower_bound(
    provider: SolverProvider, C: LowRank, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
) -> Evidence:
    """Greatest lower bound on the evidence of labels y under f ~ N(0, C) (see `Provider.__call__`)."""
    weights = likelihood.row_weights(len(y))
    begin, warm = provider.starting_point(start, y, len(y))
    cold = np.sqrt(C.variances)
    nu = np.abs(begin) if warm else np.minimum(cold, np.sqrt(cold))
    here, n_factor, residual = _maximise(provider, C, y, weights, np.maximum(nu, _SMALLEST))
    sites, alpha, dK = here.sites, here.alpha, None
    if gradient:
        dK = sites.pull_back(0.5 * alpha[:, None], alpha[:, None], sites.solved_rows())
    inducing = InducingPosterior.of(sites, alpha)
    posterior = LowRankBoundPosterior(
        inducing.L, inducing.L_A, inducing.weight, here.f, alpha, sites.w, here.variances, here.nu
    )
    return Evidence(here.value, dK, np.empty(0), posterior, n_factor - 1, residual)


def _maximise(provider: SolverProvider, C: LowRank, y: Array, weights: Array, nu: Array) -> tuple[_Bound, int, float]:
    """Maximum of the lower bound, factorisations made, and the relative change of ν that is left."""
    points: list[Array] = []
    steps: list[Array] = []
    here, residual, n_factor = _Bound.at(C, y, weights, nu), np.inf, 1
    while n_factor < provider.max_iter:
        x = np.log(here.nu)
        step = np.log(np.maximum(here.next, _SMALLEST)) - x
        residual = float(np.abs(step).max())
        rounding = EPS * (1.0 + float(here.sites.w @ C.variances))  # of S, as in `bounds.optimisation`
        if residual <= max(provider.tol, rounding):
            return here, n_factor, residual
        if not math.isfinite(residual):
            break
        points, steps = [*points, x][-_KEPT:], [*steps, step][-_KEPT:]
        there = _Bound.at(C, y, weights, np.exp(accelerated(points, steps)))
        n_factor += 1
        if not there.value >= here.value - here.slack:
            points, steps = [], []
            there, n_factor = _Bound.at(C, y, weights, np.exp(x + step)), n_factor + 1
        here = there
    raise NotConverged(
        f"{type(provider).__name__}: ν still changes by a share of {residual:.1e} > tol {provider.tol:.1e} after "
        f"{n_factor} factorisations; {provider.remedy}."
    )


def upper_bound(
    provider: SolverProvider, C: LowRank, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
) -> Evidence:
    """Least upper bound on the evidence of labels y under f ~ N(0, C) (see `Provider.__call__`)."""
    begin, warm = provider.starting_point(start, y, len(y))
    problem = Labels(C, y, likelihood.row_numbers(y), likelihood.kind, likelihood.row_weights(len(y)), provider.tol)
    here, sites, n_factor, residual = find_mode(provider, problem, begin if warm else None)
    mu = np.clip(y * here.alpha / problem.weights, 0.0, 1.0)  # rounding may leave it outside
    b = problem.weights * mu * y
    f = C.times(b)
    log_z = -float(problem.weights @ (entr(mu) + entr(1.0 - mu))) + 0.5 * float(b @ f)
    dK = sites.pull_back(0.5 * b[:, None], b[:, None], sites.solved_rows(), 0.0) if gradient else None
    posterior = LowRankUpperPosterior(C.L, np.eye(C.rank), C.V.T @ b, f)
    return Evidence(log_z, dK, np.empty(0), posterior, n_factor - 1, residual)
