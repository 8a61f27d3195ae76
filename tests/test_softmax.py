"""Laplace's approximation for several classes: what every provider must do, with a matrix per class."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from checks import check_gradient, random_symmetric, squared_exponential
from scipy.special import logsumexp

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.evidence import Laplace, SoftmaxLaplace
from hmcgp.likelihoods import Logistic, Softmax

SOLVE, SOFTMAX = SoftmaxLaplace(), Softmax()


def problem(n, n_classes, seed=0):
    """Inputs, classes, and a covariance matrix for each class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.argmax(np.column_stack([np.sin(c + X[:, 0] * (1 + c)) for c in range(n_classes)]), axis=1)
    y[:n_classes] = np.arange(n_classes)
    K = np.stack([squared_exponential(X, 2.0 + c, 1.5 - 0.1 * c) + 0.1 * np.eye(n) for c in range(n_classes)])
    return X, y.astype(float), K


sizes = pytest.mark.parametrize(("n", "n_classes"), [(3, 2), (5, 5), (12, 3), (40, 6)])
shared = pytest.mark.parametrize("shared", [True, False], ids=["shared", "per class"])


@sizes
def test_matches_the_plain_twin(n, n_classes):
    _, y, K = problem(n, n_classes)
    f, log_z, S = reference.softmax_laplace(K, y)
    ev = SOLVE(K, y, SOFTMAX, gradient=False)
    np.testing.assert_allclose(ev.log_z, log_z, rtol=1e-10)
    np.testing.assert_allclose(ev.posterior.f, f, atol=1e-8)
    mean, covariance = ev.posterior.predict(K, np.einsum("cii->ci", K))
    np.testing.assert_allclose(mean, f.T, atol=1e-8)
    np.testing.assert_allclose(covariance, np.einsum("aibi->iab", S.reshape(n_classes, n, n_classes, n)), atol=1e-9)


@sizes
@shared
def test_dK_matches_central_differences(n, n_classes, shared):
    _, y, K = problem(n, n_classes, seed=n)
    K = K[0] if shared else K
    dK = SOLVE(K, y, SOFTMAX).dK
    assert dK.shape == K.shape
    rng, h = np.random.default_rng(1), 1e-5
    for _ in range(5):
        V = random_symmetric(rng, n) if shared else np.stack([random_symmetric(rng, n) for _ in range(n_classes)])
        up1, down1, up2, down2 = (SOLVE(K + c * h * V, y, SOFTMAX).log_z for c in (1.0, -1.0, 2.0, -2.0))
        numeric = (8.0 * (up1 - down1) - (up2 - down2)) / (12.0 * h)
        np.testing.assert_allclose(np.sum(dK * V), numeric, rtol=1e-7, atol=1e-8)


@sizes
def test_one_shared_matrix_is_that_matrix_for_every_class(n, n_classes):
    _, y, K = problem(n, n_classes)
    one, each = SOLVE(K[0], y, SOFTMAX), SOLVE(np.stack([K[0]] * n_classes), y, SOFTMAX)
    np.testing.assert_allclose(one.log_z, each.log_z, rtol=1e-12)
    np.testing.assert_allclose(one.dK, each.dK.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("n", [2, 15, 60])
def test_two_classes_are_the_logistic_model_of_the_difference(n):
    """f_2 - f_1 ~ N(0, K_1 + K_2); the sum of the two has no say in the likelihood, and integrates out."""
    _, y, K = problem(n, 2, seed=3)
    labels = 2.0 * y - 1.0
    two, binary = SOLVE(K, y, SOFTMAX), Laplace()(K[0] + K[1], labels, Logistic())
    np.testing.assert_allclose(two.log_z, binary.log_z, rtol=1e-11)
    for dK in two.dK:
        np.testing.assert_allclose(dK, binary.dK, atol=1e-9)
    two = SOLVE(K, y, SOFTMAX, gradient=False).posterior
    binary = Laplace()(K[0] + K[1], labels, Logistic(), gradient=False).posterior
    K_cross, k_diag = 0.3 * np.random.default_rng(0).normal(size=(2, n, 4)), np.full((2, 4), 20.0)
    pairs = [
        (two.predict(K_cross, k_diag), binary.predict(K_cross.sum(axis=0), k_diag.sum(axis=0))),
        (two.cavity(), binary.cavity()),
    ]
    contrast = np.array([-1.0, 1.0])
    for (mean, covariance), (expected_mean, expected_variance) in pairs:
        np.testing.assert_allclose(mean @ contrast, expected_mean, atol=1e-8)
        np.testing.assert_allclose(contrast @ covariance @ contrast, expected_variance, rtol=1e-8)


def test_dK_is_symmetric_to_the_last_bit():
    _, y, K = problem(70, 4)
    dK = SOLVE(K, y, SOFTMAX).dK
    np.testing.assert_array_equal(dK, dK.transpose(0, 2, 1))


def test_inputs_are_not_changed():
    _, y, K = problem(20, 3)
    K0, y0, start = K.copy(), y.copy(), np.full(60, 0.3)
    SOLVE(K, y, SOFTMAX, start)
    np.testing.assert_array_equal(K, K0)
    np.testing.assert_array_equal(y, y0)
    np.testing.assert_array_equal(start, 0.3)


def test_only_the_lower_triangle_is_read():
    _, y, K = problem(20, 3)
    broken = K + np.triu(np.full((20, 20), np.nan), 1)
    assert SOLVE(broken, y, SOFTMAX).log_z == SOLVE(K, y, SOFTMAX).log_z
    one, two = (SOLVE(matrix, y, SOFTMAX, gradient=False).posterior.cavity() for matrix in (K, broken))
    np.testing.assert_array_equal(one[0], two[0])


def test_order_of_rows_and_of_classes_does_not_matter():
    _, y, K = problem(30, 3)
    rows, classes = np.random.default_rng(5).permutation(30), np.array([2, 0, 1])
    one = SOLVE(K, y, SOFTMAX)
    two = SOLVE(K[np.ix_(classes, rows, rows)], np.argsort(classes)[y.astype(int)][rows].astype(float), SOFTMAX)
    np.testing.assert_allclose(two.log_z, one.log_z, rtol=1e-12)
    np.testing.assert_allclose(two.dK, one.dK[np.ix_(classes, rows, rows)], atol=1e-9)


def test_a_vanishing_prior_leaves_a_fair_die():
    _, y, K = problem(30, 4)
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


@shared
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_cold_and_warm_starts_agree(shared, scale):
    _, y, K = problem(40, 4)
    K = K[0] if shared else K
    start = SOLVE(scale * K + 0.05 * np.eye(40), y, SOFTMAX).posterior.start
    cold, warm = SOLVE(K, y, SOFTMAX), SOLVE(K, y, SOFTMAX, start)
    np.testing.assert_allclose(warm.log_z, cold.log_z, rtol=1e-11)
    np.testing.assert_allclose(warm.dK, cold.dK, atol=1e-9)
    assert warm.residual <= 1e-10
    again = SOLVE(K, y, SOFTMAX, cold.posterior.start)
    np.testing.assert_allclose(again.dK, cold.dK, atol=1e-10)


@pytest.mark.parametrize("start", [1e3, -1e3, "random"])
def test_an_absurd_start_is_survived(start):
    _, y, K = problem(40, 4)
    value = 300.0 * np.random.default_rng(0).normal(size=160) if start == "random" else np.full(160, start)
    np.testing.assert_allclose(SOLVE(K, y, SOFTMAX, value).log_z, SOLVE(K, y, SOFTMAX).log_z, rtol=1e-11)


def test_a_budget_of_one_iteration_is_not_enough():
    _, y, K = problem(20, 3)
    with pytest.raises(NotConverged, match=r"decrement .* after 1 factorisation"):
        SoftmaxLaplace(max_iter=1)(K, y, SOFTMAX)


def test_what_is_no_covariance_is_refused():
    _, y, K = problem(10, 3)
    with pytest.raises(NotPositiveDefinite, match="SoftmaxLaplace"):
        SOLVE(-100.0 * K, y, SOFTMAX)
    with pytest.raises(NotPositiveDefinite):
        SOLVE(np.full((10, 10), np.nan), y, SOFTMAX)


def test_without_the_gradient_the_value_is_the_same_and_with_it_there_are_no_predictions():
    _, y, K = problem(25, 3)
    ev = SOLVE(K, y, SOFTMAX)
    assert SOLVE(K, y, SOFTMAX, gradient=False).log_z == ev.log_z
    with pytest.raises(InvalidInput, match="gradient=False to predict"):
        ev.posterior.predict(K, np.einsum("cii->ci", K))


@pytest.mark.parametrize("kind", ["overlapping", "separable", "duplicates", "all different"])
@pytest.mark.parametrize("length_scale", [1e-3, 0.3, 3.0, 1e4])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e3, 1e8])
def test_survives_what_a_sampler_visits(kind, length_scale, variance):
    """Converges, and its gradient is right, in every corner that the priors allow."""
    X, y, _ = problem(24, 4, seed=2)
    if kind == "separable":
        y = np.searchsorted(np.quantile(X[:, 0], [0.25, 0.5, 0.75]), X[:, 0]).astype(float)
    elif kind == "duplicates":
        variance = min(variance, 1e6)  # contradictions leave |α| of order 1: Kα is rounded to 1e-8 beyond
        X, y = np.vstack([X, X]), np.concatenate([y, (y + 1.0) % 4.0])
    elif kind == "all different":
        X, y = X[:8], np.arange(8.0)

    def log_z(u):  # u = log variance, log length scale
        K = squared_exponential(X, np.exp(u[0]), np.exp(u[1]))
        ev = SOLVE(K, y, SOFTMAX)
        Z = X / np.exp(u[1])
        r2 = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
        return ev.log_z, np.array([np.sum(ev.dK * K), np.sum(ev.dK * K * r2)])

    u = np.log([variance, length_scale])
    value, grad = log_z(u)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()
    # rounding in f = Kα, about eps * variance * |α|, moves log|B| of all rows; the difference quotient divides by 1e-5
    noise = 1e-16 * max(variance, 1.0) * len(y) / 1e-5
    check_gradient(log_z, u, rtol=1e-5, atol=1e-6 + noise)


def test_leaving_out_a_row_is_close_to_refitting_without_it():
    X, y, _ = problem(40, 3, seed=4)
    K = squared_exponential(X, 3.0, 1.0)
    quick = SOFTMAX.log_average(y, *SOLVE(K, y, SOFTMAX, gradient=False).posterior.cavity())
    for i in range(0, 40, 5):
        rest = np.arange(40) != i
        posterior = SOLVE(K[np.ix_(rest, rest)], y[rest], Softmax(3), gradient=False).posterior
        slow = SOFTMAX.log_average(y[[i]], *posterior.predict(K[rest][:, [i]], K[[i], [i]]))
        np.testing.assert_allclose(quick[i], slow[0], atol=0.02)
