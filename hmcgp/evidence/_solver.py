"""What providers share: the settings and status of a compiled solver, predictions by a Cholesky factor."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Protocol

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite

CONVERGED, NOT_POSITIVE_DEFINITE, NOT_CONVERGED = 0, 1, 2  # how a compiled solver ends


class Iterative(Protocol):
    """A provider that iterates until a residual is small."""

    @property
    def tol(self) -> float:
        """Residual at which it stops."""
        ...

    @property
    def max_iter(self) -> int:
        """Factorisations before it gives up."""
        ...


def check_settings(provider: Iterative) -> None:
    """Raise InvalidInput unless 0 < tol < 1 and max_iter is a whole number >= 1."""
    name, tol, max_iter = type(provider).__name__, provider.tol, provider.max_iter
    if not (isinstance(tol, Real) and 0.0 < tol < 1.0):
        raise InvalidInput(f"'tol' of {name} must lie between 0 and 1; got {tol!r}.")
    if not (isinstance(max_iter, Integral) and max_iter >= 1):
        raise InvalidInput(f"'max_iter' of {name} must be an integer >= 1; got {max_iter!r}.")


def raise_for_status(
    provider: Iterative,
    status: int,
    n_factor: int,
    residual: float,
    K: Array,
    *,
    what: str = "decrement",
    remedy: str = "raise max_iter, or keep the prior variance below 1e10",
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
            f"{name}: {what} {residual:.1e} > tol {provider.tol:.1e} after {n_factor} factorisations; {remedy}."
        )


def raise_for_sites(provider: Iterative, status: int, n_factor: int, residual: float, K: Array) -> None:
    """Turn the status of a compiled solver of sites into a typed error."""
    raise_for_status(
        provider,
        status,
        n_factor,
        residual,
        K,
        what="residual",
        remedy="raise max_iter, keep the prior variance moderate, or add a White term to the kernel",
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


def leave_out_row(mean: Array, alpha: Array, S: Array, W: Array) -> tuple[Array, Array]:
    """Mean and covariance of the C latent values of each row without its own site, which has the precision W.

    Parameters
    ----------
    mean, alpha : ndarrays of shape (C, n)
    S, W : ndarrays of shape (n, C, C)

    Returns
    -------
    mean : ndarray of shape (n, C)
    covariance : ndarray of shape (n, C, C)
        V = (S⁻¹ - W)⁻¹, without an inverse of S.
    """
    V = np.linalg.solve(np.eye(S.shape[1]) - S @ W, S)  # (I - SW)⁻¹S = S(I - WS)⁻¹
    V = 0.5 * (V + V.transpose(0, 2, 1))
    return mean.T - np.einsum("nab,bn->na", V, alpha), V


def symmetric(lower: Array) -> Array:
    """Matrices, along the last two axes, of which only the lower triangle is there."""
    L = np.tril(lower)
    return np.asarray(L + np.swapaxes(np.tril(L, -1), -1, -2))


def predict_by_factor(
    L: Array | None, alpha: Array, scaled: Array, K_cross: Array, k_diag: Array
) -> tuple[Array, Array]:
    """Latent mean k'α and variance k** - |L⁻¹s|² at new inputs, with s the columns of `scaled`."""
    V = solve_triangular(needs_factor(L, "to predict"), scaled, lower=True, check_finite=False)
    # rounding can leave a variance of -1e-16 where it is 0
    return K_cross.T @ alpha, np.maximum(k_diag - np.einsum("nm,nm->m", V, V), 0.0)
