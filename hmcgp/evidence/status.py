"""Shared by providers: the status of a compiled solver, and posteriors by a Cholesky factor."""

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.rounding import LOST_NATS
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

CONVERGED, NOT_POSITIVE_DEFINITE, NOT_CONVERGED = 0, 1, 2  # how a compiled solver ends
GOING_ON = -1  # it has not ended yet


def raise_for_status(
    provider: SolverProvider, status: int, n_iter: int, residual: float, K: Array, counted: str = "factorisations"
) -> None:
    """Turn the status of a compiled solver into a typed error."""
    name = type(provider).__name__
    if status == NOT_POSITIVE_DEFINITE:
        raise NotPositiveDefinite(
            f"{name}: I + √W K √W has no Cholesky factor (largest prior variance {np.max(np.diag(K)):.1e}); "
            "is K a covariance matrix, and finite?"
        )
    if status == NOT_CONVERGED:
        raise NotConverged(
            f"{name}: {provider.criterion} {residual:.1e} > tol {provider.tol:.1e} after {n_iter} {counted}; "
            f"{provider.remedy}."
        )


def refuse_lost_digits(provider: SolverProvider, alpha: Array, w: Array, variances: Array, n_factor: int) -> None:
    """Refuse an answer of which rounding may have made more than LOST_NATS, ½ eps (|K||α|₁² + Σ|w|K_ii)."""
    scale, size = float(variances.max()), float(np.abs(alpha).sum())
    nats = 0.5 * EPS * (scale * size**2 + float(np.abs(w) @ variances))
    if not nats <= LOST_NATS:
        raise NotConverged(
            f"{type(provider).__name__}: rounding alone changes log Z by {nats:.1e} (largest prior variance "
            f"{scale:.1e}, after {n_factor} factorisations); {provider.remedy}."
        )


def needs_factor(factor: Array | None, purpose: str) -> Array:
    """Return the factor of a posterior, or say why there is none."""
    if factor is None:
        raise InvalidInput(f"This posterior was computed with its gradient; ask for gradient=False {purpose}.")
    return factor


def leave_out(mean: Array, alpha: Array, variance: Array, w: Array) -> tuple[Array, Array]:
    """Mean and variance of each latent value without its own site: 1/v = 1/S_ii - w_i, μ = m - vα."""
    v = variance / (1.0 - variance * w)
    return mean - v * alpha, v


def leave_classes_out(f: Array, alpha: Array, S: Array, p: Array) -> tuple[Array, Array]:
    """Mean (n, C) and covariance (n, C, C) of the latents of each row without its own site W = diag p - pp'/Σp.

    The mode f, α and p are of shape (C, n), the posterior covariances S of shape (n, C, C).
    """
    V = np.linalg.solve(np.eye(len(p)) - S @ softmax_precision(p), S)  # (I - SW)⁻¹S = S(I - WS)⁻¹
    V = 0.5 * (V + V.transpose(0, 2, 1))
    return f.T - np.einsum("nab,bn->na", V, alpha), V


def softmax_precision(p: Array) -> Array:
    """W = diag p - pp'/Σp of each row, of shape (n, C, C), for p of shape (C, n)."""
    rows = p.T
    outer = rows[:, :, None] * rows[:, None, :]
    return np.asarray(rows[:, :, None] * np.eye(len(p)) - outer / rows.sum(axis=1)[:, None, None])


def predict_by_factor(
    L: Array | None, alpha: Array, scaled: Array, K_cross: Array, k_diag: Array
) -> tuple[Array, Array]:
    """Latent mean k'α and variance k** - |L⁻¹s|² at new inputs, with s the columns of `scaled`."""
    V = solve_triangular(needs_factor(L, "to predict"), scaled, lower=True, check_finite=False)
    # rounding can leave a variance of -1e-16 where it is 0
    return K_cross.T @ alpha, np.maximum(k_diag - np.einsum("nm,nm->m", V, V), 0.0)


def predict_jointly_by_factor(
    L: Array | None, alpha: Array, scaled: Array, K_cross: Array, K_new: Array
) -> tuple[Array, Array]:
    """Latent mean k'α and covariance K** - (L⁻¹s)'L⁻¹s at new inputs (see `predict_by_factor`)."""
    V = solve_triangular(needs_factor(L, "to predict"), scaled, lower=True, check_finite=False)
    return K_cross.T @ alpha, K_new - V.T @ V


def symmetric(lower: Array) -> Array:
    """Matrices, along the last two axes, of which only the lower triangle is there."""
    return np.asarray(np.tril(lower) + np.swapaxes(np.tril(lower, -1), -1, -2))
