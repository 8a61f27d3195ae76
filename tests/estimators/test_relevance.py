"""Relevance of inputs: against differences of predictions, refits, and data with known changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from hmcgp import GPClassifier, GPRegressor, datasets, plots
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.model import Model
from hmcgp.posterior import relevance
from scripts.study import relevance_coverage as study

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]
SHORT: dict[str, Any] = {"draws": 15, "tune": 40, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(25, 3))
NUMBERS = 5.0 + 2.0 * Z[:, 0] + np.sin(2.0 * Z[:, 1]) + 0.2 * RNG.normal(size=25)


def test_change_is_a_difference_of_predictions():
    """Of regression targets: the average over rows of what half a standard deviation down and up does to the mean."""
    gp = GPRegressor(SquaredExponential(ard=True), sampler="map", **SHORT).fit(Z, NUMBERS)
    result = gp.relevance()
    half = 0.5 * Z.std(axis=0)
    delta = np.array([gp.predict(Z + half * unit) - gp.predict(Z - half * unit) for unit in np.eye(3)])
    np.testing.assert_allclose(result.interval()[0], delta.mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(result.size, np.sqrt(np.mean(delta**2, axis=1)), rtol=1e-9)
    assert result.unit == "y"
    assert result.ranking[:2] == list(result.to_frame().index[:2]) == ["x0", "x1"]
    assert result.moves[0] == f"+ {2.0 * half[0]:.3g}"
    ax = plots.relevance(gp)
    assert [text.get_text() for text in ax.get_yticklabels()][:2] == ["x0", "x1"]


def test_intervals_are_those_of_joint_samples_of_the_function():
    """With one draw of the hyperparameters the interval is that of the latent function."""
    gp = GPRegressor(SquaredExponential(ard=True), sampler="map", **SHORT).fit(Z, NUMBERS)
    half = 0.5 * Z.std(axis=0) * np.eye(3)[0]
    mean, covariance = gp.predict(np.concatenate([Z + half, Z - half]), return_cov=True)
    weight = np.repeat([1.0, -1.0], len(Z)) / len(Z)
    likelihood: Any = gp.model_.likelihood_at(gp.trace_.flat[0])
    noise = float(likelihood.row_noise(1)[0]) * gp._targets.unit**2
    sd = np.sqrt(weight @ covariance @ weight - noise * weight @ weight)  # of the function, without noise
    _, low, high = gp.relevance().interval(0.9)
    np.testing.assert_allclose([low[0], high[0]], weight @ mean + np.array([-1.6449, 1.6449]) * sd, rtol=2e-3)


def test_a_linear_input_is_relevant():
    """Its length scale is long, and says nothing of it."""
    X, y = datasets.load_pima(return_X_y=True)
    gp = GPClassifier(**SHORT).fit(X.iloc[:80], y.iloc[:80])
    result = gp.relevance(permutation=True)
    frame = result.to_frame()
    assert frame.index[0] == result.ranking[0] == "glu"
    assert frame["loss"].idxmax() == "glu"
    assert ((frame["low"] <= frame["change"]) & (frame["change"] <= frame["high"])).all()
    assert (frame["low"] < 0.0).sum() >= 3  # inputs of which the direction is unknown
    assert plots.relevance(gp).get_yticklabels()[0].get_text() == "glu"


def test_an_input_without_effect_has_an_interval_around_zero():
    """Intervals over hyperparameters only contained slopes 1.2, 0.6 and 0 in 50 %, 50 % and 0 % of the tables."""
    tables = [study.cover("regression", seed, sampler="map") for seed in range(10)]
    inside = np.array([[table[f"slope {b:g}"] for b in study.SLOPES] for table in tables])
    assert (inside.sum(axis=0) >= 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", study.KINDS)
def test_coverage_of_intervals(kind):
    """Of 40 tables, 90 % intervals contain each change in 36 of them, give or take 2.6 standard errors."""
    tables = [study.cover(kind, seed) for seed in range(40)]
    inside = np.array([[table[f"slope {b:g}"] for b in study.SLOPES] for table in tables])
    assert (inside.sum(axis=0) >= 31).all()


def test_opposite_effects_have_a_size_and_no_direction():
    y = Z[:, 0] + 2.0 * Z[:, 1] ** 2
    result = GPRegressor(SquaredExponential(ard=True), sampler="map", **SHORT).fit(Z, y).relevance()
    change, _, _ = result.interval()
    assert result.ranking[0] == "x1"
    assert abs(change[1]) < 0.5 * result.size[1]


def test_categories_move_from_the_most_frequent_level():
    X, y = datasets.load_pima(return_X_y=True)
    X = X.iloc[:60][["glu", "age", "ped"]].copy()
    X["group"] = np.where(X["age"] > 35, "old", np.where(X["glu"] > 120, "sweet", "young"))
    gp = GPClassifier(sampler="map", refine=None, **SHORT).fit(X, y.iloc[:60])
    result = gp.relevance()
    usual = X["group"].mode()[0]
    others = [level for level in sorted(set(X["group"])) if level != usual]
    assert result.inputs == ["glu", "age", "ped", "group", "group"]
    assert result.moves[3:] == [f"{level} instead of {usual}" for level in others]
    for k, level in enumerate(others):
        delta = (gp.predict_proba(X.assign(group=level)) - gp.predict_proba(X.assign(group=usual)))[:, 1]
        assert result.size[3 + k] == pytest.approx(np.sqrt(np.mean(delta**2)), rel=1e-9)
        assert result.interval()[0][3 + k] == pytest.approx(delta.mean(), abs=0.03)  # of 400 samples
    labels = [text.get_text() for text in plots.relevance(gp).get_yticklabels()]
    assert f"group: {others[0]} instead of {usual}" in labels


def changed_inputs(X, seed=3):
    return X[np.random.default_rng(seed).permutation(len(X))]


def test_loss_of_numbers_is_that_of_refits():
    """Without a row, the posterior of the others predicts it at other inputs: exactly, for each draw."""
    model = Model(
        Z, NUMBERS - 5.0, kernel=SquaredExponential(2.0, 1.5) + Linear(1.0) + Constant(), likelihood="gaussian"
    )
    draws = np.array([model.constrain(model.initial(np.random.default_rng(s))) for s in range(3)])
    other, rows = changed_inputs(Z), np.arange(0, 25, 3)
    found = relevance.losses(model, draws, rows, [other[rows]])
    for k, i in enumerate(rows):
        rest = np.delete(np.arange(25), i)
        part = Model(Z[rest], model.y[rest], kernel=model.kernel, likelihood="gaussian")
        densities = []
        for theta in draws:
            kernel, evidence = part.posterior(theta)
            x = np.stack([Z[i], other[i]])
            mean, variance = evidence.posterior.predict(kernel(part.X, x), kernel.diag(x))
            likelihood: Any = model.likelihood_at(theta)
            noise = likelihood.row_noise(1)[0]
            total = variance + noise
            densities.append(np.exp(-0.5 * (model.y[i] - mean) ** 2 / total) / np.sqrt(total))
        table = np.array(densities)  # (S, 2)
        own, moved = np.average(table, axis=0, weights=1.0 / table[:, 0])  # draws lose the row, too
        assert found[0, k] == pytest.approx(np.log(own / moved), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("likelihood", "evidence"), [("logistic", "ep"), ("logistic", "laplace"), ("softmax", "laplace")]
)
def test_loss_of_labels_is_nearly_that_of_refits(likelihood, evidence):
    """The sites of the other rows would respond a little to a row that leaves; here they stay."""
    y = (
        np.where(NUMBERS > 5.0, 1.0, -1.0)
        if likelihood == "logistic"
        else np.digitize(NUMBERS, [4.0, 6.0]).astype(float)
    )
    model = Model(Z, y, kernel=SquaredExponential(3.0, 2.0), likelihood=likelihood, evidence=evidence)
    draws, other, rows = np.empty((1, 0)), changed_inputs(Z), np.arange(25)
    found = relevance.losses(model, draws, rows, [other])[0]
    expected = []
    for i in rows:
        rest = np.delete(rows, i)
        part = Model(Z[rest], y[rest], kernel=model.kernel, likelihood=likelihood, evidence=evidence)
        kernel, solved = part.posterior(draws[0])
        x = np.stack([Z[i], other[i]])
        moments = solved.posterior.predict(kernel(part.X, x), kernel.diag(x))
        own, moved = model.likelihood.log_average(np.full(2, y[i]), *moments)
        expected.append(own - moved)
    np.testing.assert_allclose(found, expected, atol=0.12)
    assert np.abs(expected).max() > 0.8  # the tolerance is small beside it
    assert found.mean() == pytest.approx(np.mean(expected), abs=0.02)


def test_several_classes_and_outputs():
    data = load_iris(as_frame=True)
    gp = GPClassifier(SquaredExponential(ard=True), sampler="map", refine=None, **SHORT)
    gp.fit(data.data[::3], data.target_names[data.target[::3]])
    result = gp.relevance(permutation=True)
    assert result.change.shape == (400, 4, 3)
    np.testing.assert_allclose(result.change.sum(axis=2), 0.0, atol=1e-9)  # of the probabilities of all classes
    assert result.ranking[0].startswith("petal")
    assert list(result.to_frame()["target"][:3]) == list(gp.classes_)
    assert len(plots.relevance(gp).get_legend().get_texts()) == 3
    Y = np.column_stack([NUMBERS, -10.0 * NUMBERS])
    gp = GPRegressor(SquaredExponential(ard=True), outputs="coregional", sampler="map", **SHORT).fit(Z, Y)
    result = gp.relevance()
    assert result.ranking[0] == "x0"
    change = result.interval()[0]
    assert change[0, 1] == pytest.approx(-10.0 * change[0, 0], rel=0.1)  # in the units of each output
    with pytest.raises(InvalidInput, match="permutation=True is for one output"):
        gp.relevance(permutation=True)
    with pytest.raises(InvalidInput, match=r"'of' must be one of \['change', 'length_scale'\]; got 'lengthscale'"):
        plots.relevance(gp, of="lengthscale")
