"""What is drawn, read back from the Axes."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from scipy.integrate import trapezoid

from tests.helpers.fakes import CHAINS, make_result, parameter

mpl.use("Agg")
import matplotlib.pyplot as plt

from hmcgp import plots
from hmcgp.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("clean_pyplot")


def texts(ax):
    return [text.get_text() for text in ax.texts]


# ---------------------------------------------------------------- trace


def test_trace_has_a_row_per_parameter_and_a_line_per_chain():
    result = make_result()
    axes = plots.trace(result)
    assert axes.shape == (4, 2)
    assert [left.get_title(loc="left") for left in axes[:, 0]] == result.trace_.names
    for column, (left, right) in enumerate(axes):
        assert len(left.lines) == len(right.lines) == CHAINS
        for chain, line in enumerate(right.lines):
            assert np.array_equal(line.get_ydata(), result.trace_.draws[chain, :, column])
    assert len({line.get_color() for line in axes[0, 1].lines}) == CHAINS
    assert axes[-1, 1].get_xlabel() == "draw"
    assert [text.get_text() for text in axes[0, 1].get_legend().get_texts()] == ["chain 0", "chain 1", "chain 2"]


def test_trace_has_one_kind_of_axis_for_all_positive_parameters():
    axes = plots.trace(make_result())
    assert {ax.get_xscale() for ax in axes[:, 0]} | {ax.get_yscale() for ax in axes[:, 1]} == {"log"}
    for ax in axes[:, 0]:  # plain numbers, at least two and few enough to read
        low, high = ax.get_xlim()
        ax.figure.canvas.draw()
        shown = [t.get_text() for t, x in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True) if low <= x <= high]
        assert 2 <= len(shown) <= 8
        assert all(float(text) > 0.0 for text in shown)


def test_trace_is_linear_for_a_wide_parameter_that_takes_negative_values():
    result = make_result()
    result.trace_.draws[:, :, 0] = np.log(result.trace_.draws[:, :, 0])
    assert plots.trace(result)[0, 0].get_xscale() == "linear"


@pytest.mark.parametrize("column", [0, 1], ids=["wide", "narrow"])
def test_trace_densities_integrate_to_one_on_their_scale(column):
    result = make_result()
    line = plots.trace(result)[column, 0].lines[0]
    x, density = line.get_data()
    draws = result.trace_.draws[:, :, column]
    assert x[0] == pytest.approx(draws.min())
    assert x[-1] == pytest.approx(draws.max())
    # the grid stops at the extreme draws, so kernels lose a little of their tails: a few per cent
    assert trapezoid(density, np.log10(x)) == pytest.approx(1.0, abs=0.08)


def test_trace_marks_divergences_in_both_panels():
    result = make_result(diverging=[(0, 5), (2, 40)])
    axes = plots.trace(result)
    for column, (left, right) in enumerate(axes):
        assert len(left.lines) == len(right.lines) == CHAINS + 1
        assert left.lines[-1].get_marker() == right.lines[-1].get_marker() == "|"
        assert list(right.lines[-1].get_xdata()) == [5, 40]
        assert np.array_equal(left.lines[-1].get_xdata(), result.trace_.draws[[0, 2], [5, 40], column])
    assert axes[0, 1].get_title(loc="right").endswith("divergent transition (2)")


def test_trace_leaves_out_rows_and_says_how_to_see_them():
    result = make_result(np.linspace(1.0, 3.0, 20))
    axes = plots.trace(result)
    assert axes.shape == (12, 2)
    note = axes[-1, 0].get_xlabel()
    assert "12 of 21 parameters" in note
    assert "var_names" in note
    assert "max_rows=None" in note
    every = plots.trace(result, max_rows=None)
    assert every.shape == (21, 2)
    assert every[-1, 0].get_xlabel() == ""
    assert plots.trace(result, var_names="length_scale").shape == (20, 2)


def test_trace_selects_by_full_or_family_name_in_the_order_asked():
    result = make_result()
    axes = plots.trace(result, var_names=["length_scale[x1]", "variance"])
    assert [left.get_title(loc="left") for left in axes[:, 0]] == ["length_scale[x1]", "variance"]
    with pytest.raises(InvalidInput, match=r"\['noise'\]. There are \['variance'"):
        plots.trace(result, var_names=["variance", "noise"])


def test_trace_draws_into_given_axes_and_refuses_the_wrong_number():
    result = make_result()
    figure, axes = plt.subplots(4, 2)
    drawn = plots.trace(result, axes=axes)
    assert all(a is b for a, b in zip(drawn.ravel(), axes.ravel(), strict=True))
    assert plt.get_fignums() == [figure.number]
    assert plots.trace(result, var_names="variance", axes=axes[0]).shape == (1, 2)
    with pytest.raises(InvalidInput, match=r"shape \(4, 2\)"):
        plots.trace(result, axes=axes[:2])


def test_trace_draws_a_line_for_a_chain_that_never_moved():
    result = make_result()
    result.trace_.draws[1, :, 1] = 30.0
    left = plots.trace(result)[1, 0]
    assert list(left.lines[1].get_xdata()) == [30.0, 30.0]
    assert len(left.lines[0].get_xdata()) == 200


def test_an_unfitted_result_is_refused():
    for draw in (plots.trace, plots.relevance):
        with pytest.raises(InvalidInput, match="a fitted estimator with 'trace_'"):
            draw(SimpleNamespace())


# ---------------------------------------------------------------- relevance


def test_relevance_orders_inputs_by_length_scale_with_the_shortest_on_top():
    ax = plots.relevance(make_result((30.0, 1.0, 5.0)), of="length_scale")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x1", "x2", "x0"]
    bottom, top = ax.get_ylim()
    assert bottom > top  # row 0 is on top
    assert ax.get_xscale() == "log"


def test_relevance_intervals_are_the_central_quantiles():
    result = make_result((30.0, 1.0, 5.0))
    ax = plots.relevance(result, prob=(0.5, 0.9), of="length_scale")
    thin, thick = ax.collections[:2]
    assert thin.get_linewidth()[0] < thick.get_linewidth()[0]
    draws = result.trace_.draws.reshape(-1, 4)[:, [2, 3, 1]]
    for lines, probs in ((thin, [0.05, 0.95]), (thick, [0.25, 0.75])):
        ends = np.array([segment[:, 0] for segment in lines.get_segments()])
        np.testing.assert_allclose(ends, np.quantile(draws, probs, axis=0).T)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.median(draws, axis=0))
    assert "thick: 50 %   thin: 90 %" in texts(ax)[0]


def test_relevance_shades_beyond_the_width_of_standardised_data():
    result = make_result((30.0, 1.0, 5.0))
    ax = plots.relevance(result, of="length_scale")
    (shade,) = ax.patches
    assert shade.get_window_extent().x0 == pytest.approx(ax.transData.transform((4.0, 0.0))[0])
    assert any("longer than the range of the data" in text for text in texts(ax))
    low, high = ax.get_xlim()
    assert low < 1.0
    assert high > 30.0
    result.standardize = False
    ax = plots.relevance(result, of="length_scale")
    assert not ax.patches
    assert "units of the input" in ax.get_xlabel()


def test_relevance_keeps_the_reference_in_sight_when_every_length_scale_is_short():
    ax = plots.relevance(make_result((0.1, 0.2, 0.3)), of="length_scale")
    assert ax.get_xlim()[1] > 4.0


def test_relevance_tells_two_kernels_apart():
    result = make_result((30.0, 1.0, 5.0))
    result.parameters_ = [
        parameter("variance"),
        parameter("left.length_scale", 1, ("a",)),
        parameter("right.length_scale", 2, ("a", "b")),
    ]
    ax = plots.relevance(result, of="length_scale")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a (right)", "b (right)", "a (left)"]


def test_relevance_needs_a_length_scale_per_input():
    result = make_result((30.0,))
    result.parameters_ = [parameter("variance"), parameter("length_scale")]
    with pytest.raises(InvalidInput, match=r"\['variance', 'length_scale'\].*ard=True"):
        plots.relevance(result, of="length_scale")


# ---------------------------------------------------------------- audit


def make_audit(**changes):
    n, p = 30, np.linspace(0.05, 0.95, 12)
    content = {
        "evidence": "Laplace",
        "draws": np.arange(0, 300, 10),
        "log_z_change": np.linspace(0.0, 1.0, n),
        "standard_error": np.full(n, 0.02),
        "unsure": np.arange(n) < 2,
        "names": ["variance", "length_scale"],
        "shift": np.array([0.2, -1.4]),
        "shift_error": np.array([0.1, 0.2]),
        "weights_reliable": True,
        "n_effective": 24.0,
        "probability": p,
        "exact_probability": np.where(p > 0.5, p + 0.04, p),
        "worst_rows": np.arange(12)[::-1],
        "rms_change": 0.028,
        "rows": "training rows",
    }
    return SimpleNamespace(**content | changes)


def test_audit_has_three_panels():
    found = make_audit()
    axes = plots.audit(SimpleNamespace(audit=lambda: found))
    evidence, shifts, rows = axes
    assert [ax.get_title(loc="left") for ax in axes] == ["log evidence", "hyperparameters", "training rows"]
    assert evidence.get_title(loc="right") == "2 of 30 in doubt"
    assert sum(len(c.lines[0].get_xdata()) for c in evidence.containers) == 30
    assert [label.get_text() for label in shifts.get_yticklabels()] == found.names
    assert shifts.get_xlim()[0] < -1.8
    assert shifts.get_title(loc="right") == "24 of 30 draws effective"
    x, y = rows.lines[1].get_data()
    assert np.array_equal(x, found.probability)
    assert np.array_equal(y, found.exact_probability)
    assert texts(rows) == ["11", "10", "9"]


def test_audit_of_one_draw_and_into_given_axes():
    given = plt.subplots(1, 3)[1]
    one = {name: np.zeros(1) for name in ("draws", "log_z_change", "standard_error")} | {"unsure": np.array([False])}
    axes = plots.audit(make_audit(shift=np.full(2, np.nan), n_effective=1.0, **one), axes=given)
    assert list(axes) == list(given)
    assert texts(axes[1]) == ["one draw: no statement"]
    with pytest.raises(InvalidInput, match=r"shape \(3,\)"):
        plots.audit(make_audit(), axes=given[:2])
    with pytest.raises(InvalidInput, match=r"what gp.audit\(\) returns"):
        plots.audit(3)


# ---------------------------------------------------------------- weighted draws


def weighted_result():
    """Chains as they ran, and every other draw of them with weights that favour long length scales."""
    result = make_result()
    run = result.trace_
    draws = run.draws[:, ::2]
    weight = draws[:, :, 1].ravel() ** 20.0
    weight /= weight.mean()
    log_weight = np.log(weight / weight.sum()).reshape(draws.shape[:2])
    flat = draws.reshape(-1, draws.shape[2])
    kept = SimpleNamespace(names=run.names, stats={}, draws=draws, flat=flat, weight=weight, log_weight=log_weight)
    result.sampling_trace_, result.trace_ = run, kept
    return result


def test_relevance_weights_the_draws():
    result = weighted_result()
    medians = plots.relevance(result, of="length_scale").lines[0].get_xdata()
    unweighted = np.median(result.trace_.flat[:, 1:], axis=0)
    assert medians[2] > 1.03 * unweighted[0]  # the longest, at the bottom, is the one that is favoured
    np.testing.assert_allclose(medians[0], unweighted[1], rtol=0.03)


def test_trace_shows_the_chains_that_ran_and_the_weighted_density():
    result = weighted_result()
    axes = plots.trace(result)
    for chain, line in enumerate(axes[1, 1].lines):
        assert np.array_equal(line.get_ydata(), result.sampling_trace_.draws[chain, :, 1])
    *chains, black = axes[1, 0].lines
    assert len(chains) == CHAINS
    x, density = black.get_data()
    assert trapezoid(density, np.log10(x)) == pytest.approx(1.0, abs=0.15)
    peak = np.mean([line.get_xdata()[np.argmax(line.get_ydata())] for line in chains])
    assert x[np.argmax(density)] > peak
    assert axes[0, 0].get_title(loc="right") == "thick: weighted"
    result.trace_.weight[:] = np.exp(-0.5 * (np.log(result.trace_.flat[:, 1] / peak) / 0.05) ** 2)
    narrow = plots.trace(result)[1, 0]
    assert narrow.get_ylim()[1] > narrow.lines[-1].get_ydata().max()  # not cut off
