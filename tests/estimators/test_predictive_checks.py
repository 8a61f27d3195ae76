"""What a fit, or its prior, would have you observe."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, norm

from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor, Model
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.posterior.quantile_residuals import left_out
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.priors import LogNormal

RNG = np.random.default_rng(2)
X = pd.DataFrame(RNG.normal(size=(25, 2)) * [2.0, 9.0] + [5.0, 0.0], columns=["a", "b"])
Y = 40.0 + 6.0 * np.sin(X["a"]) + RNG.normal(size=25)
LABELS = np.where(X["a"] + RNG.normal(size=25) > 5.0, "yes", "no")
QUICK: dict[str, Any] = {"sampler": "map", "random_state": 0, "progressbar": False}
FIXED = SquaredExponential(30.0, [1.5, 30.0])


@pytest.fixture(scope="module")
def regressor():
    return GPRegressor(FIXED, likelihood=Gaussian(LogNormal(0.0, 1.0)), **QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return GPClassifier(refine=None, **QUICK).fit(X, LABELS)


def test_rows_left_out_are_predicted_by_the_others(regressor):
    """With one draw of the hyperparameters: refits without the row, under the same ones."""
    found = regressor.residuals()
    model, theta = regressor.model_, regressor.trace_.flat[0]
    unit, centre = Y.std(ddof=0), Y.mean()
    for i in (0, 7, 24):
        rest = np.arange(25) != i
        part = Model(model.X[rest], model.y[rest], kernel=model.kernel, likelihood=model.likelihood)
        kernel, evidence = part.posterior(theta)
        x = model.X[i : i + 1]
        mean, variance = evidence.posterior.predict(kernel(part.X, x), kernel.diag(x))
        likelihood: Any = part.likelihood_at(theta)
        sd = np.sqrt(variance + likelihood.noise)
        np.testing.assert_allclose(found.predicted[i], (centre + unit * mean).item(), rtol=1e-8)
        np.testing.assert_allclose(found.pit[i], norm.cdf((model.y[i] - mean) / sd).item(), rtol=1e-6)
    assert found.left_out
    np.testing.assert_allclose(found.observed, Y)
    np.testing.assert_allclose(norm.cdf(found.normalised), found.pit, rtol=1e-9)


def test_left_out_numbers_average_over_draws_as_loo_does(regressor):
    """Two draws: weights 1/p(y_i | y_-i, θ_s), normalised, which no smoothing changes for so few."""
    model, theta = regressor.model_, np.array([[0.05], [0.2]])
    draws = WeightedDraws(theta, np.array([0.5, 1.5]))
    one, two = (left_out(model, theta[i : i + 1]) for i in (0, 1))
    mean, cdf, _ = left_out(model, draws)
    for single, both in ((0, mean), (1, cdf)):
        share = (both - one[single]) / (two[single] - one[single])
        assert ((share > 0.0) & (share < 1.0)).all()
    share = (mean - one[0]) / (two[0] - one[0])
    np.testing.assert_allclose((cdf - one[1]) / (two[1] - one[1]), share, rtol=1e-6)  # the same weights for both


def test_new_rows_have_the_distribution_of_quantiles(regressor):
    q = np.array([0.1, 0.5, 0.8])
    at = regressor.predict_quantiles(X[:4], q)
    for k, level in enumerate(q):
        np.testing.assert_allclose(regressor.residuals(X[:4], at[:, k]).pit, level, atol=1e-7)
    found = regressor.residuals(X[:4], Y[:4])
    np.testing.assert_allclose(found.predicted, regressor.predict(X[:4]))
    assert not found.left_out


def test_outputs_have_a_column_each():
    two = np.column_stack([Y, 0.5 * X["b"] + np.cos(X["a"])])
    for kind in ("independent", "coregional"):
        gp = GPRegressor(outputs=kind, **QUICK).fit(X, two)
        found = gp.residuals(X[:5], two[:5])
        assert found.pit.shape == (5, 2)
        np.testing.assert_allclose(found.predicted, gp.predict(X[:5]), rtol=1e-8)
        with pytest.raises(InvalidInput, match="for one output"):
            gp.residuals()
        assert gp.posterior_predictive(3).shape == (3, 25, 2)
        assert gp.prior_predictive(X[:4], n_draws=3, observed=True).shape == (3, 4, 2)


def replicated(kind, seed):
    """Rows with targets of one kind, as drawn from a smooth truth, and an estimator for them."""
    rng = np.random.default_rng([seed, len(kind)])
    inputs = rng.normal(size=(150, 2))
    f = np.sin(1.5 * inputs[:, 0]) + 0.5 * inputs[:, 1]
    if kind == "counts":
        return GPCounts(**QUICK), inputs, rng.poisson(np.exp(f))
    if kind == "student_t":
        return GPRegressor(likelihood="student_t", **QUICK), inputs, f + 0.3 * rng.standard_t(3, size=150)
    z = 2.0 * f + rng.logistic(size=150)
    if kind == "labels":
        return GPClassifier(refine=None, **QUICK), inputs, np.where(z > 0.0, "yes", "no")
    codes = np.digitize(z, [-1.0, 1.0])
    if kind == "ordinal":
        return GPOrdinal(levels=["low", "mid", "top"], **QUICK), inputs, np.array(["low", "mid", "top"])[codes]
    return GPClassifier(refine=None, **QUICK), inputs, codes


@pytest.mark.parametrize("kind", ["counts", "student_t", "labels", "ordinal", "classes"])
def test_quantile_residuals_are_uniform_for_targets_of_every_kind(kind):
    """Of rows that the others predict, and of new rows; they were refused for all but Gaussian noise."""
    gp, inputs, y = replicated(kind, 1)
    gp.fit(inputs[:100], y[:100])
    within, new = gp.residuals(), gp.residuals(inputs[100:], y[100:])
    for residuals in (within, new):
        assert kstest(residuals.pit, "uniform").pvalue > 0.01
    assert within.left_out
    assert not new.left_out
    if kind != "student_t":  # randomised, within the probabilities of less and of no more
        other = gp.residuals(inputs[100:], y[100:], random_state=5)
        assert not np.allclose(other.pit, new.pit)
        p = gp.predict_proba(inputs[100:]) if kind != "counts" else None
        if p is not None:
            codes = np.searchsorted(gp.classes_, y[100:])
            upper = np.cumsum(p, axis=1)[np.arange(50), codes]
            assert ((new.pit <= upper + 1e-9) & (new.pit >= upper - p[np.arange(50), codes] - 1e-9)).all()
            np.testing.assert_allclose(new.predicted, p @ np.arange(p.shape[1]), atol=1e-9)
        else:
            np.testing.assert_allclose(new.predicted, gp.predict(inputs[100:]), rtol=1e-9)


def test_coverage_counts_central_intervals(regressor):
    found = regressor.residuals()
    inside = np.abs(found.pit - 0.5) <= 0.25
    np.testing.assert_allclose(found.coverage([0.5, 1.0]), [inside.mean(), 1.0])


def test_posterior_predictive_tables_look_like_the_data(regressor, classifier):
    numbers, labels = regressor.posterior_predictive(40), classifier.posterior_predictive(60)
    assert numbers.shape == (40, 25)
    assert abs(numbers.mean() - Y.mean()) < 0.5 * Y.std()
    assert set(np.unique(labels)) == {"no", "yes"}
    assert abs((labels == "yes").mean() - (LABELS == "yes").mean()) < 0.1
    np.testing.assert_array_equal(regressor.posterior_predictive(3), regressor.posterior_predictive(3))


def test_prior_predictive_has_the_moments_of_the_prior():
    """Numbers: y = mean(y) + f, of the variance that the kernel gives; correlated along the rows."""
    gp = GPRegressor(FIXED, likelihood=Gaussian(4.0), **QUICK)
    rows = X.iloc[:6]
    f = gp.prior_predictive(X, Y, at=rows, n_draws=3000)
    y = gp.prior_predictive(X, Y, at=rows, n_draws=3000, observed=True, random_state=1)
    error = 4.0 * np.sqrt(2.0 / 3000)  # four standard errors of a variance, relative
    np.testing.assert_allclose(f.mean(), Y.mean(), atol=4.0 * np.sqrt(30.0 / 3000))
    np.testing.assert_allclose(f.var(axis=0), 30.0, rtol=error)
    np.testing.assert_allclose(y.var(axis=0), 34.0, rtol=error)
    gap = (rows.to_numpy()[0] - rows.to_numpy()[1]) / [1.5, 30.0]
    assert np.corrcoef(f[:, 0], f[:, 1])[0, 1] == pytest.approx(np.exp(-0.5 * gap @ gap), abs=4.0 / np.sqrt(3000))
    assert not hasattr(gp, "model_")  # untouched


def test_prior_predictive_draws_hyperparameters_from_their_prior():
    """Of one row, p = σ(f), f ~ N(0, v), v ~ p(v): against as many draws made by hand."""
    gp = GPClassifier(SquaredExponential(LogNormal(1.0, 2.0), 1.0).on("a"), **QUICK)
    p = gp.prior_predictive(X, LABELS, at=X.iloc[:1], n_draws=1500)
    assert p.shape == (1500, 1, 2)
    np.testing.assert_allclose(p.sum(axis=2), 1.0)
    rng = np.random.default_rng(7)
    f = rng.normal(size=1500) * np.exp(0.5 * rng.normal(1.0, 2.0, size=1500))
    assert kstest(np.log(p[:, 0, 1] / p[:, 0, 0]), f).pvalue > 0.001
    narrow = rng.normal(size=1500) * np.exp(0.5)
    assert kstest(np.log(p[:, 0, 1] / p[:, 0, 0]), narrow).pvalue < 0.01  # a control: one variance for all


def test_prior_predictive_of_several_classes():
    three = np.repeat(["a", "b", "c"], [9, 8, 8])
    assert GPClassifier(**QUICK).prior_predictive(X, three, n_draws=4).shape == (4, 25, 3)
    shared = GPClassifier(SquaredExponential(), **QUICK).prior_predictive(X, three, n_draws=4)
    np.testing.assert_allclose(shared.sum(axis=2), 1.0)
    assert shared.std(axis=0).min() > 0.0


def test_what_cannot_be_answered_is_refused(regressor, classifier):
    with pytest.raises(InvalidInput, match="not fitted: give 'y' too"):
        GPClassifier().prior_predictive(X)
    with pytest.raises(InvalidInput, match="give both 'X' and 'y'"):
        regressor.residuals(X)


def test_counts_levels_and_heavy_tails_have_priors_too():
    counts = np.random.default_rng(0).poisson(3.0, size=25)
    rates = GPCounts(**QUICK).prior_predictive(X, counts, n_draws=4)
    assert rates.shape == (4, 25)
    assert rates.min() > 0.0
    drawn = GPCounts(**QUICK).prior_predictive(X, counts, n_draws=4, observed=True)
    np.testing.assert_array_equal(drawn, np.round(drawn))
    heavy = GPRegressor(likelihood="student_t", **QUICK)
    assert heavy.prior_predictive(X, Y, n_draws=3, observed=True).shape == (3, 25)
