"""Expectation propagation under a low-rank covariance; symbols as in `evidence.ep`.

A sweep factorises at the site precisions w, 2nm² operations with the variances S_ii.  With the cavity precisions
τ = 1/S_ii - w that follow held fixed (to first order they do not depend on a site's own w), the mean is moved by
Newton steps, 4nm operations each,

    r = (a - x)/(1 - Uv),   δx = (I + WC)⁻¹ r,   δm = Cδx,

and w is set to what matches the moments there.  These sweeps are accelerated by Anderson's method.  At the solution
log Z is stationary in the sites, so that G = ½(xx' - R) is exact.

Flipped labels are not log-concave: sites may be negative, and where sweeps cycle there is no double loop to take over,
as there is under dense covariances.  Behind a probit that is seldom (2 of 48 draws from the prior, 60 rows, one label
in eight flipped), and `NotConverged` says so; behind a step it is every second time, which is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence.anderson import accelerated
from hmcgp.evidence.base import SiteProvider
from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.log_evidence import constants_and_slopes, flip_derivative, leave_copies_out, log_evidence
from hmcgp.evidence.ep.response_moments import tilted_row
from hmcgp.evidence.ep.site_posterior import Sites
from hmcgp.evidence.low_rank.posterior import InducingPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.evidence.protocols import Evidence
from hmcgp.likelihoods import LabelNoise, Likelihood
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_KEPT = 7  # points that Anderson's method remembers
_PROGRESS = 0.9  # a correction must lower the residual at least to this fraction
_MIN_DAMPING = 1e-3  # of a plain sweep
_MEAN_STEPS = 3  # of Newton's method for the mean, with one factor
_MAX_ROUNDING = 1e-4  # where rounding alone may make a residual this large, the solution is noise
_MAX_WARM_RESIDUAL = 3.0  # a warm start with a larger residual is no better than a cold one


@dataclass(frozen=True)
class LowRankSitePosterior(Sites, InducingPosterior):
    """N(Cx, (C⁻¹ + diag w)⁻¹), with the cavity of each row."""

    f: Array  # (n,) mean, Cα
    alpha: Array  # (n,) x
    w: Array  # (n,) site precisions
    mu: Array  # (n,) cavity mean
    v: Array  # (n,) cavity variance
    y: Array  # (n,) the targets


@compiled
def _cold_sites(variances: Array, y: Array, kind: int, flip: float, state: Array, numbers: Array | None) -> None:
    """Set each site as if its target were the only one: its cavity is the prior."""
    for i in range(y.shape[0]):
        _, slope, U = tilted_row(kind, flip, state[site.POWER, i], y, numbers, i, 0.0, variances[i])
        d = (1.0 - U * variances[i]) / state[site.COPIES, i]
        state[site.ETA, i], state[site.PRECISION, i] = slope / d, U / d


@compiled
def _update_moments(kind: int, flip: float, y: Array, state: Array, numbers: Array | None) -> bool:
    """Update the moments at the cavities in the state; False where one is improper."""
    return site.update_moments(kind, flip, y, state, state[site.CAVITY_PRECISION], numbers)


@compiled
def _evidence_of_sites(
    kind: int, flip: float, y: Array, state: Array, log_det: float, numbers: Array | None
) -> tuple[float, float]:
    """Log Z and its derivative in the flip rate; cavities become those without all copies of a row."""
    log_z, dflip = log_evidence(state, log_det), 0.0
    if flip > 0.0:
        dflip = flip_derivative(kind, flip, y, state)
    if numbers is not None:
        log_z += constants_and_slopes(kind, y, numbers, state)
    leave_copies_out(state)
    return log_z, dflip


class _Sites:
    """Sites on their way to the solution."""

    def __init__(self, C: LowRank, y: Array, kind: int, flip: float, state: Array, numbers: Array | None) -> None:
        self.C, self.y, self.kind, self.flip, self.state, self.numbers = C, y, kind, flip, state, numbers
        self.factor: Conditioned | None = None
        self.proper = False  # whether the sites leave a Gaussian; some of its cavities may be improper nevertheless

    def set(self, eta: Array, w: Array) -> float:
        """Take sites, and the mean and cavities that follow; returns the residual, infinite where one is improper."""
        self.proper = False
        if not (np.isfinite(eta).all() and np.isfinite(w).all()):
            return np.inf
        try:
            self.factor = self.C.conditioned(w)
        except NotPositiveDefinite:
            if self.log_concave:
                raise
            return np.inf  # negative sites outweigh the prior
        self.state[site.ETA], self.state[site.PRECISION] = eta, w
        self.state[site.ALPHA], self.state[site.MEAN] = self.factor.respond(eta)
        S = self.factor.variances()
        self.state[site.VARIANCE], self.state[site.CAVITY_PRECISION] = S, 1.0 / S - w / self.state[site.COPIES]
        self.proper = bool((S > 0.0).all())
        return self.residual if self.update() else np.inf

    def converged(self, residual: float, tol: float) -> bool:
        """Whether a residual is small, or what rounding makes."""
        return residual < np.inf and residual <= max(tol, self.rounding)

    def acceptable(self, residual: float) -> bool:
        """Whether to go on from here: where labels are flipped, improper cavities may mend."""
        return residual < np.inf or (self.proper and not self.log_concave)

    @property
    def log_concave(self) -> bool:
        """Whether no site is negative."""
        return self.flip == 0.0

    def adapted(self, damping: float, corrected: bool, residual: float, before: float) -> float:
        """Damping of the next plain sweep: weaker if the last one lowered the residual, else stronger."""
        if self.log_concave:
            return max(0.5 * damping, _MIN_DAMPING) if residual > before else min(1.1 * damping, 0.9)
        if corrected or not before < np.inf:  # as in `evidence.ep.parallel_sweeps`
            return damping
        return min(1.2 * damping, 0.8) if residual < before else max(0.7 * damping, 0.1)

    def update(self) -> bool:
        """Update the moments; False where a cavity or a moment is improper."""
        return bool(_update_moments(self.kind, self.flip, self.y, self.state, self.numbers))

    @property
    def residual(self) -> float:
        """Largest of |ŵ - w| S_ii and |a - x| √v."""
        a = self.state
        of_w = np.abs(a[site.MATCHED_PRECISION] - a[site.PRECISION]) * a[site.VARIANCE]
        return float(max(of_w.max(), self._of_mean()))

    def _of_mean(self) -> float:
        a = self.state
        return float((np.abs(a[site.SLOPE] - a[site.ALPHA]) / np.sqrt(a[site.CAVITY_PRECISION])).max())

    @property
    def rounding(self) -> float:
        """Residual that rounding in m = Cx and in S may make."""
        a, k = self.state, self.C.variances
        of_mean = float(k.max()) * float(np.abs(a[site.ALPHA]).sum()) / float(np.sqrt(a[site.VARIANCE].min()))
        swollen = max(1.0, float((1.0 - a[site.PRECISION] * a[site.VARIANCE]).max()))  # by negative sites
        return EPS * (of_mean + float(np.abs(a[site.PRECISION] * k).max()) * swollen**2)

    def matched(self) -> tuple[Array, Array]:
        """Sites (η, w) that match the moments; where these are improper, the site itself."""
        a = self.state
        w = a[site.MATCHED_PRECISION]
        known = ~np.isnan(w)
        eta = a[site.SLOPE] / np.where(known, a[site.VARIANCE_RATIO], 1.0) + a[site.CAVITY_MEAN] * w
        return np.where(known, eta, a[site.ETA]), np.where(known, w, a[site.PRECISION])

    def corrected(self) -> tuple[Array, Array]:
        """Sites that match the moments once the mean has moved, the cavity precisions held fixed."""
        a, enough = self.state, 0.01 * self.residual
        for _ in range(_MEAN_STEPS):
            if self._of_mean() <= enough or not self._move_mean():
                break
        w = a[site.MATCHED_PRECISION].copy()
        return a[site.ALPHA] + w * a[site.MEAN], w

    def _move_mean(self) -> bool:
        """Take Newton's step of the mean; False, and back, where it does not come closer."""
        a, before = self.state, self._of_mean()
        assert self.factor is not None
        kept = a[[site.ALPHA, site.MEAN]].copy()
        dx, dm = self.factor.respond((a[site.SLOPE] - a[site.ALPHA]) / a[site.VARIANCE_RATIO])
        a[site.ALPHA] += dx
        a[site.MEAN] += dm
        if self.update() and self._of_mean() < before:
            return True
        a[[site.ALPHA, site.MEAN]] = kept
        self.update()
        return False


def _solve(sites: _Sites, eta: Array, w: Array, tol: float, max_iter: int, warm: bool) -> tuple[int, float]:
    """Sweep until the sites converge; returns factorisations and residual.

    Where a corrected sweep does not lower the residual, plain ones with adaptive damping follow, twice as many each
    time (as in `evidence.ep.parallel_sweeps`).
    """
    memory = _Memory()
    corrected, plain_left, patience, damping, accepted = False, 0, 2, 0.8, np.inf
    point = goal = np.concatenate([eta, w])
    kept = point if warm else np.zeros_like(point)
    for n_factor in range(1, max_iter + 1):
        residual = sites.set(*np.split(point, 2))
        if sites.converged(residual, tol):
            return n_factor, residual
        if warm and n_factor == 1 and not residual <= _MAX_WARM_RESIDUAL:
            break
        if corrected and not residual <= _PROGRESS * accepted:  # back to where the correction began
            corrected, plain_left, patience, memory = False, patience - 1, 2 * patience, _Memory()
        elif sites.acceptable(residual):
            damping = sites.adapted(damping, corrected, residual, accepted)
            kept, goal, accepted = point, np.concatenate(sites.matched()), residual
            corrected, plain_left = residual < np.inf and plain_left == 0, max(plain_left - 1, 0)
        else:  # a plain sweep went too far
            damping *= 0.5
        point = memory.next(sites, kept) if corrected else kept + damping * (goal - kept)
    raise NotConverged(f"residual {residual:.1e} > tol {tol:.1e} after {n_factor} factorisations")


class _Memory:
    """Points and steps of corrected sweeps, for Anderson's method (`evidence.anderson`)."""

    def __init__(self) -> None:
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.metric: Array | None = None  # makes η and w dimensionless

    def next(self, sites: _Sites, here: Array) -> Array:
        """Sites (η, w), stacked, to try after `here`."""
        if self.metric is None:
            S = sites.state[site.VARIANCE]
            self.metric = np.concatenate([np.sqrt(S), S])
        point = here * self.metric
        step = np.concatenate(sites.corrected()) * self.metric - point
        self.points, self.steps = [*self.points, point][-_KEPT:], [*self.steps, step][-_KEPT:]
        there = accelerated(self.points, self.steps) / self.metric
        if sites.log_concave:
            there[len(there) // 2 :] = np.maximum(there[len(there) // 2 :], 0.0)
        return there


def refuse_steps(likelihood: Likelihood) -> None:
    """Refuse flipped labels behind a step: sweeps find sites at half of the hyperparameters only."""
    if isinstance(likelihood, LabelNoise) and likelihood.link == "step":
        raise InvalidInput(
            "LabelNoise behind a step (link='step') is known under dense covariances only, and there are inducing "
            "inputs: take LabelNoise(link='probit'), or no inducing inputs (inducing=None)."
        )


def ep_evidence(
    provider: SiteProvider, C: LowRank, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
) -> Evidence:
    """Evidence of targets y under f ~ N(0, C) (see `Provider.__call__`)."""
    refuse_steps(likelihood)
    kind, flip = likelihood.site()
    begin, warm = provider.starting_point(start, y, 2 * len(y))
    state = site.new_state(likelihood.row_weights(len(y)))
    numbers = None if likelihood.targets == "labels" else likelihood.row_numbers(y)
    if warm:
        eta, w = begin[: len(y)], begin[len(y) :] if flip > 0.0 else np.maximum(begin[len(y) :], 0.0)
        if not np.isfinite(begin).all():
            raise NotConverged("EP: the start is not finite.")
    else:
        _cold_sites(C.variances, y, kind, flip, state, numbers)
        eta, w = state[site.ETA].copy(), state[site.PRECISION].copy()
    sites = _Sites(C, y, kind, flip, state, numbers)
    try:
        n_factor, residual = _solve(sites, eta, w, provider.tol, provider.max_iter, warm)
    except NotConverged as error:
        raise NotConverged(f"{type(provider).__name__}: {error}; {provider.remedy}.") from None
    if not sites.rounding <= _MAX_ROUNDING:
        raise NotConverged(f"{type(provider).__name__}: rounding eats the sites; {provider.remedy}.")
    factor, x = sites.factor, state[site.ALPHA]
    assert factor is not None
    log_z, dflip = _evidence_of_sites(kind, flip, y, state, factor.log_det, numbers)
    dlik = np.array([dflip])
    if not isinstance(likelihood, LabelNoise):
        dlik = likelihood.parameter_gradient(y, state[[site.FIRST_SLOPE, site.SECOND_SLOPE]])
    dK = factor.pull_back(0.5 * x[:, None], x[:, None], factor.solved_rows()) if gradient else None
    inducing = InducingPosterior.of(factor, x)
    posterior = LowRankSitePosterior(
        inducing.L, inducing.L_A, inducing.weight, state[site.MEAN], x, state[site.PRECISION], state[site.CAVITY_MEAN],
        1.0 / state[site.CAVITY_PRECISION], y,
    )  # fmt: skip
    return Evidence(log_z, dK, dlik, posterior, n_factor - 1, residual)
