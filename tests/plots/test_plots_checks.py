"""Pictures of rankings, residuals, predictive checks, hyperparameters and priors, read back from the Axes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

mpl.use("Agg")
import matplotlib.pyplot as plt

from hmcgp import GPClassifier, GPCounts, GPRegressor, plots
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Matern, SquaredExponential

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # so few draws
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]

RNG = np.random.default_rng(4)
X = pd.DataFrame(RNG.normal(size=(40, 2)) * [1.0, 8.0], columns=["a", "b"])
F = 2.0 * X["a"] + RNG.normal(size=40)
LABELS = np.where(F > 0.0, "yes", "no")
SHORT: dict[str, Any] = {
    "draws": 20,
    "tune": 30,
    "chains": 2,
    "random_state": 1,
    "progressbar": False,
    "sampler": "hmc",
}


@pytest.fixture(scope="module")
def classifier():
    return GPClassifier(**SHORT).fit(X, LABELS)  # its draws carry weights


@pytest.fixture(scope="module")
def regressor():
    return GPRegressor(**SHORT).fit(X, F)


@pytest.fixture(scope="module")
def three():
    labels = np.array(["u", "v", "w"])[np.digitize(F, [-1.0, 1.0])]
    gp = GPClassifier(SquaredExponential(ard=True), sampler="map", refine=None, random_state=0, progressbar=False)
    return gp.fit(X, labels), labels


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# ---------------------------------------------------------------- rankings


@pytest.mark.parametrize(
    ("draw", "score"), [(plots.roc, roc_auc_score), (plots.precision_recall, average_precision_score)]
)
def test_rankings_have_the_score_of_the_average_and_a_band_over_weighted_draws(classifier, draw, score):
    ax = draw(classifier, X, LABELS)
    p = classifier.predict_proba(X)[:, 1]
    text = legend(ax)[0]
    assert text.startswith("yes: ")
    assert f"{score(LABELS == 'yes', p):.3f}" in text
    low, high = (float(part) for part in text.partition("(")[2].rstrip(")").split(" to "))
    assert 0.0 < low <= high <= 1.0
    band, line = ax.collections[0].get_paths()[0].vertices, ax.lines[0].get_ydata()
    assert band[:, 1].min() >= 0.0
    assert ((line >= 0.0) & (line <= 1.0)).all()
    plt.close(ax.figure)
    assert legend(draw(p, y=LABELS))[0] == f"{text.partition(' (')[0]}"  # probabilities alone have no band


def test_roc_of_a_perfect_and_of_a_random_ranking():
    event = np.arange(200) % 2 == 1
    perfect = plots.roc(np.where(event, 0.9, 0.1), y=event).lines[0].get_ydata()
    np.testing.assert_allclose(perfect, 1.0)
    tied = plots.roc(np.full(200, 0.5), y=event).lines[0]
    np.testing.assert_allclose(tied.get_ydata(), tied.get_xdata(), atol=1e-12)


def test_precision_is_a_step_function_of_recall():
    event, p = np.array([True, False, True, False]), np.array([0.9, 0.8, 0.7, 0.1])
    line = plots.precision_recall(p, y=event).lines[0]
    x, precision = line.get_data()
    np.testing.assert_allclose(precision[x <= 0.5], 1.0)  # the first is right
    np.testing.assert_allclose(precision[x > 0.5], 2.0 / 3.0)  # the second of the class is third


def test_several_classes_are_ranked_against_the_rest(three):
    gp, labels = three
    assert [text.partition(":")[0] for text in legend(plots.roc(gp, X, labels))] == ["u", "v", "w"]
    assert [text.partition(":")[0] for text in legend(plots.roc(gp, X, labels, of="v"))] == ["v"]
    with pytest.raises(InvalidInput, match="nothing to rank"):
        plots.roc(gp, X, np.full(40, "u"), of="v")
    with pytest.raises(InvalidInput, match="'y'"):
        plots.roc(gp, X)


# ---------------------------------------------------------------- numbers


def test_residuals_and_coverage_of_a_regressor(regressor):
    found = regressor.residuals()
    left, right = plots.residuals(regressor)
    np.testing.assert_allclose(left.lines[1].get_ydata(), found.normalised)
    assert "40 rows, each left out" in left.get_title(loc="left")
    heights = [patch.get_height() for patch in right.patches if hasattr(patch, "get_height")][-10:]
    np.testing.assert_allclose(np.mean(heights), 1.0)
    ax = plots.calibration(regressor)
    levels, share = ax.lines[1].get_data()
    np.testing.assert_allclose(share, found.coverage(levels))
    assert "new" not in legend(ax)[-1]
    assert legend(plots.calibration(regressor, X, F))[-1] == "observed, 40 rows"


def test_leave_one_out_of_numbers_has_no_coin(regressor, classifier, three):
    assert [t.get_text() for t in plots.loo(regressor)[0].texts].count("a coin") == 0
    assert plots.loo(regressor)[0].get_ylabel() == "log p(y | other rows)"
    assert "a coin" in [t.get_text() for t in plots.loo(classifier)[0].texts]
    assert "chance" in [t.get_text() for t in plots.loo(three[0])[0].texts]


def test_posterior_predictive_of_numbers_and_of_classes(regressor, three):
    ax = plots.posterior_predictive(regressor, n_draws=12)
    assert len(ax.lines) == 12 + 2
    ax = plots.posterior_predictive(three[0], n_draws=30)
    assert [bar.get_height() for bar in ax.patches] == [np.sum(three[1] == label) for label in "uvw"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["u", "v", "w"]


def test_posterior_predictive_of_counts_is_a_rootogram():
    """It was a kernel density, with mass below zero."""
    y = np.random.default_rng(3).poisson(2.0, size=40)
    gp = GPCounts(sampler="map", progressbar=False).fit(X, y)
    ax = plots.posterior_predictive(gp, n_draws=20)
    heights = [bar.get_height() for bar in ax.patches]
    assert heights[: y.max() + 1] == np.bincount(y).tolist()
    assert min(bar.get_x() for bar in ax.patches) > -0.6
    assert "square-root" in ax.get_ylabel()
    assert [text.get_text() for text in plots.residuals(gp)[0].texts]  # the largest are named


def test_posterior_predictive_of_one_of_several_outputs():
    two = pd.DataFrame({"f": F, "g": -F})
    gp = GPRegressor(sampler="map", random_state=0, progressbar=False).fit(X, two)
    assert plots.posterior_predictive(gp, n_draws=5, output="g").get_xlabel() == "y, g"
    with pytest.raises(InvalidInput, match="'output' must be one of"):
        plots.posterior_predictive(gp)


# ---------------------------------------------------------------- hyperparameters


def test_pairs_are_coloured_by_log_density_and_respect_weights(classifier):
    axes = plots.pairs(classifier, units="input")
    assert axes.shape == (4, 4)
    points = axes[1, 0].collections[0]
    trace = classifier.trace_
    drawn = np.asarray(points.get_offsets())
    scale = X["a"].std(ddof=0)  # of the length scale of the first input
    assert set(np.round(drawn[:, 1], 8)) <= set(np.round(trace.flat[:, 1] * scale, 8))
    heaviest = trace.flat[np.argmax(trace.weight)]
    assert np.sum(np.isclose(drawn[:, 0], heaviest[0])) >= 1
    assert np.all(np.diff(points.get_array()) >= 0.0)  # the most probable on top
    assert not axes[0, 1].axison
    with pytest.raises(InvalidInput, match="two hyperparameters"):
        plots.pairs(classifier, var_names="linear.variance")


def test_evidence_surface_is_the_density_of_the_model(regressor):
    ax = plots.evidence_surface(regressor, "variance", "noise", n_grid=5, of="evidence")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    cross = ax.lines[-1].get_xydata()[0]
    best = regressor.trace_.flat[np.argmax(regressor.trace_.stats["lp"])]
    np.testing.assert_allclose(cross, best[[0, regressor.model_.names.index("noise")]])
    with pytest.raises(InvalidInput, match="two different"):
        plots.evidence_surface(regressor, "length_scale", "noise")
    with pytest.raises(InvalidInput, match="rising numbers"):
        plots.evidence_surface(regressor, "variance", "noise", limits=((2.0, 1.0), (0.1, 1.0)))


def test_trace_in_the_units_of_the_table(regressor):
    axes = plots.trace(regressor, var_names="length_scale[b]", units="input")
    np.testing.assert_allclose(
        axes[0, 1].lines[0].get_ydata(), regressor.trace_.draws[0, :, 2] * X["b"].std(ddof=0), rtol=1e-12
    )
    assert axes[0, 0].get_title(loc="right") == "units of the table"


# ---------------------------------------------------------------- priors


@pytest.mark.parametrize("targets", ["labels", "numbers"])
def test_prior_of_a_kernel(targets):
    left, right = plots.prior(SquaredExponential() + Matern(length_scale=0.5), n_functions=7, targets=targets)
    assert len(left.lines) == 7
    if targets == "labels":
        assert all(((line.get_ydata() >= 0.0) & (line.get_ydata() <= 1.0)).all() for line in left.lines)
        assert right.get_title(loc="left").endswith("between 0.1 and 0.9")


def test_prior_of_estimators_fitted_or_not(classifier, regressor):
    left, _ = plots.prior(GPClassifier(), X, LABELS, vary="b", n_functions=5)
    assert (left.get_xlabel(), left.get_ylabel(), len(left.lines)) == ("b", "P(yes)", 5)
    x = left.lines[0].get_xdata()
    assert (x[0], x[-1]) == (X["b"].min(), X["b"].max())
    assert plots.prior(classifier)[0].get_xlabel() == "a"
    assert legend(plots.prior(regressor)[1]) == ["prior", "observed"]
    with pytest.raises(InvalidInput, match="give 'X' and 'y'"):
        plots.prior(GPRegressor())
    with pytest.raises(InvalidInput, match="'vary'"):
        plots.prior(classifier, vary="c")


def test_prior_of_a_category_has_points():
    table = X.assign(g=np.where(X["b"] > 0.0, "high", "low"))
    left, _ = plots.prior(GPClassifier(), table, LABELS, vary="g", n_functions=3)
    assert list(left.lines[0].get_xdata()) == ["high", "low"]


def test_prior_beside_posterior(classifier):
    axes = plots.prior_posterior(classifier, units="input")
    assert [ax.get_title(loc="left") for ax in axes] == classifier.trace_.names
    assert legend(axes[0]) == ["prior", "posterior"]
    assert axes[1].get_xlabel() == "units of the table"
    prior = axes[0].collections[0].get_paths()[0].vertices  # LogNormal(2, 2), by the mode of its logarithm
    assert np.log(prior[np.argmax(prior[:, 1]), 0]) == pytest.approx(2.0, abs=0.6)
    some = plots.prior_posterior(classifier, max_parameters=2)
    assert some[-1].get_title(loc="right") == "2 of 4 shown"


def test_a_fake_without_methods_is_refused():
    with pytest.raises(InvalidInput, match="fitted estimator"):
        plots.residuals(SimpleNamespace())
