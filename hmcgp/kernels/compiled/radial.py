"""Compiled loops of kernels that are functions of one scaled distance, variance * φ(r²), r² = |z - z'|².

Beside K they give its slope in the form W = -2 variance dφ/d(r²), with which

    ∂K/∂ℓ_k = W (z_k - z'_k)²/ℓ_k,     ∂K/∂x_k = -W (z_k - z'_k)/ℓ_k,

so that `stationary.pull_back` serves all of them (for the squared exponential W = K).  Where φ has a cusp at
r = 0, W grows as 1/r, and W (z_k - z'_k)² tends to 0: W is set to 0 there.

    MATERN12    e^-r                            W/variance = e^-r/r
    MATERN32    (1 + t) e^-t,        t = √3 r                3 e^-t
    MATERN52    (1 + t + t²/3) e^-t, t = √5 r                5/3 (1 + t) e^-t
    RATIONAL    (1 + r²/2α)^-α                               (1 + r²/2α)^-(α+1)
    TRIANGLE    1 - r                for r < 1, else 0       1/r
    SPHERICAL   1 - 3/2 r + 1/2 r³   for r < 1, else 0       3/2 (1/r - r)
"""

from __future__ import annotations

import math

import numpy as np

from hmcgp.numerics.compiled import compiled, compiled_inside, compiled_with_lock
from hmcgp.numerics.exponential import exp_nonpositive
from hmcgp.numerics.lapack import mirror_lower
from hmcgp.runtime.typing import Array

MATERN12, MATERN32, MATERN52, RATIONAL, TRIANGLE, SPHERICAL = range(6)


@compiled_inside
def _square_distances(Z: Array, i: int, Z2: Array, m: int, out: Array) -> None:
    """Write |z_i - z_j|² of column i of Z and the first m columns of Z2."""
    for j in range(m):
        out[j] = 0.0
    for k in range(Z.shape[0]):
        a, b = Z[k, i], Z2[k]
        for j in range(m):
            out[j] += (a - b[j]) * (a - b[j])


@compiled_inside
def _profile(kind: int, alpha: float, variance: float, s: Array, work: Array, k: Array, w: Array) -> None:
    """Write variance φ into k and W into w, for the squared distances s; all of one length."""
    m = s.shape[0]
    if kind == RATIONAL:
        for j in range(m):
            base = 0.5 * s[j] / alpha
            work[j] = -alpha * math.log1p(base)
            w[j] = 1.0 / (1.0 + base)
        exp_nonpositive(work, k, variance)
        for j in range(m):
            w[j] *= k[j]
    elif kind in {TRIANGLE, SPHERICAL}:
        cubic = 0.5 if kind == SPHERICAL else 0.0
        for j in range(m):
            r = math.sqrt(s[j])
            inside = variance if r < 1.0 else 0.0
            k[j] = inside * (1.0 - r * (1.0 + cubic * (1.0 - s[j])))
            w[j] = inside * (1.0 + cubic - 3.0 * cubic * s[j]) / r if r > 0.0 else 0.0
    else:
        _matern(kind, variance, s, work, k, w)


@compiled_inside
def _matern(kind: int, variance: float, s: Array, work: Array, k: Array, w: Array) -> None:
    rate = math.sqrt(1.0 + 2.0 * kind)  # √(2ν)
    for j in range(s.shape[0]):
        work[j] = -rate * math.sqrt(s[j])
    exp_nonpositive(work, w, variance)  # variance e^-t
    for j in range(s.shape[0]):
        t = -work[j]
        if kind == MATERN12:
            k[j] = w[j]
            w[j] = w[j] / t if t > 0.0 else 0.0
        elif kind == MATERN32:
            k[j] = (1.0 + t) * w[j]
            w[j] *= 3.0
        else:
            k[j] = (1.0 + t * (1.0 + t / 3.0)) * w[j]
            w[j] *= 5.0 / 3.0 * (1.0 + t)


@compiled_with_lock
def covariance(
    kind: int, alpha: float, Z: Array, Z2: Array, variance: float, symmetric: bool, slopes: bool
) -> tuple[Array, Array]:
    """K between the n columns of Z and the m columns of Z2, of shape (n, m), and with `slopes` also W.

    Of a `symmetric` K, whose columns Z and Z2 are equal, W is the lower triangle.
    """
    n, m = Z.shape[1], Z2.shape[1]
    K, W = np.empty((n, m)), np.empty((n if slopes else 1, m))
    s, work = np.empty(m), np.empty(m)
    for i in range(n):
        end = i + 1 if symmetric else m
        _square_distances(Z, i, Z2, end, s)
        _profile(kind, alpha, variance, s[:end], work[:end], K[i, :end], W[i if slopes else 0, :end])
    if symmetric:
        mirror_lower(K)
    return K, W


@compiled
def cross_covariance(kind: int, alpha: float, Z: Array, Z2: Array, variance: float) -> tuple[Array, Array]:
    """K and W between the n columns of Z and the m columns of Z2, of shape (n, m), without the interpreter lock."""
    return covariance(kind, alpha, Z, Z2, variance, False, True)


@compiled
def pull_back_rational_cross(G: Array, K: Array, W: Array) -> float:
    """Σ_ij G_ij ∂K_ij/∂α (see `pull_back_rational`), for arrays of shape (n, m)."""
    total = 0.0
    for i in range(K.shape[0]):
        for j in range(K.shape[1]):
            if W[i, j] > 0.0:
                base = K[i, j] / W[i, j]
                total += G[i, j] * K[i, j] * (1.0 - 1.0 / base - math.log(base))
    return total


@compiled_with_lock
def pull_back_rational(G: Array, K: Array, W: Array) -> float:
    """Σ_ij G_ij ∂K_ij/∂α = Σ_ij G_ij K_ij (b/(1 + b) - log(1 + b)), with b = r²/2α = K/W - 1."""
    total = 0.0
    for i in range(K.shape[0]):
        for j in range(i):
            if W[i, j] > 0.0:  # else K has underflowed too
                base = K[i, j] / W[i, j]
                total += G[i, j] * K[i, j] * (1.0 - 1.0 / base - math.log(base))
    return 2.0 * total
