"""Laplace's approximation behind Student's t, which is not log-concave (Vanhatalo, Jylänki & Vehtari 2009).

Symbols as in `evidence.laplace`; W has either sign, and is negative in rows that are far off.  Where f is a maximum of
Ψ, K⁻¹ + W is positive definite all the same, and

    log Z = Ψ - ½ log|I + KW|,   G = ½((u + ½g)g' + g(u + ½g)' - R),   u = (I + WK)⁻¹c,   R = (K + W⁻¹)⁻¹,

the exact derivative, the motion of the maximum included, by the signed factorisation of `site_algebra` or, of a
low-rank covariance, of `low_rank.structure`.

Ψ may have several maxima.  The search is the same from wherever the sampler comes, so that log Z is a function of K and
of the parameters alone: from the regression with Gaussian noise of variance q/(ν + 1), where every row counts in full,
by two steps of expectation maximisation, E = (ν + 1)/(q + r²) being the weights with which a row then counts,

    f ← (K⁻¹ + E)⁻¹ E y,     along which Ψ never falls,

and then by Newton's method, its steps halved while Ψ falls; where K⁻¹ + W is not positive definite, with what is
positive of W in its place, and where that does not help either, with E.  Factors are used again (chord steps).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import Evidence, SolverProvider
from hmcgp.evidence.ep import site_algebra
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.products import LatentProducts, by_precision
from hmcgp.evidence.rounding import LOST_NATS
from hmcgp.evidence.status import leave_out, needs_factor
from hmcgp.likelihoods import HeavyTerms, StudentT
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import symmetric_times
from hmcgp.runtime.typing import Array

_CHORDS, _DOUBLINGS = 3, 8  # steps away from a saddle by one factor, and doublings of each
_EXPECTATIONS = 2  # factors with weights E
_HALVINGS = 30


@dataclass(frozen=True)
class StudentPosterior:
    """N(f, (K⁻¹ + W)⁻¹) with f the maximum found, and W of either sign."""

    f: Array  # (n,)
    alpha: Array  # (n,) K⁻¹f
    w: Array  # (n,)
    variances: Array  # (n,) S_ii
    R: Array | None  # (n, n); None where the gradient has used its memory

    @property
    def start(self) -> Array:
        """The maximum; searches do not start from it (see the module)."""
        return self.f

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The maximum and, of new rows, the predicted means."""
        return np.concatenate([self.f, mean])

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of the latent values, by linear response: 1/v = 1/S_ii - W_i, μ = f - v g."""
        return leave_out(self.f, self.alpha, self.variances, self.w)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'α and variance k** - k'Rk at new inputs (see `Posterior.predict`)."""
        explained = np.einsum("nm,nm->m", K_cross, needs_factor(self.R, "to predict") @ K_cross)
        return K_cross.T @ self.alpha, np.maximum(k_diag - explained, 0.0)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'α and covariance K** - k'Rk at new inputs (see `SupportsJointPrediction`)."""
        return K_cross.T @ self.alpha, K_new - K_cross.T @ (needs_factor(self.R, "to predict") @ K_cross)

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return LatentProducts(self.alpha, by_precision(needs_factor(self.R, "to predict")))


# -- covariances with site precisions --------------------------------------------------------------------------------


class _DenseSites:
    """Dense covariance with site precisions of either sign (`site_algebra`)."""

    def __init__(self, K: Array, w: Array) -> None:
        n = len(w)
        self._K, self._w, self._order, self._A = K, w, np.empty(n, dtype=np.int64), np.empty((n, n))
        proper, self._n_positive, self.log_det = site_algebra.factor(K, w, self._order, self._A)
        if not proper:
            raise NotPositiveDefinite("K⁻¹ + W is not positive definite, or not finite: is K a covariance matrix?")

    def respond(self, r: Array) -> tuple[Array, Array]:
        """(I + WK)⁻¹r and S r = K(I + WK)⁻¹r."""
        return site_algebra.respond(self._K, self._w, self._order, self._n_positive, self._A, r)

    def variances_and_precision(self) -> tuple[Array, Array]:
        """S_ii and R, in the place of the factor, which is lost."""
        S = np.empty(self._K.shape)
        site_algebra.covariance_from_factor(self._K, self._w, self._order, self._n_positive, self._A, S)
        return np.diagonal(S).copy(), _precision(self._w, self._order, self._A, S)


@compiled
def _precision(w: Array, order: Array, A: Array, R: Array) -> Array:
    site_algebra.pseudo_target_precision(w, order, A, R)
    return R


class _Covariance(NamedTuple):
    """Dense or low-rank covariance: what the search asks of it."""

    K: Any  # Array or LowRank

    def times(self, x: Array) -> Array:
        if isinstance(self.K, LowRank):
            return self.K.times(x)
        out = np.empty(len(x))
        symmetric_times(self.K, x, out)
        return out

    def conditioned(self, w: Array) -> Any:
        """The covariance with site precisions w; NotPositiveDefinite where K⁻¹ + W is not."""
        return self.K.conditioned(w) if isinstance(self.K, LowRank) else _DenseSites(self.K, w)

    @property
    def prior_variances(self) -> Array:
        return self.K.variances if isinstance(self.K, LowRank) else np.diagonal(self.K)


# -- the search ------------------------------------------------------------------------------------------------------


class _Iterate(NamedTuple):
    """A pair (α, f = Kα) with Ψ and the terms of the likelihood there."""

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

    def __init__(self, provider: SolverProvider, K: Any, y: Array, likelihood: StudentT) -> None:
        self.provider, self.C, self.y, self.likelihood = provider, _Covariance(K), y, likelihood
        self.scale = float(np.max(self.C.prior_variances))
        self.patience = 2.0 + len(y) / 100.0  # chord steps that cost as much as a factorisation
        self.n_factor = 0
        self.decrement = math.inf

    def at(self, alpha: Array) -> _Iterate:
        f = self.C.times(alpha)
        terms = self.likelihood.terms(self.y, f)
        return _Iterate(alpha, f, float(terms.log_p.sum()) - 0.5 * float(alpha @ f), terms)

    def target(self, here: _Iterate) -> float:
        """Decrement to reach: rounding in f = Kα alone makes one of eps |K||α| √Σ|W|."""
        size = float(np.abs(here.alpha).sum())
        return max(self.provider.tol, EPS * self.scale * size * math.sqrt(float(np.abs(here.terms.w).sum())))

    def run(self) -> tuple[_Iterate, Any]:
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

    def _conditioned(self, w: Array) -> Any:
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

    def _steps(self, here: _Iterate, sites: Any, enough: float) -> _Iterate:
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


def student_evidence(provider: SolverProvider, K: Any, y: Array, likelihood: StudentT, gradient: bool) -> Evidence:
    """Evidence of numbers y under f ~ N(0, K), K dense or of low rank (see `Provider.__call__`)."""
    search = _Search(provider, K, y, likelihood)
    here, sites = search.run()
    _check_rounding(search, here)
    log_z, finish = here.psi - 0.5 * sites.log_det, _low_rank if isinstance(K, LowRank) else _dense
    dK, dlik, posterior = finish(search, here, sites, gradient)
    return Evidence(log_z, dK, dlik, posterior, search.n_factor - 1, search.decrement)


def _dense(search: _Search, here: _Iterate, sites: Any, gradient: bool) -> tuple[Any, Array, Any]:
    """G, derivatives in the parameters of the likelihood, and the posterior."""
    variances, R = sites.variances_and_precision()
    if not gradient:
        return None, np.empty(0), StudentPosterior(here.f, here.alpha, here.terms.w, variances, R)
    c = 0.5 * variances * here.terms.third
    u = c - R @ search.C.times(c)
    dlik = search.likelihood.laplace_gradient(search.y, here.f, variances, search.C.times(u))
    outer = np.outer(0.5 * u + 0.25 * here.terms.g, here.terms.g)
    R *= -0.5
    R += outer + outer.T
    return R, dlik, StudentPosterior(here.f, here.alpha, here.terms.w, variances, None)


def _low_rank(search: _Search, here: _Iterate, sites: Any, gradient: bool) -> tuple[Any, Array, Any]:
    """Cotangent of the structure, derivatives in the parameters of the likelihood, and the posterior."""
    dK, dlik = None, np.empty(0)
    if gradient:
        solved = sites.solved_rows()
        variances = solved.variances
        u, shift = sites.respond(0.5 * variances * here.terms.third)
        dlik = search.likelihood.laplace_gradient(search.y, here.f, variances, shift)
        dK = sites.pull_back((u + 0.5 * here.terms.g)[:, None], here.terms.g[:, None], solved)
    else:
        variances = sites.variances()
    inducing = InducingPosterior.of(sites, here.alpha)
    parts = inducing.L, inducing.L_A, inducing.weight, here.f, here.alpha, here.terms.w, variances
    return dK, dlik, LowRankPosterior(*parts)


def _check_rounding(search: _Search, here: _Iterate) -> None:
    """Refuse an answer that rounding eats (`evidence.rounding`)."""
    size = float(np.abs(here.alpha).sum())
    nats = 0.5 * EPS * (search.scale * size**2 + float(np.abs(here.terms.w) @ search.C.prior_variances))
    if not nats <= LOST_NATS:
        raise NotConverged(
            f"{type(search.provider).__name__}: rounding alone changes log Z by {nats:.1e} (largest prior variance "
            f"{search.scale:.1e}, after {search.n_factor} factorisations); {search.provider.remedy}."
        )
