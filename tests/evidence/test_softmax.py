"""Laplace's approximation for several classes; `test_classes_contract.py` has what it shares with others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from hmcgp.evidence import Laplace, SoftmaxLaplace
from hmcgp.likelihoods import Logistic, Softmax
from tests.helpers import reference
from tests.helpers.checks import CLASS_SIZES, several_classes

SOLVE, SOFTMAX = SoftmaxLaplace(), Softmax()


@pytest.mark.parametrize(("n", "n_classes"), CLASS_SIZES)
def test_matches_the_plain_twin(n, n_classes):
    _, y, K = several_classes(n, n_classes)
    f, log_z, S = reference.softmax_laplace(K, y)
    ev = SOLVE(K, y, SOFTMAX, gradient=False)
    np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-10)
    np.testing.assert_allclose(ev.posterior.f, f, atol=1e-8)
    mean, covariance = ev.posterior.predict(K, np.einsum("cii->ci", K))
    np.testing.assert_allclose(mean, f.T, atol=1e-8)
    np.testing.assert_allclose(covariance, np.einsum("aibi->iab", S.reshape(n_classes, n, n_classes, n)), atol=1e-9)


@pytest.mark.parametrize("n", [2, 15, 60])
def test_two_classes_are_the_logistic_model_of_the_difference(n):
    """f_2 - f_1 ~ N(0, K_1 + K_2); the sum of the two has no say in the likelihood, and integrates out."""
    _, y, K = several_classes(n, 2, seed=3)
    labels = 2.0 * y - 1.0
    two, binary = SOLVE(K, y, SOFTMAX), Laplace()(K[0] + K[1], labels, Logistic())
    np.testing.assert_allclose(two.log_z, binary.log_z, rtol=1e-11)
    for dK in two.dK:
        np.testing.assert_allclose(dK, binary.dK, atol=1e-9)
    ours: Any = SOLVE(K, y, SOFTMAX, gradient=False).posterior
    theirs: Any = Laplace()(K[0] + K[1], labels, Logistic(), gradient=False).posterior
    K_cross, k_diag = 0.3 * np.random.default_rng(0).normal(size=(2, n, 4)), np.full((2, 4), 20.0)
    pairs = [
        (ours.predict(K_cross, k_diag), theirs.predict(K_cross.sum(axis=0), k_diag.sum(axis=0))),
        (ours.cavity(), theirs.cavity()),
    ]
    contrast = np.array([-1.0, 1.0])
    for (mean, covariance), (expected_mean, expected_variance) in pairs:
        np.testing.assert_allclose(mean @ contrast, expected_mean, atol=1e-8)
        np.testing.assert_allclose(contrast @ covariance @ contrast, expected_variance, rtol=1e-8)


def test_a_vanishing_prior_leaves_a_fair_die():
    _, y, K = several_classes(30, 4)
    np.testing.assert_allclose(SOLVE(1e-12 * K, y, SOFTMAX).log_z, -30 * np.log(4.0), rtol=1e-9)


def test_close_to_brute_force_and_exact_for_a_narrow_prior():
    """Two rows of three classes: the integral over six latent values by a product rule."""
    y, C = np.array([0.0, 2.0]), np.array([[1.0, 0.6], [0.6, 1.5]])
    x, w = np.polynomial.hermite_e.hermegauss(9)
    grid = np.stack(np.meshgrid(*[x] * 6, indexing="ij"), axis=-1).reshape(-1, 3, 2)
    weights = np.stack(np.meshgrid(*[w / w.sum()] * 6, indexing="ij"), axis=-1).reshape(-1, 6).prod(axis=1)
    for scale, tolerance in [(1.0, 0.1), (0.1, 2e-3), (0.01, 3e-5)]:
        f = grid @ np.linalg.cholesky(scale * C).T  # (N, 3, 2)
        p = np.exp(f[:, [0, 2], [0, 1]] - logsumexp(f, axis=1)).prod(axis=1)
        np.testing.assert_allclose(SOLVE(scale * C, y, SOFTMAX).log_z, np.log(weights @ p), atol=tolerance)


@pytest.mark.parametrize(("n", "n_classes"), [(9, 3), (12, 2)])
@pytest.mark.parametrize("scale", [1e8, 1e15, 1e20])
def test_a_vast_prior_has_one_answer(n, n_classes, scale):
    """A step of a tiny decrement still moves f, and with it log|B|: warm and cold were up to ¼ nat apart."""
    x, y = np.random.default_rng(0).normal(size=n), np.arange(n) % float(n_classes)
    K = scale * (np.exp(-50.0 * (x[:, None] - x) ** 2) + 0.1 * np.eye(n))
    cold, start = SOLVE(K, y, SOFTMAX), SOLVE(1.05 * K, y, SOFTMAX).posterior.start
    np.testing.assert_allclose(SOLVE(K, y, SOFTMAX, start).log_z, cold.log_z, atol=1e-6, rtol=0.0)
