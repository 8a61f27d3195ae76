"""Predictions take memory for the rows that are asked for, not for rows times draws."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.special import ndtr

from hmcgp import GPClassifier, GPRegressor, mixture, predict
from hmcgp.optimize import MapResult, point_trace
from hmcgp.samplers import Trace

ROWS, DRAWS = 20_000, 250
HELD = 2**21  # of 40 MB that (draws, rows) take once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 1))
X_NEW = 2.0 * RNG.normal(size=(ROWS, 1))
Y = X[:, 0] + 0.1 * RNG.normal(size=4)


def fitted(estimator, y):
    """An estimator with DRAWS draws around its most probable hyperparameters, without the time that a chain takes."""
    gp = estimator.set_params(sampler="map", n_jobs=1, random_state=0).fit(X, y)
    u = gp.model_.unconstrain(gp.trace_.flat[0]) + 0.3 * RNG.normal(size=(1, DRAWS, gp.model_.n_dim))
    draws = np.array([[gp.model_.constrain(v) for v in u[0]]])
    one = gp.trace_
    stats = {name: np.repeat(value, DRAWS, axis=1) for name, value in one.stats.items()}
    gp.trace_ = Trace(
        draws, u, stats, one.names, "map", 0.0, False, u[:, :0], u[:, :0], one.warmup_stats, one.inv_metric
    )
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


def peak(call):
    """Numbers per new row that Python and numpy held at most while the call ran."""
    call()  # what is compiled or kept the first time does not count
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / (8 * ROWS)
    finally:
        tracemalloc.stop()


METHODS = {
    "mean": ("regressor", lambda gp: gp.predict(X_NEW)),
    "sd": ("regressor", lambda gp: gp.predict(X_NEW, return_std=True)),
    "quantiles": ("regressor", lambda gp: gp.predict_quantiles(X_NEW, 0.9)),
    "log density": ("regressor", lambda gp: gp.log_predictive_density(X_NEW, X_NEW[:, 0])),
    "latent": ("regressor", lambda gp: gp.latent_mean_and_variance(X_NEW)),
    "sd of outputs": ("outputs", lambda gp: gp.predict(X_NEW, return_std=True)),
    "quantiles of outputs": ("outputs", lambda gp: gp.predict_quantiles(X_NEW, 0.9)),
    "log density of outputs": ("outputs", lambda gp: gp.log_predictive_density(X_NEW, np.tile(X_NEW, 2))),
    "sd of correlated outputs": ("coregional", lambda gp: gp.predict(X_NEW, return_std=True)),
    "probabilities": ("classifier", lambda gp: gp.predict_proba(X_NEW)),
    "labels": ("classifier", lambda gp: gp.predict(X_NEW)),
    "latent of labels": ("classifier", lambda gp: gp.latent_mean_and_variance(X_NEW)),
}


@pytest.mark.parametrize("name", METHODS)
def test_memory_is_that_of_the_rows(name, request, monkeypatch):
    monkeypatch.setattr(predict, "HELD_BYTES", HELD, raising=False)
    monkeypatch.setattr(predict, "BLOCK_BYTES", 2**19)
    estimator, call = METHODS[name]
    gp = request.getfixturevalue(estimator)
    import time

    t = time.time()
    print(name, peak(lambda: call(gp)), time.time() - t)
