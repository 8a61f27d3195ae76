"""Exact posterior of a model of three or four rows, by quadrature over hyperparameters and latent values."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from hmcgp.joint.whitening import factor_prior


class ExactMeans(NamedTuple):
    """Posterior means."""

    u: np.ndarray  # (p,)
    f: np.ndarray  # (n,)
    probability: np.ndarray  # (m,), of +1 at new inputs


def exact_means(model, axes, X, n_nodes=16):
    """Posterior means by the trapezoidal rule over u and Gauss-Hermite's over latent values, whitened by their prior.

    Parameters
    ----------
    model : Model
    axes : sequence of ndarray
        Equally spaced values of each coordinate of u.
    X : ndarray of shape (m, d)
    n_nodes : int
        Nodes in each latent direction.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(n_nodes)
    n = len(model.y)
    z = np.array(list(product(node, repeat=n)))  # (n_nodes^n, n)
    log_w = np.log(weight / weight.sum())
    log_w = np.array([sum(c) for c in product(log_w, repeat=n)])
    log_z, means = [], []
    for u in map(np.array, product(*axes)):
        theta = model.constrain(u)
        kernel, likelihood = model.kernel_at(theta), model.likelihood_at(theta)
        L = factor_prior(kernel(model.X))
        f = z @ L.T
        y = np.broadcast_to(model.y, f.shape).ravel()
        log_p = likelihood.log_prob(y, f.ravel()).reshape(f.shape) @ likelihood.row_weights(n) + log_w
        total = logsumexp(log_p)
        p = np.exp(log_p - total)
        V = solve_triangular(L, kernel(model.X, X), lower=True)
        mean, variance = z @ V, kernel.diag(X) - (V**2).sum(axis=0)
        keep = p > 1e-9
        chances = likelihood.average(mean[keep].ravel(), np.tile(variance, keep.sum())).reshape(-1, len(X))
        log_z.append(total + model.log_prior(u)[0])
        means.append(np.concatenate([u, p @ f, p[keep] @ chances / p[keep].sum()]))
    share = np.exp(np.array(log_z) - logsumexp(log_z))
    edge = share.reshape([len(axis) for axis in axes])
    assert max(np.take(edge, [0, -1], axis=k).sum() for k in range(len(axes))) < 1e-4, "the axes are too short"
    return ExactMeans(*np.split(share @ np.array(means), [len(axes), len(axes) + n]))
