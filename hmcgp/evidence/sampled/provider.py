"""Evidence of labels without an approximation: an unbiased estimate by sampling the latent values.

    Ẑ = (1/J) Σ_j p(y | f_j) N(f_j; 0, K)/q(f_j),   f_j ~ q,   E[Ẑ] = p(y)

with q the Gaussian of expectation propagation, or a Student t around it (`hmcgp.evidence.sampled.estimate`).  Points
are quasi-random, in antithetic pairs and independent batches (`hmcgp.evidence.sampled.points`), whose scatter gives the
standard error of log Ẑ.  The random stream is a function of K, y and the likelihood: the same question has the same
answer, and errors at different hyperparameters are independent.

A likelihood tail heavier than the Gaussian's makes the variance of the weights infinite; it shows as a Pareto k above
1/2 in a pilot, which serves no other purpose.  Then, unless all weights are nearly equal, the Student t takes over:
relative to it, weights are bounded.
For a given number of samples Ẑ is unbiased.  More of them where the standard error is above `tol` (optional stopping)
make a bias of the order of its square.

In one or two dimensions (priors of low rank) batches are so even that only rare points in the tail make an error: there
the standard error was too small by a factor of 2 (errors of up to 0.03 in 200 seeds), and k is large.

There is no gradient: the estimate is noise around a smooth function of K.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.evidence.base import Provider
from hmcgp.evidence.ep.binary import EP, SitePosterior
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.sampled.estimate import PILOT, Estimate, Integrand, no_points
from hmcgp.evidence.sampled.points import BATCH, Points
from hmcgp.evidence.sampled.posterior import SampledPosterior
from hmcgp.likelihoods import LabelNoise, Likelihood, Logistic, Probit
from hmcgp.runtime.fingerprint import PREFIX, digest
from hmcgp.runtime.typing import Array

KEPT = 4096  # samples that predictions average over
_K_GAUSSIAN = 0.5  # Pareto k up to which the Gaussian is the proposal
_EVEN = 0.02  # share of `tol` that the standard error of the pilot has where weights are even, whatever their tail
_LEAST = 8  # batches whose scatter is a standard error


@dataclass(frozen=True)
class LatentSampling(Provider):
    """Importance sampling of the latent values: log Z with a standard error, and predictions from the same samples.

    Exact, but for a sampling error that is reported: `posterior.standard_error`, `posterior.pareto_k` (above 0.7, the
    standard error itself is not to be trusted) and `posterior.n_samples`.  Values only: hyperparameters are sampled
    with another evidence and weighted to this one (`GPClassifier(refine="exact")`), or audited by it
    (`GPClassifier.audit`).

    Parameters
    ----------
    tol : float, default=0.05
        Standard error of log Z at which sampling stops.
    n_samples : int, default=2048
        Samples to begin with; the number doubles until the standard error is small.  In whole batches of 128, at least
        eight.
    max_samples : int, default=16384
        Limit at which sampling stops, whatever the standard error.  The same as `n_samples`: no optional stopping.
    dof : float, default=40.0
        Degrees of freedom of the Student t.
    seed : int, default=0
        Another seed, other random errors.

    Notes
    -----
    Processor time of one evaluation behind a logistic, in milliseconds: with 2048 samples, which usually do; with
    16384; and of EP alone.  A probit takes a tenth to a quarter more.

    ======  ======  =======  ====
    rows    2048    16384    EP
    ======  ======  =======  ====
    80      19      100      1
    200     42      220      4
    500     140     600      24
    1000    380     1300     130
    ======  ======  =======  ====
    """

    tol: float = 0.05
    n_samples: int = 2048
    max_samples: int = 16384
    dof: float = 40.0
    seed: int = 0
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Logistic, Probit, LabelNoise)

    def __post_init__(self) -> None:
        self._check_tolerance(self.tol)
        self._check_count("n_samples", self.n_samples)
        self._check_count("max_samples", self.max_samples, self.n_samples)
        self._check_count("seed", self.seed, 0)
        if not 2.0 < self.dof < np.inf:
            raise InvalidInput(f"'dof' of LatentSampling must be a number above 2; got {self.dof!r}.")

    def matrices(self, n_latents: int) -> int:
        return 5  # K, R, S, and its factor twice

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        if gradient:
            raise InvalidInput(
                "LatentSampling estimates log p(y | θ) from random samples, which has no gradient to follow: sample or "
                "maximise the hyperparameters with evidence='ep' (or 'laplace'), and have the draws weighted to this, "
                "GPClassifier(refine='exact'), or compared with it, gp.audit(). In a call of the provider, take "
                "gradient=False."
            )
        solution = EP()(K, y, likelihood, start, gradient=False)
        ep = solution.posterior
        assert isinstance(ep, SitePosterior)
        integrand = Integrand.of(K, y, likelihood, ep)
        estimate = self._estimate(integrand, _entropy(K, y, likelihood, self.seed))
        if not np.isfinite(estimate.log_z):
            raise NotConverged(
                f"LatentSampling: none of {len(estimate.log_weights)} samples of the latent values explains all "
                "labels; raise max_samples, or let labels be wrong (flip > 0)."
            )
        z, weights = estimate.kept(KEPT)
        quality = estimate.standard_error, estimate.pareto_k, len(estimate.log_weights)
        posterior = SampledPosterior(ep, K, integrand.root, z, weights, *quality)
        return Evidence(estimate.log_z, None, np.empty(0), posterior, solution.n_iter, solution.residual)

    def _estimate(self, integrand: Integrand, entropy: tuple[int, ...]) -> Estimate:
        n, r = integrand.root.A.shape
        gaussian = Points(r, n + 1, entropy)
        pilot = no_points(gaussian).extended(integrand, PILOT)
        light = pilot.pareto_k <= _K_GAUSSIAN or pilot.standard_error <= _EVEN * self.tol
        points = Points(r, n + 1, entropy, run=1, dof=None if light else self.dof)
        n_batches, most = (max(-(-size // BATCH), _LEAST) for size in (self.n_samples, self.max_samples))
        estimate = no_points(points).extended(integrand, n_batches)
        while n_batches < most and estimate.standard_error > self.tol:
            n_batches = min(2 * n_batches, most)
            estimate = estimate.extended(integrand, n_batches)
        return estimate


def _entropy(K: Array, y: Array, likelihood: Likelihood, seed: int) -> tuple[int, ...]:
    """Seed of the random stream: a function of everything that decides the evidence."""
    kind, flip = likelihood.site()
    labels = np.concatenate([y, likelihood.row_weights(len(y)), [kind, flip]])
    return (seed, *(int(digest(part).removeprefix(PREFIX), 16) for part in (np.tril(K), labels)))
