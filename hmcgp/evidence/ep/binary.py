"""Expectation propagation (Minka 2001; Kim & Ghahramani 2006; Rasmussen & Williams 2006, ch. 3).

Each likelihood is replaced by a site exp(η_i f_i - ½ w_i f_i²), such that the Gaussian approximation

    q(f) = N(m, S),   S = (K⁻¹ + diag w)⁻¹,   m = Sη = Kx

has the mean and variance, at every i, that the exact likelihood gives when it stands in the place of site i.  With the
cavity, q without site i,

    v_i = 1/(1/S_ii - w_i),   μ_i = m_i - v_i x_i,   Ẑ_i = ∫ p(y_i | f) N(f; μ_i, v_i) df,
    log Z = Σ log Ẑ_i - ½ Σ x_i μ_i + ½ Σ log(1 + w_i v_i) - ½ log|I + K diag w|,
    G = ∂ log Z/∂K = ½(xx' - R),   R = (K + diag(w)⁻¹)⁻¹,   ∂ log Z/∂φ = Σ ∂ log Ẑ_i/∂φ.

The gradient is exact: log Z is stationary in the sites, so that only its explicit dependence on K, and on parameters φ
of the likelihood, counts.
A row of weight ω counts as ω copies of itself, each with a cavity of its own; below 1, as one of p^ω
(`hmcgp.evidence.ep.site_state`).
A site may be negative, w_i < 0, where the likelihood is not log-concave (label noise); q is proper all the same.
Latent predictions: mean k'x, variance k** - k'Rk.  The cavity is the leave-one-out prediction of f_i.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import SiteProvider
from hmcgp.evidence.ep import double_loop as double
from hmcgp.evidence.ep import sweeps as core
from hmcgp.evidence.ep.site_posterior import Sites
from hmcgp.evidence.ep.site_state import (
    ALPHA,
    CAVITY_MEAN,
    CAVITY_PRECISION,
    FIRST_SLOPE,
    MEAN,
    PRECISION,
    SECOND_SLOPE,
)
from hmcgp.evidence.low_rank.classes import LowRankClasses
from hmcgp.evidence.low_rank.ep import ep_evidence
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.products import LatentProducts, by_precision
from hmcgp.evidence.protocols import Evidence, Structure
from hmcgp.evidence.status import NOT_CONVERGED, needs_factor, raise_for_status
from hmcgp.likelihoods import (
    Binomial,
    LabelNoise,
    Likelihood,
    Logistic,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
)
from hmcgp.runtime.checks import lowered
from hmcgp.runtime.typing import Array

_STEP_OF_VARIANCE = 10.0  # factor between the prior variances by which a solution is approached
_MAX_VARIANCE = 1e10  # beyond which rounding leaves little of an answer
_DOUBLE = 3  # the double loop may make so many times max_iter factorisations


@dataclass(frozen=True)
class SitePosterior(Sites):
    """N(Kx, (K⁻¹ + diag w)⁻¹), with the cavity of each row."""

    f: Array  # (n,) mean, Kα
    alpha: Array  # (n,) x
    w: Array  # (n,) site precisions, of either sign
    mu: Array  # (n,) cavity mean
    v: Array  # (n,) cavity variance
    y: Array  # (n,) the targets
    R: Array | None  # (n, n) (K + diag(w)⁻¹)⁻¹; None where the gradient has used its memory

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'x and variance k** - k'Rk at new inputs (see `Posterior.predict`)."""
        # rounding can leave a variance of -1e-16 where it is 0
        variance = k_diag - np.einsum("nm,nm->m", K_cross, needs_factor(self.R, "to predict") @ K_cross)
        return K_cross.T @ self.alpha, np.maximum(variance, 0.0)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'x and covariance K** - k'Rk at new inputs (see `SupportsJointPrediction`)."""
        return K_cross.T @ self.alpha, K_new - K_cross.T @ (needs_factor(self.R, "to predict") @ K_cross)

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return LatentProducts(self.alpha, by_precision(needs_factor(self.R, "to predict")))


def solve_sites(
    provider: SiteProvider, K: Array, y: Array, likelihood: Likelihood, start: Array | None, sequential: bool,
    gradient: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Solve for the sites by sweeps and, where flipped labels make these cycle, by a double loop."""
    (kind, flip), weights = likelihood.site(), likelihood.row_weights(len(y))
    begin, warm = provider.starting_point(start, y, 2 * len(y))
    noise = flip if isinstance(likelihood, LabelNoise) else None
    numbers = None if likelihood.targets == "labels" else likelihood.row_numbers(y)
    solved = core.solve(
        K, y, weights, kind, noise, begin, warm, provider.tol, provider.max_iter, sequential, gradient, numbers
    )
    if solved[0] == NOT_CONVERGED and flip > 0.0:
        last = double.solve(K, y, weights, kind, flip, begin, warm, provider.tol, _DOUBLE * provider.max_iter, gradient)
        solved = count_both(solved, last)
    return solved


def count_both(failed: tuple[Any, ...], retried: tuple[Any, ...]) -> tuple[Any, ...]:
    """Result of the second of two solvers, with the factorisations of both."""
    return (retried[0], failed[1] + retried[1], *retried[2:])


def site_evidence(
    provider: SiteProvider, K: Array, y: Array, likelihood: Likelihood, solved: tuple[Any, ...], gradient: bool
) -> Evidence:
    """Evidence from the result of a compiled solver of sites; raises NotConverged or NotPositiveDefinite on failure."""
    status, n_factor, residual, log_z, dflip, state, R = solved
    raise_for_status(provider, status, n_factor, residual, K)
    f, alpha, w, mu, tau = (state[row] for row in (MEAN, ALPHA, PRECISION, CAVITY_MEAN, CAVITY_PRECISION))
    posterior = SitePosterior(f, alpha, w, mu, 1.0 / tau, y, None if gradient else R)
    dlik = np.array([dflip])
    if not isinstance(likelihood, LabelNoise):
        dlik = likelihood.parameter_gradient(y, state[[FIRST_SLOPE, SECOND_SLOPE]])
    return Evidence(log_z, R if gradient else None, dlik, posterior, n_factor - 1, residual)


class BinarySiteProvider(SiteProvider):
    """Base class of the providers that solve for the sites of targets.

    Where the likelihood is not log-concave (flipped labels), the equations may have several solutions under a wide
    prior and have one under a narrow one.  From nowhere, rounding would choose between them: a solution without a start
    is followed from a prior variance of 1 upwards, in steps.
    """

    def _solve_cold(self, K: Array | Structure, y: Array, likelihood: Likelihood, gradient: bool) -> Evidence:
        start = None
        if isinstance(likelihood, LabelNoise) and likelihood.site()[1] > 0.0:
            assert not isinstance(K, LowRankClasses)
            variance = float(np.max(K.variances if isinstance(K, LowRank) else np.diagonal(K)))
            n_steps = math.ceil(math.log(variance, _STEP_OF_VARIANCE)) if 1.0 < variance < _MAX_VARIANCE else 0
            try:
                for k in range(n_steps, 0, -1):
                    narrower: Array | LowRank = K / _STEP_OF_VARIANCE**k
                    start = self._solve_any(narrower, y, likelihood, start, False).posterior.start
                return self._solve_any(K, y, likelihood, start, gradient)
            except (NotConverged, NotPositiveDefinite):
                pass  # no way leads there in steps
        return self._solve_any(K, y, likelihood, None, gradient)


@dataclass(frozen=True)
class EP(BinarySiteProvider):
    """Expectation propagation: Gaussian sites that match the moments of the likelihoods.

    The most accurate of the Gaussian approximations, close to exact for the evidence and the probabilities of a
    classifier (Kuss & Rasmussen 2005).  Along a trajectory it costs about three times as much as Laplace's behind a
    probit, and four to eight times as much behind a logistic: the fewer the rows, the more its integrals count.

    Parameters
    ----------
    sweeps : {"parallel", "sequential"}, default="parallel"
        All sites at once, with quasi-Newton corrections between factorisations; or one after the other, as in the
        textbook: the same answer, more slowly.
    tol : float, default=1e-10
        Residual, in units of the standard deviations of q, at which the sites are found.  Tight, so that log density
        and gradient do not depend on the start, and a trajectory can be run backwards.
    max_iter : int, default=200
        Factorisations (sweeps) before `NotConverged` is raised.

    Notes
    -----
    For likelihoods that are not log-concave (`LabelNoise`), more than one solution may exist; a warm start stays with
    the one it comes from, and a cold one approaches that which grows out of a narrow prior.  Sweeps may cycle there:
    after 60 of them, a double loop that cannot (Opper & Winther 2005) takes over, with up to three times `max_iter`
    factorisations.

    Weights of 1 and more cost nothing.  Those below 1 take integrals that have no closed form: where all are, a warm
    solution for 80 rows takes ten times as long behind a probit, and six times behind a logistic.
    """

    sweeps: str = "parallel"
    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (
        Logistic,
        Probit,
        LabelNoise,
        Poisson,
        NegativeBinomial,
        Binomial,
        Ordinal,
    )
    takes_low_rank: ClassVar[bool] = True

    def matrices(self, n_latents: int) -> int:
        return 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "sweeps", lowered(self.sweeps))
        if self.sweeps not in {"parallel", "sequential"}:
            raise InvalidInput(f"'sweeps' of EP must be 'parallel' or 'sequential'; got {self.sweeps!r}.")
        super().__post_init__()

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        solved = solve_sites(self, K, y, likelihood, start, self.sweeps == "sequential", gradient)
        return site_evidence(self, K, y, likelihood, solved, gradient)

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        assert isinstance(C, LowRank)
        return ep_evidence(self, C, y, likelihood, start, gradient)
