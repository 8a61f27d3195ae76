"""Exact evidence of Gaussian-process regression (Rasmussen & Williams 2006, eqs. 2.23-2.30 and 5.9).

    y = f + e,   f ~ N(0, K),   e ~ N(0, diag s),   C = K + diag s = LL',   α = C⁻¹ y

    log Z = log N(y; 0, C) = -½ y'α - Σ log L_ii - ½ n log 2π
    G = ∂ log Z/∂K = ½(αα' - C⁻¹),     ∂ log Z/∂s_i = G_ii

Several columns of targets that share K and the noise, y_a ~ N(0, C) for a = 1 … k, share the factor too:
log Z = -½ Σ_a y_a'α_a - k Σ log L_ii - ½ k n log 2π and G = ½(Σ_a α_a α_a' - k C⁻¹); y, f and α are then (n, k).

By a Cholesky factorisation, O(n³), the gradient is exact: nothing is approximated and nothing iterates.
Rows with weights are rows in other units (`repeated_rows`).
"""

from dataclasses import InitVar, dataclass
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput, NotPositiveDefinite
from hmcgp.evidence.base import Provider
from hmcgp.evidence.exact import factorisation as core
from hmcgp.evidence.exact.posterior import ExactPosterior
from hmcgp.evidence.exact.repeated_rows import weighted_evidence
from hmcgp.evidence.low_rank.gaussian import gaussian_evidence
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.protocols import Evidence, Structure
from hmcgp.likelihoods import Gaussian, Likelihood, NoisyNumbers, OutputNoise, VaryingNoise
from hmcgp.runtime.checks import lowered
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class Exact(Provider):
    """The evidence of numbers observed with Gaussian noise: log N(y; 0, K + diag noise).

    `NotPositiveDefinite` is raised where K + diag noise cannot be told from a singular matrix, or is so near to one
    that a bound on the rounding of log Z exceeds 0.1 nats plus a millionth of |log Z| (rounding is a few per cent of
    the bound).  For a few thousand rows and more there is an estimate, `Iterative`.

    Parameters
    ----------
    solver : {"cholesky"}
        How K + diag noise is inverted.
    variational : bool, default=False
        With inducing inputs, Titsias' lower bound on the evidence of the dense model (2009) in the place of the
        evidence under the approximate covariance (FITC).  A bound cannot be too good: more inducing inputs raise it.
        Without inducing inputs, nothing changes.
    """

    solver: InitVar[str] = "cholesky"
    variational: bool = False
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Gaussian, VaryingNoise, OutputNoise)
    takes_low_rank: ClassVar[bool] = True

    def __post_init__(self, solver: str) -> None:
        if lowered(solver) == "iterative":
            raise InvalidInput(
                "Exact(solver='iterative') is now Iterative(), which takes the same other settings: an estimate is not "
                "exact. Take hmcgp.evidence.Iterative(), or evidence='iterative'."
            )
        if lowered(solver) != "cholesky":
            raise InvalidInput(f"'solver' of Exact must be 'cholesky'; got {solver!r}.")
        if not isinstance(self.variational, bool):
            raise InvalidInput(f"'variational' of Exact must be True or False; got {self.variational!r}.")

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        assert isinstance(likelihood, NoisyNumbers)
        if likelihood.weights is not None:
            return weighted_evidence(self, K, y, likelihood, gradient=gradient)
        noise = likelihood.row_noise(len(y))
        if y.ndim == 1:
            known, log_z, alpha, L = core.solve(K, y, noise, gradient)
        else:
            known, log_z, alpha, L = core.solve_columns(K, np.ascontiguousarray(y), noise, gradient)
        if not known:
            raise NotPositiveDefinite(
                "Exact: K + diag noise is not positive definite to working precision, or so nearly singular that "
                f"rounding eats log Z (least noise {noise.min():.1e}, largest prior variance "
                f"{np.max(np.diag(K)):.1e}); is K a finite covariance matrix, and the noise not too small for rows "
                "that repeat with other targets?"
            )
        posterior = ExactPosterior(y - (noise * alpha.T).T, alpha, noise, None if gradient else L)
        dlik = likelihood.pull_back(np.diag(L)) if gradient else np.empty(0)
        return Evidence(log_z, L if gradient else None, dlik, posterior, 0, 0.0)

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        assert isinstance(likelihood, NoisyNumbers)
        assert isinstance(C, LowRank)
        return gaussian_evidence(C, y, likelihood, gradient, self.variational)
