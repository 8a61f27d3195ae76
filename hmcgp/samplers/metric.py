"""The metric of Hamiltonian dynamics.

    H(u, p) = -log p(u) + 1/2 p' S p,   p ~ N(0, S^-1),   du/dt = S p

`metric` means S everywhere: the inverse of the mass matrix, and ideally the covariance of u.  With S equal to the
covariance, every direction of a Gaussian moves on the same time scale (period 2 pi).
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.errors import InvalidInput
from hmcgp.runtime.typing import Array


class Metric(NamedTuple):
    """An inverse mass matrix S with its factors; (d,) means diagonal, (d, d) dense."""

    inv_mass: Array  # S
    factor: Array  # L with L L' = S: L z ~ N(0, S)
    momentum_factor: Array  # L^-T: L^-T z ~ N(0, S^-1)


def as_metric(metric: Array | None, n_dim: int) -> Metric:
    """Check and factor an inverse mass: None is the identity, one axis a diagonal, two axes a dense matrix."""
    try:
        S = np.ones(n_dim) if metric is None else np.array(metric, dtype=float)
    except (TypeError, ValueError):
        raise InvalidInput(f"'metric' must be numbers, or None to learn it in warm-up; got {metric!r}.") from None
    if S.shape not in ((n_dim,), (n_dim, n_dim)):
        raise InvalidInput(f"'metric' must have shape ({n_dim},) or ({n_dim}, {n_dim}); got {S.shape}.")
    if S.ndim == 1:
        if not (np.all(np.isfinite(S)) and np.all(S > 0.0)):
            raise InvalidInput(f"'metric' must be positive and finite; got {S}.")
        root: Array = np.sqrt(S)
        return Metric(S, root, 1.0 / root)
    if not np.allclose(S, S.T, rtol=1e-10, atol=0.0):  # also False for NaN
        raise InvalidInput("'metric' must be symmetric; the matrix given is not.")
    try:
        L = np.asarray(np.linalg.cholesky(S), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise InvalidInput("'metric' must be positive definite; its Cholesky factorisation failed.") from None
    # an explicit inverse: it is applied once per draw, and d is the number of hyperparameters
    return Metric(S, L, solve_triangular(L, np.eye(len(L)), lower=True).T.copy())


def apply(factor: Array, z: Array) -> Array:
    """Multiply by a diagonal (d,) or dense (d, d) matrix."""
    return factor * z if factor.ndim == 1 else factor.dot(z)


def sample_momentum(rng: np.random.Generator, metric: Metric) -> Array:
    """Draw p ~ N(0, S^-1)."""
    factor = metric.momentum_factor
    return apply(factor, rng.standard_normal(len(factor)))


def velocity(inv_mass: Array | None, momentum: Array) -> Array:
    """Return du/dt = S p."""
    return momentum if inv_mass is None else apply(inv_mass, momentum)


def kinetic_energy(inv_mass: Array | None, momentum: Array) -> float:
    """Return 1/2 p' S p."""
    return 0.5 * float(momentum.dot(velocity(inv_mass, momentum)))


def end_energy(inv_mass: Array | None, momentum: Array, logdensity: float) -> float:
    """Return H = 1/2 p' S p - log p(u) at the end of a trajectory; inf where it has run away."""
    if logdensity == -inf:
        return inf
    with np.errstate(over="ignore", invalid="ignore"):
        energy = kinetic_energy(inv_mass, momentum) - logdensity
    return energy if energy < inf else inf  # NaN too
