"""Weights of rows with several outputs."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import Model
from hmcgp.errors import InvalidInput
from hmcgp.posterior import predict
from tests.helpers.outputs import GAPS, KINDS, X_NEW, X, Y, quick, targets_of


def weighted_and_copied(kind):
    """The same table, with weights of 0, 1 and 2, and with the rows left out, once, and twice."""
    table = targets_of(kind)
    weights = np.arange(len(X)) % 3
    rows = np.repeat(np.arange(len(X)), weights)
    one = quick(sampler="map", outputs=kind).fit(X, table, sample_weight=weights)
    other = quick(sampler="map", outputs=kind).fit(X.iloc[rows], table.iloc[rows])
    return one, other


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_two_is_the_row_twice(kind):
    one, other = weighted_and_copied(kind)
    np.testing.assert_allclose(one._targets.scaling.spread, other._targets.scaling.spread, rtol=1e-12)
    u = np.linspace(-0.5, 0.5, one.model_.n_dim)
    (log_p, grad), (log_q, slope) = one.model_.logdensity_and_grad(u), other.model_.logdensity_and_grad(u)
    np.testing.assert_allclose(log_p, log_q, rtol=1e-9)
    np.testing.assert_allclose(grad, slope, rtol=1e-7, atol=1e-7)
    for mine, theirs in zip(one.predict(X_NEW, return_std=True), other.predict(X_NEW, return_std=True), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)  # as far as the two searches agree


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_weights_can_be_appended(kind):
    table, weights = targets_of(kind), 1.0 + np.arange(30) % 2
    whole = quick(sampler="map", outputs=kind, standardize=False).fit(X, table, sample_weight=weights)
    grown = quick(sampler="map", outputs=kind, standardize=False).fit(X[:20], table[:20], sample_weight=weights[:20])
    draws = grown._kept_draws()
    grown.append(X[20:], table[20:], sample_weight=weights[20:])
    np.testing.assert_array_equal(grown.model_.likelihood.weights, whole.model_.likelihood.weights)
    mean, _ = predict.latent_moments(whole.model_, draws, grown._new_inputs(X_NEW)[2])
    appended, _ = predict.latent_moments(grown.model_, draws, grown._new_inputs(X_NEW)[2])
    np.testing.assert_allclose(appended, mean, rtol=1e-8, atol=1e-8)


def test_leaving_rows_with_weights_out():
    weights = 1.0 + np.arange(30) % 2
    gp = quick(sampler="map").fit(X, Y, sample_weight=weights)
    without = Model(
        gp.model_.X[1:], gp.model_.y[1:], kernel=gp.model_.kernel, likelihood="gaussian", weights=weights[1:]
    )
    theta = gp.trace_.flat
    mean, variance = predict.observed_moments(without, theta, gp.model_.X[:1])
    expected = -0.5 * ((gp.model_.y[0] - mean[0, 0]) ** 2 / variance[0, 0] + np.log(2.0 * np.pi * variance[0, 0]))
    np.testing.assert_allclose(gp.loo().pointwise[0], expected.sum() - np.log(gp._targets.scaling.spread).sum())
    coregional = quick(sampler="map", outputs="coregional").fit(X, GAPS, sample_weight=weights)
    with pytest.raises(InvalidInput, match="cannot be left out where they have weights"):
        coregional.loo()
