"""Whole weights of rows behind the multinomial probit: copies of rows, derivatives, leaving rows out, more rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from hmcgp import GPClassifier, Model
from hmcgp.errors import InvalidInput
from hmcgp.evidence import MultinomialEP
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import MultinomialProbit
from hmcgp.model import GrowingModel
from tests.helpers.checks import random_symmetric, several_classes

N = 12
WEIGHTS = np.array([1, 3, 2, 1, 3, 1, 2, 1, 1, 2, 1, 2])
ROWS = np.repeat(np.arange(N), WEIGHTS)
SOLVE = MultinomialEP()
by_classes = pytest.mark.parametrize("n_classes", [2, 3, 5])  # from four on, other algebra
shared = pytest.mark.parametrize("shared", [True, False])


def problem(n_classes, shared):
    """Targets, the covariance of all classes or of each, and likelihoods with and without weights."""
    _, y, K = several_classes(N, n_classes)
    plain = MultinomialProbit(n_classes)
    return y, K[0].copy() if shared else K, plain.weighted(WEIGHTS), plain


def taken(K, rows):
    return np.ascontiguousarray(K[..., rows[:, None], rows])


@by_classes
@shared
def test_a_weight_of_two_is_the_row_twice(n_classes, shared):
    y, K, weighted, plain = problem(n_classes, shared)
    one, two = SOLVE(K, y, weighted), SOLVE(taken(K, ROWS), y[ROWS], plain)
    np.testing.assert_allclose(one.log_z, two.log_z, rtol=1e-12)
    P = np.eye(N)[ROWS]
    np.testing.assert_allclose(one.dK, P.T @ two.dK @ P, atol=1e-10)
    one, two = SOLVE(K, y, weighted, gradient=False), SOLVE(taken(K, ROWS), y[ROWS], plain, gradient=False)
    K_cross = K @ np.random.default_rng(1).normal(size=(N, 4))  # any covariance with f
    k_diag = np.full((*K.shape[:-2], 4), 1e3)
    for a, b in zip(
        one.posterior.predict(K_cross, k_diag), two.posterior.predict(K_cross[..., ROWS, :], k_diag), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@by_classes
@shared
def test_gradient_and_warm_start(n_classes, shared):
    y, K, weighted, _ = problem(n_classes, shared)
    found, rng = SOLVE(K, y, weighted), np.random.default_rng(2)
    np.testing.assert_array_equal(found.dK, found.dK.swapaxes(-1, -2))
    V, h = np.zeros(K.shape), 1e-5
    V[...] = random_symmetric(rng, N) if shared else [random_symmetric(rng, N) for _ in range(n_classes)]
    up1, down1, up2, down2 = (SOLVE(K + c * h * V, y, weighted).log_z for c in (1.0, -1.0, 2.0, -2.0))
    numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)
    np.testing.assert_allclose(np.sum(found.dK * V), numeric, rtol=2e-7, atol=1e-7)
    warm = SOLVE(K, y, weighted, 1.01 * found.posterior.start)
    np.testing.assert_allclose(warm.log_z, found.log_z, rtol=1e-10)
    with pytest.raises(InvalidInput, match=r"'start' of MultinomialEP must be a float64 array of shape"):
        SOLVE(K, y, weighted, found.posterior.start[1:])


@by_classes
def test_weights_of_one_change_nothing(n_classes):
    y, K, _, plain = problem(n_classes, False)
    one, two = SOLVE(K, y, plain.weighted(np.ones(N))), SOLVE(K, y, plain)
    assert one.log_z == two.log_z
    np.testing.assert_array_equal(one.dK, two.dK)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_a_cavity_leaves_all_copies_out(n_classes):
    """By precisions, V_k⁻¹ = k V_1⁻¹ - (k - 1) S⁻¹ with V_1 of one copy; and nearly a fit without the row."""
    y, K, weighted, plain = problem(n_classes, False)
    mean, V = SOLVE(K, y, weighted, gradient=False).posterior.cavity()
    copies = SOLVE(taken(K, ROWS), y[ROWS], plain, gradient=False).posterior
    m_1, V_1 = copies.cavity()
    m, S = copies.predict(K[:, ROWS], np.einsum("cii->ci", K))
    for i in (1, 4):
        k, first = WEIGHTS[i], int(np.searchsorted(ROWS, i))
        P_1, P = np.linalg.inv(V_1[first]), np.linalg.inv(S[i])
        expected = np.linalg.inv(k * P_1 - (k - 1) * P)
        np.testing.assert_allclose(V[i], expected, rtol=1e-7)
        np.testing.assert_allclose(mean[i], expected @ (k * P_1 @ m_1[first] - (k - 1) * P @ m[i]), atol=1e-7)
        rest = np.flatnonzero(np.arange(N) != i)
        without = SOLVE(taken(K, rest), y[rest], plain.weighted(WEIGHTS[rest]), gradient=False).posterior
        m_out, V_out = without.predict(K[:, rest][:, :, [i]], K[:, i, [i]])
        log_p, log_p_out = (plain.log_average(y[[i]], *moments) for moments in ((mean[[i]], V[[i]]), (m_out, V_out)))
        np.testing.assert_allclose(log_p, log_p_out, atol=0.1)  # as close as for rows that count once


@pytest.mark.parametrize("centre", [0.5, -6.0])
@pytest.mark.parametrize("power", [2.0, 5.0])
def test_what_a_weighted_row_adds_to_the_evidence(power, centre):
    """Against quadrature, for a class that is likely and for one that is far from the largest."""
    mean, S = np.array([[centre, 0.0]]), np.array([[[2.0, 0.3], [0.3, 1.0]]])
    likelihood, sd = MultinomialProbit(2, weights=[power]), np.sqrt(2.4)
    exact, _ = quad(
        lambda g: ndtr(g / np.sqrt(2.0)) ** power * np.exp(-0.5 * ((g - centre) / sd) ** 2), -25.0, 25.0, epsabs=0.0
    )
    found = likelihood.log_weighted_average(np.zeros(1), mean, S)
    np.testing.assert_allclose(found, np.log(exact / (sd * np.sqrt(2.0 * np.pi))), atol=3e-4)

    mean, S = np.array([[centre, 0.0, 0.4]]), np.array([[[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 1.5]]])
    contrast = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    gaps = multivariate_normal(contrast @ mean[0], contrast @ S[0] @ contrast.T)
    grid = np.linspace(-16.0, 16.0, 161)
    g = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = MultinomialProbit(3).log_prob(np.zeros(len(g)), np.column_stack([np.zeros(len(g)), -g]))
    exact = np.sum(np.exp(power * log_p) * gaps.pdf(g)) * (grid[1] - grid[0]) ** 2
    found = MultinomialProbit(3, weights=[power]).log_weighted_average(np.zeros(1), mean, S)
    np.testing.assert_allclose(found, np.log(exact), atol=3e-3)


def test_rows_with_weights_may_be_appended():
    X, y, _ = several_classes(N, 3)
    settings: dict[str, Any] = {"kernel": SquaredExponential(), "likelihood": MultinomialProbit(3)}
    first = Model(X[:9], y[:9], weights=WEIGHTS[:9], **settings)
    both = Model(X, y, weights=WEIGHTS, **settings)
    theta = np.array([[2.0, 1.5], [1.0, 0.8]])
    larger, log_weight = GrowingModel(first, theta).grown(X[9:], y[9:], first.likelihood.weighted(WEIGHTS))
    expected = [both.log_evidence(t)[0] - first.log_evidence(t)[0] for t in theta]
    np.testing.assert_allclose(log_weight, expected, rtol=1e-9)
    for a, b in zip(
        larger.posterior(theta[1])[1].posterior.cavity(), both.posterior(theta[1])[1].posterior.cavity(), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_a_fit_with_weights_is_appended_to_and_saved(tmp_path):
    X, y, _ = several_classes(N, 3)
    gp = GPClassifier(SquaredExponential(), sampler="map", random_state=1, progressbar=False)
    gp.fit(X, y, WEIGHTS)
    assert isinstance(gp.model_.likelihood, MultinomialProbit)  # by refine="auto"
    assert gp.loo().pointwise.shape == (N,)
    gp.append(X[:3] + 0.1, y[:3], sample_weight=[2.0, 1.0, 3.0])
    assert gp.model_.likelihood.weights == (*WEIGHTS, 2.0, 1.0, 3.0)
    gp.save(tmp_path / "gp.hmcgp")
    again = GPClassifier.load(tmp_path / "gp.hmcgp")
    np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))
    np.testing.assert_array_equal(again.loo().pointwise, gp.loo().pointwise)
    with pytest.raises(InvalidInput, match=r"whole numbers as weights.*got 1.5 in row 15"):
        gp.append(X[:1], y[:1], sample_weight=[1.5])
