"""The posterior of the latent values, whitened by a Gaussian that approximates it.

Gaussian sites exp(η_i f_i - ½ w_i f_i²) in the place of the likelihoods give q(f) = N(m, S).  With K = LL',

    C = I + L'WL = GG',   m = L C⁻¹L'η,   S = L C⁻¹L',   f = L(C⁻¹L'η + G'⁻¹ν),   ν ~ N(0, I)  ⟺  f ~ q,
    N(f; 0, K) exp(η'f - ½f'Wf) = Z q(f),   log Z = ½η'm - ½log|C|.

So the exact density of (u, f) becomes, in the coordinates (u, ν) and with the Jacobian |∂f/∂ν| = |L|/|G|,

    p(u) Z(u) N(ν; 0, I) Π p(y_i | f_i) exp(-η_i f_i + ½ w_i f_i²),

whatever the sites: better ones only make the product flatter.  K is never inverted, and C is well conditioned.  The
prior that is sampled is N(0, K + JITTER diag K), since a smooth kernel has no Cholesky factor in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from hmcgp.runtime.typing import Array

JITTER = 1e-10  # of the prior variances: far below what any label can tell


class Whitening(NamedTuple):
    """Affine map from white coordinates ν to latent values f, and the constant of its density."""

    L: Array  # (n, n), factor of the prior covariance
    G: Array  # (n, n), factor of C
    centre: Array  # (n,), C⁻¹L'η
    mean: Array  # (n,), m
    eta: Array  # (n,)
    w: Array  # (n,), of either sign
    log_z: float  # log Z

    @property
    def log_jacobian(self) -> float:
        """Logarithm of |∂f/∂ν|."""
        return float(np.log(np.diag(self.L)).sum() - np.log(np.diag(self.G)).sum())

    def offset(self, nu: Array) -> Array:
        """Latent values less their mean, at white coordinates of shape (N, n)."""
        return np.asarray((self.L @ solve_triangular(self.G, nu.T, lower=True, trans="T", check_finite=False)).T)

    def invert(self, f: Array) -> Array:
        """White coordinates ν of latent values, of shape (n,)."""
        z = solve_triangular(self.L, f, lower=True, check_finite=False)
        return np.asarray(self.G.T @ (z - self.centre))

    def log_sites(self, f: Array) -> Array:
        """Logarithm of the product of the sites, of shape (N,), at latent values of shape (N, n)."""
        return np.asarray(f @ self.eta - 0.5 * f**2 @ self.w)


def factor_prior(K: Array) -> Array | None:
    """Lower Cholesky factor of K + JITTER diag K; None where there is none."""
    K = K.copy()
    K.flat[:: len(K) + 1] *= 1.0 + JITTER
    return cholesky(K)


def whiten(L: Array, eta: Array, w: Array) -> Whitening | None:
    """Whitening by sites (η, w) under the prior covariance LL'; None where negative sites make q improper.

    Parameters
    ----------
    L : ndarray of shape (n, n)
        Lower triangular.
    eta, w : ndarrays of shape (n,)
    """
    C = L.T @ (w[:, None] * L)
    C.flat[:: len(w) + 1] += 1.0
    G = cholesky(C)
    if G is None:
        return None
    centre = cho_solve((G, True), L.T @ eta, check_finite=False)
    mean = L @ centre
    log_z = 0.5 * float(eta @ mean) - float(np.log(np.diag(G)).sum())
    return Whitening(L, G, centre, mean, eta, w, log_z)


def cholesky(A: Array) -> Array | None:
    """Lower Cholesky factor, or None."""
    try:
        return np.asarray(np.linalg.cholesky(A))
    except np.linalg.LinAlgError:
        return None
