"""Laplace's approximation to the evidence of several classes (Williams & Barber 1998, IEEE PAMI 20).

Each of C classes has a latent function of its own, independent beforehand, f_c ~ N(0, K_c); the softmax π of the C
values at a row gives the probabilities of its classes.  With t one-hot, of shape (C, n), the mode of p(f | y) maximises
the concave Ψ(f) = Σ t f - Σ_i log Σ_c exp f_ci - ½ Σ_c f_c'K_c⁻¹f_c, where α_c = K_c⁻¹f_c = g_c = t_c - π_c.  The
negative Hessian of the likelihood, W = diag π - ΠΠ' (Π: the C matrices diag π_c on top of each other), couples the
classes at each row only, so that n x n matrices are enough:

    B_c = I + √π_c K_c √π_c,   E_c = √π_c B_c⁻¹ √π_c,   MM' = Σ_c E_c,   V_c = M⁻¹E_c,
    (K + W⁻¹)⁻¹ =: R,   R_ab = δ_ab E_a - V_a'V_b,   |I + WK| = |M|² Π_c |B_c|,

    log Z = Ψ - ½ Σ_c log|B_c| - log|M|,
    G_c = ∂ log Z/∂K_c = ½(g_c g_c' - R_cc + u_c g_c' + g_c u_c'),   u = (I - RK) s,
    s_ci = ½ Σ_ab S_i[a, b] ∂³log p(y_i | f_i)/∂f_a ∂f_b ∂f_c
         = -½ π_c (S_cc - Σ_a π_a S_aa - 2((Sπ)_c - π'Sπ)) at row i,

S_i being the posterior covariance of the C latents at row i.  The gradient is exact by the implicit function theorem:
the first two terms hold f fixed, the last two are the motion of the mode.  Costs n³ per class and iteration, and 2n³
per class for the gradient; never a matrix of order Cn.

A weight ω multiplies the log likelihood of its row, and so g, W and s.  Then B and E have ωπ in the place of π, and
|I + WK| = |M|² Π_c |B_c|/Π_i ω_i.

Two classes with covariances K_1 and K_2 are the logistic model of f_1 - f_2 ~ N(0, K_1 + K_2); the sum of the two
integrates out exactly, under Laplace's approximation too.

Latent predictions: means k_c'α_c, covariance between classes δ_ab(k** - k_a'E_a k_a) + (V_a k_a)'(V_b k_b).
Leaving out row i, to first order: covariance (S_i⁻¹ - W_i)⁻¹ = S_i(I - W_i S_i)⁻¹, means f_i less that times g_i.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.errors import InvalidInput
from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.laplace import softmax_mode_search as core
from hmcgp.evidence.low_rank.softmax import softmax_evidence
from hmcgp.evidence.protocols import Evidence, Structure
from hmcgp.evidence.status import (
    CONVERGED,
    leave_classes_out,
    needs_factor,
    raise_for_status,
    softmax_precision,
    symmetric,
)
from hmcgp.likelihoods import Likelihood, Softmax
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class SoftmaxPosterior:
    """N(f, (K⁻¹ + W)⁻¹) with f the mode, over all classes together; W = diag p - pp'/Σp at each row."""

    f: Array  # (C, n) mode
    alpha: Array  # (C, n) K⁻¹ f
    p: Array  # (C, n) ωπ, the softmax of f times the weights of rows
    B_inverse: Array | None  # (C, n, n), lower triangles; None where the gradient has used its memory
    M: Array | None  # (n, n), lower triangle
    K: Array | None  # (k, n, n), lower triangles: prior covariance, one for all classes or one for each

    @property
    def start(self) -> Array:
        """The mode, flat: the next solution, under a slightly different K, starts from it."""
        return self.f.ravel()

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean (n, C) and covariance (n, C, C) of the latents of every row, by linear response."""
        K = symmetric(needs_factor(self.K, "for cavities"))
        _, S = self.predict(K, np.diagonal(K, axis1=1, axis2=2))
        return leave_classes_out(self.f, self.alpha, S, self.p)

    def site_precision(self) -> Array:
        """W of each row, of shape (n, C, C)."""
        return softmax_precision(self.p)

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Mean (m, C) and covariance (m, C, C) of the C latents at each of m new inputs (see `Posterior.predict`).

        K_cross, of shape (n, m) or (C, n, m), and k_diag, (m,) or (C, m), are of all classes or of each.
        """
        k_diag = np.atleast_2d(k_diag)
        V, spread = np.empty(self.f.shape + K_cross.shape[-1:]), np.empty((len(self.f), K_cross.shape[-1]))
        for c, (scaled, solved, V[c]) in enumerate(self._solved(K_cross)):
            spread[c] = k_diag[c % len(k_diag)] - np.einsum("nm,nm->m", scaled, solved)
        covariance = np.einsum("anm,bnm->mab", V, V, optimize=True)
        # rounding can leave a variance of -1e-16 where it is 0
        covariance[:, range(len(V)), range(len(V))] += np.maximum(spread.T, 0.0)
        return self._mean(K_cross), covariance

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Mean (m, C) and covariance (m, C, m, C) of the latents of all classes at all new inputs together.

        K_cross as of `predict`; K_new is of shape (m, m), or (C, m, m).
        """
        own = np.array(np.broadcast_to(K_new, self.f.shape[:1] + K_new.shape[-2:]))
        V = np.empty(self.f.shape + K_cross.shape[-1:])
        for c, (scaled, solved, V[c]) in enumerate(self._solved(K_cross)):
            own[c] -= scaled.T @ solved
        covariance = np.tensordot(V, V, axes=(1, 1)).transpose(1, 0, 3, 2)  # (m, C, m, C)
        for c in range(len(V)):
            covariance[:, c, :, c] += own[c]
        return self._mean(K_cross), covariance

    def _mean(self, K_cross: Array) -> Array:
        crosses = np.broadcast_to(K_cross, self.f.shape + K_cross.shape[-1:])
        return np.asarray(np.einsum("cnm,cn->mc", crosses, self.alpha))

    def _solved(self, K_cross: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Yield √p_c k_c, B_c⁻¹√p_c k_c and V_c k_c, each of shape (n, m), class by class."""
        B_inverse, M = needs_factor(self.B_inverse, "to predict"), needs_factor(self.M, "to predict")
        crosses = np.broadcast_to(K_cross, self.f.shape + K_cross.shape[-1:])
        for B, root, cross in zip(B_inverse, np.sqrt(self.p), crosses, strict=True):
            scaled = root[:, None] * cross
            solved = symmetric(B) @ scaled
            yield scaled, solved, solve_triangular(M, root[:, None] * solved, lower=True, check_finite=False)


def covariance_stack(K: Array, n_classes: int) -> Array:
    """Prior covariances of the classes, of shape (1, n, n) where they share one, else (C, n, n)."""
    stack = K.reshape((-1, *K.shape[-2:]))
    if len(stack) not in {1, n_classes}:
        raise InvalidInput(f"'K' must hold one matrix, or one for each of {n_classes} classes; got {len(stack)}.")
    return stack


@dataclass(frozen=True)
class SoftmaxLaplace(SolverProvider):
    """Laplace's approximation for several classes: a Gaussian at the mode of p(f | y), f holding a function per class.

    Parameters
    ----------
    tol : float, default=1e-10
        Newton's decrement (the gradient's norm in the metric of the Hessian) at which the mode is found.
    max_iter : int, default=200
        Factorisations before `NotConverged` is raised.
    """

    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (Softmax,)
    takes_low_rank: ClassVar[bool] = True

    def matrices(self, n_latents: int) -> int:
        return n_latents + 3

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        assert isinstance(likelihood, Softmax)
        n_classes, weights = likelihood.count(y), likelihood.row_weights(len(y))
        stack = covariance_stack(K, n_classes)
        begin, warm = self.starting_point(start, y, n_classes * len(y))
        status, n_factor, residual, log_z, state, A, M, dK = core.solve(
            stack, y, weights, n_classes, begin, warm, self.tol, self.max_iter, gradient
        )
        if status != CONVERGED:
            raise_for_status(self, status, n_factor, residual, stack[np.argmax(np.einsum("kii->k", stack))])
        f, alpha, pi = (state[i].reshape(n_classes, -1) for i in (row.LATENT, row.ALPHA, row.PROBABILITY))
        factors = (None, None, None) if gradient else (A, M, stack)
        posterior = SoftmaxPosterior(f, alpha, weights * pi, *factors)
        G = dK.reshape(K.shape) if gradient else None
        return Evidence(log_z, G, np.empty(0), posterior, n_factor - 1, residual)

    def _solve_low_rank(
        self, C: Structure, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool
    ) -> Evidence:
        assert isinstance(likelihood, Softmax)
        return softmax_evidence(self, C, y, likelihood, start, gradient)
