"""The same model under several providers."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from tests.helpers.checks import classification_problem

mpl.use("Agg")

from hmcgp import GPClassifier, compare_evidence, find_map, plots
from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP
from hmcgp.kernels import SquaredExponential

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
]

X, CODES, _ = classification_problem(50, 2)
Y = np.where(CODES > 0, "yes", "no")
TRAIN, TEST = np.arange(30), np.arange(30, 50)


def estimator(**settings):
    short = {"draws": 40, "tune": 60, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 3}
    return GPClassifier(SquaredExponential(), **(short | settings))


@pytest.fixture(scope="module")
def tested():
    return compare_evidence(estimator(), X[TRAIN], Y[TRAIN], ["laplace", "ep"], X_test=X[TEST], y_test=Y[TEST])


def test_the_table_holds_what_each_fit_says_alone(tested):
    assert list(tested.table.index) == ["laplace", "ep"]
    for name in tested.table.index:
        alone = estimator(evidence=name, refine=None).fit(X[TRAIN], Y[TRAIN])
        row = tested.table.loc[name]
        np.testing.assert_allclose(row["variance mean"], alone.trace_.flat[:, 0].mean())
        np.testing.assert_allclose(row["length_scale sd"], alone.trace_.flat[:, 1].std())
        np.testing.assert_array_equal(tested.probability[name], alone.predict_proba(X[TEST])[:, 1])
        np.testing.assert_allclose(row["log_loss"], log_loss(Y[TEST], alone.predict_proba(X[TEST])))
        optimum = find_map(alone.model_, random_state=3)
        np.testing.assert_allclose(row["log_evidence"], alone.model_.log_evidence(optimum.parameters)[0], atol=1e-6)
        assert row["seconds"] > 0.0
    assert not tested.left_out
    assert tested.table.loc["ep", "log_loss"] != tested.table.loc["laplace", "log_loss"]


def test_without_test_rows_training_rows_are_left_out():
    found = compare_evidence(estimator(sampler="map"), X[TRAIN], Y[TRAIN], {"a": "laplace", "b": EP(tol=1e-8)})
    assert found.left_out
    assert list(found.table.index) == ["a", "b"]
    for name, fit in found.estimators.items():
        loo = fit.loo()
        np.testing.assert_allclose(found.table.loc[name, "log_loss"], loo.log_loss)
        sure = np.where(Y[TRAIN] == "yes", found.probability[name], 1.0 - found.probability[name])
        np.testing.assert_allclose(sure, loo.probability)
    assert (found.table[["variance sd", "length_scale sd"]] == 0.0).all(axis=None)  # one point has no spread
    assert "each left out in turn" in repr(found)


def test_the_given_estimator_is_left_alone_and_printing_shows_all(tested):
    gp = estimator(sampler="map")
    compare_evidence(gp, X, Y, ["laplace"])
    with pytest.raises(NotFittedError):
        gp.predict(X)
    text = repr(tested)
    assert "20 test rows" in text
    for word in (*tested.table.index, *tested.table.columns):
        assert word in text


@pytest.mark.parametrize(
    ("providers", "settings", "extra", "message"),
    [
        ("ep", {}, {}, "got the string 'ep'"),
        ([], {}, {}, "'providers' is empty"),
        (["ep", "ep"], {}, {}, "names one twice: ep, ep"),
        (["laplace", "tap"], {}, {}, "TAP cannot integrate Logistic"),
        (["laplace", "upper"], {}, {}, "upper bound on the evidence never falls"),
        (["laplace", "ep"], {"checkpoint": "run.nc"}, {}, "set gp.checkpoint to None"),
        (["laplace", "ep"], {}, {"X_test": X}, "give both"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_sampling(monkeypatch, providers, settings, extra, message):
    monkeypatch.setattr("hmcgp.estimators.base.sample", lambda *a, **k: pytest.fail("sampling started"))
    with pytest.raises(InvalidInput, match=message):
        compare_evidence(estimator(**settings), X, Y, providers, **extra)


def test_the_picture_has_a_point_per_row_and_pair(tested):
    axes = plots.compare_evidence(tested)
    assert axes.shape == (1, 1)
    no, yes = axes[0, 0].lines[1:]
    np.testing.assert_array_equal(no.get_xdata(), tested.probability["laplace"][Y[TEST] == "no"])
    np.testing.assert_array_equal(yes.get_ydata(), tested.probability["ep"][Y[TEST] == "yes"])
    assert axes[0, 0].get_xlabel().startswith("laplace\nlog loss 0.")
    assert axes[0, 0].get_title(loc="left") == "P(y = yes)"


def test_three_providers_fill_a_triangle():
    found = compare_evidence(estimator(sampler="map"), X, Y, ["laplace", "ep", "lower"])
    axes = plots.compare_evidence(found)
    assert [[ax.axison for ax in row] for row in axes] == [[True, False], [True, True]]
    assert axes[0, 0].get_title(loc="left").endswith("each row given all others")
    with pytest.raises(InvalidInput, match=r"shape \(2, 2\)"):
        plots.compare_evidence(found, axes=axes[0])


def test_a_picture_needs_two_providers_and_a_comparison():
    with pytest.raises(InvalidInput, match="one provider only, 'laplace'"):
        plots.compare_evidence(compare_evidence(estimator(sampler="map"), X, Y, ["laplace"]))
    with pytest.raises(InvalidInput, match="got dict"):
        plots.compare_evidence({})


def test_several_classes_have_a_likelihood_for_each_provider():
    classes = np.where(np.arange(len(X)) % 3 == 0, "maybe", Y)
    with pytest.raises(InvalidInput, match="3 classes, for which each evidence provider has a likelihood of its own"):
        compare_evidence(estimator(sampler="map"), X, classes, ["laplace"])


def test_rows_of_a_class_without_weight_are_not_compared():
    three = np.array(["no", "yes", "neither"])[np.arange(len(X)) % 3]
    gp = estimator(sampler="map", class_weight={"no": 1.0, "yes": 2.0, "neither": 0.0})
    found = compare_evidence(gp, X, three, ["laplace"])
    assert set(found.y) == {"no", "yes"}
    assert len(found.probability) == np.sum(three != "neither")


def test_several_classes_are_refused_before_sampling(monkeypatch):
    monkeypatch.setattr("hmcgp.estimators.base.sample", None)
    with pytest.raises(InvalidInput, match="3 classes, for which each evidence provider"):
        compare_evidence(estimator(), X, np.arange(len(X)) % 3, ["laplace"])
