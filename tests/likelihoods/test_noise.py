"""Noise that is known for each row, or depends on the inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from hmcgp import GPRegressor, Model
from hmcgp.errors import InvalidInput
from hmcgp.evidence import Exact
from hmcgp.kernels import RadialBasis, SquaredExponential
from hmcgp.likelihoods import Gaussian, VaryingNoise
from hmcgp.posterior import predict
from hmcgp.priors import Normal

RNG = np.random.default_rng(2)
X = np.sort(RNG.uniform(-3.0, 3.0, size=(60, 1)), axis=0)
SD = np.exp(-2.0 + 0.7 * X[:, 0])  # of the noise: 0.017 to 1.1
Y = np.sin(2.0 * X[:, 0]) + SD * RNG.normal(size=60)
BUMPS = RadialBasis((-2.0, 0.0, 2.0), 1.0)


def model_of(likelihood):
    return Model(X, Y, kernel=SquaredExponential(), likelihood=likelihood)


def test_evidence_is_the_normal_density():
    K = SquaredExponential(2.0, 1.1)(X)
    known = SD**2
    expected = multivariate_normal(np.zeros(60), K + np.diag(0.01 + known)).logpdf(Y)
    np.testing.assert_allclose(Exact()(K, Y, Gaussian(0.01, known=known)).log_z, expected, rtol=1e-10)
    weight = np.array([0.3, -0.4, 1.0])
    noise = 0.2 * np.exp(BUMPS(X) @ weight)
    expected = multivariate_normal(np.zeros(60), K + np.diag(noise)).logpdf(Y)
    likelihood = VaryingNoise(0.2, weight, BUMPS).for_rows(X)
    np.testing.assert_allclose(Exact()(K, Y, likelihood).log_z, expected, rtol=1e-10)
    np.testing.assert_allclose(likelihood.noise_at(X), noise, rtol=1e-12)


@pytest.mark.parametrize(
    "likelihood",
    [VaryingNoise(), VaryingNoise(basis=BUMPS), VaryingNoise(noise=0.1, basis=BUMPS), Gaussian(known=SD**2)],
    ids=["inputs", "bumps", "level fixed", "known"],
)
def test_gradient_matches_central_differences(likelihood):
    model = model_of(likelihood)
    u = 0.3 * RNG.normal(size=model.n_dim)
    grad = model.logdensity_and_grad(u)[1]
    for k, direction in enumerate(np.eye(model.n_dim)):
        h = 1e-5
        up, down = (model.logdensity_and_grad(u + s * h * direction)[0] for s in (1.0, -1.0))
        np.testing.assert_allclose(grad[k], (up - down) / (2.0 * h), rtol=1e-6, atol=1e-6)


def test_names_say_which_basis_function():
    assert model_of(VaryingNoise(basis=BUMPS)).names[2:] == ["noise", "weight[-2]", "weight[0]", "weight[2]"]
    assert model_of(VaryingNoise(0.1, Normal(0.0, 2.0))).names[2:] == ["weight[x0]"]


def test_noise_that_grows_is_found():
    gp = GPRegressor(likelihood=VaryingNoise(), sampler="map", random_state=0, progressbar=False).fit(X, Y)
    assert gp.model_.names[-1] == "weight[x0]"
    sd = np.sqrt(gp.predict(X, return_std=True)[1] ** 2 - gp.latent_mean_and_variance(X)[1])
    np.testing.assert_allclose(np.log(sd), np.log(SD), atol=0.6)
    constant = GPRegressor(sampler="map", random_state=0, progressbar=False).fit(X, Y)
    assert gp.log_marginal_likelihood() > constant.log_marginal_likelihood() + 10.0
    assert gp.loo().elpd > constant.loo().elpd + 10.0


def test_known_noise_is_in_the_units_of_the_target():
    settings: dict[str, Any] = {"sampler": "map", "random_state": 0, "progressbar": False, "likelihood": Gaussian(0.0)}
    one = GPRegressor(**settings).fit(X, Y, noise_variance=SD**2)
    two = GPRegressor(**settings).fit(X, 100.0 * Y + 7.0, noise_variance=(100.0 * SD) ** 2)
    np.testing.assert_allclose(two.predict(X), 100.0 * one.predict(X) + 7.0, rtol=1e-4, atol=1e-2)
    precise, vague = np.argmin(SD), np.argmax(SD)
    residual = np.abs(one.predict(X) - Y)
    assert residual[precise] < 0.1
    assert one.latent_mean_and_variance(X)[1][precise] < one.latent_mean_and_variance(X)[1][vague]
    # at new inputs there is no known noise
    np.testing.assert_allclose(one.predict(X, return_std=True)[1] ** 2, one.latent_mean_and_variance(X)[1], atol=1e-9)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (np.where(np.arange(60) == 4, -0.1, 0.1), "not negative, one per row; got a value of -0.1 in row 4"),
        (np.where(np.arange(60) == 4, np.nan, 0.1), "got a value of nan in row 4"),
        (np.ones(59), "inconsistent numbers of samples"),
        (np.ones((60, 2)), "1d array"),
    ],
)
def test_bad_known_noise_is_refused(known, message):
    with pytest.raises(ValueError, match=message):
        GPRegressor(sampler="map").fit(X, Y, noise_variance=known)


def test_known_noise_needs_its_likelihood_and_its_rows():
    with pytest.raises(InvalidInput, match="goes with the likelihood 'gaussian'"):
        GPRegressor(likelihood="varying_noise").fit(X, Y, noise_variance=SD)
    with pytest.raises(InvalidInput, match="3 known variances of the noise for 60 rows"):
        model_of(Gaussian(known=[0.1, 0.2, 0.3]))
    with pytest.raises(InvalidInput, match="has not been told the inputs"):
        VaryingNoise(0.1, 0.2).row_noise(60)


def test_copies_without_noise_are_refused_and_with_noise_are_not():
    twice, y = np.vstack([X, X[7:9]]), np.concatenate([Y, Y[7:9]])
    with pytest.raises(InvalidInput, match=r"rows 7 and 60 have the same inputs and no noise \(2 such rows\)"):
        GPRegressor(likelihood=Gaussian(0.0)).fit(twice, y)
    known = np.concatenate([np.full(60, 0.1), np.zeros(2)])
    GPRegressor(likelihood=Gaussian(0.0), sampler="map", random_state=0).fit(twice, y, noise_variance=known)


def test_leaving_out_uses_the_noise_of_each_row():
    from hmcgp.posterior.leave_one_out import log_predictive_per_draw

    model = model_of(VaryingNoise(0.05, 0.9))
    theta = np.array([1.5, 0.8])
    got = log_predictive_per_draw(model, theta[None])[0]
    i, others = 40, np.arange(60) != 40
    rest = Model(X[others], Y[others], kernel=SquaredExponential(), likelihood=VaryingNoise(0.05, 0.9))
    mean, variance = predict.observed_moments(rest, theta[None], X[[i]])
    expected = multivariate_normal(mean[0, 0], variance[0, 0]).logpdf(Y[i])
    np.testing.assert_allclose(got[i], expected, rtol=1e-8)
