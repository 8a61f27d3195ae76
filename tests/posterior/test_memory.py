"""Predictions take memory for the rows that are asked for, not for rows times draws."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import DataWarning
from hmcgp.likelihoods import Gaussian
from hmcgp.posterior import kept, mixture, over_draws, predict, row_blocks

ROWS, DRAWS = 3000, 100

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 1))
X_NEW = 2.0 * RNG.normal(size=(ROWS, 1))
Y = X[:, 0] + 0.1 * RNG.normal(size=4)


def fitted(estimator, y):
    """An estimator with DRAWS draws around its most probable hyperparameters, without the time that a chain takes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "there are .* hyperparameters for 4 rows", DataWarning)
        gp = estimator.set_params(sampler="map", n_jobs=1, random_state=0, progressbar=False).fit(X, y)
    u = gp.trace_.unconstrained + 0.3 * RNG.normal(size=(1, DRAWS, gp.model_.n_dim))
    draws = np.array([[gp.model_.constrain(v) for v in u[0]]])
    gp.trace_ = replace(gp.trace_, draws=draws, unconstrained=u)
    return gp


@pytest.fixture(scope="module")
def regressor():
    return fitted(GPRegressor(), Y)


@pytest.fixture(scope="module")
def outputs():
    return fitted(GPRegressor(), np.column_stack([Y, Y**2]))


@pytest.fixture(scope="module")
def coregional():
    return fitted(GPRegressor(outputs="coregional"), np.column_stack([Y, Y**2]))


@pytest.fixture(scope="module")
def classifier():
    return fitted(GPClassifier(), np.array(["a", "b", "a", "b"]))


@pytest.fixture(scope="module")
def classes():
    return fitted(GPClassifier(), np.array(["a", "b", "c", "b"]))


slow = pytest.mark.slow
METHODS = [  # name, estimator, call, rows
    ("mean", "regressor", lambda gp, X: gp.predict(X), ROWS),
    ("sd", "regressor", lambda gp, X: gp.predict(X, return_std=True), ROWS),
    ("quantiles", "regressor", lambda gp, X: gp.predict_quantiles(X, [0.1, 0.6]), 2000),
    ("log density", "regressor", lambda gp, X: gp.log_predictive_density(X, X[:, 0]), 2000),
    ("sd of outputs", "outputs", lambda gp, X: gp.predict(X, return_std=True), 2000),
    ("quantiles of outputs", "outputs", lambda gp, X: gp.predict_quantiles(X, 0.9), 1000),
    ("log density of outputs", "outputs", lambda gp, X: gp.log_predictive_density(X, np.tile(X, 2)), 1000),
    ("probabilities", "classifier", lambda gp, X: gp.predict_proba(X), ROWS),
    ("latent of labels", "classifier", lambda gp, X: gp.latent_mean_and_variance(X), ROWS),
    pytest.param("sd", "coregional", lambda gp, X: gp.predict(X, return_std=True), ROWS, marks=slow),
    pytest.param("quantiles", "coregional", lambda gp, X: gp.predict_quantiles(X, 0.9), ROWS, marks=slow),
    pytest.param(
        "log density", "coregional", lambda gp, X: gp.log_predictive_density(X, np.tile(X, 2)), 2000, marks=slow
    ),
    pytest.param("latent", "classes", lambda gp, X: gp.latent_mean_and_variance(X), ROWS, marks=slow),
]
WIDTH = {"outputs": 2, "coregional": 2, "classes": 3}  # latent values at a row


@pytest.mark.parametrize(("name", "estimator", "call", "rows"), METHODS)
def test_memory_is_that_of_the_rows(name, estimator, call, rows, request, monkeypatch):
    """With budgets that are small beside (draws, rows), and 20 groups, as many as 500 draws have."""
    gp = request.getfixturevalue(estimator)
    call(gp, X_NEW[:10])  # what is compiled or kept the first time does not count
    held = 50 * rows * (8 if "quantiles" in name else 1)  # a sixteenth of what quantiles hold at once
    monkeypatch.setattr(over_draws, "HELD_BYTES", held)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 40 * rows)
    monkeypatch.setattr(over_draws, "GROUP_SIZE", DRAWS // 20)
    monkeypatch.setattr(mixture, "_NUMBERS", 2**12)
    tracemalloc.start()
    try:
        call(gp, X_NEW[:rows])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < held + 24 * 8 * rows * WIDTH.get(estimator, 1)


@pytest.mark.parametrize(("name", "estimator", "call", "rows"), METHODS)
def test_blocks_and_groups_change_nothing(name, estimator, call, rows, request, monkeypatch):
    gp = request.getfixturevalue(estimator)
    whole = call(gp, X_NEW[:60])
    monkeypatch.setattr(over_draws, "HELD_BYTES", 7 * 32 * DRAWS)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(mixture, "_NUMBERS", 5 * DRAWS)
    for part, other in zip(np.atleast_2d(whole), np.atleast_2d(call(gp, X_NEW[:60])), strict=True):
        np.testing.assert_allclose(other, part, rtol=1e-12, atol=1e-13)


def test_averages_are_those_of_the_draws(regressor):
    mean, variance = predict.observed_moments(*regressor._new_inputs(X_NEW[:50]))
    mean, variance = regressor._targets.in_units(mean), regressor._targets.unit**2 * variance
    centre, sd = regressor.predict(X_NEW[:50], return_std=True)
    np.testing.assert_allclose(centre, mean.mean(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(sd**2, variance.mean(axis=0) + mean.var(axis=0), rtol=1e-12)


@pytest.mark.parametrize(("n_rows", "n_passes"), [(30, 1), (31, 2), (90, 3)])
def test_every_draw_is_solved_once_but_for_quantiles_of_many_rows(n_rows, n_passes, regressor, monkeypatch):
    """Where nothing is kept between calls."""
    monkeypatch.setattr(kept, "KEPT_BYTES", 0)
    regressor.clear_cache()
    monkeypatch.setattr(over_draws, "HELD_BYTES", 30 * 32 * DRAWS)
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 3000)
    solved = []
    solve = regressor.model_.posterior
    monkeypatch.setattr(regressor.model_, "posterior", lambda *args: solved.append(1) or solve(*args), raising=False)
    regressor.predict(X_NEW[:n_rows], return_std=True)
    regressor.log_predictive_density(X_NEW[:n_rows], X_NEW[:n_rows, 0])
    assert len(solved) == 2 * DRAWS
    regressor.predict_quantiles(X_NEW[:n_rows])
    assert len(solved) == (2 + n_passes) * DRAWS


def test_quantiles_of_a_place_do_not_depend_on_the_others():
    rng = np.random.default_rng(2)
    mean, variance = rng.normal(size=(40, 30)), np.exp(3.0 * rng.normal(size=(40, 30)))
    q = np.array([1e-9, 0.3, 0.999])
    together = mixture.quantiles(q, mean, variance)
    alone = np.hstack([mixture.quantiles(q, mean[:, [i]], variance[:, [i]]) for i in range(30)])
    np.testing.assert_allclose(alone, together, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ndtr((together[:, None] - mean) / np.sqrt(variance)).mean(axis=1).T / q, 1.0, rtol=1e-10)


def test_quantiles_in_gaps_and_of_components_without_width():
    mean, q = np.array([[0.0], [1.0], [5.0], [100.0]]), np.array([0.1, 0.5, 0.6, 0.9])
    np.testing.assert_allclose(mixture.quantiles(q, mean, 0.0 * mean)[:, 0], [0.0, 1.0, 5.0, 100.0], rtol=1e-12)
    np.testing.assert_array_equal(mixture.quantiles(q, 0.0 * mean + 3.0, 0.0 * mean)[:, 0], 3.0)
    found = mixture.quantiles(np.array([0.5]), np.array([[0.0], [1000.0]]), np.ones((2, 1)))
    assert 5.0 < found[0, 0] < 995.0  # anywhere between: half of the probability lies on either side


def test_known_targets_without_noise_have_quantiles():
    gp = GPRegressor(likelihood=Gaussian(noise=0.0), sampler="map", random_state=0).fit(X, Y)
    np.testing.assert_allclose(gp.predict_quantiles(X, [0.1, 0.9]), np.column_stack([Y, Y]), atol=1e-5)
