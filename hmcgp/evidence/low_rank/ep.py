"""Expectation propagation under a low-rank covariance; symbols as in `evidence.ep`.

A sweep factorises at the site precisions w, 2nm² operations with the variances S_ii.  With the cavity precisions
τ = 1/S_ii - w that follow held fixed (to first order they do not depend on a site's own w), the mean is moved by
Newton steps, 4nm operations each,

    r = (a - x)/(1 - Uv),   δx = (I + WC)⁻¹ r,   δm = Cδx,

and w is set to what matches the moments there.  These sweeps are accelerated by Anderson's method.  At the solution
log Z is stationary in the sites, so that G = ½(xx' - R) is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence.anderson import anderson_weights
from hmcgp.evidence.base import Evidence, SiteProvider
from hmcgp.evidence.ep import site_state as site
from hmcgp.evidence.ep.log_evidence import leave_copies_out, log_evidence
from hmcgp.evidence.ep.power_moments import tilted_power
from hmcgp.evidence.ep.site_posterior import Sites
from hmcgp.evidence.low_rank.posterior import InducingPosterior
from hmcgp.evidence.low_rank.structure import Conditioned, LowRank
from hmcgp.likelihoods import Likelihood
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
    y: Array  # (n,) the labels


@compiled
def _cold_sites(variances: Array, y: Array, kind: int, state: Array) -> None:
    """Set each site as if its label were the only one: its cavity is the prior."""
    for i in range(y.shape[0]):
        _, slope, U = tilted_power(kind, 0.0, state[site.POWER, i], y[i], 0.0, variances[i])
        d = (1.0 - U * variances[i]) / state[site.COPIES, i]
        state[site.ETA, i], state[site.PRECISION, i] = slope / d, U / d


@compiled
def _update_moments(kind: int, y: Array, state: Array) -> bool:
    """Update the moments at the cavities in the state; False where one is improper."""
    return site.update_moments(kind, 0.0, y, state, state[site.CAVITY_PRECISION])


@compiled
def _evidence_of_sites(state: Array, log_det: float) -> float:
    """Log Z at the solution; its cavities become those without all copies of a row."""
    log_z = log_evidence(state, log_det)
    leave_copies_out(state)
    return log_z


@compiled
def _anderson(changes: Array, last: Array) -> Array:
    return anderson_weights(changes, last)


class _Sites:
    """Sites on their way to the solution."""

    def __init__(self, C: LowRank, y: Array, kind: int, state: Array) -> None:
        self.C, self.y, self.kind, self.state = C, y, kind, state
        self.factor: Conditioned | None = None

    def set(self, eta: Array, w: Array) -> float:
        """Take sites, and the mean and cavities that follow; returns the residual, infinite where one is improper."""
        if not (np.isfinite(eta).all() and np.isfinite(w).all()):
            return np.inf
        self.factor = self.C.conditioned(w)
        self.state[site.ETA], self.state[site.PRECISION] = eta, w
        self.state[site.ALPHA], self.state[site.MEAN] = self.factor.respond(eta)
        S = self.factor.variances()
        self.state[site.VARIANCE], self.state[site.CAVITY_PRECISION] = S, 1.0 / S - w / self.state[site.COPIES]
        return self.residual if self.update() else np.inf

    def update(self) -> bool:
        """Update the moments; False where a cavity or a moment is improper."""
        return bool(_update_moments(self.kind, self.y, self.state))

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
        return EPS * (of_mean + float((a[site.PRECISION] * k).max()))

    def matched(self) -> tuple[Array, Array]:
        """Sites (η, w) that match the moments."""
        a = self.state
        w = a[site.MATCHED_PRECISION].copy()
        return a[site.SLOPE] / a[site.VARIANCE_RATIO] + a[site.CAVITY_MEAN] * w, w

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
    point = kept = goal = np.concatenate([eta, w])
    for n_factor in range(1, max_iter + 1):
        residual = sites.set(*np.split(point, 2))
        if residual <= max(tol, sites.rounding):
            return n_factor, residual
        if warm and n_factor == 1 and not residual <= _MAX_WARM_RESIDUAL:
            break
        if corrected and not residual <= _PROGRESS * accepted:  # back to where the correction began
            corrected, plain_left, patience, memory = False, patience - 1, 2 * patience, _Memory()
        elif residual < np.inf:
            damping = max(0.5 * damping, _MIN_DAMPING) if residual > accepted else min(1.1 * damping, 0.9)
            kept, goal, accepted = point, np.concatenate(sites.matched()), residual
            corrected, plain_left = plain_left == 0, max(plain_left - 1, 0)
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
        there = point + step
        if len(self.points) > 1:
            changes = np.diff(np.array(self.steps), axis=0)
            there = there - _anderson(changes, step) @ (np.diff(np.array(self.points), axis=0) + changes)
        there = there / self.metric
        there[len(there) // 2 :] = np.maximum(there[len(there) // 2 :], 0.0)  # log-concave: no site is negative
        return np.asarray(there)


def ep_evidence(
    provider: SiteProvider, C: LowRank, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
) -> Evidence:
    """Evidence of labels y under f ~ N(0, C) (see `Provider.__call__`)."""
    kind, flip = likelihood.site()
    if flip > 0.0:
        raise InvalidInput(
            f"EP knows {type(likelihood).__name__} under dense covariances only: give no inducing inputs "
            "(inducing=None), or take likelihood='logistic' or 'probit'."
        )
    begin, warm = provider.starting_point(start, y, 2 * len(y))
    state = site.new_state(likelihood.row_weights(len(y)))
    if warm:
        eta, w = begin[: len(y)], np.maximum(begin[len(y) :], 0.0)
        if not np.isfinite(begin).all():
            raise NotConverged("EP: the start is not finite.")
    else:
        _cold_sites(C.variances, y, kind, state)
        eta, w = state[site.ETA].copy(), state[site.PRECISION].copy()
    sites = _Sites(C, y, kind, state)
    try:
        n_factor, residual = _solve(sites, eta, w, provider.tol, provider.max_iter, warm)
    except NotConverged as error:
        raise NotConverged(f"{type(provider).__name__}: {error}; {provider.remedy}.") from None
    if not sites.rounding <= _MAX_ROUNDING:
        raise NotConverged(f"{type(provider).__name__}: rounding eats the sites; {provider.remedy}.")
    factor, x = sites.factor, state[site.ALPHA]
    assert factor is not None
    log_z = _evidence_of_sites(state, factor.log_det)
    dK = factor.pull_back(0.5 * x[:, None], x[:, None], factor.solved_rows()) if gradient else None
    inducing = InducingPosterior.of(factor, x)
    posterior = LowRankSitePosterior(
        inducing.L, inducing.L_A, inducing.weight, state[site.MEAN], x, state[site.PRECISION], state[site.CAVITY_MEAN],
        1.0 / state[site.CAVITY_PRECISION], y,
    )  # fmt: skip
    return Evidence(log_z, dK, np.empty(0), posterior, n_factor - 1, residual)
