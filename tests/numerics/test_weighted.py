"""Quantiles of weighted values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hmcgp.numerics.weighted import weighted_quantile

X = np.random.default_rng(0).normal(size=(201, 2, 3))
Q = np.array([0.0, 0.05, 0.5, 0.95, 1.0])


@pytest.mark.parametrize("weight", [None, np.full(201, 0.3)], ids=["none", "equal"])
def test_equal_weights_are_those_of_numpy(weight):
    np.testing.assert_array_equal(weighted_quantile(X, Q, weight), np.quantile(X, Q, axis=0))
    np.testing.assert_array_equal(weighted_quantile(X, 0.5, weight), np.median(X, axis=0))


def test_nearly_equal_weights_are_continuous():
    weight = 1.0 + 1e-9 * np.arange(201)
    np.testing.assert_allclose(weighted_quantile(X, Q, weight), np.quantile(X, Q, axis=0), atol=1e-6)


def test_a_weight_of_two_is_the_value_twice():
    x, weight = X[:, 0, 0], np.random.default_rng(1).integers(1, 4, size=201)
    got = weighted_quantile(x, Q, weight.astype(float))
    expected = np.quantile(np.repeat(x, weight), Q)
    np.testing.assert_allclose(got, expected, atol=0.06)  # they interpolate differently between neighbours
    assert abs(got - np.quantile(x, Q)).max() < 0.3


def test_weights_undo_a_shift():
    """Draws of N(0, 1) weighted to N(1, 1)."""
    x = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    got = weighted_quantile(x, Q[1:-1], np.exp(x))
    np.testing.assert_allclose(got, stats.norm.ppf(Q[1:-1], 1.0), atol=0.02)  # the tail beyond the last draw is missing
    assert abs(np.quantile(x, Q[1:-1]) - stats.norm.ppf(Q[1:-1], 1.0)).min() > 0.9


def test_values_without_weight_do_not_count_and_one_may_have_all():
    x, weight = np.array([[9.0], [1.0], [2.0], [3.0], [-9.0]]), np.array([0.0, 1.0, 2.0, 1.0, 0.0])
    np.testing.assert_allclose(weighted_quantile(x, np.array([0.0, 0.5, 1.0]), weight), [[1.0], [2.0], [3.0]])
    assert weighted_quantile(x, 0.3, weight).shape == (1,)
    np.testing.assert_array_equal(weighted_quantile(x, np.array([0.1, 0.9]), 1.0 * (weight == 2.0)), [[2.0], [2.0]])
