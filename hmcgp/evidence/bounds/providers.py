"""Bounds on the evidence of the logistic likelihood (Jaakkola & Jordan 1996; Gibbs & MacKay 2000).

Each factor σ(y f) lies between two exponentials, one quadratic and one linear in f:

    σ(ν) exp[½(y f - ν) - λ(ν)(f² - ν²)]  <=  σ(y f)  <=  exp[μ y f - H₂(μ)],
    λ(ν) = tanh(ν/2)/(4ν),     H₂(μ) = -μ log μ - (1 - μ) log(1 - μ),   0 < μ < 1,

so Gaussian integrals bracket the evidence at every ν and μ, and the best ones are log Z' <= log Z <= log Z''.  Of a row
of weight ω all three are taken to the power ω, which makes d, w, b, and the terms of the sums below ω times as large.

Lower.  With d = y/2, w = 2λ(ν), R = (K + diag(w)⁻¹)⁻¹, α = d - RKd, m = Kα, S = (K⁻¹ + diag w)⁻¹:

    log Z' = Σ [log σ(ν) - ν/2 + λν²] + ½ d'Kα - ½ log|I + diag(w) K|,   greatest where ν_i² = S_ii + m_i²
    G = ∂ log Z'/∂K = ½(αα' - R).

Iterating ν² ← S + m² (the EM algorithm of the papers) takes 20 to 100 steps on Pima, and thousands where the prior
variance is large.  Here it is Newton's method in x = 1/w, the noise variances of an equivalent regression, in which
log Z' is concave.  For it is the maximum over all N(m, S = CC') of Σ [h(x_i) - ½ t_i²/x_i + d_i m_i] - KL, with
t_i² = S_ii + m_i².  There dh/dx = -tanh²(ν/2)/8 falls with x, t²/x is convex, t is a norm of (m, C), and KL is convex
in (m, C); and the maximum over (m, C) of what is jointly concave is concave.  So there is one maximum, and Newton's
method with step halving finds it.

Upper.  With b = μ y:

    log Z'' = -Σ H₂(μ) + ½ b'Kb,   convex in μ,   least where log((1 - μ)/μ) = y f, f = Kb
    G = ∂ log Z''/∂K = ½ bb'.

That minimum is the mode that Laplace's method seeks: b = y σ(-yf) is the gradient of the log likelihood, f = Kb.  (The
problems are dual: log Z'' is Ψ at the mode, log Z'' = log Z_Laplace + ½ log|B|.)  So Laplace's damped Newton finds it,
and μ = σ(-yf) cannot leave (0, 1).

Both gradients are right by the envelope theorem: the bound is stationary in ν or μ, so only the explicit K counts.

Latent predictions.  Lower: mean k'α, variance k** - k'Rk.  Upper: the bound is N(f; 0, K) tilted by exp(b'f), which
moves the mean and leaves the covariance: mean k'b, variance k**.

G of the upper bound is positive semidefinite: log Z'' never falls when the prior variance grows.  It has no maximum to
tell hyperparameters apart, and brackets only; take hyperparameters from the lower bound.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.bounds import optimisation as core
from hmcgp.evidence.low_rank.bounds import lower_bound, upper_bound
from hmcgp.evidence.low_rank.structure import LowRank
from hmcgp.evidence.products import LatentProducts, by_factor
from hmcgp.evidence.protocols import Evidence, Structure
from hmcgp.evidence.status import (
    leave_out,
    needs_factor,
    predict_by_factor,
    predict_jointly_by_factor,
    raise_for_status,
)
from hmcgp.likelihoods import Likelihood, Logistic
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class LowerBoundPosterior:
    """N(Kα, (K⁻¹ + diag w)⁻¹), the lower bound normalised."""

    f: Array  # (n,) mean, Kα
    alpha: Array  # (n,)
    nu: Array  # (n,) where the bound touches the sigmoid
    root_w: Array  # (n,) √(2λ(ν))
    L: Array | None  # (n, n), lower triangle: Cholesky factor of B; None where the gradient has used its memory

    @property
    def start(self) -> Array:
        """ν; only its size matters."""
        return self.nu

    def start_with(self, mean: Array, variance: Array) -> Array:
        """ν and, of new rows, the value √(m² + S) that it has at the maximum."""
        return np.concatenate([self.nu, np.sqrt(mean**2 + variance)])

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value, the other rows' ν as they are."""
        return leave_out(self.f, self.alpha, self.nu**2 - self.f**2, self.root_w**2)  # ν² = S_ii + m² at the maximum

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
class UpperBoundPosterior:
    """N(Kb, K), the upper bound normalised: the prior, moved."""

    f: Array  # (n,) mean, Kb
    b: Array  # (n,) μ y

    @property
    def start(self) -> Array:
        """The mean, which is the mode of p(f | y)."""
        return self.f

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean k'b and variance k** at new inputs (see `Posterior.predict`)."""
        return K_cross.T @ self.b, np.array(k_diag, dtype=float)

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean k'b and covariance K** at new inputs (see `SupportsJointPrediction`)."""
        return K_cross.T @ self.b, np.array(K_new, dtype=float)

    def products(self) -> LatentProducts:
        """Matrices that latent predictions are products with (see `SupportsProducts`)."""
        return LatentProducts(self.b, None)


@dataclass(frozen=True)
class LowerBound(SolverProvider):
    """The greatest of the lower bounds log Z' <= log Z, and the Gaussian that attains it.

    Parameters
    ----------
    tol : float, default=1e-10
        Newton's decrement at which the maximum is found (see `Laplace`).
    max_iter : int, default=200
        Factorisations before `NotConverged` is raised.
    """

    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Logistic,)
    takes_low_rank: ClassVar[bool] = True

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        begin, warm = self.starting_point(start, y, len(y))
        status, n_factor, residual, log_z, state, L = core.solve_lower(
            K, y, likelihood.row_weights(len(y)), begin, warm, self.tol, self.max_iter, gradient
        )
        raise_for_status(self, status, n_factor, residual, K)
        f, alpha, nu, root_w = (state[row] for row in (core.MEAN, core.ALPHA, core.NU, core.ROOT_CURVATURE))
        posterior = LowerBoundPosterior(f, alpha, nu, root_w, None if gradient else L)
        return Evidence(log_z, L if gradient else None, np.empty(0), posterior, n_factor - 1, residual)

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        assert isinstance(C, LowRank)
        return lower_bound(self, C, y, likelihood, start, gradient)


@dataclass(frozen=True)
class UpperBound(SolverProvider):
    """The least of the upper bounds log Z <= log Z''.

    For brackets (`posterior.evidence_bounds`) and their predictions.  It never falls when the prior variance grows, so
    there is nothing to maximise and no posterior of hyperparameters: `Model` refuses to give it as a density.

    Parameters
    ----------
    tol : float, default=1e-10
        Newton's decrement at which the minimum, the mode of p(f | y), is found.
    max_iter : int, default=200
        Factorisations before `NotConverged` is raised.
    """

    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Logistic,)
    takes_low_rank: ClassVar[bool] = True

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        begin, warm = self.starting_point(start, y, len(y))
        status, n_factor, residual, log_z, b, mean, dK = core.solve_upper(
            K, y, likelihood.row_weights(len(y)), begin, warm, self.tol, self.max_iter, gradient
        )
        raise_for_status(self, status, n_factor, residual, K)
        posterior = UpperBoundPosterior(mean, b)
        return Evidence(log_z, dK if gradient else None, np.empty(0), posterior, n_factor - 1, residual)

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        assert isinstance(C, LowRank)
        return upper_bound(self, C, y, likelihood, start, gradient)
