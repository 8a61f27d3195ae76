"""More than two classes, from the average of a softmax to the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_iris
from sklearn.metrics import confusion_matrix

from hmcgp import GPClassifier, GPRegressor, Model, find_map, plots
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.evidence import Laplace, SoftmaxLaplace
from hmcgp.kernels import Linear, SquaredExponential, White
from hmcgp.likelihoods import Logistic, Softmax
from hmcgp.posterior import predict
from hmcgp.reporting import diagnostics
from tests.helpers.checks import check_gradient

SHARED = SquaredExponential(ard=True)
FAST: dict[str, Any] = {"sampler": "map", "random_state": 0, "progressbar": False}


@pytest.fixture(scope="module")
def fitted(thyroid):
    return GPClassifier(refine=None, **FAST).fit(*thyroid)


# -- the likelihood ------------------------------------------------------------------------------------------------


def test_log_probabilities_of_classes():
    f, y = np.random.default_rng(0).normal(size=(5, 3)), np.array([0.0, 1.0, 2.0, 1.0, 0.0])
    np.testing.assert_allclose(Softmax().log_prob(y, f), log_softmax(f, axis=1)[range(5), y.astype(int)])
    p = Softmax().class_probabilities(f, np.zeros((5, 3, 3)))
    np.testing.assert_allclose(Softmax().log_average(y, f, np.zeros((5, 3, 3))), np.log(p[y.astype(int), range(5)]))


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (Softmax(), [0, 0, 0, 0], "at least two kinds"),
        (Softmax(), [-1, 1, 0, 1], "classes 0, 1, 2"),
        (Softmax(), [0, 1, 0.5, 1], "classes 0, 1, 2"),
        (Softmax(), [0, 1, np.nan, 1], "classes 0, 1, 2"),
        (Softmax(), [0, 1, 3, 1], r"no row of the classes \[2\]"),
        (Softmax(3), [0, 1, 3, 1], "holds the class 3, and there are 3"),
    ],
)
def test_classes_are_numbered_without_gaps(likelihood, y, message):
    with pytest.raises(InvalidInput, match=message):
        Model(np.arange(4.0)[:, None], y, likelihood=likelihood)


@pytest.mark.parametrize("n_classes", [1, 2.5, True, "3"])
def test_a_number_of_classes_that_is_none(n_classes):
    with pytest.raises(InvalidInput, match="'n_classes' must be"):
        Softmax(n_classes)


# -- the model -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(float) + (X[:, 1] > 0.3)
    return pd.DataFrame(X, columns=["a", "b"]), y


@pytest.mark.parametrize(
    "kernel",
    [SHARED, [SHARED, SquaredExponential(), SquaredExponential(2.0) + White(0.1)]],
    ids=["shared", "per class"],
)
def test_gradient_of_the_log_density(table, kernel):
    model = Model(*table, likelihood="softmax", kernel=kernel)
    for seed in range(3):
        u = model.initial(np.random.default_rng(seed))
        check_gradient(model.logdensity_and_grad, u, rtol=1e-5, atol=1e-6)


def test_parameters_are_named_by_class(table):
    model = Model(*table, likelihood="softmax", kernel=[SHARED, SquaredExponential(), SquaredExponential(2.0)])
    assert model.names == [
        "class0.variance",
        "class0.length_scale[a]",
        "class0.length_scale[b]",
        "class1.variance",
        "class1.length_scale",
        "class2.length_scale",
    ]


def test_kernels_per_class_that_are_equal_are_the_shared_one(table):
    shared = Model(*table, likelihood="softmax", kernel=SHARED)
    each = Model(*table, likelihood="softmax", kernel=[SHARED] * 3)
    theta = np.array([3.0, 1.0, 2.0])
    log_z, grad = shared.log_evidence(theta)
    per_class = each.log_evidence(np.tile(theta, 3))
    np.testing.assert_allclose(per_class[0], log_z, rtol=1e-12)
    np.testing.assert_allclose(per_class[1].reshape(3, 3).sum(axis=0), grad, rtol=1e-8)
    X_new = np.random.default_rng(0).normal(size=(7, 2))
    one, two = (predict.probabilities(m, t[None], X_new) for m, t in ((shared, theta), (each, np.tile(theta, 3))))
    np.testing.assert_allclose(one, two, atol=1e-9)


def test_a_path_there_and_back_has_the_same_densities(table):
    """Log density and gradient must not depend on the warm start."""
    model = Model(*table, likelihood="softmax")
    path = [np.array([1.0, 0.3, 0.6]) + 0.1 * step * np.array([1.0, -0.7, 0.4]) for step in range(20)]
    there: list[Any] = []
    back: list[Any] = []
    for found, positions in ((there, path), (back, path[::-1])):
        carry = None
        for u in positions:
            found.append(model.evaluate(u, carry))
            carry = found[-1].carry
    for one, two in zip(there, back[::-1], strict=True):
        np.testing.assert_allclose(two.logdensity, one.logdensity, rtol=1e-11)
        np.testing.assert_allclose(two.grad, one.grad, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"likelihood": "softmax", "evidence": "ep"}, "EP cannot integrate Softmax .*evidence='softmax'"),
        ({"likelihood": "softmax", "evidence": Laplace()}, "Laplace cannot integrate Softmax"),
        ({"likelihood": "softmax", "kernel": [SHARED, SHARED]}, "2 kernels for 3 classes"),
        ({"likelihood": "softmax", "kernel": [SHARED, "rbf", SHARED]}, "must be two or more hmcgp kernels; got .'rbf'"),
        ({"likelihood": "softmax", "kernel": [SHARED]}, "two or more"),
    ],
)
def test_what_does_not_fit_several_classes(table, settings, message):
    with pytest.raises(InvalidInput, match=message):
        Model(*table, **settings)


def test_two_classes_have_one_latent_function(table):
    X, y = table
    with pytest.raises(InvalidInput, match="Logistic has one latent function"):
        Model(X, np.where(y > 0, 1.0, -1.0), kernel=[SHARED, SHARED])


def test_a_class_that_was_not_seen_is_possible_where_it_was_announced(table):
    X, y = table
    model = Model(X, y, likelihood=Softmax(4))
    p = predict.probabilities(model, find_map(model, n_restarts=1, random_state=0).parameters[None], X.to_numpy())
    assert p.shape == (40, 4)
    assert (p[:, 3] > 0.0).all()
    assert p[:, 3].mean() < 0.25


def test_two_classes_as_softmax_and_as_logistic(table):
    """A shared kernel of variance v against a logistic one of variance 2v."""
    X, y = table
    labels = np.where(y > 0, 1.0, -1.0)
    kernel = SquaredExponential(length_scale=1.0)
    two = Model(X, (labels + 1.0) / 2.0, likelihood="softmax", kernel=kernel)
    binary = Model(X, labels, kernel=kernel)
    np.testing.assert_allclose(two.log_evidence([1.5])[0], binary.log_evidence([3.0])[0], rtol=1e-11)
    X_new = np.random.default_rng(0).normal(size=(9, 2))
    one = predict.probabilities(two, np.array([[1.5]]), X_new)
    np.testing.assert_allclose(one, predict.probabilities(binary, np.array([[3.0]]), X_new), atol=2e-5)


# -- the estimator -------------------------------------------------------------------------------------------------


def test_iris_is_learned():
    X, y = load_iris(return_X_y=True)
    gp = GPClassifier(**FAST).fit(X[::2], y[::2])
    p = gp.predict_proba(X[1::2])
    assert p.shape == (75, 3)
    assert (p.sum(axis=1) == 1.0).all()
    assert gp.score(X[1::2], y[1::2]) >= 0.93
    np.testing.assert_array_equal(gp.predict(X[1::2]), gp.classes_[p.argmax(axis=1)])


def test_labels_of_any_kind_and_their_order(fitted, thyroid):
    X, y = thyroid
    np.testing.assert_array_equal(fitted.classes_, np.unique(y))
    assert isinstance(fitted.model_.likelihood, Softmax)
    assert isinstance(fitted.model_.evidence, SoftmaxLaplace)
    renamed = GPClassifier(refine=None, **FAST).fit(X, 10 - np.unique(y, return_inverse=True)[1])  # reversed order
    np.testing.assert_allclose(renamed.predict_proba(X)[:, ::-1], fitted.predict_proba(X), atol=2e-3)


def test_draws_average_to_the_probabilities(thyroid):
    X, y = thyroid
    gp = GPClassifier(draws=8, tune=8, chains=2, random_state=0, progressbar=False)
    with pytest.warns(UserWarning, match="effective|R-hat|chains"):
        gp.fit(X, y)
    draws = gp.predict_proba_draws(X[:9])
    assert draws.shape == (16, 9, 3)
    np.testing.assert_allclose(draws.mean(axis=0), gp.predict_proba(X[:9]), atol=1e-14)
    assert (gp.predict_proba(X).sum(axis=1) == 1.0).all()
    mean, variance = gp.latent_mean_and_variance(X[:9])
    assert mean.shape == variance.shape == (9, 3)
    per_draw = predict.latent_moments(gp.model_, gp.trace_.flat, gp._inputs.scaling.apply(X[:9].to_numpy()))
    np.testing.assert_allclose(mean, per_draw[0].mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(variance, per_draw[1].mean(axis=0) + per_draw[0].var(axis=0), rtol=1e-8)
    with pytest.warns(UserWarning, match="leave-one-out"):
        loo = gp.loo()
    assert loo.pointwise.shape == (len(y),)


def test_leaving_one_out_predicts_what_cross_validation_does(fitted, thyroid):
    """With the hyperparameters kept: the rows taken out one by one."""
    _, y = thyroid
    model, codes = fitted.model_, np.unique(y, return_inverse=True)[1].astype(float)
    slow = []
    for i in range(0, len(y), 6):
        rest = np.arange(len(y)) != i
        without = Model(model.X[rest], codes[rest], kernel=model.kernel, likelihood=Softmax(3))
        slow.append(np.log(predict.probabilities(without, fitted.trace_.flat, model.X[[i]])[0, int(codes[i])]))
    np.testing.assert_allclose(fitted.loo().pointwise[::6], slow, atol=0.1)
    np.testing.assert_allclose(fitted.loo().pointwise[::6].mean(), np.mean(slow), atol=0.02)


def test_a_list_has_a_kernel_for_each_class_and_the_default_is_shared(thyroid):
    X, y = thyroid
    each, shared = GPClassifier([SHARED] * 3, **FAST).fit(X, y), GPClassifier(**FAST).fit(X, y)
    assert [name.split(".")[0] for name in each.model_.names] == [str(c) for c in each.classes_ for _ in range(6)]
    two = GPClassifier(**FAST).fit(X[y != "Hypo"], y[y != "Hypo"])
    assert shared.model_.names == two.model_.names
    assert shared.model_.n_dim == 7


def test_arviz_knows_classes_and_features(thyroid):
    X, y = thyroid
    gp = GPClassifier([SHARED] * 3, **FAST).fit(X, y)
    assert gp.model_.names[:2] == ["Hyper.variance", "Hyper.length_scale[RT3U]"]
    posterior = gp.to_arviz()["posterior"]
    assert posterior["length_scale"].dims == ("chain", "draw", "class", "feature")
    assert posterior["variance"].dims == ("chain", "draw", "class")
    assert list(posterior["class"].values) == list(gp.classes_)
    np.testing.assert_array_equal(
        posterior["length_scale"].values.reshape(3, 5), gp.trace_.flat[0].reshape(3, 6)[:, 1:]
    )
    assert list(gp.to_arviz()["observed_data"]["y"].values) == list(y)


def test_arviz_of_kernels_that_differ(thyroid):
    gp = GPClassifier([SHARED, SquaredExponential(), SquaredExponential(4.0)], **FAST).fit(*thyroid)
    posterior = gp.to_arviz()["posterior"]
    assert set(posterior.data_vars) == {
        "Hyper.variance", "Hyper.length_scale", "Hypo.variance", "Hypo.length_scale", "Normal.length_scale"
    }  # fmt: skip


def test_relevance_of_each_input_for_each_class(thyroid):
    gp = GPClassifier([SHARED] * 3, **FAST).fit(*thyroid)
    labels = {tick.get_text() for tick in plots.relevance(gp, of="length_scale").get_yticklabels()}
    assert labels == {f"{name} ({c})" for name in thyroid[0].columns for c in gp.classes_}


def test_calibration_of_one_class_among_three(fitted, thyroid):
    X, y = thyroid
    ax = plots.calibration(fitted, X, y, of="Hypo")
    assert ax.get_xlabel() == "predicted P(y = Hypo)"
    alone = plots.calibration(fitted.predict_proba(X)[:, 1], y=np.where(y == "Hypo", "Hypo", "A"))
    for one, two in zip(ax.get_lines(), alone.get_lines(), strict=True):
        np.testing.assert_array_equal(one.get_xydata(), two.get_xydata())
    with pytest.raises(InvalidInput, match=r"'of' must be one of the classes .* got 'Ill'"):
        plots.calibration(fitted, X, y, of="Ill")
    with pytest.raises(InvalidInput, match="with 3 classes, 'of' says"):
        plots.calibration(fitted, X, y)


def test_confusion_counts_cases_and_means_probabilities(fitted, thyroid):
    X, y = thyroid
    ax = plots.confusion(fitted, X, y)
    counts = np.array([int(t.get_text()) for t in ax.texts]).reshape(3, 3)
    np.testing.assert_array_equal(counts, confusion_matrix(y, fitted.predict(X)))
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array())[1], p[y == "Hypo"].mean(axis=0))
    assert ax.get_title() == f"{np.trace(counts)} of {len(y)} right"
    with pytest.raises(InvalidInput, match="also got"):
        plots.confusion(fitted, X, np.where(y == "Hypo", "Ill", y))
    with pytest.raises(InvalidInput, match="one label per row"):
        plots.confusion(fitted, X, y[1:])


@pytest.mark.parametrize(
    "settings",
    [
        {"likelihood": "probit", "evidence": "laplace"},
        {"likelihood": Logistic()},
        {"evidence": "ep"},
        {"likelihood": "label_noise"},
    ],
)
def test_what_has_no_form_for_several_classes_names_one_versus_rest(thyroid, settings):
    with pytest.raises(InvalidInput, match=r"3 classes.*OneVsRestClassifier"):
        GPClassifier(**{**FAST, **settings}).fit(*thyroid)


def test_two_labels_may_still_be_taken_as_softmax(table):
    X, y = table
    gp = GPClassifier(likelihood=Softmax(), **FAST).fit(X, y > 0)
    assert gp.predict_proba(X).shape == (40, 2)
    assert gp.to_arviz()["observed_data"]["y"].values.tolist() == (y > 0).tolist()


def test_a_regressor_does_not_take_classes(table):
    X, y = table
    with pytest.raises(InvalidInput, match="is for classes, and GPRegressor explains numbers"):
        GPRegressor(likelihood=Softmax(), evidence="laplace", standardize=False).fit(X, y)


@pytest.mark.parametrize("labels", [[1, "a", 2.5], [True, "a", "b"]])
def test_labels_of_mixed_type_are_explained(labels):
    with pytest.raises(InvalidInput, match="'y' mixes text with labels such as"):
        GPClassifier(**FAST).fit(np.arange(12.0)[:, None], np.array(labels * 4, dtype=object))


def test_a_class_with_one_row_counts(table):
    X, y = table
    y = np.where(np.arange(40) == 7, "rare", np.where(y > 0, "b", "a"))
    p = GPClassifier(**FAST).fit(X, y).predict_proba(X)
    assert p.shape == (40, 3)
    assert (p[:, 2] > 0.0).all()


def test_as_many_classes_as_rows(table):
    X, _ = table
    names = np.array([f"c{i:02d}" for i in range(12)])
    with pytest.warns(DataWarning, match="hyperparameters for 12 rows.* [Ss]hare one kernel among all classes"):
        gp = GPClassifier([SHARED] * 12, **FAST).fit(X[:12], names)
    p = gp.predict_proba(X[:12])
    assert p.shape == (12, 12)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0.0, atol=0.0)


def test_a_class_that_is_missing_from_a_fold_has_no_column(table):
    X, y = table
    gp = GPClassifier(**FAST).fit(X[y < 2], y[y < 2])
    assert gp.classes_.tolist() == [0.0, 1.0]
    assert gp.predict_proba(X).shape == (40, 2)


def test_names_of_classes_that_no_file_allows(tmp_path):
    X, y = problem_of_names(["a/b", "c[d]", "e.f"])
    gp = GPClassifier([SquaredExponential(), SquaredExponential(ard=True), Linear()], **FAST).fit(X, y)
    gp.to_arviz().to_netcdf(tmp_path / "fit.nc")
    assert len(diagnostics.summary(gp.trace_, "length_scale")) == 3
    assert list(diagnostics.summary(gp.trace_, "a/b.variance").index) == ["a/b.variance"]
    assert plots.trace(gp, var_names="c[d].length_scale").shape == (2, 2)


def test_a_class_that_was_not_seen_shares_the_default_kernel():
    X, y = problem_of_names(["a", "b", "c"])
    gp = GPClassifier(likelihood=Softmax(n_classes=4), **FAST).fit(X, y)
    scales = ["length_scale[x0]", "length_scale[x1]"]
    assert list(gp.trace_.names) == ["squared_exponential.variance", *scales, "linear.variance"]


def problem_of_names(names):
    X = np.random.default_rng(5).normal(size=(24, 2))
    return X, np.array(names)[np.argmax(np.column_stack([X, -X.sum(axis=1)]), axis=1)]
