"""Compiled loops of the exponential-power kernel, variance * exp(-Σ_k |z_k - z'_k|^ν), with Z of shape (d, n)."""

from __future__ import annotations

import math

import numpy as np

from hmcgp.numerics.compiled import compiled_inside, compiled_with_lock
from hmcgp.numerics.exponential import exp_nonpositive
from hmcgp.numerics.lapack import mirror_lower
from hmcgp.runtime.typing import Array


@compiled_inside
def _row(Z: Array, i: int, Z2: Array, m: int, power: float, variance: float, work: Array, out: Array) -> None:
    for j in range(m):
        work[j] = 0.0
    for k in range(Z.shape[0]):
        for j in range(m):
            work[j] -= abs(Z[k, i] - Z2[k, j]) ** power
    exp_nonpositive(work[:m], out[:m], variance)


@compiled_with_lock
def covariance(Z: Array, Z2: Array, power: float, variance: float, symmetric: bool) -> Array:
    """Covariance between the n columns of Z and the m columns of Z2, of shape (n, m); `symmetric` if they are equal."""
    n, m = Z.shape[1], Z2.shape[1]
    K, work = np.empty((n, m)), np.empty(m)
    for i in range(n):
        _row(Z, i, Z2, i + 1 if symmetric else m, power, variance, work, K[i])
    if symmetric:
        mirror_lower(K)
    return K


@compiled_with_lock
def pull_back(G: Array, K: Array, Z: Array, power: float) -> tuple[Array, float]:
    """Σ_ij G_ij K_ij |z_k - z'_k|^ν for each input k, and Σ_ij G_ij K_ij Σ_k |z_k - z'_k|^ν log|z_k - z'_k|.

    Of the symmetric matrices only the lower triangles are read; 0 log 0 = 0.
    """
    d, n = Z.shape
    sums, logs = np.zeros(d), 0.0
    for i in range(n):
        for k in range(d):
            for j in range(i):
                a = abs(Z[k, i] - Z[k, j])
                if a > 0.0:
                    log_a = math.log(a)
                    part = G[i, j] * K[i, j] * math.exp(power * log_a)
                    sums[k] += part
                    logs += part * log_a
    return 2.0 * sums, 2.0 * logs


@compiled_with_lock
def pull_back_inputs(G: Array, K: Array, Z: Array, power: float) -> Array:
    """Σ_j G_ij K_ij ν |z_ik - z_jk|^(ν-1) sign(z_ik - z_jk), of shape (d, n); 0 where z_ik = z_jk."""
    d, n = Z.shape
    out = np.zeros((d, n))
    for i in range(n):
        for k in range(d):
            for j in range(i):
                a = Z[k, i] - Z[k, j]
                if a != 0.0:
                    part = G[i, j] * K[i, j] * math.copysign(power * abs(a) ** (power - 1.0), a)
                    out[k, i] += part
                    out[k, j] -= part
    return out
