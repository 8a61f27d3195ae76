"""Regression, from a table to the mixture over draws."""

from __future__ import annotations

import pickle
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import cross_val_score

mpl.use("Agg")

from hmcgp import GPClassifier, GPRegressor, plots
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Constant, Linear, SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.posterior import mixture, predict

pytestmark = [
    pytest.mark.usefixtures("clean_pyplot"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
]

RNG = np.random.default_rng(4)
X = pd.DataFrame(RNG.uniform(-3.0, 3.0, size=(40, 2)), columns=["depth", "age"])
Y = pd.Series(50.0 + 8.0 * np.sin(X["depth"]) + 2.0 * X["age"] + RNG.normal(size=40), name="yield")
X_NEW = pd.DataFrame(RNG.uniform(-3.0, 3.0, size=(15, 2)), columns=X.columns)


def quick(**settings):
    short = {"draws": 40, "tune": 60, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 3}
    return GPRegressor(**(short | settings))


@pytest.fixture(scope="module")
def gp():
    return quick().fit(X, Y)


def test_it_explains(gp):
    assert gp.score(X, Y) > 0.95
    assert gp.model_.names == ["variance", "length_scale[depth]", "length_scale[age]", "noise"]


def test_fixed_hyperparameters_agree_with_scikit_learn():
    kernel = SquaredExponential(variance=2.0, length_scale=1.3)
    ours = GPRegressor(
        kernel + Constant(), likelihood=Gaussian(0.1), standardize=False, sampler="map", progressbar=False
    )
    y = (Y - 50.0) / 8.0
    ours.fit(X, y)
    fitted: Any = ours.kernel_
    constant = fitted.right.variance
    theirs = GaussianProcessRegressor(
        ConstantKernel(2.0) * RBF(1.3) + ConstantKernel(constant) + WhiteKernel(0.1), optimizer=None
    ).fit(X, y)
    mean, sd = ours.predict(X_NEW, return_std=True)
    expected, expected_sd = theirs.predict(X_NEW, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    np.testing.assert_allclose(sd, expected_sd, atol=1e-8)
    np.testing.assert_allclose(
        ours.predict(X_NEW, return_cov=True)[1], theirs.predict(X_NEW, return_cov=True)[1], atol=1e-8
    )
    assert ours.log_marginal_likelihood() == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-8)


def test_mean_sd_and_covariance_tell_one_story(gp):
    mean, sd = gp.predict(X_NEW, return_std=True)
    joint_mean, covariance = gp.predict(X_NEW, return_cov=True)
    np.testing.assert_allclose(gp.predict(X_NEW), mean, rtol=1e-12)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance)[0] > 0.0
    latent_mean, latent_variance = gp.latent_mean_and_variance(X_NEW)
    np.testing.assert_allclose(latent_mean, mean, rtol=1e-12)
    noise = gp.trace_.flat[:, -1].mean() * Y.std(ddof=0) ** 2
    np.testing.assert_allclose(sd**2 - latent_variance, noise, rtol=1e-9)
    with pytest.raises(InvalidInput, match="not both"):
        gp.predict(X_NEW, return_std=True, return_cov=True)


def test_quantiles_and_density_are_of_the_mixture(gp):
    y = Y.mean() + np.linspace(-20.0, 20.0, len(X_NEW))
    mean, variance = predict.observed_moments(*gp._new_inputs(X_NEW))
    mean, variance = gp._targets.in_units(mean), gp._targets.unit**2 * variance
    density = np.mean(norm.pdf(y, mean, np.sqrt(variance)), axis=0)
    np.testing.assert_allclose(gp.log_predictive_density(X_NEW, y), np.log(density), rtol=1e-9)
    q = [0.01, 0.5, 0.9]
    found = gp.predict_quantiles(X_NEW, q)
    assert found.shape == (len(X_NEW), 3)
    for column, level in zip(found.T, q, strict=True):
        np.testing.assert_allclose(np.mean(norm.cdf(column, mean, np.sqrt(variance)), axis=0), level, atol=1e-9)
    np.testing.assert_allclose(gp.predict_quantiles(X_NEW, 0.5), found[:, 1], atol=1e-8)
    for bad in (0.0, 1.0, [0.5, np.nan], [[0.5]]):
        with pytest.raises(InvalidInput, match="strictly between 0 and 1"):
            gp.predict_quantiles(X_NEW, bad)


def test_quantiles_of_two_components_far_apart():
    mean, variance = np.array([[0.0], [100.0]]), np.array([[1.0], [4.0]])
    low, high = mixture.quantiles(np.array([0.25, 0.75]), mean, variance)[:, 0]
    np.testing.assert_allclose([low, high], [0.0, 100.0], atol=1e-8)
    total = np.zeros((3, 1))
    for n in range(2):
        mixture.merge(total, n, (mean[n], 0.0, variance[n]), 1)
    np.testing.assert_allclose(total[:, 0] / [1.0, 2.0, 2.0], [50.0, 2500.0, 2.5])


def test_samples_have_the_moments_of_the_mixture(gp):
    samples = gp.sample_y(X_NEW, 4000, random_state=1)
    assert samples.shape == (15, 4000)
    mean, covariance = gp.predict(X_NEW, return_cov=True)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((samples.mean(axis=1) - mean) / sd).max() < 4.0 / np.sqrt(4000)
    scaled = (np.cov(samples) - covariance) / np.outer(sd, sd)
    assert np.abs(scaled).max() < 6.0 / np.sqrt(4000)
    np.testing.assert_array_equal(gp.sample_y(X_NEW, 3), gp.sample_y(X_NEW, 3))


def test_units_of_the_target_do_not_matter():
    plain, scaled = (quick(sampler="map").fit(X, y) for y in (Y, 1e3 * Y - 7e4))
    np.testing.assert_allclose(scaled.predict(X_NEW), 1e3 * plain.predict(X_NEW) - 7e4, rtol=1e-3)
    np.testing.assert_allclose(
        scaled.log_predictive_density(X, 1e3 * Y - 7e4), plain.log_predictive_density(X, Y) - np.log(1e3), atol=1e-2
    )
    assert scaled.loo().elpd == pytest.approx(plain.loo().elpd - 40 * np.log(1e3), abs=0.05)


def test_loo_is_that_of_refits_with_one_draw():
    gp = quick(sampler="map", standardize=False).fit(X, Y - 50.0)
    theta = gp.trace_.flat[0]
    variance, scales, noise = theta[0], theta[1:3], theta[3]
    kernel, i = SquaredExponential(variance, scales, ard=True), 7
    C = kernel(X.to_numpy()) + noise * np.eye(40)
    others = np.arange(40) != i
    k = C[i, others]
    weights = np.linalg.solve(C[np.ix_(others, others)], k)
    expected = norm.logpdf(Y[i] - 50.0, weights @ (Y[others] - 50.0), np.sqrt(C[i, i] - weights @ k))
    assert gp.loo().pointwise[i] == pytest.approx(expected, abs=1e-8)


def test_a_linear_mean_extrapolates_and_numbers_without_noise_are_no_trouble():
    line = quick(kernel=SquaredExponential() + Linear() + Constant(), sampler="map").fit(
        X[["age"]], 3.0 * X["age"] + 1.0
    )
    assert line.predict(pd.DataFrame({"age": [30.0]}))[0] == pytest.approx(91.0, rel=0.02)


def test_to_arviz_save_clone_and_cross_validate(gp, tmp_path):
    tree = gp.to_arviz()
    np.testing.assert_allclose(tree["observed_data"]["y"].values, Y, rtol=1e-12)
    assert tree["posterior"]["noise"].shape == (2, 40)
    gp.save(tmp_path / "gp.hmcgp")
    again = GPRegressor.load(tmp_path / "gp.hmcgp")
    np.testing.assert_array_equal(again.predict(X_NEW), gp.predict(X_NEW))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(gp)).predict(X_NEW), gp.predict(X_NEW))
    assert cross_val_score(quick(sampler="map"), X, Y, cv=3).mean() > 0.8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": Y.where(Y.index != 3)}, "contains NaN"),
        ({"y": Y.replace(Y[3], np.inf)}, "contains infinity"),
        ({"y": np.full(40, 5.0)}, "all 40 targets are 5: there is nothing to explain"),
        ({"y": Y[:-1]}, "inconsistent numbers of samples"),
        ({"X": X.assign(depth=np.nan), "settings": {"missing": "error"}}, "contains NaN"),
        ({"X": X.assign(depth=np.nan)}, "'depth' is missing in every row"),
        ({"X": X[:1], "y": Y[:1]}, "minimum of 2"),
        ({"settings": {"likelihood": "logistic", "evidence": "laplace"}}, "take GPClassifier"),
        ({"settings": {"evidence": "laplace"}}, "Laplace cannot integrate Gaussian"),
    ],
)
def test_bad_input_is_refused_before_any_sampling(monkeypatch, changes, message):
    monkeypatch.setattr("hmcgp.estimators.base.sample", lambda *a, **k: pytest.fail("sampling has started"))
    with pytest.raises(ValueError, match=message):
        quick(**changes.get("settings", {})).fit(changes.get("X", X), changes.get("y", Y))


def test_a_classifier_refuses_numbers_and_names_the_regressor():
    with pytest.raises(InvalidInput, match=r"is for numbers, and GPClassifier explains labels.*GPRegressor"):
        GPClassifier(likelihood="gaussian", evidence="exact").fit(X, Y > 50.0)


def test_pictures_of_one_and_two_inputs(gp):
    ax = plots.predictive(gp, X, Y)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("depth", "age")
    one = quick(sampler="map").fit(X[["depth"]], Y)
    ax = plots.predictive(one, X[["depth"]], Y)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("depth", "yield")
    grid, mean = ax.lines[0].get_data()
    np.testing.assert_allclose(mean, one.predict(pd.DataFrame({"depth": grid})), rtol=1e-9)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "90 % of observations",
        "the function",
        "mean",
        "data",
    ]
    with pytest.raises(InvalidInput, match="one number per row"):
        plots.predictive(gp, X, Y[:-1])
