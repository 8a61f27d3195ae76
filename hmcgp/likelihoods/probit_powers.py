"""Averages of powers of the multinomial probit over a Gaussian, by importance sampling at quasi-random points.

    log E[p^k],   p = p(y | f) = E[Π_{j≠y} Φ(u + g_j)],   g_j = f_y - f_j,   u ~ N(0, 1),   f ~ N(m, S)

for a whole number k: k observations of one class that share f, each with noise of its own.  With g = b + Az, z standard
normal in C - 1 dimensions, k log p - ½z'z is concave; its mode δ is found by Newton's method, and points are shifted
there, so that a class that is far from being the largest is averaged as well as any other:

    E[p^k] = E[exp(k log p(b + A(z + δ)) - δ'z - ½δ'δ)].

The average over u is a Gauss-Hermite rule around its mean given the class at that mode.  One scrambled Sobol sequence
of N_POINTS points serves every row.

Largest error of the logarithm over 30 random (m, S) with k = 2 and k = 5, against 32 times as many points of another
scrambling, by the size of S:

               1               10              100             1000
    C = 2    3e-5  3e-5      4e-5  4e-5      7e-5  1e-4      2e-4  2e-4
    C = 3    2e-4  3e-4      1e-3  2e-3      5e-3  5e-3      3e-2  3e-2
    C = 6    4e-3  1e-2      2e-2  8e-2      6e-2  9e-2      0.24  0.21
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr, softmax

from hmcgp.likelihoods.softmax_average import gaussian_points
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.runtime.typing import Array

N_POINTS = 2**10
_NODES, _WEIGHTS = hermegauss(16)
_LOG_WEIGHTS = np.log(_WEIGHTS) - HALF_LOG_2PI
_NEWTON = 10
_TINY = np.finfo(float).tiny


def log_power_average(y: NDArray[np.int_], mean: Array, covariance: Array, powers: Array) -> Array:
    """Log E[p^power] of a class y for each row, of shape (m,).

    The mean is of shape (m, C) and the covariance, of the C latent values of each row, (m, C, C).
    """
    out = np.empty(len(y))
    if not len(y):
        return out
    b, A = _gaps(y, mean, covariance)
    shift, u = _mode(b, A, powers)
    z = gaussian_points(b.shape[1], N_POINTS).transpose(0, 2, 1).reshape(N_POINTS, -1)
    for i in range(len(y)):
        g = b[i] + (z + shift[i]) @ A[i].T  # (P, C - 1)
        nodes = u[i] + _NODES
        p = np.ones((N_POINTS, len(nodes)))
        for j in range(g.shape[1]):
            p *= ndtr(g[:, j, None] + nodes)
        log_p = np.log(np.maximum(p @ np.exp(_node_weights(u[i])), _TINY))
        out[i] = logsumexp(powers[i] * log_p - z @ shift[i]) - 0.5 * shift[i] @ shift[i] - np.log(N_POINTS)
    return out


def _gaps(y: NDArray[np.int_], mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean b of the gaps, of shape (m, C - 1), and A, (m, C - 1, C - 1), the largest part of AA' = cov g first."""
    n_classes = mean.shape[1]
    others = np.array([np.delete(np.arange(n_classes), c) for c in range(n_classes)])
    contrasts = np.eye(n_classes)[:, None, :] - np.eye(n_classes)[others]  # (C, C - 1, C)
    contrast = contrasts[y]
    values, vectors = np.linalg.eigh(contrast @ covariance @ contrast.transpose(0, 2, 1))
    A = vectors[:, :, ::-1] * np.sqrt(np.maximum(values[:, None, ::-1], 0.0))
    return np.einsum("mjc,mc->mj", contrast, mean), A


def _node_weights(u: Array) -> Array:
    """Log weights of the nodes around u, of shape (..., nodes): those of N(0, 1) there."""
    return np.asarray(_LOG_WEIGHTS - u[..., None] * _NODES - 0.5 * u[..., None] ** 2)


def _mode(b: Array, A: Array, powers: Array) -> tuple[Array, Array]:
    """Mode δ of k log p - ½z'z, of shape (m, C - 1), and the mean of u given the class there, (m,)."""
    shift, u = np.zeros(b.shape), np.zeros(len(b))
    for _ in range(_NEWTON):
        h = (b + np.einsum("mij,mj->mi", A, shift))[:, None, :] + (u[:, None] + _NODES)[:, :, None]  # (m, nodes, C - 1)
        log_cdf = log_ndtr(h)
        weight = softmax(_node_weights(u) + log_cdf.sum(axis=2), axis=1)
        r = np.exp(-0.5 * h**2 - HALF_LOG_2PI - log_cdf)
        slope = np.einsum("mq,mqj->mj", weight, r)
        curvature = np.einsum("mq,mqi,mqj->mij", weight, r, r) - slope[:, :, None] * slope[:, None, :]
        curvature -= np.einsum("mq,mqj->mj", weight, r * (r + h))[:, :, None] * np.eye(b.shape[1])
        gradient = powers[:, None] * np.einsum("mji,mj->mi", A, slope) - shift
        hessian = np.eye(b.shape[1]) - powers[:, None, None] * (A.transpose(0, 2, 1) @ curvature @ A)
        shift = shift + np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        u = u + weight @ _NODES
    return shift, u
