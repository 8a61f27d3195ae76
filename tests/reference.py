"""Plain numpy twins of the compiled cores, written for reading, and brute-force integrals."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import log_expit, log_ndtr
from scipy.stats import norm


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


def ep_probit(K, y, flip=0.0, spread=1.0, n_sweeps=500):
    """Sequential EP with rank-one updates (Rasmussen & Williams, algorithm 3.5, eqs. 3.58, 3.65), written for reading.

    Label noise at rate flip: Ẑ = ε + (1 - 2ε)Φ(z); spread is 1 behind a probit and 0 behind a step.
    Returns log Z (eqs. 3.65, in the form that allows negative sites), ∂ log Z/∂K, cavity means and variances.
    """
    n = len(y)
    nu, tau = np.zeros(n), np.zeros(n)  # site parameters ν̃ and τ̃
    Sigma, mu = K.copy(), np.zeros(n)

    def tilted(i, m, v):
        z = y[i] * m / np.sqrt(spread + v)
        log_z = np.logaddexp(np.log(flip) if flip else -np.inf, np.log1p(-2.0 * flip) + log_ndtr(z))
        r = np.exp(np.log1p(-2.0 * flip) - 0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - log_z)
        mean = m + y[i] * v * r / np.sqrt(spread + v)
        return log_z, mean, v - v**2 * r / (spread + v) * (z + r)

    def cavity(i):
        v = 1.0 / (1.0 / Sigma[i, i] - tau[i])
        return v * (mu[i] / Sigma[i, i] - nu[i]), v

    for _ in range(n_sweeps):
        old = np.concatenate([nu, tau])
        for i in range(n):
            m, v = cavity(i)
            _, mean, variance = tilted(i, m, v)
            change = 1.0 / variance - 1.0 / v - tau[i]
            tau[i] += change
            nu[i] = mean / variance - m / v
            s = Sigma[:, i].copy()
            Sigma -= change / (1.0 + change * s[i]) * np.outer(s, s)
            mu = Sigma @ nu
        Sigma = np.linalg.solve(np.eye(n) + K * tau, K)
        mu = Sigma @ nu
        if np.allclose(np.concatenate([nu, tau]), old, rtol=1e-12, atol=1e-13):
            break
    cavities = np.array([cavity(i) for i in range(n)])
    m, v = cavities.T
    log_z = sum(tilted(i, *cavities[i])[0] for i in range(n))
    log_z += 0.5 * nu @ mu - 0.5 * np.linalg.slogdet(np.eye(n) + K * tau)[1]
    log_z += 0.5 * np.sum(np.log1p(tau * v) - (nu**2 * v + 2.0 * nu * m - tau * m**2) / (1.0 + tau * v))
    R = np.diag(tau) - tau[:, None] * Sigma * tau
    alpha = nu - tau * mu
    return log_z, 0.5 * (np.outer(alpha, alpha) - R), m, v


def naive_mean_field(K, y, flip=0.0, spread=1.0, n_steps=20000, damping=0.05):
    """x_i = ∂ log Z₀/∂γ_i, γ_i = Σ_{j≠i} K_ij x_j, by many damped steps (Opper & Winther)."""
    off, diagonal = K - np.diag(np.diag(K)), np.sqrt(spread + np.diag(K))
    x = np.zeros(len(y))
    for _ in range(n_steps):
        z = y * (off @ x) / diagonal
        log_z = np.logaddexp(np.log(flip) if flip else -np.inf, np.log1p(-2.0 * flip) + log_ndtr(z))
        x = x + damping * (y * np.exp(np.log1p(-2.0 * flip) + norm.logpdf(z) - log_z) / diagonal - x)
    return x, log_z.sum() - 0.5 * x @ off @ x
