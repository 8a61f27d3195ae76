"""Weights of rows and classes as users of the estimators give them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from hmcgp import GPClassifier, GPRegressor, Model, compare_evidence
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.estimators.scaling import Scaling
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, Logistic
from hmcgp.samplers import HMC

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
Y = X[:, 0] - np.sin(2.0 * X[:, 1]) + 0.3 * RNG.normal(size=24)
LABELS = np.where(Y > 0.0, "yes", "no")
KINDS = np.array(["a", "b", "c"])[np.digitize(Y, [-0.5, 0.5])]
WEIGHTS = RNG.integers(0, 4, size=24)
X_NEW = RNG.normal(size=(5, 2))

pytestmark = pytest.mark.filterwarnings("ignore:.*rows repeat the inputs:hmcgp.errors.DataWarning")


def one_length(**settings):
    """A classifier whose optimum is sharp."""
    return GPClassifier(SquaredExponential(), sampler="map", random_state=1, **settings)


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({}, LABELS),
        ({"likelihood": "probit", "evidence": "ep"}, LABELS),
        ({"likelihood": "label_noise", "evidence": "ep"}, LABELS),
        ({"likelihood": "label_noise", "evidence": "naive"}, LABELS),
        ({"evidence": "lower"}, LABELS),
        ({}, KINDS),
    ],
)
def test_weights_are_copies_of_rows(settings, labels):
    weighted = one_length(**settings).fit(X, labels, WEIGHTS)
    copies = one_length(**settings).fit(X.repeat(WEIGHTS, axis=0), labels.repeat(WEIGHTS))
    np.testing.assert_allclose(weighted.predict_proba(X_NEW), copies.predict_proba(X_NEW), rtol=1e-4)
    theta = weighted.trace_.flat[0]
    np.testing.assert_allclose(
        weighted.log_marginal_likelihood(theta), copies.log_marginal_likelihood(theta), rtol=1e-9
    )
    np.testing.assert_array_equal(weighted.classes_, copies.classes_)
    assert len(weighted.loo().pointwise) == np.sum(WEIGHTS > 0)


@pytest.mark.parametrize("likelihood", ["gaussian", "varying_noise"])
def test_weights_are_copies_of_numbers(likelihood):
    gp = GPRegressor(SquaredExponential(), likelihood=likelihood, sampler="map", random_state=1)
    weighted = clone(gp).fit(X, Y, sample_weight=WEIGHTS)
    copies = clone(gp).fit(X.repeat(WEIGHTS, axis=0), Y.repeat(WEIGHTS))
    for a, b in zip(weighted.predict(X_NEW, return_std=True), copies.predict(X_NEW, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    theta = weighted.trace_.flat[0]
    np.testing.assert_allclose(
        weighted.log_marginal_likelihood(theta), copies.log_marginal_likelihood(theta), rtol=1e-9
    )


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_finds_them_equivalent():
    """With one length scale; `test_sklearn_checks.py` has it with 30."""
    gp = GPRegressor(SquaredExponential(), sampler="map", progressbar=False)
    check_sample_weight_equivalence_on_dense_data("GPRegressor", gp)


@pytest.mark.filterwarnings("ignore")  # too few draws
def test_draws_are_those_of_the_copies():
    settings: dict[str, Any] = {
        "sampler": HMC(step_size=0.2, n_steps=5),
        "draws": 10,
        "tune": 0,
        "chains": 1,
        "random_state": 3,
    }
    gp = GPClassifier(progressbar=False, **settings)
    weighted = clone(gp).fit(X, LABELS, WEIGHTS)
    copies = clone(gp).fit(X.repeat(WEIGHTS, axis=0), LABELS.repeat(WEIGHTS))
    np.testing.assert_allclose(weighted.trace_.draws, copies.trace_.draws, rtol=1e-6)


def test_tables_with_names_and_categories_lose_rows_of_weight_zero():
    table = pd.DataFrame({"size": X[:, 0], "kind": pd.Categorical(KINDS)})
    weights = np.where(KINDS == "c", 0.0, 1.0)  # a category that no row has then
    weighted = GPClassifier(sampler="map", random_state=1).fit(table, pd.Series(LABELS), weights)
    rows = weights > 0.0
    fewer = GPClassifier(sampler="map", random_state=1).fit(table[rows], LABELS[rows])
    np.testing.assert_allclose(weighted.predict_proba(table[rows]), fewer.predict_proba(table[rows]), rtol=1e-10)
    assert list(weighted.feature_names_in_) == ["size", "kind"]


@pytest.mark.parametrize(
    ("labels", "by_hand"), [(LABELS, {"yes": 2.0, "no": 0.5}), (KINDS, {"a": 0.5, "b": 1.5, "c": 3.0})]
)
def test_weights_of_classes_are_weights_of_their_rows(labels, by_hand):
    for class_weight in ("balanced", by_hand):
        gp = one_length(class_weight=class_weight).fit(X, labels)
        rows = one_length().fit(X, labels, compute_sample_weight(class_weight, labels))
        np.testing.assert_array_equal(gp.predict_proba(X_NEW), rows.predict_proba(X_NEW))
        both = one_length(class_weight=class_weight).fit(X, labels, np.full(24, 0.7))
        assert both.model_.likelihood.weights == pytest.approx(0.7 * np.array(gp.model_.likelihood.weights))
    balanced = one_length(class_weight="balanced", refine=None)  # powers of factors are no copies to EP
    copies = clone(balanced).fit(X.repeat(WEIGHTS, axis=0), labels.repeat(WEIGHTS))
    np.testing.assert_allclose(
        clone(balanced).fit(X, labels, WEIGHTS).predict_proba(X_NEW), copies.predict_proba(X_NEW), rtol=1e-4
    )


def test_a_class_of_weight_zero_is_no_class():
    gp = one_length(class_weight={"a": 1.0, "b": 0.0, "c": 2.0}).fit(X, KINDS)
    np.testing.assert_array_equal(gp.classes_, ["a", "c"])
    assert set(gp.model_.likelihood.weights) == {1.0, 2.0}
    gp.append(X_NEW[:2], ["c", "a"])
    assert gp.model_.likelihood.weights[-2:] == (2.0, 1.0)


def test_weights_make_the_scale():
    weights = WEIGHTS[WEIGHTS > 0].astype(float)
    one = Scaling.learn(X[WEIGHTS > 0], standardize=True, weights=weights)
    two = Scaling.learn(X.repeat(WEIGHTS, axis=0), standardize=True)
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-12)
    np.testing.assert_allclose(one.sd, two.sd, rtol=1e-12)


@pytest.mark.parametrize(
    "gp",
    [
        one_length(refine=None),
        one_length(likelihood="probit", evidence="ep"),
        GPRegressor(SquaredExponential(), sampler="map"),
    ],
)
@pytest.mark.parametrize(("first", "more"), [(True, True), (True, False), (False, True)])
def test_rows_with_weights_can_be_appended(gp, first, more):
    y, weights = (LABELS, Y)[isinstance(gp, GPRegressor)], np.linspace(0.3, 2.0, 24)
    gp = clone(gp).fit(X[:18], y[:18], sample_weight=weights[:18] if first else None)
    gp.append(X[18:21], y[18:21], sample_weight=weights[18:21] if more else None)
    gp.append(X[21:], y[21:], sample_weight=[0.0, 1.5, 0.0] if more else None)
    model = gp.model_
    expected = np.concatenate([weights[:18] if first else np.ones(18), weights[18:21] if more else np.ones(3)])
    assert model.likelihood.weights == (*expected, 1.5) if more else (*expected, 1.0, 1.0, 1.0)
    anew = Model(
        model.X, model.y, kernel=SquaredExponential(), likelihood=gp.likelihood, evidence=gp.evidence,
        weights=model.likelihood.weights,
    )  # fmt: skip
    theta = gp.trace_.flat[0]
    ours: Any = model.posterior(theta)[1].posterior
    theirs: Any = anew.posterior(theta)[1].posterior
    for a, b in zip(ours.cavity(), theirs.cavity(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_leaving_a_weighted_row_out_asks_for_its_plain_density():
    weights, rest = np.linspace(0.3, 2.0, 24), np.arange(24) != 7
    gp = GPRegressor(SquaredExponential(), sampler="map", random_state=1).fit(X, Y, sample_weight=weights)
    theta, model = gp.trace_.flat[0], gp.model_
    settings: dict[str, Any] = {"kernel": SquaredExponential(), "likelihood": "gaussian", "weights": weights[rest]}
    other = Model(model.X[rest], model.y[rest], **settings)
    kernel, evidence = other.posterior(theta)
    mean, variance = evidence.posterior.predict(kernel(other.X, model.X[[7]]), kernel.diag(model.X[[7]]))
    likelihood: Any = other.likelihood_at(theta)
    sd = np.sqrt(variance + likelihood.noise)
    expected = norm.logpdf(model.y[7], mean, sd) - np.log(gp._targets.unit)  # of y, in its own units
    np.testing.assert_allclose(gp.loo().pointwise[7], expected[0], rtol=1e-8)


def test_known_noise_goes_with_its_row():
    variance = np.linspace(0.1, 1.0, 24)
    gp = GPRegressor(SquaredExponential(), likelihood=Gaussian(0.1), sampler="map", random_state=1)
    weighted = clone(gp).fit(X, Y, noise_variance=variance, sample_weight=WEIGHTS)
    copies = clone(gp).fit(X.repeat(WEIGHTS, axis=0), Y.repeat(WEIGHTS), noise_variance=variance.repeat(WEIGHTS))
    np.testing.assert_allclose(weighted.predict(X_NEW), copies.predict(X_NEW), rtol=1e-4)


def test_bounds_label_noise_and_comparisons_know_weights():
    gp = one_length(refine=None).fit(X, LABELS, WEIGHTS)
    bounds, log_z = gp.evidence_bounds(), gp.log_marginal_likelihood()
    assert bounds.lower[0] < log_z < bounds.upper[0]
    noisy = one_length(likelihood="label_noise", evidence="ep").fit(X, LABELS, WEIGHTS)
    assert noisy.label_noise().shape == (np.sum(WEIGHTS > 0),)
    compared = compare_evidence(one_length(), X, LABELS, sample_weight=WEIGHTS)
    np.testing.assert_allclose(compared.table["log_evidence"]["laplace"], log_z, rtol=1e-9)
    assert len(compared.y) == np.sum(WEIGHTS > 0)


def test_a_weighted_fit_survives_pickling():
    gp = one_length(class_weight="balanced").fit(X, LABELS, WEIGHTS)
    again = pickle.loads(pickle.dumps(gp))
    np.testing.assert_array_equal(again.predict_proba(X_NEW), gp.predict_proba(X_NEW))
    assert clone(gp).class_weight == "balanced"


@pytest.mark.filterwarnings("ignore")
def test_a_run_does_not_go_on_with_other_weights(tmp_path):
    gp = GPClassifier(
        SquaredExponential(),
        draws=4,
        tune=4,
        chains=1,
        random_state=1,
        progressbar=False,
        checkpoint=tmp_path / "run.nc",
    )
    weights = np.linspace(0.5, 1.5, 24)
    clone(gp).set_params(standardize=False).fit(X, LABELS, weights)
    with pytest.raises(InvalidInput, match="the data are other: weights"):
        clone(gp).set_params(standardize=False).fit(X, LABELS, weights[::-1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.where(np.arange(24) == 3, np.nan, 1.0), "it holds nan in row 3"),
        (np.where(np.arange(24) == 3, -2.0, 1.0), "it holds -2.0 in row 3, one of 1"),
        (np.full(24, np.inf), "it holds inf in row 0, one of 24"),
        (np.zeros(24), "zero in every row"),
        (np.ones(23), "inconsistent numbers of samples"),
        (np.ones((24, 1)), r"one number per row; got the shape \(24, 1\)"),
        (2.0, r"one number per row; got the shape \(\)"),
        (np.where(LABELS == "yes", 1.0, 0.0), "holds one class only, yes"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    gp = one_length()
    with pytest.raises(ValueError, match=message):
        gp.fit(X, LABELS, weights)
    assert not hasattr(gp, "model_")


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({"yes": 1.0, "maybe": 1.0}, "not in class_weight"),
        ({"yes": 1.0, "no": -1.0}, "finite numbers that are not negative"),
        ({"yes": 1.0, "no": 0.0}, "holds one class only, yes"),
        ("even", "class_weight"),
    ],
)
def test_bad_weights_of_classes_are_refused(class_weight, message):
    with pytest.raises(ValueError, match=message):
        one_length(class_weight=class_weight).fit(X, LABELS)


def test_weights_belong_to_fit():
    with pytest.raises(InvalidInput, match="give weights to fit"):
        one_length(likelihood=Logistic(weights=np.ones(24))).fit(X, LABELS)


def test_rows_of_one_target_that_count_are_refused():
    with pytest.raises(InvalidInput, match="nothing to explain"):
        GPRegressor(sampler="map").fit(X, np.where(np.arange(24) < 3, Y, 1.0), sample_weight=np.arange(24) > 2)


def test_a_column_that_changes_in_rows_without_weight_only_is_constant():
    table = X.copy()
    table[3:, 1] = 1.0
    with pytest.warns(DataWarning, match="1 of 2 inputs are constant"):
        GPClassifier(sampler="map").fit(table, LABELS, np.arange(24) > 2)
