"""Problems with counts, levels and outliers, and brute force for their evidence."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from hmcgp.likelihoods import Binomial, Counts, NegativeBinomial, Ordinal, Poisson
from tests.helpers.checks import check_gradient, random_symmetric, squared_exponential


def response_problem(name, n, seed=0, variance=1.5):
    """Inputs, targets, a covariance matrix, and the likelihood that the targets were drawn from."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    K = squared_exponential(X, variance, 1.2) + 0.1 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.normal(size=n)
    exposure, trials = rng.uniform(0.5, 5.0, n), rng.integers(1, 9, n)
    rate = exposure * np.exp(f + 0.3)
    if name == "poisson":
        return X, rng.poisson(rate).astype(float), K, Poisson(exposure, offset=0.3)
    if name == "negative_binomial":
        y = rng.poisson(rate * rng.gamma(2.0, 0.5, n)).astype(float)
        return X, y, K, NegativeBinomial(0.7, exposure, offset=0.3)
    if name == "binomial":
        y = rng.binomial(trials, 1.0 / (1.0 + np.exp(0.4 - f))).astype(float)
        return X, y, K, Binomial(trials, offset=-0.4)
    y = np.digitize(f + rng.normal(size=n), [-1.0, -0.3, 0.9]).astype(float)
    return X, y, K, Ordinal(tuple("abcd"), -1.0, [0.7, 1.2])


def parameter_vector(likelihood):
    """Values of all parameters of a likelihood as one vector, and the likelihood as a function of it."""
    parameters = likelihood.parameters(["a", "b"])
    values = [np.atleast_1d(np.asarray(p.value, dtype=float)) for p in parameters]

    def at(vector):
        if not parameters:
            return likelihood
        parts = np.split(np.asarray(vector, dtype=float), np.cumsum([len(v) for v in values])[:-1])
        return likelihood.with_values(
            [part if p.labels is not None else float(part[0]) for p, part in zip(parameters, parts, strict=True)]
        )

    return np.concatenate([np.empty(0), *values]), at


def grid_log_evidence(K, y, likelihood, points=97, reach=7.0):
    """Log ∫ p(y | f)^ω N(f; 0, K) df by the trapezoidal rule in up to three dimensions, whitened."""
    n = len(y)
    L, t = np.linalg.cholesky(K), np.linspace(-reach, reach, points)
    z = np.stack(np.meshgrid(*[t] * n, indexing="ij")).reshape(n, -1)
    f = L @ z
    log_p = -0.5 * np.sum(z * z, axis=0) - 0.5 * n * np.log(2.0 * np.pi)
    for i in range(n):
        copies = likelihood
        if isinstance(likelihood, Counts):
            copies = likelihood.at_sizes(np.full(f.shape[1], likelihood.sizes(n)[i]))
        log_p += likelihood.row_weights(n)[i] * copies.log_prob(np.full(f.shape[1], y[i]), f[i])
    return logsumexp(log_p) + n * np.log(t[1] - t[0])


def check_both_gradients(provider, K, y, likelihood, *, directions, tolerance):
    """Derivatives of log Z in K, by differences of fourth order along random directions, and in the parameters."""
    found, rng, h = provider(K, y, likelihood), np.random.default_rng(1), 1e-5
    np.testing.assert_array_equal(found.dK, found.dK.T)
    for _ in range(directions):
        V = random_symmetric(rng, len(y))
        up1, down1, up2, down2 = (provider(K + c * h * V, y, likelihood).log_z for c in (1.0, -1.0, 2.0, -2.0))
        numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)
        np.testing.assert_allclose(np.sum(found.dK * V), numeric, rtol=tolerance, atol=tolerance)
    vector, at = parameter_vector(likelihood)
    assert found.dlik.shape == vector.shape
    check_gradient(lambda x: (provider(K, y, at(x)).log_z, provider(K, y, at(x)).dlik), vector)
