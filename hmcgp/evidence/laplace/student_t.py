"""Laplace's approximation behind Student's t, which is not log-concave (Vanhatalo, Jylänki & Vehtari 2009).

Symbols as in `evidence.laplace`; W has either sign, and is negative in rows that are far off.  Where f is a maximum of
Ψ, K⁻¹ + W is positive definite all the same, and

    log Z = Ψ - ½ log|I + KW|,   G = ½((u + ½g)g' + g(u + ½g)' - R),   u = (I + WK)⁻¹c,   R = (K + W⁻¹)⁻¹,

the exact derivative, the motion of the maximum included, by the signed factorisation of `site_algebra` or, of a
low-rank covariance, of `low_rank.structure`.

Ψ may have several maxima.  The search is the same from wherever the sampler comes, so that log Z is a function of K and
of the parameters alone: from the regression with Gaussian noise of variance q/(ν + 1), where every row counts in full,
by expectation maximisation, E = (ν + 1)/(q + r²) being the weights with which a row then counts,

    f ← (K⁻¹ + E)⁻¹ E y,     along which Ψ never falls,

until a Newton step is short; then by Newton's method, as long as K⁻¹ + W is positive definite and Ψ does not fall.
Each factor is used again (chord steps) while that makes good progress.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotrf, dpotrs

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import Evidence, SolverProvider
from hmcgp.evidence.ep.site_algebra import posterior_covariance, pseudo_target_precision
from hmcgp.evidence.low_rank.posterior import InducingPosterior, LowRankPosterior
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.products import LatentProducts, by_precision
from hmcgp.evidence.rounding import LOST_NATS
from hmcgp.evidence.status import leave_out, needs_factor
from hmcgp.likelihoods import HeavyTerms, StudentT
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_SHORT = 0.3  # a decrement below which Newton's method takes over
_SLOW = 0.5  # factor by which a chord step must make the decrement fall, or a new factor pays
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


class _Sites(Protocol):
    """A covariance with site precisions: (I + WK)⁻¹r and S r = K(I + WK)⁻¹r for vectors r."""

    def respond(self, r: Array) -> tuple[Array, Array]: ...


class _DensePositive:
    """Dense covariance with positive precisions, by a Cholesky factor of I + √W K √W."""

    def __init__(self, K: Array, w: Array) -> None:
        self._K, self._root = K, np.sqrt(w)
        B = K * self._root * self._root[:, None]
        B.flat[:: len(w) + 1] += 1.0
        # K has its lower triangle only: row-major lower is LAPACK's upper
        self._L, info = dpotrf(B.T, lower=False, clean=False, overwrite_a=True)
        if info != 0 or not np.isfinite(self._L[-1, -1]):
            raise NotPositiveDefinite("I + √W K √W has no Cholesky factor: is K a covariance matrix, and finite?")

    def respond(self, r: Array) -> tuple[Array, Array]:
        x, _ = dpotrs(self._L, self._root * _times(self._K, r), lower=False)
        change = r - self._root * x
        return change, _times(self._K, change)


class _DenseSigned:
    """Dense covariance with precisions of either sign, by its posterior covariance S."""

    def __init__(self, K: Array, w: Array) -> None:
        n = len(w)
        self.w, self._order, self._A, self._S = w, np.empty(n, dtype=np.int64), np.empty((n, n)), np.empty((n, n))
        proper, self.log_det = posterior_covariance(K, w, self._order, self._A, self._S)
        if not proper:
            raise NotPositiveDefinite("K⁻¹ + W is not positive definite: this is no maximum.")

    def respond(self, r: Array) -> tuple[Array, Array]:
        latent = self._S @ r
        return r - self.w * latent, latent

    def variances(self) -> Array:
        return np.diagonal(self._S).copy()

    def precision(self) -> Array:
        """R, in the memory of S, which is lost."""
        return _precision(self.w, self._order, self._A, self._S)


@compiled
def _precision(w: Array, order: Array, A: Array, R: Array) -> Array:
    pseudo_target_precision(w, order, A, R)
    return R


def _times(K: Array, x: Array) -> Array:
    """K x, of which the lower triangle is read."""
    return np.asarray(dsymv(1.0, K.T, x, lower=0))


class _Covariance(NamedTuple):
    """Dense or low-rank covariance: what the search asks of it."""

    K: Any  # Array or LowRank

    def times(self, x: Array) -> Array:
        return self.K.times(x) if isinstance(self.K, LowRank) else _times(self.K, x)

    def positive(self, w: Array) -> _Sites:
        return self.K.conditioned(w) if isinstance(self.K, LowRank) else _DensePositive(self.K, w)

    def signed(self, w: Array) -> Any:
        return self.K.conditioned(w) if isinstance(self.K, LowRank) else _DenseSigned(self.K, w)

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

    def count(self) -> None:
        self.n_factor += 1
        if self.n_factor > self.provider.max_iter:
            raise NotConverged(
                f"{type(self.provider).__name__}: decrement {self.decrement:.1e} > tol {self.provider.tol:.1e} after "
                f"{self.provider.max_iter} factorisations; {self.provider.remedy}."
            )

    def run(self) -> tuple[_Iterate, Any]:
        """Maximum, and the covariance with W there."""
        here = self._regression()
        while True:
            here = self._maximise_expectation(here)
            found = self._newton(here)
            if found[1] is not None:
                return found
            here = found[0]

    def _regression(self) -> _Iterate:
        """Where every row counts in full, as it would at its own target."""
        self.count()
        full = self.likelihood.terms(self.y, self.y).pull
        alpha, _ = self.C.positive(full).respond(full * self.y)
        return self.at(alpha)

    def _maximise_expectation(self, here: _Iterate) -> _Iterate:
        """Steps with weights E, at least one, until they are short."""
        while True:
            self.count()
            sites = self.C.positive(here.terms.pull)
            here = self._steps(here, sites, _SHORT)
            if self.decrement <= _SHORT:
                return here

    def _newton(self, here: _Iterate) -> tuple[_Iterate, Any]:
        """Newton's method to the end; None in the place of its factor where Ψ bends upwards on the way."""
        while True:
            self.count()
            try:
                sites = self.C.signed(here.terms.w)
            except NotPositiveDefinite:
                return here, None
            step = sites.respond(here.residual)
            self.decrement, target = here.decrement(step), self.target(here)
            if self.decrement <= target:
                return here, sites
            there = self._steps(here, sites, 0.1 * target)
            if there is here:
                return here, None
            here = there

    def _steps(self, here: _Iterate, sites: _Sites, enough: float) -> _Iterate:
        """Steps by one factor: the first one halved until Ψ does not fall, others while they make good progress."""
        step = sites.respond(here.residual)
        self.decrement = here.decrement(step)
        there = self._ascend(here, step[0], _HALVINGS)
        while there is not None:
            here = there
            step = sites.respond(here.residual)
            last, self.decrement = self.decrement, here.decrement(step)
            if self.decrement <= enough or self.decrement > _SLOW * last:
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
    log_z = here.psi - 0.5 * sites.log_det
    _check_rounding(search, here)
    g, w = here.terms.g, here.terms.w
    dK, dlik = None, np.empty(0)
    solved = sites.solved_rows() if isinstance(K, LowRank) and gradient else None
    variances = sites.variances() if solved is None else solved.variances
    if gradient:
        u, shift = sites.respond(0.5 * variances * here.terms.third)
        dlik = likelihood.laplace_gradient(y, here.f, variances, shift)
        x = u + 0.5 * g
        if solved is not None:
            dK = sites.pull_back(x[:, None], g[:, None], solved)
        else:
            R = sites.precision()
            outer = np.outer(x, g)
            dK = 0.5 * (outer + outer.T - R)
    posterior: Any
    if isinstance(K, LowRank):
        inducing = InducingPosterior.of(sites, here.alpha)
        posterior = LowRankPosterior(inducing.L, inducing.L_A, inducing.weight, here.f, here.alpha, w, variances)
    else:
        posterior = StudentPosterior(here.f, here.alpha, w, variances, None if gradient else sites.precision())
    return Evidence(log_z, dK, dlik, posterior, search.n_factor - 1, search.decrement)


def _check_rounding(search: _Search, here: _Iterate) -> None:
    """Refuse an answer that rounding eats (`evidence.rounding`)."""
    size = float(np.abs(here.alpha).sum())
    nats = 0.5 * EPS * (search.scale * size**2 + float(np.abs(here.terms.w) @ search.C.prior_variances))
    if not nats <= LOST_NATS:
        raise NotConverged(
            f"{type(search.provider).__name__}: rounding alone changes log Z by {nats:.1e} (largest prior variance "
            f"{search.scale:.1e}, after {search.n_factor} factorisations); {search.provider.remedy}."
        )
