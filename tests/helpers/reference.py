"""Plain numpy twins of the compiled cores, written for reading, and brute-force integrals."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import log_expit, log_ndtr, logsumexp
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


def lower_bound(K, y, tol=1e-14, max_iter=200_000):
    """ν, log Z', its derivative and R by the plain fixed point ν² ← S + m² (Gibbs & MacKay 2000), and its steps."""
    n, d, nu, steps = len(y), y / 2.0, np.ones(len(y)), 0
    for _ in range(max_iter):
        steps += 1
        w = np.tanh(nu / 2.0) / (2.0 * nu)
        R = np.linalg.inv(K + np.diag(1.0 / w))
        alpha = R @ (d / w)
        m, S = K @ alpha, K - K @ R @ K
        last, nu = nu, np.sqrt(np.diag(S) + m**2)
        if np.max(np.abs(nu / last - 1.0)) < tol:
            break
    log_z = np.sum(log_expit(nu) - nu / 2.0 + w * nu**2 / 2.0) + 0.5 * d @ m
    log_z -= 0.5 * np.linalg.slogdet(np.eye(n) + w[:, None] * K)[1]
    return nu, log_z, 0.5 * (np.outer(alpha, alpha) - R), R, steps


def upper_bound(K, y, n_iter=100):
    """μ, log Z'' and its derivative by damped Newton steps in μ itself, kept inside (0, 1)."""
    mu = np.full(len(y), 0.5)
    YKY = y[:, None] * K * y
    for _ in range(n_iter):
        gradient = np.log(mu / (1.0 - mu)) + YKY @ mu
        step = -np.linalg.solve(np.diag(1.0 / (mu * (1.0 - mu))) + YKY, gradient)
        reach = np.max(np.maximum(-step / mu, step / (1.0 - mu)))  # in units of the distance to the boundary
        mu = mu + step * min(1.0, 0.9 / reach) if reach > 0.0 else mu
    entropy = -mu * np.log(mu) - (1.0 - mu) * np.log(1.0 - mu)
    b = mu * y
    return mu, -entropy.sum() + 0.5 * b @ K @ b, 0.5 * np.outer(b, b)


def logistic(y, f):
    p = 1.0 / (1.0 + np.exp(-f))
    return log_expit(y * f), (y + 1.0) / 2.0 - p, p * (1.0 - p), -p * (1.0 - p) * (1.0 - 2.0 * p)


def probit(y, f):
    z = y * f
    r = np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
    W = r * (z + r)
    return log_ndtr(z), y * r, W, y * (W * (z + r) - r * (1.0 - W))


def logistic_log_z(K, y):
    """log ∫ Π σ(y_i f_i) N(f; 0, K) df by the trapezoidal rule, good to 1e-12 at any variance; n <= 3."""
    half_width = 9.0
    nodes = int(np.ceil(4.0 * half_width * max(1.0, np.sqrt(np.max(np.diag(K)))))) + 1
    z = np.linspace(-half_width, half_width, nodes)
    log_w = -0.5 * z**2
    L = np.linalg.cholesky(K)
    total = []
    for first in range(nodes):  # a slice at a time: memory
        rest = np.stack(np.meshgrid(*[z] * (len(y) - 1), indexing="ij"), axis=-1).reshape(-1, len(y) - 1)
        F = np.column_stack([np.full(len(rest), z[first]), rest]) @ L.T
        total.append(logsumexp(log_expit(y * F).sum(axis=1) - 0.5 * (rest**2).sum(axis=1)) + log_w[first])
    return logsumexp(total) - len(y) * logsumexp(log_w)


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


def softmax_laplace(K, y, n_iter=100):
    """Mode (C, n), log evidence and posterior covariance (Cn, Cn) of several classes, with matrices of order Cn."""
    C, n = len(K), len(y)
    t = (np.arange(C)[:, None] == y).astype(float)
    prior = np.zeros((C * n, C * n))
    for c in range(C):
        prior[c * n : (c + 1) * n, c * n : (c + 1) * n] = K[c]

    def terms(f):
        pi = np.exp(f - logsumexp(f, axis=0))
        stacked = np.concatenate([np.diag(p) for p in pi])
        return t - pi, np.diag(pi.ravel()) - stacked @ stacked.T

    f = np.zeros((C, n))
    for _ in range(n_iter):
        g, W = terms(f)
        f = (prior @ np.linalg.solve(np.eye(C * n) + W @ prior, W @ f.ravel() + g.ravel())).reshape(C, n)
    g, W = terms(f)
    log_z = np.sum(t * f) - logsumexp(f, axis=0).sum() - 0.5 * np.sum(g * f)
    log_z -= 0.5 * np.linalg.slogdet(np.eye(C * n) + W @ prior)[1]
    return f, log_z, prior @ np.linalg.inv(np.eye(C * n) + W @ prior)


def class_differences(y, n_classes):
    """The matrix of f_y - f_j for every row and every other class j, of shape (n (C - 1), C, n)."""
    sites = [(i, int(c), j) for i, c in enumerate(y) for j in range(n_classes) if j != c]
    B = np.zeros((len(sites), n_classes, len(y)))
    for s, (i, c, j) in enumerate(sites):
        B[s, c, i], B[s, j, i] = 1.0, -1.0
    return B
