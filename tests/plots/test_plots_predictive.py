"""What is drawn, read back from the Axes."""

from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import beta

from tests.helpers.fakes import FakeResult, make_result

mpl.use("Agg")
import matplotlib.pyplot as plt

from hmcgp import plots
from hmcgp.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("clean_pyplot")


def texts(ax):
    return [text.get_text() for text in ax.texts]


# ---------------------------------------------------------------- calibration


def calibrated(n=400, seed=3):
    rng = np.random.default_rng(seed)
    p = rng.uniform(size=n)
    return p, np.where(rng.uniform(size=n) < p, "yes", "no")


def observed(ax):
    return next(line for line in ax.lines if line.get_marker() == "o")


def test_calibration_bins_hold_equal_counts_with_jeffreys_intervals():
    p, y = calibrated()
    ax = plots.calibration(p, y=y, n_bins=10, prob=0.8)
    order = np.argsort(p).reshape(10, 40)
    hits = (y == "yes")[order].sum(axis=1)
    np.testing.assert_allclose(observed(ax).get_xdata(), p[order].mean(axis=1))
    np.testing.assert_allclose(observed(ax).get_ydata(), hits / 40)
    ends = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    inner = (hits > 0) & (hits < 40)
    expected = np.stack([beta.ppf(q, hits + 0.5, 40.5 - hits) for q in (0.1, 0.9)], axis=1)
    assert inner.sum() >= 8
    np.testing.assert_allclose(ends[inner], expected[inner])


def test_calibration_interval_reaches_the_edge_when_all_cases_agree():
    p = np.repeat([0.1, 0.5, 0.9], 20)
    y = np.repeat([0, 1], 30)
    ax = plots.calibration(p, y=y)
    assert list(observed(ax).get_xdata()) == pytest.approx([0.1, 0.5, 0.9])  # ties share a bin
    ends = [segment[:, 1] for segment in ax.collections[0].get_segments()]
    assert ends[0][0] == 0.0
    assert 0.0 < ends[0][1] < 0.2
    assert ends[2][1] == 1.0


def test_calibration_legend_and_histogram():
    p, y = calibrated()
    ax = plots.calibration(p, y=pd.Series(y, name="diabetes"))
    loss = -np.mean(np.log(np.where(y == "yes", p, 1.0 - p)))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"observed, n = 400\nlog loss {loss:.3f}" in labels
    assert "90 % interval" in labels
    assert ax.get_xlabel() == "predicted P(diabetes = yes)"
    heights = np.array([bar.get_height() for bar in ax.patches])
    counts = np.histogram(p, bins=25, range=(0, 1))[0]
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max())
    assert all(bar.get_y() + bar.get_height() < 0.0 for bar in ax.patches)  # below every frequency
    diagonal = ax.lines[0]
    assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())


def test_calibration_of_an_estimator_equals_that_of_its_probabilities():
    result = make_result()
    X = np.linspace(-3, 3, 80)[:, None]
    y = np.where(np.random.default_rng(1).uniform(size=80) < expit(X[:, 0]), "yes", "no")
    direct = observed(plots.calibration(result.predict_proba(X), y=y)).get_xydata()
    _, ax = plt.subplots()
    drawn = plots.calibration(result, X, y, ax=ax)
    assert drawn is ax
    assert np.array_equal(observed(drawn).get_xydata(), direct)


def test_calibration_refuses_what_it_cannot_draw():
    p, y = calibrated(30)
    three = make_result()
    three.classes_ = np.array(["a", "b", "c"])
    for call, message in [
        (lambda: plots.calibration(three, np.zeros((30, 1)), y), "with 3 classes, 'of'"),
        (lambda: plots.calibration(np.full((30, 3), 1 / 3), y=y), "probabilities of 3 classes"),
        (lambda: plots.calibration(p + 1.0, y=y), "between 0 and 1"),
        (lambda: plots.calibration(p, y=y[:-1]), "29 labels for 30"),
        (lambda: plots.calibration(p), "'y'"),
        (lambda: plots.calibration(make_result(), y=y), "'X' must be given"),
        (lambda: plots.calibration(make_result(), np.zeros((2, 1)), ["no", "maybe"]), "maybe"),
        (lambda: plots.calibration(p, y=y, prob=90), "'prob'"),
        (lambda: plots.calibration(p, y=y, n_bins=0), "'n_bins'"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()


# ---------------------------------------------------------------- predictive


def data_1d():
    x = np.array([-2.0, -1.0, 0.5, 1.0, 2.0])
    return pd.DataFrame({"glu": x}), pd.Series(["no", "no", "yes", "no", "yes"], name="diabetes")


def test_predictive_1d_draws_mean_band_and_data():
    result, (X, y) = make_result(), data_1d()
    result.feature_names_in_ = np.array(["glu"])
    ax = plots.predictive_1d(result, X, y, prob=0.8, n_grid=50)
    mean = ax.lines[0]
    grid = mean.get_xdata()
    assert len(grid) == 50
    assert ax.get_xlim() == (grid[0], grid[-1])
    assert grid[0] < -2.0
    assert grid[-1] > 2.0
    np.testing.assert_allclose(mean.get_ydata(), result.predict_proba(grid[:, None])[:, 1])
    band = ax.collections[0].get_paths()[0].vertices
    low, high = result.predict_proba_interval(grid[-1:, None], level=0.8)[0, 1]
    at_end = band[band[:, 0] == grid[-1], 1]
    assert at_end.min() == pytest.approx(low)
    assert at_end.max() == pytest.approx(high)
    rugs = {line.get_label(): line for line in ax.lines[1:]}
    assert list(rugs["no"].get_xdata()) == [-2.0, -1.0, 1.0]
    assert (rugs["no"].get_ydata() <= 0.0).all()
    assert list(rugs["yes"].get_xdata()) == [0.5, 2.0]
    assert (rugs["yes"].get_ydata() >= 1.0).all()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("glu", "P(diabetes = yes)")


def test_predictive_1d_asks_with_the_column_names_of_the_fit():
    result, (X, y) = make_result(), data_1d()
    result.feature_names_in_ = np.array(["glu"])
    seen = []
    result.predict_proba = lambda asked: seen.append(list(asked.columns)) or FakeResult.predict_proba(result, asked)
    plots.predictive_1d(result, X, y)
    assert seen == [["glu"]]


def test_predictive_1d_without_data_needs_limits():
    ax = plots.predictive_1d(make_result(), limits=(-1.0, 4.0))
    assert ax.get_xlim() == (-1.0, 4.0)
    assert len(ax.lines) == 1
    with pytest.raises(InvalidInput, match="'X' or 'limits'"):
        plots.predictive_1d(make_result())


def data_2d(n=40):
    X = np.random.default_rng(5).normal(size=(n, 2))
    return X, np.where(X.sum(axis=1) > 0, "yes", "no")


def test_predictive_2d_draws_contours_data_and_a_colour_bar():
    result, (X, y) = make_result(n_features=2), data_2d()
    ax = plots.predictive_2d(result, pd.DataFrame(X, columns=["a", "b"]), y, n_grid=31)
    filled, lines, *scatters = ax.collections
    assert filled.get_clim() == (0.0, 1.0)  # white is at one half
    assert list(lines.levels) == [0.1, 0.25, 0.5, 0.75, 0.9]
    # p = 1/2 where x0 + x1 = 0; contours interpolate linearly within cells about 0.15 wide
    half = lines.get_paths()[2].vertices
    np.testing.assert_allclose(half.sum(axis=1), 0.0, atol=1e-3)
    for scatter, label in zip(scatters, ["no", "yes"], strict=True):
        assert scatter.get_label() == label
        assert np.array_equal(scatter.get_offsets(), X[y == label])
    markers = [scatter.get_paths()[0].vertices.shape for scatter in scatters]
    assert markers[0] != markers[1]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    (bar,) = [other for other in ax.figure.axes if other is not ax]
    assert bar.get_ylabel() == "P(y = yes)"


def test_predictive_2d_can_do_without_a_colour_bar_and_without_a_crossing():
    result, (X, y) = make_result(n_features=2), data_2d()
    figure, ax = plt.subplots()
    plots.predictive_2d(result, X + 10.0, y, n_grid=11, colorbar=False, ax=ax)
    assert figure.axes == [ax]
    assert len(ax.collections) == 3  # filled contours and two classes; the probability crosses no line


def test_predictive_picks_by_the_number_of_inputs():
    X, y = data_1d()
    assert len(plots.predictive(make_result(n_features=1), X, y).lines) == 3
    X2, y2 = data_2d()
    assert plots.predictive(make_result(n_features=2), X2, y2).get_xlabel() == "input 0"
    with pytest.raises(InvalidInput, match=r"one or two inputs, and .gp. was fitted on 5"):
        plots.predictive(make_result(n_features=5), np.zeros((3, 5)), ["no", "yes", "no"])
    with pytest.raises(InvalidInput, match="fit on 2"):
        plots.predictive_1d(make_result(n_features=2), X2, y2)
    three = make_result(n_features=2)
    three.classes_ = np.array(["no", "yes", "perhaps"])
    with pytest.raises(InvalidInput, match="two classes; got 3"):
        plots.predictive(three, X2, y2)


# ---------------------------------------------------------------- all


def test_every_picture_can_be_rendered(tmp_path):
    X, y = data_1d()
    X2, y2 = data_2d()
    pictures = {
        "trace": plots.trace(make_result(diverging=[(0, 3)]))[0, 0],
        "relevance": plots.relevance(make_result(), of="length_scale"),
        "calibration": plots.calibration(calibrated()[0], y=calibrated()[1]),
        "1d": plots.predictive(make_result(), X, y),
        "2d": plots.predictive(make_result(n_features=2), X2, y2),
    }
    for name, ax in pictures.items():
        figure = ax.figure
        figure.canvas.draw()
        for text in (ax.xaxis.label, ax.yaxis.label, *ax.texts):
            if text.get_text():
                box = text.get_window_extent()
                clipped = min(box.x0, box.y0, figure.bbox.x1 - box.x1, figure.bbox.y1 - box.y1) < -1.0  # pixels
                assert not clipped, f"{name}: {text.get_text()!r} is cut off"
        figure.savefig(tmp_path / f"{name}.png", dpi=50)
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_importing_plots_does_not_import_pyplot():
    code = "import sys, hmcgp.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
