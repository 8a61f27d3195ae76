"""Relevance of inputs by what they do to predictions: against differences of predictions, and against refits."""

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

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]
SHORT: dict[str, Any] = {"draws": 15, "tune": 40, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(25, 3))
NUMBERS = 5.0 + 2.0 * Z[:, 0] + np.sin(2.0 * Z[:, 1]) + 0.2 * RNG.normal(size=25)


def test_change_is_a_difference_of_predictions():
    """With one draw: root mean square over rows of what half a standard deviation down and up does to the mean."""
    gp = GPRegressor(SquaredExponential(ard=True), sampler="map", **SHORT).fit(Z, NUMBERS)
    found = gp.relevance()
    half = 0.5 * Z.std(axis=0)
    expected = [
        np.sqrt(np.mean((gp.predict(Z + half * unit) - gp.predict(Z - half * unit)) ** 2)) for unit in np.eye(3)
    ]
    np.testing.assert_allclose(found.change, [expected], rtol=1e-9)
    assert found.unit == "y"
    assert list(found.to_frame().index[:2]) == ["x0", "x1"]
    ax = plots.relevance(gp)
    assert not ax.collections  # no interval of a single draw
    assert [text.get_text() for text in ax.get_yticklabels()][:2] == ["x0", "x1"]


def test_a_straight_input_is_relevant():
    """Its length scale is long, and says nothing of it."""
    X, y = datasets.load_pima(return_X_y=True)
    gp = GPClassifier(**SHORT).fit(X.iloc[:80], y.iloc[:80])
    frame = gp.relevance(permutation=True).to_frame()
    assert frame.index[0] == "glu"
    assert frame["loss"].idxmax() == "glu"
    assert ((frame["low"] <= frame["change"]) & (frame["change"] <= frame["high"])).all()
    assert plots.relevance(gp).get_yticklabels()[0].get_text() == "glu"


def test_categories_move_to_other_levels():
    X, y = datasets.load_pima(return_X_y=True)
    X = X.iloc[:60][["glu", "age", "ped"]].copy()
    X["group"] = np.where(X["age"] > 35, "old", np.where(X["glu"] > 120, "sweet", "young"))
    gp = GPClassifier(sampler="map", refine=None, **SHORT).fit(X, y.iloc[:60])
    share = X["group"].value_counts(normalize=True)
    total: Any = 0.0
    for level in share.index:
        weight = np.where(X["group"] == level, 0.0, share[level] / (1.0 - share[X["group"]].to_numpy()))
        delta = (gp.predict_proba(X.assign(group=level)) - gp.predict_proba(X))[:, 1]
        total += weight @ delta**2
    np.testing.assert_allclose(gp.relevance().change[0, 3], np.sqrt(total / 60), rtol=1e-9)


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
    assert gp.relevance().change.shape == (1, 4)
    assert gp.relevance(permutation=True).to_frame().index[0].startswith("petal")
    Y = np.column_stack([NUMBERS, -NUMBERS])
    gp = GPRegressor(SquaredExponential(ard=True), outputs="coregional", sampler="map", **SHORT).fit(Z, Y)
    assert gp.relevance().unit == "standard deviations of y"
    assert gp.relevance().to_frame().index[0] == "x0"
    with pytest.raises(InvalidInput, match="permutation=True is for one output"):
        gp.relevance(permutation=True)
    with pytest.raises(InvalidInput, match=r"'of' must be one of \['change', 'length_scale'\]; got 'lengthscale'"):
        plots.relevance(gp, of="lengthscale")
