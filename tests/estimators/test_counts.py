"""GPCounts: rates and counts in the units of the user, and errors in their terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from hmcgp import GPClassifier, GPCounts, GPRegressor, plots
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Binomial, NegativeBinomial, Poisson

mpl.use("Agg")
import matplotlib.pyplot as plt

RNG = np.random.default_rng(3)
N = 60
X = np.sort(RNG.uniform(-3.0, 3.0, size=(N, 1)), axis=0)
EXPOSURE = RNG.uniform(20.0, 200.0, N)
RATE = 0.05 * np.exp(np.sin(2.0 * X[:, 0]))
EVENTS = RNG.poisson(RATE * EXPOSURE)
TRIALS = RNG.integers(1, 20, N)
SUCCESSES = RNG.binomial(TRIALS, 1.0 / (1.0 + np.exp(-2.0 * np.sin(2.0 * X[:, 0]))))
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "poisson": (EVENTS, {"exposure": EXPOSURE}),
    "negative_binomial": (EVENTS, {"exposure": EXPOSURE}),
    "binomial": (SUCCESSES, {"trials": TRIALS}),
}
each = pytest.mark.parametrize("name", CASES)


def quick(**settings):
    return GPCounts(sampler="map", random_state=0, progressbar=False, n_jobs=1, **settings)


@pytest.fixture(scope="module")
def fits():
    return {name: quick(likelihood=name).fit(X, y, **sizes) for name, (y, sizes) in CASES.items()}


@each
def test_rates_are_found(fits, name):
    gp = fits[name]
    truth = RATE if name != "binomial" else 1.0 / (1.0 + np.exp(-2.0 * np.sin(2.0 * X[:, 0])))
    rate, interval = gp.predict_rate(X, level=0.9)
    assert np.corrcoef(rate, truth)[0, 1] > 0.95
    assert np.mean((interval[:, 0] < truth) & (truth < interval[:, 1])) > 0.75
    assert ((interval[:, 0] < rate) & (rate < interval[:, 1])).all()


@each
def test_moments_quantiles_densities_and_samples_are_of_one_distribution(fits, name):
    gp, (_, sizes) = fits[name], CASES[name]
    mean, sd = gp.predict(X, return_std=True, **sizes)
    np.testing.assert_allclose(gp.predict(X, **sizes), mean, rtol=1e-9)
    (size,) = sizes.values()
    np.testing.assert_allclose(gp.predict_rate(X) * size, mean, rtol=1e-9)
    rows = [5, 30]
    few = {key: value[rows] for key, value in sizes.items()}
    k = np.arange(400.0) if name != "binomial" else np.arange(TRIALS[rows].max() + 1.0)
    for i, row in enumerate(rows):
        own = {key: np.full(len(k), value[row]) for key, value in sizes.items()}
        if name == "binomial":
            k = np.arange(TRIALS[row] + 1.0)
            own = {"trials": np.full(len(k), TRIALS[row])}
        p = np.exp(gp.log_predictive_density(np.repeat(X[[row]], len(k), axis=0), k, **own))
        np.testing.assert_allclose([p.sum(), p @ k, p @ k**2 - (p @ k) ** 2], [1.0, mean[row], sd[row] ** 2], rtol=2e-3)
        found = gp.predict_quantiles(X[rows], (0.1, 0.5, 0.9), **few)[i]
        cdf = np.cumsum(p)
        for q, quantile in zip((0.1, 0.5, 0.9), found, strict=True):
            assert cdf[int(quantile)] >= q - 3e-3
            assert quantile == 0.0 or cdf[int(quantile) - 1] < q + 3e-3
    drawn = gp.sample_y(X[rows], n_samples=4000, random_state=1, **few)
    assert drawn.shape == (2, 4000)
    assert (np.abs(drawn.mean(axis=1) - mean[rows]) < 5.0 * sd[rows] / np.sqrt(4000)).all()
    np.testing.assert_array_equal(
        gp.predict_interval(X[rows], 0.8, **few), gp.predict_quantiles(X[rows], (0.1, 0.9), **few)
    )
    np.testing.assert_allclose(
        gp.predict_interval(X[rows], 0.8, "f", **few), gp.predict_rate(X[rows], 0.8)[1] * size[rows][:, None]
    )


@each
def test_leave_one_out_effects_relevance_and_export(fits, name):
    gp, (y, sizes) = fits[name], CASES[name]
    assert gp.loo().elpd < gp.log_predictive_density(X, y, **sizes).sum()  # a row helps to predict itself
    effect = gp.effect(0, values=[X[3, 0], X[40, 0]], curves=True)
    assert effect.response == "rate"
    np.testing.assert_allclose(effect.mean, gp.predict_rate(X[[3, 40]]), rtol=1e-6)
    assert ((effect.low <= effect.high) & (effect.low > 0.0)).all()
    found = gp.relevance(permutation=True)
    assert found.unit == "rate"
    assert found.loss[0] > 0.0
    tree = gp.to_arviz(log_likelihood=True, posterior_predictive=True)
    np.testing.assert_array_equal(tree["observed_data"]["y"].values, y)
    assert tree["posterior_predictive"]["y"].shape == (1, 1, N)
    frame, targets = gp.training_data()
    np.testing.assert_array_equal(targets, y)
    assert frame.shape == (N, 1)


def test_plots_are_in_the_units_of_counts(fits):
    gp = fits["poisson"]
    ax = plots.regression_1d(gp, X, EVENTS, exposure=100.0, n_grid=20)
    (mean,) = (line.get_ydata() for line in ax.lines if line.get_label() == "mean")
    grid = next(np.asarray(line.get_xdata()) for line in ax.lines if line.get_label() == "mean")
    np.testing.assert_allclose(mean, 100.0 * gp.predict_rate(grid[:, None]), rtol=1e-8)
    assert plots.effect(gp, 0, values=[0.0, 1.0])[0].get_ylabel() == "rate of y"
    plt.close("all")


@each
def test_saved_fits_predict_the_same(fits, name, tmp_path):
    gp, (_, sizes) = fits[name], CASES[name]
    gp.save(tmp_path / "counts.hmcgp")
    again = GPCounts.load(tmp_path / "counts.hmcgp")
    np.testing.assert_array_equal(again.predict(X, **sizes), gp.predict(X, **sizes))
    assert again.loo().elpd == gp.loo().elpd


def test_units_of_exposure_are_the_users():
    """Per thousand instead of each: rates a thousand times as large, and the same counts."""
    one, other = (quick().fit(X, EVENTS, exposure=e) for e in (EXPOSURE, EXPOSURE / 1000.0))
    np.testing.assert_allclose(other.predict_rate(X), 1000.0 * one.predict_rate(X), rtol=1e-4)
    np.testing.assert_allclose(other.predict(X, exposure=0.5), one.predict(X, exposure=500.0), rtol=1e-4)


def test_single_trials_are_the_logistic_classifier():
    y = (SUCCESSES > TRIALS / 2).astype(int)
    kernel = SquaredExponential(2.0, 0.5)
    counts = quick(kernel=kernel, likelihood="binomial", standardize=False).fit(X, y, trials=1)
    labels = GPClassifier(kernel, sampler="map", refine=None, standardize=False, progressbar=False).fit(X, y)
    np.testing.assert_allclose(counts.predict_rate(X), labels.predict_proba(X)[:, 1], atol=1e-5)
    np.testing.assert_allclose(counts.loo().elpd, labels.loo().elpd, rtol=1e-8)


def test_weights_are_rows_repeated():
    weights = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    rows = np.repeat(np.arange(N), weights.astype(int))
    kernel = SquaredExponential(1.0, 0.5)
    one = quick(kernel=kernel).fit(X, EVENTS, exposure=EXPOSURE, sample_weight=weights)
    two = quick(kernel=kernel).fit(X[rows], EVENTS[rows], exposure=EXPOSURE[rows])
    np.testing.assert_allclose(one.predict_rate(X), two.predict_rate(X), rtol=1e-8)
    assert np.isfinite(one.loo().elpd)


@each
def test_expectation_propagation_predicts_about_the_same(fits, name, tmp_path):
    y, sizes = CASES[name]
    kernel = fits[name].kernel_
    settings: dict[str, Any] = {
        "kernel": kernel,
        "likelihood": fits[name].model_.likelihood_at(fits[name].trace_.flat[0]),
    }
    settings["likelihood"] = replace(settings["likelihood"], **{settings["likelihood"].size_name: None}, offset=0.0)
    laplace, ep = (quick(evidence=evidence, **settings).fit(X, y, **sizes) for evidence in ("laplace", "ep"))
    rate = ep.predict_rate(X)
    np.testing.assert_allclose(rate, laplace.predict_rate(X), rtol=0.05)
    assert np.abs(rate / laplace.predict_rate(X) - 1.0).max() > 1e-6
    np.testing.assert_allclose(ep.loo().elpd, laplace.loo().elpd, atol=1.0)
    np.testing.assert_allclose(ep.predict(X, **sizes), rate * next(iter(sizes.values())), rtol=1e-9)
    ep.save(tmp_path / "ep.hmcgp")
    np.testing.assert_array_equal(GPCounts.load(tmp_path / "ep.hmcgp").predict_rate(X), rate)


def test_expectation_propagation_finds_the_maximum_and_takes_inducing_inputs():
    gp = quick(evidence="ep", likelihood="negative_binomial").fit(X, EVENTS, exposure=EXPOSURE)
    few = quick(evidence="ep", likelihood="negative_binomial", inducing=15).fit(X, EVENTS, exposure=EXPOSURE)
    assert np.corrcoef(gp.predict_rate(X), RATE)[0, 1] > 0.95
    np.testing.assert_allclose(few.predict_rate(X), gp.predict_rate(X), rtol=0.1)


def test_rows_can_be_appended():
    kernel = SquaredExponential(1.0, 0.5)
    weights = np.linspace(0.5, 2.0, N)
    for given in (None, weights):
        parts = [None if given is None else given[some] for some in (slice(40), slice(40, N), slice(None))]
        gp = quick(kernel=kernel, standardize=False).fit(
            X[:40], EVENTS[:40], exposure=EXPOSURE[:40], sample_weight=parts[0]
        )
        gp.append(X[40:], EVENTS[40:], exposure=EXPOSURE[40:], sample_weight=parts[1])
        whole = quick(kernel=kernel, standardize=False).fit(X, EVENTS, exposure=EXPOSURE, sample_weight=parts[2])
        np.testing.assert_allclose(gp.predict_rate(X), whole.predict_rate(X), rtol=1e-7)
    with pytest.raises(InvalidInput, match="the fit was given 'exposure'"):
        gp.append(X[:2], EVENTS[:2])


def test_gaps_in_the_inputs_have_indicators():
    with_gaps = np.column_stack([X[:, 0], np.where(np.arange(N) % 5 == 0, np.nan, X[:, 0] ** 2)])
    gp = quick(kernel=SquaredExponential(1.0, 0.5), missing="indicator").fit(with_gaps, EVENTS, exposure=EXPOSURE)
    assert np.isfinite(gp.predict_rate(with_gaps)).all()
    with pytest.raises(InvalidInput, match="NaN"):
        quick(missing="error").fit(with_gaps, EVENTS, exposure=EXPOSURE)


def test_inducing_inputs():
    gp = quick(inducing=15).fit(X, EVENTS, exposure=EXPOSURE)
    dense = quick().fit(X, EVENTS, exposure=EXPOSURE)
    np.testing.assert_allclose(gp.predict_rate(X), dense.predict_rate(X), rtol=0.1)
    assert gp.inducing_error_.prediction < 0.05


def test_a_fit_by_sampling():
    frame = pd.DataFrame({"time": X[:, 0], "place": np.where(np.arange(N) % 2, "a", "b")})
    gp = GPCounts(
        likelihood="negative_binomial", draws=60, tune=60, chains=2, random_state=0, progressbar=False, n_jobs=1
    )
    with pytest.warns(ConvergenceWarning, match="effective sample size"):
        gp.fit(frame, EVENTS, exposure=EXPOSURE)
    assert gp.model_.names[-1] == "dispersion"
    assert gp.summary().shape[0] == gp.model_.n_dim
    low, middle, high = gp.predict_quantiles(frame, exposure=EXPOSURE).T
    assert np.mean((low <= EVENTS) & (high >= EVENTS)) > 0.8
    assert ((low <= middle) & (middle <= high)).all()
    assert 0.5 < gp.score(frame, EVENTS, exposure=EXPOSURE) <= 1.0


def test_the_dispersion_of_scattered_counts_is_found():
    rng = np.random.default_rng(0)
    y = rng.poisson(RATE * EXPOSURE * rng.gamma(2.0, 0.5, N))
    found = quick(likelihood="negative_binomial").fit(X, y, exposure=EXPOSURE).trace_.flat[0, -1]
    assert 0.2 < found < 1.2  # 0.5
    assert quick(likelihood="negative_binomial").fit(X, EVENTS, exposure=EXPOSURE).trace_.flat[0, -1] < 0.15


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, {"y": -EVENTS - 1}, "'y' must be counts, 0 or more; it holds"),
        ({}, {"y": EVENTS + 0.5}, "'y' must be whole numbers; it holds .* GPRegressor"),
        ({}, {"y": np.array(["a"] * N)}, "GPCounts needs counts: use GPClassifier"),
        ({"likelihood": "binomial"}, {"y": TRIALS + 1, "trials": TRIALS}, "successes of .* trials"),
        ({"likelihood": "binomial"}, {}, "give 'trials' to fit"),
        ({"likelihood": "binomial"}, {"exposure": EXPOSURE}, "'exposure' does not go with the likelihood Binomial"),
        ({}, {"trials": TRIALS}, "'trials' does not go with the likelihood Poisson"),
        ({}, {"exposure": -EXPOSURE}, "'exposure' must be positive and finite"),
        ({}, {"exposure": EXPOSURE[:-1]}, "'exposure' has 59 values for 60 rows: give one for each row"),
        ({"likelihood": Poisson(EXPOSURE)}, {}, "give 'exposure' to fit and to predictions"),
        ({"likelihood": "gaussian"}, {}, "GPCounts explains counts: take GPRegressor"),
        ({"likelihood": "poison"}, {}, "Did you mean 'poisson'"),
        ({"evidence": "tap"}, {}, "TAP cannot integrate Poisson.*evidence='laplace' or evidence='ep'"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, arguments, message):
    with pytest.raises((InvalidInput, ValueError), match=message):
        quick(**settings).fit(X, **{"y": EVENTS, **arguments})


def test_predictions_ask_for_what_is_missing(fits):
    with pytest.raises(InvalidInput, match=r"the fit was given 'exposure'.*predict_rate"):
        fits["poisson"].predict(X)
    with pytest.raises(InvalidInput, match="'trials' for these 60 rows"):
        fits["binomial"].predict_quantiles(X)
    without = quick(kernel=SquaredExponential(1.0, 0.5)).fit(X, EVENTS)
    np.testing.assert_allclose(without.predict(X), without.predict_rate(X))
    with pytest.raises(InvalidInput, match="the fit was given no 'exposure'"):
        without.predict(X, exposure=2.0)
    with pytest.raises(InvalidInput, match="'quantiles' must be"):
        without.predict_quantiles(X, 1.0)
    with pytest.raises(InvalidInput, match="take GPCounts for them"):
        GPRegressor(likelihood="poisson").fit(X, EVENTS)
    with pytest.raises(InvalidInput, match="take GPCounts for them"):
        GPClassifier(likelihood=Binomial()).fit(X, EVENTS > 3)


@pytest.mark.parametrize("family", ["Poisson", "NegativeBinomial"])
def test_a_line_with_wide_priors_is_the_generalised_linear_model_of_statsmodels(family):
    import statsmodels.api as sm

    from hmcgp.kernels import Constant, Linear

    line, rng = X[:, 0], np.random.default_rng(1)
    y = rng.poisson(EXPOSURE * 0.1 * np.exp(0.5 * line))
    own = sm.families.Poisson() if family == "Poisson" else sm.families.NegativeBinomial(alpha=0.3)
    fit = sm.GLM(y, sm.add_constant(line), family=own, exposure=EXPOSURE).fit()
    likelihood = Poisson() if family == "Poisson" else NegativeBinomial(0.3)
    kernel = Constant(100.0) + Linear(100.0)
    gp = quick(kernel=kernel, likelihood=likelihood, standardize=False).fit(X, y, exposure=EXPOSURE)
    mean, variance = gp.latent_mean_and_variance(X)
    table = fit.get_prediction(sm.add_constant(line), offset=np.zeros(N), which="linear").summary_frame()
    np.testing.assert_allclose(mean, table["mean"] if "mean" in table else table["predicted"], atol=1e-2)
    np.testing.assert_allclose(np.sqrt(variance), table["mean_se"] if "mean_se" in table else table["se"], rtol=0.02)


@pytest.mark.slow
def test_intervals_cover_counts_that_the_model_has_drawn():
    rng, inside = np.random.default_rng(5), []
    K = SquaredExponential(0.5, 0.6)(X)
    root = np.linalg.cholesky(K + 1e-8 * np.eye(N))
    for _ in range(12):
        f = root @ rng.standard_normal(N)
        y = rng.poisson(8.0 * np.exp(f))
        gp = quick(kernel=SquaredExponential(0.5, 0.6), standardize=False).fit(X[::2], y[::2], exposure=8.0)
        low, high = gp.predict_interval(X[1::2], 0.8, exposure=8.0).T
        inside.append(np.mean((low <= y[1::2]) & (y[1::2] <= high)))
    # whole numbers: 0.8 at least; 12 tables of 30 correlated rows
    assert 0.77 < np.mean(inside) < 0.93
    assert stats.sem(inside) < 0.03
