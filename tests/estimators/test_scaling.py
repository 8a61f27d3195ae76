"""Standardised inputs and targets: what counts as constant."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.estimators.scaling import Scaling


def column(offset, spread, n=50):
    return offset + spread * np.random.default_rng(0).normal(size=n)


@pytest.mark.parametrize("magnitude", [1e-300, 1e-9, 1.0, -1.0, 1e9, 1e300])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_spread_below_rounding_is_constant(magnitude, standardize):
    X = magnitude * np.column_stack([np.ones(50), column(1.0, 1e-14), column(1.0, 1e-11), column(0.0, 1e-14)])
    scaling = Scaling.learn(X, standardize=standardize)
    assert scaling.constant.tolist() == [True, True, False, False]


def test_rounding_is_not_blown_up_to_an_input():
    Z = Scaling.learn(column(1.0, 1e-14)[:, None], standardize=True).apply(column(1.0, 1e-14)[:, None])
    assert np.abs(Z).max() < 1e-12


def test_zeros_and_opposite_extremes_do_not_overflow():
    X = np.column_stack([np.zeros(4), [-1.7e308, 1.7e308, 0.0, 1.0]])
    scaling = Scaling.learn(X, standardize=True)
    assert scaling.constant.tolist() == [True, False]
    assert np.isfinite(scaling.apply(X)).all()


def test_an_input_of_rounding_gets_the_warning_of_constant_inputs():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=30), column(1.0, 1e-14, 30)])
    y = (X[:, 0] + rng.normal(size=30) > 0.0).astype(int)
    with pytest.warns(DataWarning, match=r"1 of 2 inputs are constant in the training rows \(x1\)"):
        GPClassifier(sampler="map").fit(X, y)


def test_a_target_of_rounding_is_refused():
    X = np.random.default_rng(1).normal(size=(30, 2))
    with pytest.raises(InvalidInput, match="all 30 targets are 1, up to rounding: there is nothing to explain"):
        GPRegressor(sampler="map").fit(X, column(1.0, 1e-14, 30))
