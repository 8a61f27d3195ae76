"""Averages of the softmax over Gaussian latent values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from hmcgp.likelihoods.softmax_average import N_POINTS, gaussian_points, softmax_average, summing_to_one
from hmcgp.numerics.quadrature import logistic_average


def gaussians(m, n_classes, scale, seed=0):
    """Means and covariances of m rows."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, n_classes, n_classes))
    return np.sqrt(scale) * rng.normal(size=(m, n_classes)), scale * A @ A.transpose(0, 2, 1) / n_classes


@pytest.mark.parametrize("n_classes", [3, 6, 10])
@pytest.mark.parametrize(("scale", "tolerance"), [(1.0, 2e-4), (10.0, 1e-3)])
def test_averages_are_good_to_a_thousandth(n_classes, scale, tolerance):
    """Against 64 times as many points, scrambled in another way."""
    mean, covariance = gaussians(20, n_classes, scale)
    accurate = softmax_average(mean, covariance, gaussian_points(n_classes - 1, 64 * N_POINTS, seed=1))
    np.testing.assert_allclose(softmax_average(mean, covariance), accurate, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "tolerance"), [(3, 5e-4), (6, 5e-3), (10, 8e-3)])
def test_averages_over_latent_values_of_variance_1000(n_classes, tolerance):
    """A softmax of such values is nearly a maximum, which has corners: the most difficult case."""
    mean, covariance = gaussians(100, n_classes, 1000.0)
    accurate = softmax_average(mean, covariance, gaussian_points(n_classes - 1, 128 * N_POINTS, seed=1))
    error = softmax_average(mean, covariance) - accurate
    assert np.abs(error).max() < tolerance
    assert np.sqrt(np.mean(error**2)) < 0.3 * tolerance


def test_three_classes_against_a_grid():
    """The two dimensions that matter, by the trapezoidal rule."""
    mean, covariance = gaussians(5, 3, 4.0, seed=3)
    z = np.linspace(-8.0, 8.0, 400)
    grid = np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2)
    weights = np.exp(-0.5 * np.sum(grid**2, axis=1))
    contrasts = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    for m, S, p in zip(mean, covariance, softmax_average(mean, covariance), strict=True):
        L = np.linalg.cholesky(contrasts @ S @ contrasts.T)
        f = np.column_stack([contrasts @ m + grid @ L.T, np.zeros(len(grid))])
        np.testing.assert_allclose(p, weights @ softmax(f, axis=1) / weights.sum(), atol=1e-4)


def test_two_classes_average_as_the_logistic_of_their_difference():
    mean, covariance = gaussians(30, 2, 10.0)
    d = np.array([-1.0, 1.0])
    p = softmax_average(mean, covariance)[:, 1]
    np.testing.assert_allclose(p, logistic_average(mean @ d, d @ covariance @ d), atol=2e-5)


def test_without_variance_the_average_is_the_softmax_itself():
    mean, _ = gaussians(10, 4, 5.0)
    np.testing.assert_allclose(softmax_average(mean, np.zeros((10, 4, 4))), softmax(mean, axis=1), atol=1e-14)


@pytest.mark.parametrize("n_classes", [3, 6, 12])
def test_rows_sum_to_one_in_any_order_and_tails_survive(n_classes):
    p = np.random.default_rng(0).dirichlet(np.full(n_classes, 0.05), size=2000)
    p[0] = [1e-30, *np.full(n_classes - 1, 1.0 / (n_classes - 1))]
    q = summing_to_one(p)
    assert (q.sum(axis=1) == 1.0).all()
    assert (q[:, ::-1].sum(axis=1) == 1.0).all()
    assert (np.cumsum(q, axis=1)[:, -1] == 1.0).all()
    np.testing.assert_allclose(q, p / p.sum(axis=1, keepdims=True), atol=1e-15)
    assert 0.0 < q[0, 0] < 2e-30


def test_a_row_does_not_depend_on_its_neighbours_and_is_the_same_every_time():
    mean, covariance = gaussians(10, 4, 5.0)
    together = softmax_average(mean, covariance)
    np.testing.assert_array_equal(softmax_average(mean[3:4], covariance[3:4])[0], together[3])
