"""Quasi-random standard normal points in antithetic pairs, in batches that are independent of each other.

One scrambled Sobol net of HALF points serves all batches.  Batch b shifts it by a uniform random vector δ_b, modulo 1
(Cranley & Patterson 1976), and makes it normal:

    u = (net + δ_b) mod 1,   z = Φ⁻¹(u),   and -z.

Every point is uniform by itself, so means over a batch are unbiased; the batches differ by δ_b alone, which is drawn
anew for each, so that their scatter gives the standard error of the mean of all.

Points of a Student t with ν degrees of freedom are z √(ν/χ²), with one χ² for each pair from another coordinate of the
net.  In r dimensions, the ratio of the two densities depends on the length of a point only:

    log N(z) - log t(z) = -½|z|² + ½(ν + r) log(1 + |z|²/ν) + r/2 log(ν/2) - log Γ((ν + r)/2) + log Γ(ν/2).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import chdtri, ndtri
from scipy.stats import qmc

from hmcgp.runtime.typing import Array

HALF = 64  # points of the net: a batch is these and their mirror images
BATCH = 2 * HALF
_SEED = 19760101  # of the scrambling of the net
_EDGE = 1e-16  # from 0 and 1, where Φ⁻¹ is infinite


@lru_cache(maxsize=4)
def sobol_net(n_dim: int) -> Array:
    """Scrambled Sobol points, of shape (HALF, n_dim)."""
    return np.asarray(qmc.Sobol(n_dim, rng=np.random.default_rng(_SEED)).random(HALF))


@dataclass(frozen=True)
class Points:
    """Batches of points, each a function of its number alone."""

    n_dim: int  # r, of the points
    net_dim: int  # of the net, more than r
    entropy: tuple[int, ...]  # the random stream
    run: int = 0  # another run, other batches
    dof: float | None = None  # ν of a Student t; None: standard normal

    def batch(self, number: int) -> Array:
        """Points of one batch, of shape (BATCH, n_dim)."""
        rng = np.random.default_rng([*self.entropy, self.run, number])
        shift = rng.random(self.n_dim + 1)
        u = sobol_net(self.net_dim)[:, : self.n_dim + 1] + shift  # the first coordinate is for the radius
        u -= np.floor(u)
        np.clip(u, _EDGE, 1.0 - _EDGE, out=u)
        z = ndtri(u[:, 1:])
        if self.dof is not None:
            z *= np.sqrt(self.dof / chdtri(self.dof, u[:, :1]))
        return np.concatenate([z, -z])

    def log_normal_ratio(self, z: Array) -> Array:
        """Log of the standard normal density over that of the points, at z of shape (J, n_dim); of shape (J,)."""
        if self.dof is None:
            return np.zeros(len(z))
        nu, r = self.dof, self.n_dim
        square = np.einsum("jr,jr->j", z, z)
        constant = 0.5 * r * math.log(0.5 * nu) - math.lgamma(0.5 * (nu + r)) + math.lgamma(0.5 * nu)
        return constant - 0.5 * square + 0.5 * (nu + r) * np.log1p(square / nu)
