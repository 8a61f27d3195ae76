"""Effects of inputs: averages over rows that agree with predictions, and intervals with joint covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from scipy.stats import norm
from sklearn.datasets import load_iris
from sklearn.inspection import partial_dependence

from hmcgp import GPClassifier, GPRegressor, datasets, plots
from hmcgp.errors import HmcgpWarning, InvalidInput
from hmcgp.kernels import Additive, Linear, SquaredExponential

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]
SHORT: dict[str, Any] = {"draws": 15, "tune": 40, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(30, 3))
NUMBERS = 50.0 + 10.0 * (np.sin(2.0 * Z[:, 0]) + Z[:, 1]) + RNG.normal(size=30)


def quietly(fit, *args):
    with pytest.warns() as caught:  # of convergence, at least
        gp = fit(*args)
    assert all(issubclass(w.category, HmcgpWarning | UserWarning) for w in caught)
    return gp


@pytest.fixture(scope="module")
def regressor():
    return quietly(GPRegressor(Additive(SquaredExponential()) + Linear(), **SHORT).fit, Z, NUMBERS)


@pytest.fixture(scope="module")
def table():
    X, y = datasets.load_pima(return_X_y=True)
    X = X.iloc[:60].copy()
    X["group"] = np.where(X["age"] > 35, "old", np.where(X["npreg"] > 2, "middle", "young"))
    return X[["glu", "bmi", "group"]], y.iloc[:60]


@pytest.fixture(scope="module")
def classifier(table):
    return quietly(GPClassifier(**SHORT).fit, *table)


def at_value(X, name, value):
    return (
        X.assign(**{name: value}) if isinstance(X, pd.DataFrame) else np.where(np.arange(X.shape[1]) == name, value, X)
    )


def test_partial_dependence_of_scikit_learn(regressor):
    expected = partial_dependence(regressor, Z, [0], method="brute", grid_resolution=7, kind="both")
    found = regressor.effect(0, values=expected["grid_values"][0], curves=True)
    np.testing.assert_allclose(found.mean, expected["average"][0], rtol=1e-9)
    np.testing.assert_allclose(found.curves, expected["individual"][0], rtol=1e-9)
    assert found.n_rows == 30
    assert found.response == "mean"


def test_the_interval_of_an_average_of_numbers(regressor):
    """Each draw has a Gaussian average, with the variance of a mean of correlated values."""
    value, w = 0.5, np.full(30, 1 / 30)
    found = regressor.effect(0, values=[value], level=0.8)
    model, draws, X = regressor._new_inputs(at_value(Z, 0, value))
    cdf = []
    for theta in draws.theta:
        kernel, evidence = model.posterior(theta)
        mean, covariance = evidence.posterior.predict_jointly(kernel(model.X, X), kernel(X))
        centre, sd = regressor._targets.in_units(w @ mean), regressor._targets.unit * np.sqrt(w @ covariance @ w)
        cdf.append(norm.cdf([found.low[0], found.high[0]], centre, sd))
    np.testing.assert_allclose(np.mean(cdf, axis=0), [0.1, 0.9], atol=1e-6)


def test_terms_of_a_sum_add_up(regressor):
    values = [-1.0, 0.0, 1.5]
    parts = [regressor.effect("x1", values=values, term=t) for t in range(4)]
    whole = regressor.effect("x1", values=values)
    total = sum(part.mean for part in parts) + regressor._targets.in_units(np.zeros(3))
    np.testing.assert_allclose(total, whole.mean, rtol=1e-8)
    assert {part.response for part in parts} == {"latent"}
    np.testing.assert_array_equal(regressor.effect("x1", values=values, term="x1").mean, parts[1].mean)
    assert np.ptp(parts[0].mean) < 1e-9  # a function of x0 alone
    with pytest.raises(InvalidInput, match=r"'term' must be the number .* of 0: x0, 1: x1, 2: x2, 3: linear; got 7"):
        regressor.effect("x1", term=7)


def test_probabilities_agree_with_predictions(classifier, table):
    X, _ = table
    found = classifier.effect("glu", values=[90.0, 150.0], rows=60)
    expected = [classifier.predict_proba(at_value(X, "glu", value))[:, 1].mean() for value in (90.0, 150.0)]
    np.testing.assert_allclose(found.mean, expected, rtol=1e-6)  # predictions may be in single precision
    assert found.targets == ["Yes"]
    frame = found.to_frame()
    assert frame.index.name == "glu"
    assert ((frame["low"] < frame["mean"]) & (frame["mean"] < frame["high"])).all()


def test_the_interval_of_one_row_is_that_of_its_probability(classifier):
    found = classifier.effect("glu", at={"group": "old"}, values=[80.0, 120.0, 180.0])
    assert found.held["group"] == "old"
    assert set(found.held) == {"bmi", "group"}
    X = pd.DataFrame({"glu": [80.0, 120.0, 180.0], **{name: [value] * 3 for name, value in found.held.items()}})[
        ["glu", "bmi", "group"]
    ]
    np.testing.assert_allclose(found.mean, classifier.predict_proba(X)[:, 1], rtol=1e-6)
    interval = classifier.predict_proba_interval(X)[:, 1]
    # quantiles of 240 samples: their standard errors are a few hundredths
    np.testing.assert_allclose(np.stack([found.low, found.high], axis=1), interval, atol=0.1)
    narrow = classifier.effect("glu", at={"group": "old"}, values=[80.0, 120.0, 180.0], level=0.2)
    assert (narrow.low > found.low).all()
    assert (narrow.high < found.high).all()


def test_the_interval_at_a_maximum_needs_more_samples_than_one_of_many_draws():
    """One draw has all samples: 400, whose quantiles at 10 and 90 % are within 0.2 standard deviations or so."""
    labels = np.sin(2.0 * Z[:, 0]) + Z[:, 1] > 0.0
    gp = GPClassifier(SquaredExponential(4.0, 1.0), refine=None, sampler="map", progressbar=False).fit(Z, labels)
    found = gp.effect(0, at="median", level=0.8, random_state=0)
    X = np.tile(np.median(Z, axis=0), (len(found.mean), 1))
    X[:, 0] = found.values[0]
    mean, variance = gp.latent_mean_and_variance(X)
    for end, z in ((found.low, norm.ppf(0.1)), (found.high, norm.ppf(0.9))):
        np.testing.assert_allclose((logit(end) - mean) / np.sqrt(variance), z, atol=0.3)


def test_categories_and_surfaces(classifier):
    found = classifier.effect("group")
    assert list(found.values[0]) == ["middle", "old", "young"]
    assert found.categories == (True,)
    assert set(found.data[0]) == {"middle", "old", "young"}
    surface = classifier.effect(["group", "glu"], rows=5)
    assert surface.mean.shape == surface.low.shape == (3, 15)
    assert surface.to_frame().index.names == ["group", "glu"]


@pytest.fixture(scope="module")
def three_classes():
    data = load_iris(as_frame=True)
    labels = data.target_names[data.target]
    return quietly(GPClassifier(SquaredExponential(), **SHORT).fit, data.data[::4], labels[::4])


def test_several_classes_sum_to_one(three_classes):
    found = three_classes.effect("petal length (cm)", values=[2.0, 5.0], rows=10)
    assert found.mean.shape == (2, 3)
    np.testing.assert_allclose(found.mean.sum(axis=1), 1.0, rtol=1e-9)
    assert found.targets == ["setosa", "versicolor", "virginica"]
    assert found.to_frame().shape == (6, 3)
    assert found.mean[0, 0] > found.mean[1, 0]


@pytest.mark.parametrize("outputs", ["independent", "coregional"])
def test_several_outputs(outputs):
    Y = np.column_stack([NUMBERS, -NUMBERS])
    gp = quietly(GPRegressor(SquaredExponential(), outputs=outputs, **SHORT).fit, Z, Y)
    found = gp.effect(1, values=[0.0, 1.0])
    expected = [gp.predict(at_value(Z, 1, value)).mean(axis=0) for value in (0.0, 1.0)]
    np.testing.assert_allclose(found.mean, expected, rtol=1e-8)
    assert (found.low < found.high).all()
    assert len(plots.effect(gp, 1, values=[0.0, 1.0])) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("weight",), r"no input 'weight': the inputs are 'glu', 'bmi', 'group'"),
        ((["glu", "glu"],), "one input, or two different ones"),
        ((["glu", "bmi", "group"],), "one input, or two different ones"),
        (("glu", "mean"), r"'at' must be None \(average over rows\), 'median', or a dict"),
        (("glu", {"glu": 3.0}), "'at' fixes 'glu', the effect of which is asked for"),
        (
            ("glu", {"group": "ancient"}),
            r"a value of 'group' must be one of \['middle', 'old', 'young'\]; got 'ancient'",
        ),
        (("glu", None, ["high"]), "a value of 'glu' must be a number; got 'high'"),
        (("glu", None, [np.nan]), "'values' of 'glu' must be finite"),
        ((["glu", "bmi"], None, [1.0]), "'values' must be a pair of arrays for two inputs"),
    ],
)
def test_bad_arguments(classifier, arguments, message):
    inputs, at, values = (*arguments, None, None)[:3]
    with pytest.raises(InvalidInput, match=message):
        classifier.effect(inputs, at=at, values=values)


@pytest.mark.slow
def test_pictures(classifier, three_classes):
    (ax,) = plots.effect(classifier, "glu", curves=True, rows=10)
    assert ax.get_xlabel() == "glu"
    assert ax.get_ylabel() == "P(diabetes = Yes)"
    assert len(ax.lines) == 12  # ten rows, the mean and the rug
    assert [len(plots.effect(classifier, name, rows=5)) for name in ("group", ["glu", "bmi"], ["glu", "group"])] == [
        1
    ] * 3
    assert len(plots.effect(three_classes, 2, rows=5)) == 3
    panels = plots.effects(classifier, rows=5)
    assert sorted(ax.get_xlabel() for ax in panels) == ["bmi", "glu", "group (rows)"]
    panels = plots.effects(three_classes, rows=5)
    assert panels.shape == (4, 3)
    assert [ax.get_title(loc="left") for ax in panels[0]] == [f"P({name})" for name in three_classes.classes_]
    with pytest.raises(InvalidInput, match="is not fitted yet"):
        plots.effect(GPClassifier(), "glu")
