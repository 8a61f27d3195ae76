"""Plain numpy twins of the compiled cores, written for reading, and brute-force integrals."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import log_expit, log_ndtr


def laplace(K, y, log_lik, n_iter=100):
    """Mode, log evidence and its derivative with respect to K (Rasmussen & Williams, algorithms 3.1, 5.1).

    Derivatives of the likelihood by high-order differences would lose digits: log_lik returns (log p, g, W, d3).
    """
    n = len(y)
    f = np.zeros(n)
    for _ in range(n_iter):
        _, g, W, _ = log_lik(y, f)
        f = K @ np.linalg.solve(np.eye(n) + W[:, None] * K, W * f + g)
    log_p, g, W, d3 = log_lik(y, f)
    alpha = np.linalg.solve(K, f)
    log_z = log_p.sum() - 0.5 * f @ alpha - 0.5 * np.linalg.slogdet(np.eye(n) + W[:, None] * K)[1]
    R = np.linalg.inv(K + np.diag(1.0 / W))
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(W))
    c = 0.5 * np.diag(S) * d3
    u = c - R @ K @ c
    G = 0.5 * (np.outer(alpha, alpha) - R + np.outer(u, g) + np.outer(g, u))
    return f, log_z, G, R


def logistic(y, f):
    p = 1.0 / (1.0 + np.exp(-f))
    return log_expit(y * f), (y + 1.0) / 2.0 - p, p * (1.0 - p), -p * (1.0 - p) * (1.0 - 2.0 * p)


def probit(y, f):
    z = y * f
    r = np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
    W = r * (z + r)
    return log_ndtr(z), y * r, W, y * (W * (z + r) - r * (1.0 - W))


def brute_force_log_z(K, y, log_prob, n_nodes=60):
    """log ∫ Π p(y_i | f_i) N(f; 0, K) df on a product Gauss-Hermite grid; n <= 3."""
    x, w = np.polynomial.hermite_e.hermegauss(n_nodes)
    w = w / w.sum()
    L = np.linalg.cholesky(K)
    nodes = np.array(list(itertools.product(x, repeat=len(y))))  # (n_nodes^n, n)
    weights = np.array(list(itertools.product(w, repeat=len(y)))).prod(axis=1)
    F = nodes @ L.T
    return np.log(weights @ np.exp(log_prob(np.broadcast_to(y, F.shape), F).sum(axis=1)))
