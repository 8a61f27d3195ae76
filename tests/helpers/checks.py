"""Checks that several test modules share."""

from __future__ import annotations

import numpy as np

CLASS_SIZES = [(3, 2), (5, 5), (12, 3), (40, 6)]  # rows and classes


def check_gradient(fun, x, *, rtol=1e-6, atol=1e-7, step=6e-6):
    """Compare the gradient that fun returns beside its value with central differences.

    The step is eps ** (1/3) for values known to eps, and has to be longer for values that are known less well.
    """
    _, grad = fun(x)
    for i in range(len(x)):
        h = np.zeros_like(x)
        h[i] = step * max(1.0, abs(x[i]))
        numeric = (fun(x + h)[0] - fun(x - h)[0]) / (2.0 * h[i])
        np.testing.assert_allclose(grad[i], numeric, rtol=rtol, atol=atol, err_msg=f"component {i}")


def random_symmetric(rng, n):
    V = rng.normal(size=(n, n))
    return V + V.T


def squared_exponential(X, variance, length_scale):
    """Plain twin of the compiled kernel."""
    Z = X / length_scale
    return variance * np.exp(-0.5 * np.sum((Z[:, None, :] - Z[None, :, :]) ** 2, axis=2))


def classification_problem(n, d, seed=0, noise=1.0):
    """Inputs, labels and a covariance matrix of a well-behaved problem."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.5 * np.sin(3.0 * X[:, -1]) + noise * rng.normal(size=n) > 0.0, 1.0, -1.0)
    y[0], y[1] = 1.0, -1.0
    return X, y, squared_exponential(X, 3.0, 1.5)


def several_classes(n, n_classes, seed=0):
    """Inputs, classes, and a covariance matrix for each class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.argmax(np.column_stack([np.sin(c + X[:, 0] * (1 + c)) for c in range(n_classes)]), axis=1)
    y[:n_classes] = np.arange(n_classes)
    K = np.stack([squared_exponential(X, 2.0 + c, 1.5 - 0.1 * c) + 0.1 * np.eye(n) for c in range(n_classes)])
    return X, y.astype(float), K


PROBLEMS = {
    "separable": lambda X, y: (X, np.where(X[:, 0] > 0.0, 1.0, -1.0)),
    "overlapping": lambda X, y: (X, y),
    "opposite duplicates": lambda X, y: (np.vstack([X, X]), np.concatenate([y, -y])),
    "equal duplicates": lambda X, y: (np.vstack([X, X, X]), np.concatenate([y, y, y])),
    "one against all": lambda X, y: (X, np.where(np.arange(len(y)) == 0, 1.0, -1.0)),
}
