"""GPRegressor with a Student-t likelihood: robust predictions, their distribution, and which rows are outliers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import integrate, stats

from hmcgp import GPRegressor
from hmcgp.errors import InvalidInput
from hmcgp.evidence import Laplace
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import StudentT
from hmcgp.posterior import predict, responses

RNG = np.random.default_rng(1)
N = 70
X = np.sort(RNG.uniform(-3.0, 3.0, size=(N, 1)), axis=0)
TRUTH = 100.0 + 20.0 * np.sin(2.0 * X[:, 0])
CLEAN = TRUTH + 3.0 * RNG.normal(size=N)
OUTLIERS = np.arange(4, N, 9)
Y = CLEAN.copy()
Y[OUTLIERS] += np.where(np.arange(len(OUTLIERS)) % 2, 80.0, -80.0)


def quick(**settings):
    return GPRegressor(sampler="map", random_state=0, progressbar=False, n_jobs=1, **settings)


@pytest.fixture(scope="module")
def gp():
    return quick(likelihood="student_t").fit(X, Y)


def error(fit):
    return np.sqrt(np.mean((fit.predict(X) - TRUTH) ** 2))


def test_outliers_do_not_matter_and_are_found(gp):
    assert isinstance(gp.model_.evidence, Laplace)
    assert gp.model_.names[-2:] == ["noise", "degrees_of_freedom"]
    assert error(gp) < 2.0 < 0.3 * error(quick().fit(X, Y))
    found = gp.outlier_probability()
    assert (found[OUTLIERS] > 0.99).all()
    assert np.delete(found, OUTLIERS).mean() < 0.1
    assert (gp.outlier_probability(1.0) >= found).all()


def test_without_outliers_it_predicts_as_gaussian_noise_does():
    robust, plain = quick(likelihood="student_t").fit(X, CLEAN), quick().fit(X, CLEAN)
    assert error(robust) < 1.2 * error(plain)
    assert robust.outlier_probability().max() < 0.9
    assert abs(robust.loo().elpd - plain.loo().elpd) < 4.0


def test_quantiles_densities_and_samples_are_of_one_distribution(gp):
    some = X[[3, 40]]
    grid = np.linspace(-2000.0, 2200.0, 60_001)
    for row in some:
        density = np.exp(gp.log_predictive_density(np.repeat(row[None], len(grid), axis=0), grid))
        step = grid[1] - grid[0]
        cdf = np.cumsum(density) * step
        np.testing.assert_allclose(cdf[-1], 1.0, atol=2e-3)
        for q in (0.05, 0.5, 0.9):
            np.testing.assert_allclose(np.interp(gp.predict_quantiles(row[None], q)[0], grid, cdf), q, atol=4e-3)
    drawn = gp.sample_y(some, n_samples=8000, random_state=1)
    low, high = gp.predict_interval(some, 0.8).T
    inside = np.mean((drawn > low[:, None]) & (drawn < high[:, None]), axis=1)
    np.testing.assert_allclose(inside, 0.8, atol=0.02)
    mean, sd = gp.predict(some, return_std=True)
    joint_mean, covariance = gp.predict(some, return_cov=True)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=1e-6)
    f_low, f_high = gp.predict_interval(some, 0.8, of="f").T
    assert ((low < f_low) & (f_high < high)).all()


def test_leave_one_out_is_close_to_refits(gp):
    found = gp.loo()
    kernel, (noise, nu) = gp.kernel_, gp.trace_.flat[0, -2:]
    for i in (10, int(OUTLIERS[2])):
        keep = np.delete(np.arange(N), i)
        refit = quick(kernel=kernel, likelihood=StudentT(noise, nu), standardize=False)
        unit, centre = gp._targets.unit, gp._targets.in_units(np.zeros(1))[0]
        scaled = gp._inputs.scaling.apply(X)
        refit.fit(scaled[keep], (Y[keep] - centre) / unit)
        expected = refit.log_predictive_density(scaled[[i]], [(Y[i] - centre) / unit])[0] - np.log(unit)
        np.testing.assert_allclose(found.pointwise[i], expected, atol=0.15)


def test_export_saving_weights_and_more_rows(gp, tmp_path):
    tree = gp.to_arviz(log_likelihood=True, posterior_predictive=True)
    assert tree["posterior_predictive"]["y"].shape == (1, 1, N)
    gp.save(tmp_path / "robust.hmcgp")
    again = GPRegressor.load(tmp_path / "robust.hmcgp")
    np.testing.assert_array_equal(again.predict_quantiles(X[:5]), gp.predict_quantiles(X[:5]))
    settings = {"kernel": SquaredExponential(1.0, 0.5), "likelihood": StudentT(0.02, 4.0), "standardize": False}
    z = (Y - 100.0) / 20.0
    twice = np.where(np.arange(N) % 3 == 0, 2, 1)
    rows = np.repeat(np.arange(N), twice)
    weighted, repeated = quick(**settings).fit(X, z, sample_weight=twice), quick(**settings).fit(X[rows], z[rows])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)
    grown = quick(**settings).fit(X[:50], z[:50]).append(X[50:], z[50:])
    np.testing.assert_allclose(grown.predict(X), quick(**settings).fit(X, z).predict(X), atol=1e-7)
    np.testing.assert_allclose(gp.effect(0, values=[0.5]).mean, gp.predict([[0.5]]), rtol=1e-9)
    assert gp.relevance(permutation=True).loss[0] > 0.0


def test_inducing_inputs():
    gp = quick(likelihood="student_t", inducing=20).fit(X, Y)
    assert error(gp) < 3.0
    assert (gp.outlier_probability()[OUTLIERS] > 0.9).all()


def test_what_makes_no_sense_is_refused(gp):
    with pytest.raises(InvalidInput, match="no row is an outlier, only improbable"):
        quick(kernel=SquaredExponential(1.0, 1.0)).fit(X, Y).outlier_probability()
    with pytest.raises(InvalidInput, match="StudentT explains one output; 'y' has 2 columns"):
        quick(likelihood="student_t").fit(X, np.column_stack([Y, Y]))
    with pytest.raises(InvalidInput, match="'noise_variance' goes with the likelihood 'gaussian'"):
        quick(likelihood="student_t").fit(X, Y, noise_variance=np.ones(N))
    with pytest.raises(InvalidInput, match=r"Exact cannot integrate StudentT.*evidence='laplace'"):
        quick(likelihood="student_t", evidence="exact").fit(X, Y)
    with pytest.raises(InvalidInput, match="'threshold'"):
        gp.outlier_probability(0.0)


def step_with_outliers(n, d, seed):
    """Table of a step function with two gross outliers."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(n, d))
    y = np.sign(inputs[:, 0]) + 0.1 * rng.normal(size=n)
    rows = rng.choice(n, 2, replace=False)
    y[rows] += rng.choice([-1.0, 1.0], 2) * rng.uniform(3.0, 10.0, 2)
    return inputs, y


@pytest.mark.parametrize(("n", "d", "seed"), [(40, 1, 1040), (40, 1, 1041), (25, 2, 2026), (40, 2, 2040)])
def test_the_most_probable_hyperparameters_are_no_pole(n, d, seed):
    """Latent standard deviations were up to a thousand times those of the prior, after a search that had failed."""
    inputs, y = step_with_outliers(n, d, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gp = quick(likelihood="student_t").fit(inputs, y)
        loo = gp.loo()
    _, variance = gp.latent_mean_and_variance(np.random.default_rng(0).normal(size=(50, d)))
    prior = gp.kernel_.diag(gp.model_.X[:1])[0] * gp._targets.unit**2
    assert variance.max() <= prior * (1.0 + 1e-9)
    assert np.isfinite(loo.pointwise).all()


def test_quantiles_solve_the_mixture_over_draws(gp):
    """As accurate as the bisection of the distribution function by a fine rule."""
    model, draws = gp.model_, np.repeat(gp.trace_.flat[:1], 3, axis=0)
    draws[1, -1], draws[2, -2] = 25.0, 4.0 * draws[2, -2]
    new, q = model.X[::10], np.array([1e-4, 0.05, 0.5, 0.999])
    found = responses.quantiles(model, draws, new, q)
    mean, variance = predict.latent_moments(model, draws, new)
    for row in range(len(new)):
        cdf = np.zeros(len(q))
        for theta, m, v in zip(draws, mean[:, row], variance[:, row], strict=True):
            f = m + np.sqrt(v) * np.linspace(-9.0, 9.0, 801)
            density = stats.norm.pdf(f, m, np.sqrt(v))
            for i in range(len(q)):
                t = stats.t(theta[-1], f, np.sqrt(theta[-2]))
                cdf[i] += integrate.trapezoid(t.cdf(found[i, row]) * density, f) / 3.0
        np.testing.assert_allclose(cdf, q, rtol=1e-5)
