"""Leave-one-out without refitting, against refits."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from hmcgp import GPClassifier, Model, plots, sample
from hmcgp.errors import ApproximationWarning, InvalidInput
from hmcgp.evidence import EP
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian, LabelNoise, Logistic, Probit
from hmcgp.numerics import pareto
from hmcgp.posterior import leave_one_out as leaving_out
from hmcgp.posterior import over_draws, predict
from hmcgp.posterior.leave_one_out import LeaveOneOut, combine, log_predictive_per_draw
from hmcgp.posterior.weights import WeightedDraws
from tests.helpers.checks import classification_problem

N = 40
X, Y, _ = classification_problem(N, 2)
NUMBERS = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.3 * np.random.default_rng(1).normal(size=N)
THETAS = np.array([[3.0, 1.5], [0.5, 0.7], [20.0, 2.0]])  # variance, length scale


def model_of(likelihood, evidence, rows=slice(None)):
    y = NUMBERS if isinstance(likelihood, Gaussian) else Y
    return Model(X[rows], y[rows], kernel=SquaredExponential(), likelihood=likelihood, evidence=evidence)


def refitted(likelihood, evidence, theta):
    """log p(y_i | y_-i, θ) by solving for the other rows and predicting row i."""
    y = NUMBERS if isinstance(likelihood, Gaussian) else Y
    out = np.empty(N)
    for i in range(N):
        others = model_of(likelihood, evidence, np.arange(N) != i)
        mean, variance = predict.latent_moments(others, theta[None], X[[i]])
        out[i] = others.likelihood_at(theta).log_average(y[[i]], mean[0], variance[0])[0]
    return out


def test_gaussian_noise_is_exact():
    likelihood = Gaussian(0.1)
    got = log_predictive_per_draw(model_of(likelihood, "exact"), THETAS)
    expected = [refitted(likelihood, "exact", theta) for theta in THETAS]
    np.testing.assert_allclose(got, expected, atol=1e-8)


def test_an_inferred_noise_is_that_of_the_draw():
    model = model_of(Gaussian(), "exact")
    draws = np.array([[3.0, 1.5, 0.1], [3.0, 1.5, 0.4]])
    got = log_predictive_per_draw(model, draws)
    np.testing.assert_array_equal(got[1], log_predictive_per_draw(model_of(Gaussian(0.4), "exact"), draws[1:, :2])[0])
    assert abs(got[0] - got[1]).max() > 0.1


@pytest.mark.parametrize(
    ("likelihood", "evidence"),
    [
        (Logistic(), "ep"),
        (Probit(), "ep"),
        (LabelNoise(0.05), "ep"),
        (Probit(), "tap"),
        (Logistic(), "laplace"),
        (Probit(), "laplace"),
        (Probit(), "naive"),
        (LabelNoise(0.05), "naive"),
        (Logistic(), "lower"),
    ],
    ids=str,
)
def test_cavities_against_refits(likelihood, evidence):
    got = log_predictive_per_draw(model_of(likelihood, evidence), THETAS)
    for theta, log_p in zip(THETAS, got, strict=True):
        expected = refitted(likelihood, evidence, theta)
        assert np.mean(np.abs(log_p - expected)) < 0.02
        # without leaving out, the rows look better predicted than they are
        model = model_of(likelihood, evidence)
        mean, variance = predict.latent_moments(model, theta[None], X)
        seen = likelihood.log_average(Y, mean[0], variance[0])
        assert np.mean(seen - expected) > 2.0 * np.mean(np.abs(log_p - expected))


@pytest.mark.parametrize("likelihood", [Logistic(), Probit(), LabelNoise(0.1), LabelNoise(0.1, link="step")], ids=str)
def test_log_average_is_the_log_of_the_average(likelihood):
    mean, variance = np.array([-30.0, -2.0, 0.0, 0.3, 4.0]), np.array([0.2, 3.0, 1.0, 0.5, 9.0])
    p = likelihood.average(mean, variance)
    np.testing.assert_allclose(likelihood.log_average(np.ones(5), mean, variance), np.log(p), rtol=1e-12)
    other = likelihood.log_average(-np.ones(5), mean, variance)
    np.testing.assert_allclose(np.exp(other[1:]), 1.0 - p[1:], rtol=1e-12)


def test_log_average_far_on_the_wrong_side_and_of_numbers():
    np.testing.assert_allclose(
        Probit().log_average(np.ones(1), np.array([-100.0]), np.array([3.0])), stats.norm.logcdf(-50.0), rtol=1e-13
    )
    assert np.isfinite(Logistic().log_average(np.ones(1), np.array([-1e4]), np.ones(1))).all()
    got = Gaussian(0.5).log_average(np.array([2.0]), np.array([1.0]), np.array([0.25]))
    np.testing.assert_allclose(got, stats.norm.logpdf(2.0, 1.0, np.sqrt(0.75)), rtol=1e-13)


# ---------------------------------------------------------------- weights


def test_weights_are_large_where_the_row_is_predicted_badly():
    """Unsmoothed, the average is the harmonic mean; smoothing hardly moves light tails."""
    log_p = -1.0 + 0.2 * np.random.default_rng(0).normal(size=(800, 3))
    result = combine(log_p)
    harmonic = -(logsumexp(-log_p, axis=0) - np.log(800))
    np.testing.assert_allclose(result.pointwise, harmonic, atol=2e-3)
    assert (result.pointwise < logsumexp(log_p, axis=0) - np.log(800) - 0.02).all()
    assert (result.pareto_k < 0.5).all()


def test_pareto_k_finds_the_tail():
    rng = np.random.default_rng(3)
    log_w, k = pareto.smooth(np.log(rng.pareto([[10.0], [2.0], [0.8]], size=(3, 4000)) + 1.0), 1.0)
    np.testing.assert_allclose(k, [0.1, 0.5, 1.25], atol=0.25)
    np.testing.assert_allclose(np.exp(log_w).sum(axis=1), 1.0, rtol=1e-12)


def test_weights_of_too_few_equal_or_repeated_draws():
    x = np.random.default_rng(0).normal(size=(2, 400))
    log_w, k = pareto.smooth(x[:, :10], 1.0)
    assert np.isinf(k).all()
    np.testing.assert_allclose(log_w, x[:, :10] - logsumexp(x[:, :10], axis=1, keepdims=True))
    log_w, k = pareto.smooth(np.zeros((2, 100)), 1.0)
    np.testing.assert_array_equal(k, 0.0)
    np.testing.assert_allclose(np.exp(log_w), 0.01)
    repeated, k_repeated = pareto.smooth(np.repeat(x, 2, axis=1), 1.0)
    assert np.isfinite(k_repeated).all()
    assert np.isfinite(repeated).all()


def test_a_warning_names_the_rows():
    rng = np.random.default_rng(0)
    log_p = -1.0 + 0.1 * rng.normal(size=(500, 4))
    log_p[:, 2] = -np.log(rng.pareto(0.7, size=500) + 1.0)
    with pytest.warns(ApproximationWarning, match=r"for 1 of 4 rows .*rows 2\)") as caught:
        result = combine(log_p)
    assert caught[0].filename == __file__
    assert "1 above 0.7" in repr(result)


def test_the_result():
    log_p = np.log(np.array([[0.5, 0.25, 0.125]]))
    result = combine(log_p)
    assert result.elpd == pytest.approx(-6.0 * np.log(2.0))
    assert result.se == pytest.approx(np.log(2.0) * np.sqrt(3.0 * 2.0 / 3.0))
    assert result.log_loss == pytest.approx(2.0 * np.log(2.0))
    np.testing.assert_allclose(result.probability, [0.5, 0.25, 0.125])
    assert np.isnan(result.pareto_k).all()
    assert "elpd -4.16 ± 0.98, 3 rows" in repr(result)
    assert "one draw" in repr(result)
    with pytest.raises(AttributeError):
        result.elpd = 0.0  # type: ignore[misc]


def test_a_provider_without_a_cavity_is_refused():
    with pytest.raises(InvalidInput, match="UpperBound cannot take one row out"):
        leaving_out.loo(model_of(Logistic(), "upper"), THETAS)


def test_the_result_does_not_depend_on_the_workers_and_travels_to_processes():
    model = model_of(Logistic(), "ep")
    draws = THETAS[0] * np.exp(0.3 * np.random.default_rng(0).normal(size=(60, 2)))
    one, two = (leaving_out.loo(model, draws, n_jobs=n) for n in (1, 2))
    np.testing.assert_array_equal(one.pointwise, two.pointwise)
    statistic, copied = pickle.loads(pickle.dumps((leaving_out._Cavities(), model)))
    group = over_draws.solve_group(statistic, copied, WeightedDraws.of(draws[:25]))
    np.testing.assert_array_equal(group[0], leaving_out.cavities(model, draws)[0][:25])


# ---------------------------------------------------------------- estimator and picture


def fit(rows=slice(None), *, draws=150, **settings):
    gp = GPClassifier(
        SquaredExponential(), draws=draws, tune=150, chains=2, random_state=0, progressbar=False, **settings
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return gp.fit(X[rows], Y[rows])


@pytest.mark.filterwarnings("ignore:leave-one-out is not reliable")  # for a row in forty, by chance
def test_the_estimator_leaves_out():
    gp = fit(evidence="ep", draws=500, predict_draws=None)
    result = gp.loo()
    assert isinstance(result, LeaveOneOut)
    assert result.n_draws == 1000
    assert np.mean(result.pareto_k < 0.7) > 0.9
    seen = np.log(gp.predict_proba(X)[np.arange(N), (Y > 0.0).astype(int)])
    assert result.elpd < seen.sum()


def test_one_draw_has_no_weights_and_a_picture_all_the_same(clean_pyplot):
    gp = GPClassifier(SquaredExponential(), sampler="map", random_state=0).fit(X, Y)
    result = gp.loo()
    assert np.isnan(result.pareto_k).all()
    axes = plots.loo(result)
    assert "one draw" in axes[1].texts[0].get_text()


def test_the_picture_shows_every_row(clean_pyplot):
    pointwise, k = -np.linspace(0.1, 2.0, 8), np.array([0.1, 0.2, 0.9, 0.3, 0.0, -0.1, np.inf, 0.4])
    axes = plots.loo(LeaveOneOut(float(pointwise.sum()), 1.0, pointwise, k, 100))
    good, bad = axes[0].lines[:2]
    np.testing.assert_array_equal(bad.get_xdata(), [2, 6])
    np.testing.assert_array_equal(bad.get_ydata(), pointwise[[2, 6]])
    np.testing.assert_array_equal(good.get_ydata(), pointwise[k < 0.7])
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata(), [0.9, 1.0])
    assert [t.get_text() for t in axes[0].texts] == ["7", "6", "5", "4", "3"]
    with pytest.raises(InvalidInput, match=r"what gp\.loo\(\) returns"):
        plots.loo([1.0])
    with pytest.raises(InvalidInput, match="shape"):
        plots.loo(LeaveOneOut(0.0, 0.0, pointwise, k, 9), axes=axes[:1])


def test_rows_without_a_density_are_not_reported_as_reliable():
    """NaN under one draw: its Pareto k was 0."""
    log_p = 0.1 * np.random.default_rng(0).normal(size=(100, 4))
    log_p[3, 2] = np.nan
    with pytest.warns(ApproximationWarning, match="not reliable for 1 of 4 rows"):
        result = combine(log_p)
    assert np.isinf(result.pareto_k[2])
    assert (np.delete(result.pareto_k, 2) < 0.7).all()


@pytest.mark.slow
def test_weighted_draws_against_refits_with_new_draws():
    """Hyperparameters averaged: 40 fits of 39 rows each, EP, against one fit of 40."""
    got = sampled(slice(None))
    result = leaving_out.loo(*got)
    assert np.mean(result.pareto_k < 0.7) > 0.9
    expected = np.empty(N)
    for i in range(N):
        model, draws = sampled(np.arange(N) != i)
        column = int(Y[i] > 0.0)
        expected[i] = np.log(predict.probabilities(model, draws, X[[i]])[0, column])
    difference = result.pointwise - expected
    print(f"mean absolute difference {np.mean(np.abs(difference)):.4f}, elpd {result.elpd:.2f}, {expected.sum():.2f}")
    assert np.mean(np.abs(difference)) < 0.02
    assert abs(difference.sum()) < 0.5


def sampled(rows):
    model = model_of(Logistic(), EP(), rows)
    trace = sample(model, draws=250, tune=150, chains=2, random_state=0, progressbar=False, n_jobs=1)
    return model, trace.flat
