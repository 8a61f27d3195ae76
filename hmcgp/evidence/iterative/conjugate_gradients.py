"""Conjugate gradients for many right-hand sides, stopped by bounds on the quadratic forms (see `estimate`)."""

from typing import NamedTuple

import numpy as np

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence.iterative.preconditioner import Preconditioner
from hmcgp.runtime.typing import Array


class Solved(NamedTuple):
    """Solutions of Cx = b for each row b of (m, n), and the way there."""

    X: Array  # (m, n)
    residuals: Array  # (m, n) b - Cx
    width: Array  # (m,) Σ r_i²/s_i, how far apart the bounds on b'C⁻¹b are
    scale: Array  # (m,) b'P⁻¹b
    steps: Array  # (J, m) lengths γ of the steps
    ratios: Array  # (J, m) β, from one residual to the next
    basis: list[Array]  # J of (m, n): u_1 … u_J of every row, or nothing


def conjugate_gradients(
    K: Array, preconditioner: Preconditioner, B: Array, tol: float, max_products: int, *, keep: bool = False
) -> Solved:
    """Solve (K + diag noise) x = b for each row of B, of shape (m, n), all with the same products with K."""
    noise = preconditioner.noise
    X, r = np.zeros_like(B), B.copy()
    s = preconditioner.solve(r)
    rho = np.einsum("mn,mn->m", r, s)
    p, scale = s, rho
    steps: list[Array] = []
    ratios: list[Array] = []
    basis: list[Array] = []
    while True:
        width = np.einsum("mn,mn,n->m", r, r, 1.0 / noise)
        if steps and (width <= tol**2 * scale).all():
            return Solved(X, r, width, scale, np.array(steps), np.array(ratios), basis)
        if not np.isfinite(width).all():
            raise NotPositiveDefinite("Iterative: K + diag noise is not finite; is K a covariance matrix?")
        if len(steps) == max_products:
            residual = np.sqrt(np.max(width / scale))
            raise NotConverged(
                f"Iterative: residual {residual:.1e} > tol {tol:.1e} after {len(steps)} products with "
                f"K (least noise {noise.min():.1e}, largest prior variance {np.max(np.diag(K)):.1e}, rank "
                f"{len(preconditioner.pivots)}); increase 'rank' or 'max_products' of Iterative, "
                "or use evidence='exact', which factorises the matrix."
            )
        if keep:
            basis.append(s / np.sqrt(np.where(rho > 0.0, rho, 1.0))[:, None])
        q = p @ K + noise * p
        curvature = np.einsum("mn,mn->m", p, q)
        if (curvature < 0.0).any():
            raise NotPositiveDefinite("Iterative: K + diag noise has a negative eigenvalue; is K a covariance matrix?")
        live = rho > 0.0  # a row that is solved exactly, y = 0 say, stays as it is
        steps.append(np.divide(rho, curvature, out=np.ones_like(rho), where=live))
        gamma = np.where(live, steps[-1], 0.0)[:, None]
        X += gamma * p
        r -= gamma * q
        s = preconditioner.solve(r)
        old, rho = rho, np.maximum(np.einsum("mn,mn->m", r, s), 0.0)
        ratios.append(np.divide(rho, old, out=np.zeros_like(rho), where=live))
        p = s + ratios[-1][:, None] * p
