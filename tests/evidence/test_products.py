"""Latent predictions by products agree with those by solving."""

import numpy as np
import pytest
from scipy.special import ndtr

from hmcgp.evidence import EP, Exact, Laplace, LowerBound, UpperBound
from hmcgp.evidence.products import (
    SINGLE_ERROR,
    LatentProducts,
    Product,
    Quadratic,
    Solve,
    SupportsProducts,
    by_factor,
    by_precision,
)
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, LabelNoise, Logistic, Probit
from hmcgp.numerics.triangular import squared_lengths

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(60, 2)), 1.5 * RNG.normal(size=(30, 2))
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=60) > 0.0, 1.0, -1.0)
NUMBERS = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * RNG.normal(size=(60, 2))
WEIGHTS = RNG.integers(1, 4, size=60).astype(float)
CASES = {
    "laplace": (Laplace(), LABELS, Logistic()),
    "weighted laplace": (Laplace(), LABELS, Probit().weighted(WEIGHTS)),
    "lower": (LowerBound(), LABELS, Logistic()),
    "upper": (UpperBound(), LABELS, Logistic()),
    "ep": (EP(), LABELS, Probit()),
    "label noise": (EP(), LABELS, LabelNoise(flip=0.1)),
    "exact": (Exact(), NUMBERS[:, 0].copy(), Gaussian(noise=0.01)),
    "columns": (Exact(), NUMBERS, Gaussian(noise=0.01)),
    "weighted exact": (Exact(), NUMBERS, Gaussian(noise=0.01).weighted(WEIGHTS)),
}


def kernel(variance=4.0):
    return SquaredExponential(variance=variance, length_scale=1.2)


def solved(name, variance=4.0):
    provider, y, likelihood = CASES[name]
    return provider(kernel(variance)(X), y, likelihood, gradient=False).posterior


@pytest.mark.parametrize("name", CASES)
def test_products_are_what_the_posterior_predicts(name):
    posterior = solved(name)
    assert isinstance(posterior, SupportsProducts)
    products = posterior.products()
    for rows in (slice(0, 1), slice(None)):  # few rows go another way than many
        mean, variance = posterior.predict(kernel()(X, NEW[rows]), kernel().diag(NEW[rows]))
        got_mean, got_variance = products.predict_rows(kernel()(NEW[rows], X), kernel().diag(NEW[rows]))
        np.testing.assert_allclose(got_mean, mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(got_variance, variance, rtol=1e-9, atol=1e-11)
        np.testing.assert_array_equal(products.mean_of_rows(kernel()(NEW[rows], X)), got_mean)


@pytest.mark.parametrize("name", ["laplace", "ep", "exact"])
def test_covariances_between_rows_are_those_of_the_posterior(name):
    posterior = solved(name)
    _, covariance = posterior.predict_jointly(kernel()(X, NEW), kernel()(NEW))
    explained = posterior.products().explained.between(kernel()(NEW, X))
    np.testing.assert_allclose(kernel()(NEW) - explained, covariance, atol=1e-10)


def test_an_ill_conditioned_factor_is_solved_with():
    y = np.sin(X[:, 0])
    posterior = Exact()(kernel()(X), y, Gaussian(noise=1e-12), gradient=False).posterior
    products = posterior.products()
    assert isinstance(products.explained, Solve)
    mean, variance = posterior.predict(kernel()(X, NEW), kernel().diag(NEW))
    got = products.predict_rows(kernel()(NEW, X), kernel().diag(NEW))
    np.testing.assert_allclose(got[0], mean, atol=1e-8)
    np.testing.assert_allclose(got[1], variance, rtol=1e-10, atol=1e-13)
    assert isinstance(by_factor(np.diag([1.0, 1e-5])), Product)
    assert isinstance(by_factor(np.diag([1.0, 1e-6])), Solve)


def test_a_matrix_without_a_factor_is_used_itself():
    R = np.diag([2.0, -1.0])
    assert isinstance(by_precision(R), Quadratic)
    assert isinstance(by_precision(np.diag([2.0, 1.0])), Product)
    K = np.array([[1.0, 2.0], [3.0, 0.5]])
    np.testing.assert_allclose(by_precision(R).of_rows(K), [-2.0, 17.75])
    np.testing.assert_allclose(np.diag(by_precision(R).between(K)), [-2.0, 17.75])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("lower", [True, False])
def test_compiled_products_are_those_of_blas(lower, dtype):
    n = 37
    F = (np.tril if lower else np.triu)(RNG.normal(size=(n, n))).astype(dtype)
    K = RNG.normal(size=(9, n))
    expected = ((K @ F.astype(float)) ** 2).sum(axis=1)
    tolerance = 1e-12 if dtype is np.float64 else 2e-6
    np.testing.assert_allclose(squared_lengths(K, F, lower), expected, rtol=tolerance)
    np.testing.assert_allclose(Product(F, lower).of_rows(K), expected, rtol=tolerance)


@pytest.mark.parametrize("name", ["laplace", "ep"])
@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0, 100.0, 1000.0])
def test_float32_keeps_probabilities_where_it_is_used(name, variance):
    products = solved(name, variance).products()
    rounded = products.in_single(variance)
    K, k_diag = kernel(variance)(NEW, X), kernel(variance).diag(NEW)
    p, q = (ndtr(m / np.sqrt(1.0 + v)) for m, v in (each.predict_rows(K, k_diag) for each in (products, rounded)))
    assert np.abs(p - q).max() <= SINGLE_ERROR
    assert (rounded is products) == (variance >= 100.0)


def test_the_bound_on_float32_is_needed():
    """Vast prior variances, with F as large as sites make it: float32 would be wrong by more than it may."""
    F = 0.5 * np.eye(3)
    F[1, 0] = F[2, 1] = 0.3
    variance = 1e5
    products = LatentProducts(np.zeros(3), Product(F, lower=True))
    assert products.in_single(variance) is products
    K = np.sqrt(variance) * RNG.normal(size=(200, 3))
    error = np.abs(Product(F, True).of_rows(K) - Product(F, True).in_single().of_rows(K))
    assert 0.121 * error.max() > SINGLE_ERROR
    assert products.in_single(1.0) is not products


def test_the_norm_is_that_of_the_matrix():
    F = np.tril(RNG.normal(size=(40, 40)))
    assert np.linalg.norm(F, 2) <= Product(F, True).norm() <= 1.5 * np.linalg.norm(F, 2)
