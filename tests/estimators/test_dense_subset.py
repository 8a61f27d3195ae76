"""Rows that vary faster than a few inducing inputs follow: a dense subset finds it, and the loss is reported."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor, Model
from hmcgp.errors import ApproximationWarning
from hmcgp.estimators.dense_subset import choose_rows, fit_subset, run_pilot
from hmcgp.estimators.inducing_error import inducing_error
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, Poisson
from hmcgp.model.inducing import spread_inputs, with_inducing
from hmcgp.model.subset import restricted

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(1600, 2))
WAVES = np.sin(4.5 * X[:, 0]) * np.cos(4.5 * X[:, 1])
LABELS = np.where(RNG.uniform(size=1600) < 1.0 / (1.0 + np.exp(-6.0 * WAVES)), 1.0, -1.0)


def test_automatic_inducing_inputs_follow_fast_waves():
    """Measured before the pilot used a dense subset: m = 100, mean log loss 0.693, which is chance, and no warning."""
    gp = GPClassifier(sampler="map", refine=None, random_state=0).fit(X, LABELS)
    new = RNG.uniform(-2.0, 2.0, size=(500, 2))
    p = 1.0 / (1.0 + np.exp(-6.0 * np.sin(4.5 * new[:, 0]) * np.cos(4.5 * new[:, 1])))
    q = gp.predict_proba(new)[:, 1]
    assert -np.mean(p * np.log(q) + (1.0 - p) * np.log1p(-q)) < 0.42
    error = gp.inducing_error_
    assert error is None or (error.small and error.held_out > error.held_out_dense - 0.05)


def test_a_flat_fit_is_refuted_by_a_dense_subset():
    """Twice as many inducing inputs change nothing at hyperparameters that explain everything by noise."""
    model = Model(X, LABELS)
    subset = fit_subset(model, 1)
    assert np.all(subset.theta[1:] < 0.6)  # length scales
    flat = np.array([0.3, 3.0, 3.0])
    error = inducing_error(with_inducing(model, spread_inputs(X, 50)), flat[None], subset=subset)
    assert error.prediction < 1e-4  # all that was looked at before
    assert error.held_out < error.held_out_dense - 0.1
    assert not error.small
    assert error.n_enough > 50
    assert "100 rows held out have a log predictive density of -0.6" in str(error)


@pytest.mark.parametrize(
    ("estimator", "targets"),
    [
        (GPClassifier(), np.where(WAVES > 0.0, "a", "b")),
        (GPRegressor(), WAVES),
        (GPCounts(), np.round(5.0 + 5.0 * WAVES)),
        (GPOrdinal(), np.digitize(WAVES, [-0.3, 0.3])),
    ],
    ids=["labels", "numbers", "counts", "levels"],
)
def test_too_few_inducing_inputs_are_reported_for_every_kind_of_target(estimator, targets):
    gp = estimator.set_params(sampler="map", random_state=0, inducing=8)
    with pytest.warns(ApproximationWarning, match=r"8 inducing inputs against 16.*in a dense fit of 300 rows"):
        gp.fit(X[:500], targets[:500])
    assert not gp.inducing_error_.small


def test_the_pilot_takes_all_rows_into_account_where_few_inducing_inputs_do():
    y = np.where(X[:, 0] + 0.5 * RNG.logistic(size=1600) > 0.0, 1.0, -1.0)
    model = Model(X, y, kernel=SquaredExponential())
    subset = fit_subset(model, 1)
    theta = run_pilot(model, subset, 50)
    density = [model.evaluate(model.unconstrain(t), gradient=False).logdensity for t in (theta, subset.theta)]
    assert density[0] > density[1] - 0.1
    assert not subset.refutes(with_inducing(model, spread_inputs(X, 50)), theta)


def test_rows_held_out_are_not_in_the_subset():
    rows, held_out = choose_rows(Model(X, LABELS))
    assert (len(rows), len(held_out)) == (300, 100)
    assert len(np.union1d(rows, held_out)) == 400
    rows, held_out = choose_rows(Model(X[:40], LABELS[:40]))
    np.testing.assert_array_equal(np.union1d(rows, held_out), np.arange(40))


@pytest.mark.parametrize("kind", ["numbers", "counts", "classes"])
def test_a_model_of_some_rows_is_the_one_built_from_them(kind):
    rows, weights = np.array([3, 7, 20, 21, 33]), np.linspace(0.5, 2.0, 40)
    sizes = np.linspace(1.0, 3.0, 40)
    y, make = {
        "numbers": (WAVES[:40], lambda r: Gaussian(known=tuple(sizes[r]))),
        "counts": (np.round(5.0 + 5.0 * WAVES[:40]), lambda r: Poisson(exposure=sizes[r])),
        "classes": (np.digitize(WAVES[:40], [-0.3, 0.3]), lambda r: "softmax"),
    }[kind]
    if kind == "classes":  # each of them
        rows = np.concatenate([rows, [int(np.argmax(y == c)) for c in range(3)]])
    everything = np.arange(40)
    model = Model(X[:40], y, likelihood=make(everything), weights=weights)
    part = Model(X[rows], y[rows], likelihood=make(rows), weights=weights[rows])
    u = model.initial(np.random.default_rng(1))
    assert restricted(model, rows).evaluate(u).logdensity == pytest.approx(part.evaluate(u).logdensity, rel=1e-10)
