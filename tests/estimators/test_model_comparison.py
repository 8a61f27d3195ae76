"""Fits of the same rows, ranked."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

mpl.use("Agg")
import matplotlib.pyplot as plt

from hmcgp import GPClassifier, GPRegressor, compare, plots
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Linear, SquaredExponential

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]

RNG = np.random.default_rng(1)
X = pd.DataFrame(RNG.normal(size=(40, 2)), columns=["a", "b"])
Y = np.sin(2.0 * X["a"].to_numpy()) * 20.0 + RNG.normal(size=40)
SHORT: dict[str, Any] = {"draws": 80, "tune": 80, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 3}


def fitted(kernel, X=X, y=Y, **settings):
    return GPRegressor(kernel, **SHORT | settings).fit(X, y)


@pytest.fixture(scope="module")
def fits():
    return [fitted(Linear()), fitted(SquaredExponential()), fitted(SquaredExponential(), sampler="map")]


@pytest.fixture(scope="module")
def found(fits):
    return compare(fits, n_points=200)


def test_the_curve_is_better_than_the_line_by_both_measures(found, fits):
    assert set(found.table.index) == {"Linear", "SquaredExponential", "SquaredExponential, map"}
    assert found.table.index[-1] == "Linear"
    line, curve = found.table.loc["Linear"], found.table.loc["SquaredExponential"]
    assert line["elpd_diff"] > 3.0 * line["diff_se"] > 0.0
    assert line["evidence_diff"] > 10.0
    assert curve["evidence_diff"] == 0.0
    assert curve["evidence_se"] < 0.2
    assert np.isnan(found.table.loc["SquaredExponential, map", "log_evidence"])
    evidence = fits[0].log_marginal_evidence(n_points=200)
    assert line["log_evidence"] == evidence.log_z
    assert "SquaredExponential, map" in repr(found)
    assert "40 rows, each left out in turn" in repr(found)


def test_differences_are_paired(found, fits):
    best = found.loo[found.table.index[0]]
    difference = best.pointwise - fits[0].loo().pointwise
    row = found.table.loc["Linear"]
    assert row["elpd_diff"] == pytest.approx(difference.sum())
    assert row["diff_se"] == pytest.approx(np.sqrt(40 * np.var(difference)))
    first = found.table.iloc[0]
    assert (first["elpd_diff"], first["diff_se"]) == (0.0, 0.0)
    assert list(found.table["elpd"]) == sorted(found.table["elpd"], reverse=True)


def test_the_units_of_y_do_not_matter_to_differences(fits, found):
    """Evidence and elpd are densities in the units of y: 1000 times as large numbers, 1000 times lower densities."""
    large = fitted(Linear(), y=1000.0 * Y)
    row = found.table.loc["Linear"]
    assert large.loo().elpd == pytest.approx(row["elpd"] - 40 * np.log(1000.0), abs=1e-6)
    evidence = large.log_marginal_evidence(n_points=200)
    assert evidence.log_z == pytest.approx(row["log_evidence"] - 40 * np.log(1000.0), abs=1e-6)


def test_names_given_columns_left_out_and_no_evidence(fits):
    fewer = fitted(SquaredExponential(), X=X[["a"]])
    found = compare({"both": fits[1], "a alone": fewer}, evidence=False)
    assert set(found.table.index) == {"both", "a alone"}
    assert found.table["log_evidence"].isna().all()
    assert "log_evidence" not in repr(found)
    assert plots.compare(found).shape == (1,)


def test_alike_fits_are_numbered(fits):
    found = compare([fits[1], fits[1]], evidence=False)
    assert sorted(found.table.index) == ["default (1)", "default (2)"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: fitted(Linear(), X[:30], Y[:30]), r"'y' has the shape \(40,\) in one and \(30,\) in the other"),
        (lambda: fitted(Linear(), X, Y + 1.0), "the targets 'y' differ"),
        (lambda: fitted(Linear(), X.assign(b=0.5 * X["b"]), Y), "the column 'b' of 'X' differs"),
        (
            lambda: GPRegressor(Linear(), **SHORT).fit(X, Y, sample_weight=np.full(40, 2.0)),
            "the weights of the rows differ",
        ),
        (lambda: GPClassifier(Linear(), **SHORT).fit(X, Y > 0.0), "the targets 'y' differ"),
    ],
    ids=["fewer rows", "other targets", "other inputs", "weights", "labels"],
)
def test_fits_of_different_data_are_refused(fits, other, message):
    with pytest.raises(InvalidInput, match=f"'first' and 'second' were fitted to different data: {message}"):
        compare({"first": fits[0], "second": other()})


def test_what_cannot_be_compared(fits):
    with pytest.raises(InvalidInput, match="two or more fits to compare; got 1"):
        compare(fits[:1])
    with pytest.raises(InvalidInput, match=r"GPCounts or GPOrdinal\); got str"):
        compare(["a", "b"])  # type: ignore[list-item]
    with pytest.raises(NotFittedError):
        compare([fits[0], GPRegressor()])


def test_the_plot_shows_the_table(found):
    axes = plots.compare(found)
    assert axes.shape == (2,)
    left, right = axes
    np.testing.assert_allclose(left.lines[-1].get_xdata(), -found.table["elpd_diff"])
    np.testing.assert_allclose(right.lines[-1].get_xdata(), -found.table["evidence_diff"])
    assert [t.get_text().split("\n")[0] for t in left.get_yticklabels()] == list(found.table.index)
    assert [t.get_text() for t in right.texts] == ["none"]
    own = plt.subplots(1, 2)[1]
    assert plots.compare(found, axes=own)[0] is own[0]
    with pytest.raises(InvalidInput, match=r"'axes' must have the shape \(1, 2\)"):
        plots.compare(found, axes=own[:1])
    with pytest.raises(InvalidInput, match=r"must be what hmcgp\.compare returns; got int"):
        plots.compare(3)
