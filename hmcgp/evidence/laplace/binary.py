"""Laplace's approximation to the evidence (Barber & Williams 1997; Rasmussen & Williams 2006, ch. 3).

The mode of p(f | y) maximises the concave Ψ(f) = Σ log p(y_i | f_i) - ½ f'K⁻¹f.  With

    g = ∇ log p(y | f),  W = -∇∇ log p(y | f) (diagonal),  B = I + √W K √W,  R = √W B⁻¹ √W,

Weights ω multiply log p, g, W and ∂³log p of their rows, and nothing else changes.
Newton's method iterates f ← (K⁻¹ + W)⁻¹(W f + g) without ever inverting K, and at the mode, where α = K⁻¹f = g,

    log Z = Ψ - ½ log|B|,
    G = ∂ log Z/∂K = ½(αα' - R + u g' + g u'),   u = (I - RK) c,   c_i = ½ S_ii ∂³log p(y_i | f_i),
    S = (K⁻¹ + W)⁻¹.

The gradient is exact by the implicit function theorem: the first two terms hold f fixed, the last two are the motion
of the mode.
Parameters φ of the likelihood have, with (Sc)_i the motion of the mode,

    ∂ log Z/∂φ = Σ_i ∂ log p_i/∂φ - ½ S_ii ∂W_i/∂φ + (Sc)_i ∂g_i/∂φ.

Latent predictions: mean k'α, variance k** - k'Rk.  Leaving out row i, to first order: variance v = 1/(1/S_ii - W_i) =
1/R_ii - 1/W_i, mean f_i - v g_i.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.laplace import conjugate_gradients, mode_search
from hmcgp.evidence.laplace.student_t import student_evidence
from hmcgp.evidence.low_rank.laplace import laplace_evidence
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.low_rank.student_t import student_evidence as low_rank_student_evidence
from hmcgp.evidence.products import LatentProducts, by_factor
from hmcgp.evidence.protocols import Evidence, Structure
from hmcgp.evidence.status import (
    leave_out,
    needs_factor,
    predict_by_factor,
    predict_jointly_by_factor,
    raise_for_status,
    symmetric,
)
from hmcgp.likelihoods import Binomial, Likelihood, Logistic, NegativeBinomial, Ordinal, Poisson, Probit, StudentT
from hmcgp.likelihoods.number_slopes import laplace_slopes
from hmcgp.runtime.checks import lowered
from hmcgp.runtime.typing import Array

_NONE = np.empty(0)  # derivatives in the likelihood's parameters
_SEARCHES = {  # for the mode, with what they count
    "cholesky": (mode_search, "factorisations"),
    "conjugate_gradients": (conjugate_gradients, "steps and factorisations"),
}


@dataclass(frozen=True)
class LaplacePosterior:
    """N(f, (K⁻¹ + W)⁻¹) with f the mode."""

    f: Array  # (n,) mode
    alpha: Array  # (n,) K⁻¹ f
    root_w: Array  # (n,) √W
    L: Array | None  # (n, n), lower triangle: Cholesky factor of B; None where the gradient has used its memory
    K: Array | None = None  # (n, n), lower triangle: prior covariance, kept where L is

    @property
    def start(self) -> Array:
        """The mode: the next solution, under a slightly different K, starts from it."""
        return self.f

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The mode and, of new rows, the predicted means."""
        return np.concatenate([self.f, mean])

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of the latent values, by linear response: 1/v = 1/S_ii - W_i, μ = f - v g."""
        K = symmetric(needs_factor(self.K, "for cavities"))
        return leave_out(self.f, self.alpha, self.predict(K, np.diag(K))[1], self.root_w**2)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'α and variance k** - k'Rk at new inputs (see `Posterior.predict`)."""
        return predict_by_factor(self.L, self.alpha, self.root_w[:, None] * K_cross, K_cross, k_diag)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'α and covariance K** - k'Rk at new inputs (see `SupportsJointPrediction`)."""
        return predict_jointly_by_factor(self.L, self.alpha, self.root_w[:, None] * K_cross, K_cross, K_new)

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return LatentProducts(self.alpha, by_factor(needs_factor(self.L, "to predict"), self.root_w))


@dataclass(frozen=True)
class Laplace(SolverProvider):
    """Laplace's approximation: a Gaussian at the mode of p(f | y).

    Parameters
    ----------
    tol : float, default=1e-10
        Newton's decrement (the gradient's norm in the metric of the Hessian) at which the mode is found.  Tight, so
        that log density and gradient do not depend on the start, and a trajectory can be run backwards.
    max_iter : int, default=200
        Factorisations, and Newton steps by conjugate gradients, before `NotConverged` is raised.
    newton : {"cholesky", "conjugate_gradients"}, default="cholesky"
        How Newton's linear systems are solved: by factorisations, each of which serves several steps; or by conjugate
        gradients from the last iterate (Barber & Williams 1997), products with K of 2n² operations, with one
        factorisation in the end, where log Z and its gradient need it.  Both find the same mode.
    curvature : {"expected", "observed"}, default="expected"
        Student-t likelihood only: whether the covariance of the approximation has the Fisher information, or -∂² log p
        at the mode, which is negative for outliers (see `evidence.laplace.student_t`).  Where it is, "observed" has
        poles: its log Z may tend to infinity.

    Notes
    -----
    Conjugate gradients are for dense covariances and all these likelihoods but Student's t.  They take a fifth to a
    third less time for a mode from scratch, and about a tenth less from a mode nearby, as along trajectories; where the
    prior variance is large, more products are needed and nothing is gained.  Where 100 + n/5 products have not led to
    the mode, factorisations take over.
    """

    tol: float = 1e-10
    max_iter: int = 200
    newton: str = "cholesky"
    curvature: str = "expected"
    supports: ClassVar[tuple[type[Likelihood], ...]] = (
        Logistic,
        Probit,
        Poisson,
        NegativeBinomial,
        Binomial,
        Ordinal,
        StudentT,
    )
    takes_low_rank: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "newton", lowered(self.newton))
        if self.newton not in tuple(_SEARCHES):
            raise InvalidInput(f"'newton' of Laplace must be 'cholesky' or 'conjugate_gradients'; got {self.newton!r}.")
        object.__setattr__(self, "curvature", lowered(self.curvature))
        if self.curvature not in ("expected", "observed"):
            raise InvalidInput(f"'curvature' of Laplace must be 'expected' or 'observed'; got {self.curvature!r}.")
        super().__post_init__()

    def check_use(self, likelihood: Likelihood, *, dense: bool) -> None:
        """Refuse conjugate gradients where only factorisations are known (see `Provider.check_use`)."""
        if self.newton == "conjugate_gradients" and (isinstance(likelihood, StudentT) or not dense):
            reason = "does not know Student's t" if dense else "knows dense covariances only, no inducing inputs"
            raise InvalidInput(f"Laplace(newton='conjugate_gradients') {reason}: take newton='cholesky', the default.")

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        if isinstance(likelihood, StudentT):
            return student_evidence(self, K, y, likelihood, gradient, observed=self.curvature == "observed")
        begin, warm = self.starting_point(start, y, len(y))
        weights, numbers = likelihood.row_weights(len(y)), likelihood.row_numbers(y)
        search, counted = _SEARCHES[self.newton]
        status, n_iter, residual, log_z, state, L, *_ = search.solve(
            K, y, numbers, weights, likelihood.kind, begin, warm, self.tol, self.max_iter, gradient
        )
        raise_for_status(self, status, n_iter, residual, K, counted)
        f, alpha, root_w = state[row.LATENT], state[row.ALPHA], state[row.ROOT_CURVATURE]
        if gradient:
            slopes = laplace_slopes(likelihood.kind, y, numbers, f, weights, state[row.SHARE], state[row.SHIFT])
            dlik = likelihood.parameter_gradient(y, slopes)
            return Evidence(log_z, L, dlik, LaplacePosterior(f, alpha, root_w, None), n_iter - 1, residual)
        return Evidence(log_z, None, _NONE, LaplacePosterior(f, alpha, root_w, L, K), n_iter - 1, residual)

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        assert isinstance(C, LowRank)
        if isinstance(likelihood, StudentT):
            return low_rank_student_evidence(self, C, y, likelihood, gradient, observed=self.curvature == "observed")
        return laplace_evidence(self, C, y, likelihood, start, gradient)
