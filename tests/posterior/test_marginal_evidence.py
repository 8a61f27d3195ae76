"""Evidence with hyperparameters integrated out, against quadrature and known integrals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from hmcgp import Model, sample
from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.posterior.marginal_evidence import log_densities, log_marginal_evidence
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.priors import LogNormal
from tests.helpers.checks import classification_problem

X, Y, _ = classification_problem(20, 2)
NUMBERS = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.3 * np.random.default_rng(1).normal(size=20)
PRIORS: dict[str, Any] = {"variance": LogNormal(0.0, 1.0), "length_scale": LogNormal(0.5, 0.7)}
GRID = np.linspace(-6.0, 6.0, 61)


def integral(values, grid=GRID):
    """Logarithm of the integral of exp(values) over a grid of one or two logarithms of hyperparameters."""
    top = values.max()
    total = np.exp(values - top)
    for _ in range(values.ndim):
        total = integrate.trapezoid(total, grid, axis=0)
    return top + np.log(total)


def log_z_of_numbers(variance, length_scale):
    """Evidence of regression, from the textbook."""
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = variance * np.exp(-0.5 * squares / length_scale**2) + 0.1 * np.eye(len(X))
    return stats.multivariate_normal.logpdf(NUMBERS, cov=K)


def log_prior(name, u):
    """Log density of a logarithm."""
    location, sd = {"variance": (0.0, 1.0), "length_scale": (0.5, 0.7)}[name]
    return stats.norm.logpdf(u, location, sd)


def drawn(model, seed=1):
    trace = sample(model, draws=300, tune=200, chains=2, random_state=seed, progressbar=False, n_jobs=1)
    return {"draws": trace.flat, "log_density": np.ravel(trace.stats["lp"]), "n_chains": 2}


def test_one_hyperparameter_of_a_regression_against_quadrature():
    kernel = SquaredExponential(variance=PRIORS["variance"], length_scale=1.5)
    model = Model(X, NUMBERS, kernel=kernel, likelihood=Gaussian(0.1))
    expected = integral(np.array([log_z_of_numbers(np.exp(u), 1.5) + log_prior("variance", u) for u in GRID]))
    found = log_marginal_evidence(model, **drawn(model))
    assert found.se < 0.05
    assert abs(found.log_z - expected) < 3.0 * found.se
    assert str(found) == f"{found.log_z:.2f} ± {found.se:.2f}"


def test_two_hyperparameters_of_a_regression_against_quadrature():
    model = Model(X, NUMBERS, kernel=SquaredExponential(**PRIORS), likelihood=Gaussian(0.1))
    values = [
        [log_z_of_numbers(np.exp(u), np.exp(v)) + log_prior("variance", u) + log_prior("length_scale", v) for v in GRID]
        for u in GRID
    ]
    found = log_marginal_evidence(model, **drawn(model))
    assert found.se < 0.05
    assert abs(found.log_z - integral(np.array(values))) < 3.0 * found.se


@pytest.mark.parametrize("evidence", ["laplace", "ep"])
def test_labels_against_quadrature(evidence):
    model = Model(X, Y, kernel=SquaredExponential(**PRIORS), evidence=evidence)
    coarse = GRID[::2]
    grid = np.stack(np.meshgrid(coarse, coarse, indexing="ij"), axis=2)
    log_z = [[model.log_evidence(np.exp(u))[0] for u in row] for row in grid]
    values = np.array(log_z) + log_prior("variance", grid[:, :, 0]) + log_prior("length_scale", grid[:, :, 1])
    found = log_marginal_evidence(model, **drawn(model))
    assert found.se < 0.05
    assert abs(found.log_z - integral(values, coarse)) < 3.0 * found.se
    without = drawn(model)
    del without["log_density"]
    np.testing.assert_allclose(log_marginal_evidence(model, **without), found, atol=1e-4)
    np.testing.assert_array_equal(log_marginal_evidence(model, **drawn(model), n_jobs=2), found)


def test_weights_make_draws_of_another_density_serve():
    model = Model(X, NUMBERS, kernel=SquaredExponential(**PRIORS), likelihood=Gaussian(0.1))
    u = np.log(drawn(model)["draws"])
    expected = log_marginal_evidence(model, np.exp(u), n_chains=2)
    wide = stats.multivariate_normal(u.mean(axis=0) + 0.7 * u.std(axis=0), 2.0 * np.cov(u.T))
    elsewhere = wide.rvs(600, random_state=2)
    log_ratio = log_densities(model, elsewhere) - wide.logpdf(elsewhere)
    weight = np.exp(log_ratio - log_ratio.max())
    found = log_marginal_evidence(model, WeightedDraws(np.exp(elsewhere), weight), n_chains=1)
    assert abs(found.log_z - expected.log_z) < 3.0 * np.hypot(found.se, expected.se)
    unweighted = log_marginal_evidence(model, np.exp(elsewhere), n_chains=1)
    assert abs(unweighted.log_z - expected.log_z) > 6.0 * np.hypot(unweighted.se, expected.se)


# ---------------------------------------------------------------- known integrals

LOG_Z = -123.4


def density(logpdf):
    """Model with a given normalised log density times exp(LOG_Z)."""

    def evaluate(u, carry=None, gradient=True):
        return SimpleNamespace(logdensity=LOG_Z + float(logpdf(u)))

    return SimpleNamespace(evaluate=evaluate, unconstrain=np.asarray, constrain=np.asarray)


def chains_of_normals(rng, n_chains, n_draws, p, correlation):
    """Stationary autoregressions of standard normals, of shape (n_chains * n_draws, p)."""
    u = np.empty((n_chains, n_draws, p))
    u[:, 0] = rng.normal(size=(n_chains, p))
    for t in range(1, n_draws):
        u[:, t] = correlation * u[:, t - 1] + np.sqrt(1.0 - correlation**2) * rng.normal(size=(n_chains, p))
    return u.reshape(-1, p)


def skewed(z):
    """Standard normals as logarithms of gamma variables of shape 2."""
    return np.log(stats.gamma.ppf(stats.norm.cdf(z), 2.0))


def skewed_logpdf(u):
    return np.sum(2.0 * u - np.exp(u))  # the gamma function of 2 is 1


@pytest.mark.parametrize(("p", "correlation"), [(1, 0.0), (3, 0.8), (12, 0.5)])
def test_standard_errors_tell_the_errors(p, correlation):
    model = density(skewed_logpdf)
    scores, se = [], []
    for seed in range(40):
        u = skewed(chains_of_normals(np.random.default_rng(seed), 2, 250, p, correlation))
        # the points need other numbers than the draws: of the same stream, they would not be independent
        found = log_marginal_evidence(model, u, n_chains=2, n_points=500, random_state=1000 + seed, n_jobs=1)
        scores.append((found.log_z - LOG_Z) / found.se)
        se.append(found.se)
    assert np.mean(se) < 0.15
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.4
    assert abs(np.mean(scores)) < 0.6


def test_a_standard_error_that_ignored_the_chains_would_be_too_small():
    """Negative control: the same draws, told to be independent by their order."""
    rng = np.random.default_rng(0)
    u = skewed(chains_of_normals(rng, 2, 400, 2, 0.95))
    honest = log_marginal_evidence(density(skewed_logpdf), u, n_chains=2, n_points=4000, n_jobs=1)
    shuffled = log_marginal_evidence(density(skewed_logpdf), rng.permutation(u), n_chains=2, n_points=4000, n_jobs=1)
    assert honest.se > 1.1 * shuffled.se


def test_points_at_which_the_density_fails_count_as_nothing():
    """Half a normal: points beyond 0 fail, as the sampler sees them."""
    half = density(lambda u: np.log(2.0) + stats.norm.logpdf(u[0]) if u[0] > 0.0 else -np.inf)
    draws = np.abs(np.random.default_rng(1).normal(size=(1000, 1)))
    found = log_marginal_evidence(half, draws, n_chains=2, n_jobs=1)
    assert abs(found.log_z - LOG_Z) < 3.5 * found.se
    assert found.se < 0.1
    with pytest.raises(NotConverged, match="none of the points"):
        log_marginal_evidence(density(lambda u: -np.inf), draws, log_density=np.zeros(1000), n_jobs=1)


def test_too_few_draws_and_chains_of_unequal_length_are_refused():
    model = density(lambda u: stats.norm.logpdf(u[0]))
    with pytest.raises(InvalidInput, match="1 draw is too few: sample at least 40"):
        log_marginal_evidence(model, np.zeros((1, 1)))
    with pytest.raises(InvalidInput, match="'n_chains' must divide the number of draws, 50; got 3"):
        log_marginal_evidence(model, np.zeros((50, 1)), n_chains=3)
