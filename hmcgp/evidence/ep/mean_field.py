"""Mean-field evidence of labels (Opper & Winther 2000, Neural Computation 12).

The cavity field of row i is Gaussian, f_i ~ N(γ_i, Λ_i) without its label, and with Z₀ = ∫ p(y | f) N(f; γ, Λ) df

    x_i = ∂ log Z₀/∂γ_i,   U_i = -∂x_i/∂γ_i,   γ = Kx - Λx.

    naive   Λ_i = K_ii:  log Z = Σ log Z₀ - ½ Σ_{i≠j} x_i K_ij x_j,   G_ij = ½ x_i x_j,   G_ii = ½(x_i² - U_i)
    TAP     1/Λ_i = 1/S_ii - w_i with S = (K⁻¹ + diag w)⁻¹, w = U/(1 - ΛU): the equations, log Z and G of expectation
            propagation, solved as x and Λ in turn

A row of weight ω counts as ω copies of itself (below 1, as one of p^ω): copies share their latent value, and a cavity
leaves one of them out, γ = Kx - Λx/ω with x = ω ∂ log Z₀/∂γ.
The gradients are exact: both log Z are stationary in x (and Λ).  Means at new inputs are k'x, variances k** - k'Rk.
Leaving row i out, the others respond, which the naive γ and Λ leave aside: `cavity()` takes 1/v = 1/S_ii - w_i and the
mean (Kx)_i - v x_i, which for TAP are Λ and γ.  The sign of that mean gives a leave-one-out error for nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

from hmcgp.evidence.ep import naive_mean_field as core
from hmcgp.evidence.ep.binary import BinarySiteProvider, count_both, site_evidence, solve_sites
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import NOT_CONVERGED
from hmcgp.likelihoods import LabelNoise, Likelihood, Probit
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class _MeanField(BinarySiteProvider):
    """Base class of the TAP and the naive mean field."""

    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Probit, LabelNoise)
    naive: ClassVar[bool] = False

    def matrices(self, n_latents: int) -> int:
        return 3

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        (kind, flip), weights = likelihood.site(), likelihood.row_weights(len(y))
        begin, warm = self.starting_point(start, y, 2 * len(y))
        solved = core.solve(K, y, weights, kind, flip, begin, warm, self.tol, self.max_iter, self.naive, gradient)
        if solved[0] == NOT_CONVERGED and not self.naive:  # the same equations, in another order
            solved = count_both(solved, solve_sites(self, K, y, likelihood, None, False, gradient))
        return site_evidence(self, K, y, likelihood, solved, gradient)


@dataclass(frozen=True)
class TAP(_MeanField):
    """The TAP mean field: cavity variances corrected for the response of the other rows.

    Its solution is that of `EP`, reached by the iteration of its authors or, where that leads nowhere, as `EP` does,
    which is faster.

    Parameters
    ----------
    tol : float, default=1e-10
        Residual, in units of the standard deviations of q.
    max_iter : int, default=200
        Factorisations before `NotConverged` is raised.
    """


@dataclass(frozen=True)
class NaiveMeanField(_MeanField):
    """The naive mean field: every cavity has its prior variance.

    Crude, and kept for comparison: rows that a neighbour has already explained count again in full.

    Parameters
    ----------
    tol : float, default=1e-10
        Residual of the means, in units of the prior standard deviations.
    max_iter : int, default=200
        Factorisations before `NotConverged` is raised.
    """

    naive: ClassVar[bool] = True
