"""A few weighted draws average as many do."""

import numpy as np
import pytest

from hmcgp.posterior.compression import spread_subset

RNG = np.random.default_rng(1)
MIX = RNG.normal(size=(6, 6))
U = np.exp(0.3 * RNG.normal(size=(400, 6))) @ MIX  # skewed, correlated
WEIGHT = RNG.gamma(2.0, size=400)


def test_weights_are_positive_and_of_mean_one_at_few_positions():
    chosen, weight = spread_subset(U, WEIGHT, 30)
    assert 25 <= len(chosen) <= 30
    assert (np.diff(chosen) > 0).all()
    assert (weight > 0.0).all()
    assert weight.mean() == pytest.approx(1.0)
    again, same = spread_subset(U, WEIGHT, 30)
    np.testing.assert_array_equal(again, chosen)
    np.testing.assert_array_equal(same, weight)


def test_averages_are_several_times_better_than_of_evenly_spaced_draws():
    z = np.linalg.solve(np.linalg.cholesky(np.cov(U.T)), (U - U.mean(axis=0)).T)
    values = np.tanh(RNG.normal(size=(200, 6)) @ z + RNG.normal(size=(200, 1)))  # functions of the draws
    full = values @ WEIGHT / WEIGHT.sum()
    chosen, weight = spread_subset(U, WEIGHT, 50)
    even = np.arange(0, 400, 8)
    error = values[:, chosen] @ weight / weight.sum() - full
    usual = values[:, even] @ WEIGHT[even] / WEIGHT[even].sum() - full
    assert np.sqrt(np.mean(error**2)) < 0.4 * np.sqrt(np.mean(usual**2))


def test_neither_units_nor_shifts_matter():
    chosen, weight = spread_subset(U, WEIGHT, 20)
    other, same = spread_subset(1e3 * U + 7.0, WEIGHT, 20)
    np.testing.assert_array_equal(other, chosen)
    np.testing.assert_allclose(same, weight, rtol=1e-4)


def test_draws_without_weight_do_not_count():
    u, weight = U.copy(), WEIGHT.copy()
    u[::2] += 50.0
    weight[::2] = 0.0
    chosen, _ = spread_subset(u, weight, 20)
    assert (chosen % 2 == 1).all()


def test_directions_in_which_nothing_varies_are_left_out():
    flat = np.column_stack([U[:, :2], np.full(400, 3.0), U[:, 0] + U[:, 1]])
    chosen, weight = spread_subset(flat, np.ones(400), 20)
    mean = (weight @ flat[chosen]) / weight.sum()
    np.testing.assert_allclose(mean, flat.mean(axis=0), atol=0.1 * flat.std(axis=0).max())


def test_few_different_draws_need_no_more():
    two = np.repeat([[0.0], [1.0]], [30, 10], axis=0)
    chosen, weight = spread_subset(two, np.ones(40), 5)
    share = weight / weight.sum()
    assert share @ two[chosen, 0] == pytest.approx(0.25, abs=1e-4)
