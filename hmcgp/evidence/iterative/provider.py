"""Evidence of Gaussian-process regression by products with K, in the place of a factorisation (`estimate`).

The gradient is right because it is that of the estimate, not an estimate of the gradient of log|C|: HMC sees one smooth
function, and its energy errors are those of an exact evidence.
"""

from dataclasses import dataclass
from typing import ClassVar

from hmcgp.evidence.base import Provider
from hmcgp.evidence.exact.repeated_rows import weighted_evidence
from hmcgp.evidence.iterative import estimate
from hmcgp.evidence.protocols import Evidence
from hmcgp.likelihoods import Gaussian, Likelihood, NoisyNumbers, OutputNoise, VaryingNoise
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Iterative(Provider):
    """An estimate of the evidence of numbers observed with Gaussian noise, log N(y; 0, K + diag noise).

    It takes O(n²) operations for each of a few tens of products with K instead of the O(n³) of `Exact`, and estimates
    log|C| from random vectors.  It pays for a few thousand rows and more, where a low-rank model of K is good: smooth
    functions, few inputs that matter, noise that is not tiny.

    Parameters
    ----------
    probes : int, default=32
        Random vectors.  In any direction they shift the posterior of the hyperparameters by about its standard
        deviation over √probes without a low-rank model, and by much less where that is good.
    rank : int, optional
        Rows of K of which the low-rank model is made.  Default: n/10, and at least 400.
    seed : int, default=0
        Of the random vectors and rows.  They are the same in every call, so that all chains sample the same smooth
        density.
    tol : float, default=1e-4
        Relative residual of every solution.  The bounds on ½ y'C⁻¹y are then closer than ½ n tol², about, and the
        gradient is that of the value to a relative tol.  Solutions do not depend on where they start.
    max_products : int, default=200
        Products with K before `NotConverged` is raised.
    """

    probes: int = 32
    rank: int | None = None
    seed: int = 0
    tol: float = 1e-4
    max_products: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Gaussian, VaryingNoise, OutputNoise)

    def __post_init__(self) -> None:
        self._check_tolerance(self.tol)
        self._check_count("probes", self.probes)
        self._check_count("seed", self.seed, least=0)
        self._check_count("max_products", self.max_products)
        if self.rank is not None:
            self._check_count("rank", self.rank)

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        assert isinstance(likelihood, NoisyNumbers)
        if likelihood.weights is not None:
            return weighted_evidence(self, K, y, likelihood, gradient=gradient)
        rank = max(len(y) // 10, 400) if self.rank is None else self.rank
        settings = estimate.Settings(self.probes, min(rank, len(y)), self.seed, self.tol, self.max_products)
        evidence, dnoise = estimate.solve(K, y, likelihood.row_noise(len(y)), settings, gradient)
        return evidence if dnoise is None else evidence._replace(dlik=likelihood.pull_back(dnoise))
