"""A Gaussian process through values and gradients of a log density, in whitened coordinates.

    u = m + L z,      g(z) = log p(m + L z) ~ GP(c - 1/2 z'z, s² k),      k(z, z') = 1/(1 + |z - z'|²/(2 l²))

With m and LL' near the mean and covariance of the density, g is c - 1/2 z'z where it is Gaussian, and the process is
left with what is not.  Values and gradients are observed together; with x = z/l, d = x - x_i and k = 1/(1 + |d|²/2),

    Cov(g, g_i) = s² k,   Cov(g, dg_i/dx_i) = s² k² d,   Cov(dg/dx, dg_i/dx_i) = s² (k² I - 2 k³ dd').

The prediction is the mean of the posterior, a sum over the observed points, in O(N d) with its gradient:

    g(z) = c - 1/2 z'z + sum_i (k_i a_i + k_i² b_i'd_i).

k is the rational quadratic of exponent 1.  A squared exponential forgets its points within two lengths, and falls back
to the Gaussian mean: with it, 1 to 6 % of the probability of the crabs' posterior lay in a tail where the surrogate was
up to thirty nats too low, so that it had no draws there and no weight told.

Rasmussen (2003), Gaussian processes to speed up hybrid Monte Carlo for expensive Bayesian integrals; Solak et al.
(2003), Derivative observations in Gaussian process models of dynamic systems.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.sums import dot, total
from hmcgp.runtime.typing import Array


class Whitening(NamedTuple):
    """The map u = m + L z."""

    mean: Array  # m, (d,)
    factor: Array  # L, (d, d), lower triangular

    def whiten(self, u: Array) -> Array:
        """Return z for positions u of shape (N, d)."""
        return np.ascontiguousarray(solve_triangular(self.factor, (u - self.mean).T, lower=True).T)

    def restore(self, z: Array) -> Array:
        """Return u for whitened positions of shape (N, d)."""
        return self.mean + z @ self.factor.T


class Surrogate(NamedTuple):
    """The posterior mean of the process, ready to predict."""

    whitening: Whitening
    points: Array  # x_i = z_i/l, (d, N)
    weights: Array  # a_i and b_i, (1 + d, N)
    constant: float  # c
    length: float  # l
    log_likelihood: float  # of the observations, per observation, up to a constant

    def predict(self, z: Array) -> tuple[float, Array]:
        """Return g(z) and its gradient in z."""
        grad = np.empty_like(z)
        return self.constant + _predict(z, self.points, self.weights, self.length, grad), grad

    def values(self, u: Array) -> Array:
        """Return the log density predicted at several positions, of shape (N, d)."""
        return np.array([self.predict(z)[0] for z in self.whitening.whiten(u)])


@compiled
def _predict(z: Array, points: Array, weights: Array, length: float, grad: Array) -> float:
    """Write the gradient of the prediction into grad, and return its value without the constant."""
    d, n = points.shape
    base, slope, pull = np.ones(n), np.zeros(n), np.empty(n)
    for j in range(d):
        x, point, weight = z[j] / length, points[j], weights[1 + j]
        for i in range(n):
            delta = x - point[i]
            base[i] += 0.5 * delta * delta  # 1/k_i
            slope[i] += weight[i] * delta  # b_i'd_i
    square, own, value = np.empty(n), weights[0], 0.0
    for i in range(n):
        k = 1.0 / base[i]
        square[i] = k * k
        value += k * own[i] + k * k * slope[i]
        pull[i] = k * k * (own[i] + 2.0 * k * slope[i])
    everything = total(pull)
    for j in range(d):
        x = z[j] / length
        slopes = dot(square, weights[1 + j]) - x * everything + dot(pull, points[j])
        grad[j] = slopes / length - z[j]
        value -= 0.5 * z[j] * z[j]
    return value


@compiled
def covariance(X: Array, has_gradient: Array) -> Array:
    """Return the covariance of observations, point by point: the value, then the gradient where there is one.

    Parameters
    ----------
    X : ndarray of shape (N, d)
    has_gradient : ndarray of bool of shape (N,)

    Returns
    -------
    ndarray
        Of which the lower triangle is set.
    """
    n, d = X.shape
    first = np.zeros(n + 1, dtype=np.int64)  # row of each value
    for i in range(n):
        first[i + 1] = first[i] + (1 + d if has_gradient[i] else 1)
    out = np.empty((first[n], first[n]))
    delta = np.empty(d)
    for i in range(n):
        r = first[i]
        for j in range(i + 1):
            c, square = first[j], 0.0
            for a in range(d):
                delta[a] = X[i, a] - X[j, a]
                square += delta[a] * delta[a]
            k = 1.0 / (1.0 + 0.5 * square)
            slope, bend = k * k, 2.0 * k * k * k
            out[r, c] = k
            if has_gradient[j]:
                for b in range(d):
                    out[r, c + 1 + b] = slope * delta[b]
            if has_gradient[i]:
                for a in range(d):
                    out[r + 1 + a, c] = -slope * delta[a]
                    if has_gradient[j]:
                        for b in range(d):
                            out[r + 1 + a, c + 1 + b] = -bend * delta[a] * delta[b]
                        out[r + 1 + a, c + 1 + a] += slope
    return out


def fit(whitening: Whitening, u: Array, logdensity: Array, grad: Array, *, length: float, nugget: float) -> Surrogate:
    """Fit the process to values and gradients of a log density.

    Parameters
    ----------
    whitening : Whitening
    u : ndarray of shape (N, d)
        Positions.
    logdensity : ndarray of shape (N,)
    grad : ndarray of shape (N, d)
        Gradients in u; rows of NaN where only the value is known.
    length : float
        l.
    nugget : float
        Variance of independent errors of all observations, relative to s².

    Returns
    -------
    Surrogate
        With c and s² where the likelihood of the observations is highest.
    """
    z = whitening.whiten(u)
    n, d = z.shape
    has_gradient = np.isfinite(grad[:, 0])
    rest = np.empty((n, 1 + d))  # what the mean leaves of values and gradients
    rest[:, 0] = logdensity + 0.5 * np.einsum("nd,nd->n", z, z)
    rest[:, 1:] = length * (grad @ whitening.factor + z)
    seen = np.repeat(has_gradient[:, None], 1 + d, axis=1)
    seen[:, 0] = True
    ones = np.zeros((n, 1 + d))
    ones[:, 0] = 1.0
    K = covariance(z / length, has_gradient)
    K[np.diag_indices_from(K)] += nugget
    R = cholesky(K.T, lower=False, overwrite_a=True, check_finite=False)  # R'R = K, in place
    y, e = rest[seen], ones[seen]
    solved = cho_solve((R, False), np.column_stack([y, e]), check_finite=False)
    constant = float(e @ solved[:, 0] / (e @ solved[:, 1]))
    weights = np.zeros((n, 1 + d))
    weights[seen] = solved[:, 0] - constant * solved[:, 1]
    variance = float((y - constant * e) @ weights[seen]) / len(y)  # s²
    log_likelihood = -0.5 * np.log(variance) - np.log(np.diag(R)).mean()
    points = np.ascontiguousarray((z / length).T)
    return Surrogate(whitening, points, np.ascontiguousarray(weights.T), constant, length, float(log_likelihood))
