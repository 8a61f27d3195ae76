"""Rows that arrive after the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor, Model
from hmcgp.errors import ApproximationWarning, InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, VaryingNoise
from hmcgp.model import growing
from hmcgp.numerics.weighted import pareto_smoothed
from hmcgp.posterior import predict
from tests.helpers.checks import classification_problem

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # chains here are short

RNG = np.random.default_rng(5)
X = RNG.uniform(-3.0, 3.0, size=(50, 2))
Y = 10.0 + 4.0 * np.sin(X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=50)
LABELS = classification_problem(50, 2)[1]
X_NEW = RNG.uniform(-3.0, 3.0, size=(12, 2))
KERNEL = SquaredExponential(ard=True)
SHORT: dict[str, Any] = {"draws": 30, "tune": 60, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 3}


def at_same_draws(gp, X_all, targets, likelihood=None):
    """Predictions of a model of all rows, solved from scratch, at the draws that `gp` averages over."""
    whole = Model(
        gp._inputs.scaling.apply(X_all),
        targets,
        kernel=KERNEL,
        likelihood=likelihood if likelihood is not None else gp.likelihood,
        evidence=gp.evidence,
    )
    return whole, predict.latent_moments(whole, gp._kept_draws(), gp._inputs.scaling.apply(X_NEW))


@pytest.mark.parametrize("pieces", [[50], [41, 50], [40, 41, 43, 50]], ids=str)
def test_regression_equals_a_refit_at_the_same_hyperparameters(pieces):
    gp = GPRegressor(**SHORT).fit(X[:35], Y[:35])
    for start, stop in zip([35, *pieces[:-1]], pieces, strict=True):
        gp.append(X[start:stop], Y[start:stop])
    whole, (mean, variance) = at_same_draws(gp, X, gp._targets.scaling.apply(Y[:, None])[:, 0])
    got_mean, got_variance = predict.latent_moments(gp.model_, gp._kept_draws(), gp._inputs.scaling.apply(X_NEW))
    np.testing.assert_allclose(got_mean, mean, atol=1e-8)
    np.testing.assert_allclose(got_variance, variance, atol=1e-8)
    for theta in gp._kept_draws().theta[:3]:
        kept, fresh = gp.model_.posterior(theta)[1], whole.posterior(theta)[1]
        assert kept.log_z == pytest.approx(fresh.log_z, abs=1e-8)
        np.testing.assert_allclose(kept.posterior.cavity(), fresh.posterior.cavity(), atol=1e-8)
    assert np.abs(gp.predict(X_NEW) - GPRegressor(**SHORT).fit(X, Y).predict(X_NEW)).max() < 0.5


@pytest.mark.parametrize(("likelihood", "evidence"), [("logistic", "laplace"), ("probit", "ep"), ("logistic", "lower")])
def test_classification_equals_a_refit_at_the_same_hyperparameters(likelihood, evidence):
    gp = GPClassifier(KERNEL, likelihood=likelihood, evidence=evidence, refine=None, **SHORT).fit(X[:35], LABELS[:35])
    gp.append(X[35:44], LABELS[35:44]).append(X[44:], LABELS[44:])
    _, (mean, variance) = at_same_draws(gp, X, LABELS)
    got_mean, got_variance = predict.latent_moments(gp.model_, gp._kept_draws(), gp._inputs.scaling.apply(X_NEW))
    np.testing.assert_allclose(got_mean, mean, atol=1e-7)
    np.testing.assert_allclose(got_variance, variance, atol=1e-7)
    assert gp.predict_proba(X_NEW).shape == (12, 2)


def test_weights_are_the_predictive_density_of_what_came():
    gp = GPRegressor(**SHORT).fit(X[:40], Y[:40])
    before = gp.trace_
    mean, variance = predict.observed_moments(*gp._new_inputs(X[40:41]))
    mean, variance = gp._targets.in_units(mean), gp._targets.unit**2 * variance
    expected = -0.5 * ((Y[40] - mean[:, 0]) ** 2 / variance[:, 0] + np.log(2.0 * np.pi * variance[:, 0]))
    gp.append(X[40:41], Y[40:41])
    got = np.ravel(gp.trace_.stats["lp"] - before.stats["lp"]) - np.log(gp._targets.unit)  # in the units of y
    np.testing.assert_allclose(got, expected, atol=1e-8)
    weights = pareto_smoothed(expected)
    np.testing.assert_allclose(gp.trace_.log_weight.ravel(), weights.log_weight, atol=1e-7)
    assert gp.trace_.n_effective == pytest.approx(weights.effective, rel=1e-6)
    assert gp.sampling_trace_ is before


def test_a_surprise_asks_for_a_refit():
    gp = GPRegressor(**SHORT).fit(X[:40], Y[:40])
    with pytest.warns(ApproximationWarning, match=r"effective \(of 60, below 50 %\).*Fit again with all rows"):
        gp.append(X[40:], Y[40:] + 15.0 * np.sign(RNG.normal(size=10)))


def test_without_memory_for_factors_the_answer_is_the_same(monkeypatch):
    one = GPRegressor(**SHORT).fit(X[:40], Y[:40]).append(X[40:], Y[40:])
    monkeypatch.setattr(growing, "KEPT_BYTES", 0)
    two = GPRegressor(**SHORT).fit(X[:40], Y[:40]).append(X[40:], Y[40:])
    assert not two.model_._kept
    np.testing.assert_allclose(two.predict(X_NEW), one.predict(X_NEW), atol=1e-8)


def test_known_and_varying_noise_grow_too():
    known = np.linspace(0.01, 0.5, 50)
    gp = GPRegressor(likelihood=Gaussian(0.0), **SHORT).fit(X[:40], Y[:40], noise_variance=known[:40])
    gp.append(X[40:], Y[40:], noise_variance=known[40:])
    np.testing.assert_allclose(np.array(gp.model_.likelihood.known) * gp._targets.unit**2, known, rtol=1e-12)
    with pytest.raises(InvalidInput, match="to fit and to append, or to neither"):
        gp.append(X[:1], Y[:1])
    varying = GPRegressor(likelihood=VaryingNoise(), **SHORT).fit(X[:47], Y[:47]).append(X[47:], Y[47:])
    _, (mean, _) = at_same_draws(varying, X, varying._targets.scaling.apply(Y[:, None])[:, 0])
    np.testing.assert_allclose(
        varying.latent_mean_and_variance(X_NEW)[0],
        varying._targets.in_units(np.average(mean, axis=0, weights=varying.trace_.weight)),
        atol=1e-7,
    )


@pytest.mark.parametrize(
    ("gp", "X_more", "y_more", "message"),
    [
        (GPClassifier(sampler="map"), X[:2], [1.0, 7.0], r"the labels \[7.0\], which are not among"),
        (GPClassifier(sampler="map"), X[:2], [1.0], "inconsistent numbers of samples"),
        (GPClassifier(sampler="map"), X[:2, :1], [1.0, 1.0], "X has 1 features, but"),
        (GPRegressor(sampler="map"), X[:2], [1.0, np.nan], "'y' must be finite"),
        (GPRegressor(sampler="map"), np.full((1, 2), np.nan), [1.0], "contains NaN"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(gp, X_more, y_more, message):
    gp.fit(X, LABELS if isinstance(gp, GPClassifier) else Y)
    model = gp.model_
    with pytest.raises(ValueError, match=message):
        gp.append(X_more, y_more)
    assert gp.model_ is model


@pytest.mark.parametrize(("likelihood", "evidence"), [("logistic", "laplace"), ("probit", "ep")])
@pytest.mark.parametrize("kernel", [None, SquaredExponential()], ids=["each", "shared"])
def test_rows_of_several_classes_are_appended(kernel, likelihood, evidence):
    classes = np.array(["a", "b", "c"])[np.argmax(np.column_stack([X[:, 0], X[:, 1], -X.sum(axis=1)]), axis=1)]
    gp = GPClassifier(kernel, likelihood=likelihood, evidence=evidence, sampler="map", progressbar=False, n_jobs=1)
    gp.fit(X[:40], classes[:40]).append(X[40:], classes[40:])
    theta = gp._kept_draws().theta[0]
    kept = gp.model_.posterior(theta)[1]
    fresh = Model(gp.model_.X, gp.model_.y, kernel=gp.model_.kernel, likelihood=gp.model_.likelihood)
    assert len(gp.model_._kept) == 1
    assert kept.log_z == pytest.approx(fresh.posterior(theta)[1].log_z, abs=1e-8)
    assert gp.predict_proba(X_NEW).shape == (12, 3)


def test_another_evidence_does_not_answer_from_what_was_kept():
    gp = GPClassifier(sampler="map", progressbar=False, n_jobs=1).fit(X[:40], LABELS[:40]).append(X[40:], LABELS[40:])
    bounds, theta = gp.evidence_bounds(), gp._kept_draws().theta[0]
    fresh = Model(gp.model_.X, gp.model_.y, kernel=gp.model_.kernel, evidence="lower")
    assert bounds.lower[0] == pytest.approx(fresh.posterior(theta)[1].log_z, abs=1e-8)
    assert bounds.lower[0] < bounds.upper[0]


def test_memory_counts_all_that_is_kept(monkeypatch):
    classes = np.arange(len(X)) % 3
    gp = GPClassifier(sampler="map", progressbar=False, n_jobs=1).fit(X[:40], classes[:40])
    monkeypatch.setattr(growing, "KEPT_BYTES", 8 * len(X) ** 2 * 4)  # three classes have seven matrices, not one
    assert not gp.append(X[40:], classes[40:]).model_._kept
