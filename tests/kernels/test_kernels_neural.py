"""The neural-network kernel: its formula, its origin in networks, limits, and ill-conditioned arguments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import erf

from hmcgp.errors import InvalidInput
from hmcgp.kernels import NeuralNetwork
from hmcgp.model import Model
from tests.helpers.checks import check_gradient, random_symmetric

X = np.random.default_rng(5).normal(size=(12, 3))


def williams(X, X2, variance, bias, weights):
    """Williams (1998): 2/π asin(2x̃'Σx̃' / sqrt((1 + 2x̃'Σx̃)(1 + 2x̃'Σx̃))) with x̃ = (1, x), written as he does."""
    Sigma = np.diag(np.append(bias, weights))
    A, B = (np.column_stack([np.ones(len(Z)), Z]) for Z in (X, X2))
    own_a, own_b = (1.0 + 2.0 * np.diag(Z @ Sigma @ Z.T) for Z in (A, B))
    return variance * 2.0 / np.pi * np.arcsin(2.0 * A @ Sigma @ B.T / np.sqrt(np.outer(own_a, own_b)))


def test_formula_of_williams():
    weights = [0.3, 2.0, 0.05]
    kernel = NeuralNetwork(1.7, 0.4, weights)
    np.testing.assert_allclose(kernel(X), williams(X, X, 1.7, 0.4, weights), rtol=1e-12)
    np.testing.assert_allclose(kernel(X[:4], X[4:]), williams(X[:4], X[4:], 1.7, 0.4, weights), rtol=1e-12)


def test_opper_and_winther_is_a_special_case():
    Lambda = np.array([0.3, 2.0, 0.05])
    inner = (X * Lambda) @ X.T
    own = 1.0 + np.diag(inner)
    expected = 2.0 / np.pi * np.arcsin(inner / np.sqrt(np.outer(own, own)))
    np.testing.assert_allclose(NeuralNetwork(1.0, 0.0, Lambda / 2.0)(X), expected, rtol=1e-12, atol=1e-16)


def test_it_is_the_covariance_of_wide_networks():
    # E[erf(u'x̃) erf(u'x̃')] over u ~ N(0, Σ); antithetic pairs would hide an error in odd terms, so none are used
    rng = np.random.default_rng(1)
    bias, weights, draws = 0.5, np.array([1.0, 0.2, 3.0]), 200_000
    U = rng.normal(size=(draws, 4)) * np.sqrt(np.append(bias, weights))
    H = erf(U @ np.column_stack([np.ones(4), X[:4]]).T)  # (draws, 4)
    estimate = H.T @ H / draws
    error = np.sqrt(((H**2).T @ H**2 / draws - estimate**2) / draws)
    assert np.all(np.abs(estimate - NeuralNetwork(1.0, bias, weights)(X[:4])) < 4.0 * error)
    assert np.any(np.abs(estimate - NeuralNetwork(1.0, bias, 1.1 * weights)(X[:4])) > 4.0 * error)  # negative control


def test_large_weights_tend_to_the_angle_between_rows():
    cosine = X @ X.T / np.sqrt(np.outer(np.sum(X**2, axis=1), np.sum(X**2, axis=1)))
    expected = 2.0 / np.pi * np.arcsin(np.clip(cosine, -1.0, 1.0))
    # 1 - ρ² is of order 1/w on the diagonal, so asin differs from π/2 by 1/sqrt(w)
    np.testing.assert_allclose(NeuralNetwork(1.0, 0.0, 1e12)(X), expected, atol=2e-6)


def test_small_weights_tend_to_a_straight_line():
    np.testing.assert_allclose(NeuralNetwork(np.pi / 4.0e-6, 0.0, 1e-6)(X), X @ X.T, rtol=1e-4, atol=1e-12)


def test_value_and_gradient_survive_coincident_rows_and_large_weights():
    Z = np.vstack([X[:4], X[:4], X[:2] + 1e-7])
    G = random_symmetric(np.random.default_rng(0), len(Z))

    def fun(log_theta):
        theta = np.exp(log_theta)
        K, pullback = NeuralNetwork(*theta).vjp(Z)
        return np.sum(G * K), pullback(G) * theta

    check_gradient(fun, np.log([2.0, 30.0, 1e5]), rtol=1e-4)
    K, pullback = NeuralNetwork(1.0, 0.0, 1e100).vjp(Z)
    assert np.all(np.isfinite(K))
    assert np.all(np.isfinite(pullback(G)))


def test_a_row_at_the_origin():
    kernel = NeuralNetwork(2.0, 0.0, 1.0)
    np.testing.assert_array_equal(kernel(np.zeros((2, 3))), np.zeros((2, 2)))
    np.testing.assert_allclose(NeuralNetwork(2.0, 0.5, 1.0)(np.zeros((1, 3))), 4.0 / np.pi * np.arcsin(0.5), rtol=1e-15)


def test_names_and_default_priors_reach_the_model():
    y = np.sign(X[:, 0])
    model = Model(X, y, kernel=NeuralNetwork(ard=True))
    assert model.names == ["variance", "bias_variance", *(f"weight_variance[x{k}]" for k in range(3))]
    check_gradient(model.logdensity_and_grad, 0.3 * np.random.default_rng(2).normal(size=5), rtol=1e-5)
    assert Model(X, y, kernel=NeuralNetwork(1.0, 0.0)).names == ["weight_variance"]


def test_negative_variances_are_refused():
    with pytest.raises(InvalidInput, match="'bias_variance' of NeuralNetwork"):
        NeuralNetwork(1.0, -0.1, 1.0)
