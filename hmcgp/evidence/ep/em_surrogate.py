"""The M-step of EM-EP: the expected log density of latent values and labels (Kim & Ghahramani 2006).

The latent values of the paper hold the noise that softens the step: g = f + e, e ~ N(0, cI), so that

    g ~ N(0, C),  C = K + cI,      y_i = sign(g_i), flipped with probability ε,

c being 1 for a probit, Φ(f) = P(f + e > 0), and 0 behind a step, where the noise is a `White` term of the kernel.  For
the logistic function c = 4: no site of EP is narrower (w_i ≤ max(-log σ'') = 1/4, by the Cramér-Rao bound on the
tilted variance), so that f + e may stand between f and the sites.  A larger c means better conditioned matrices and
fewer, longer steps: with c = 0 under a smooth kernel f all but determines the hyperparameters, and EM stalls.

E-step, at K₀ and ε₀, with x and R of EP and G₀ = ½(xx' - R) its gradient (`hmcgp.evidence.ep`):

    q(g) = N(C₀x, C₀ - C₀RC₀),      A = E[gg'] = C₀ + 2 C₀G₀C₀,      r = E[number of flipped labels]

M-step, over K and ε:

    F(K, ε) = -½ log|C| - ½ tr C⁻¹A + r log ε + (n - r) log(1 - ε) + const.
    ∂F/∂K   = ½ C⁻¹(A - C)C⁻¹,      ∂F/∂ε = r/ε - (n - r)/(1 - ε),      ε = r/n at the maximum

F touches EP's log Z at (K₀, ε₀): the constant makes it log Z, ∂F/∂K is G₀ there, and so is ∂F/∂ε that of log Z where r
is the mean under the tilted distributions, r = Σ ε₀Φ(-z_i)/Ẑ_i:

    r/ε - (n - r)/(1 - ε) = Σ [Φ(-z_i) - Φ(z_i)]/Ẑ_i = ∂ log Z/∂ε,      from Ẑ - εΦ(-z) = (1 - ε)Φ(z).

With weights, copies of a row share f and have noise of their own, of which the mean over ω copies is what g_i needs:
c/ω_i in the place of c; n is Σ ω_i, and r follows from ∂ log Z/∂ε as above: r = εn + ε(1 - ε) ∂ log Z/∂ε.

So the fixed points of EM-EP are the stationary points of EP's log Z.  With another r they are not.  Under q itself,
r = Σ Φ(-y_i E[g_i]/sd g_i), Gaussian tails reach across zero even where no label is wrong, and ε comes out too large;
the number of rows that the mean of q misclassifies, which the paper takes, knows no doubt.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import xlog1py, xlogy

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.base import Provider
from hmcgp.evidence.ep.binary import SitePosterior
from hmcgp.evidence.exact.factorisation import factor
from hmcgp.evidence.protocols import Evidence
from hmcgp.likelihoods import LabelNoise, Likelihood, Logistic, Probit
from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, STEP
from hmcgp.numerics.lapack import inverse_from_cholesky_inplace, log_determinant, mirror_lower
from hmcgp.runtime.typing import Array

SITE_NOISE = {LOGISTIC: 4.0, PROBIT: 1.0, STEP: 0.0}  # c


@dataclass(frozen=True, eq=False, repr=False)
class ExpectedLogDensity(Provider):
    """F as a function of K and of the likelihood's parameters: a provider of evidence with q held fixed."""

    A: Array  # (n, n) E[gg'] under q
    r: float  # expected number of flipped labels
    offset: float  # the constant of F
    posterior: SitePosterior  # of the E-step
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Logistic, Probit, LabelNoise)

    @classmethod
    def given(cls, K: Array, y: Array, likelihood: Likelihood, evidence: Evidence) -> Self:
        """E-step: take the expectations under the posterior of `EP` or `TAP` at K, whose evidence has its gradient.

        Raises `NotPositiveDefinite` where C is singular to working precision: behind a step without a White term.
        """
        assert evidence.dK is not None
        assert isinstance(evidence.posterior, SitePosterior)
        C = _with_noise(K, likelihood)
        A = C + 2.0 * C @ evidence.dK @ C
        r = _expected_flips(y, likelihood, evidence) if isinstance(likelihood, LabelNoise) else 0.0
        zero = cls(A, r, 0.0, evidence.posterior)
        return cls(A, r, evidence.log_z - zero(K, y, likelihood).log_z, evidence.posterior)

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        C = _with_noise(K, likelihood)
        P = np.empty_like(C)
        if not factor(C, np.zeros(len(C)), P):
            raise NotPositiveDefinite("the covariance of the latent values is singular: add a White term.")
        log_det = log_determinant(P)
        inverse_from_cholesky_inplace(P)
        mirror_lower(P)
        n, (_, flip) = float(likelihood.row_weights(len(y)).sum()), likelihood.site()
        labels = xlogy(self.r, flip) + xlog1py(n - self.r, -flip)
        F = -0.5 * log_det - 0.5 * float(np.vdot(P, self.A)) + float(labels) + self.offset
        dK = 0.5 * (P @ self.A @ P - P) if gradient else None
        dflip = (self.r / flip if flip > 0.0 else 0.0) - (n - self.r) / (1.0 - flip)
        dlik = np.array([dflip]) if isinstance(likelihood, LabelNoise) else np.empty(0)
        return Evidence(F, dK, dlik, self.posterior, 0, 0.0)


def _with_noise(K: Array, likelihood: Likelihood) -> Array:
    C = K.copy()
    C.flat[:: len(K) + 1] += SITE_NOISE[likelihood.site()[0]] / likelihood.row_weights(len(K))
    return C


def _expected_flips(y: Array, likelihood: LabelNoise, evidence: Evidence) -> float:
    """r, of rows as often as they count."""
    assert isinstance(evidence.posterior, SitePosterior)
    if likelihood.weights is None:
        return float(np.sum(likelihood.flipped(y, *evidence.posterior.cavity())))
    _, flip = likelihood.site()
    total = float(likelihood.row_weights(len(y)).sum())
    return flip * (total + (1.0 - flip) * float(evidence.dlik[0])) if flip > 0.0 else 0.0
