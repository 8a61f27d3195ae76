"""Likelihoods of counts and of ordered levels, against scipy's distributions and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import Binomial, NegativeBinomial, Ordinal, Poisson
from hmcgp.priors import LogNormal
from tests.helpers.responses import response_problem

NAMES = ["poisson", "negative_binomial", "binomial", "ordinal"]
COUNTS = [
    (Poisson(offset=0.3), lambda f, size: stats.poisson(size * np.exp(f + 0.3))),
    (
        NegativeBinomial(0.4, offset=0.3),
        lambda f, size: stats.nbinom(2.5, 2.5 / (2.5 + size * np.exp(f + 0.3))),
    ),
    (Binomial(offset=-0.2), lambda f, size: stats.binom(size, expit(f - 0.2))),
]
of_counts = pytest.mark.parametrize(("likelihood", "exact"), COUNTS, ids=[type(c[0]).__name__ for c in COUNTS])
F = np.linspace(-12.0, 12.0, 4801)  # standard deviations of brute force


@of_counts
def test_log_prob_is_that_of_scipy(likelihood, exact):
    f, size = np.linspace(-3.0, 4.0, 15), np.arange(1.0, 16.0)
    y = np.minimum(np.arange(15.0) // 2.0, size)
    expected = exact(f, size).logpmf(y)
    np.testing.assert_allclose(likelihood.at_sizes(size).log_prob(y, f), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_match_central_differences(name):
    _, y, _, likelihood = response_problem(name, 40)
    f, h = np.linspace(-4.0, 4.0, 40), 6e-6
    here, up, down = (likelihood.derivatives(y, f + step) for step in (0.0, h, -h))
    assert (here.second < 0.0).all()
    for order in (1, 2, 3):
        numeric = (up[order - 1] - down[order - 1]) / (2.0 * h)
        np.testing.assert_allclose(here[order], numeric, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows(name):
    _, y, _, likelihood = response_problem(name, 40)
    for f in (-600.0, -30.0, 30.0, 600.0):
        found = likelihood.derivatives(y, np.full(40, f))
        assert all(np.isfinite(part).all() for part in found)


def brute_force(exact, mean, sd, size, function):
    """Average of a function of a count's distribution over a Gaussian latent value."""
    w = stats.norm.pdf(F)
    return np.sum(w * function(exact(mean + sd * F, size))) / w.sum()


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("variance", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", NAMES)
def test_log_averages_over_narrow_and_wide_gaussians(name, variance, weight):
    _, y, _, likelihood = response_problem(name, 40)
    y[0] = 0.0
    found = likelihood.weighted([weight] * 40).log_weighted_average(y, np.full(40, 0.4), np.full(40, variance))
    z = np.linspace(-12.0, 12.0, 20_001)
    for i in (0, 7, 23):
        own = likelihood.at_sizes(np.full(len(z), likelihood.sizes(40)[i])) if name != "ordinal" else likelihood
        log_p = weight * own.log_prob(np.full(len(z), y[i]), 0.4 + np.sqrt(variance) * z)
        expected = logsumexp(log_p - 0.5 * z * z) + np.log(z[1] - z[0]) - 0.5 * np.log(2.0 * np.pi)
        np.testing.assert_allclose(found[i], expected, atol=1e-9)


@of_counts
@pytest.mark.parametrize("sd", [0.02, 0.3, 1.0, 2.5])
def test_moments_and_log_averages(likelihood, exact, sd):
    mean, size = np.array([-1.0, 0.5, 2.0]), np.array([3.0, 8.0, 40.0])
    y = np.array([0.0, 6.0, 30.0])
    found = likelihood.at_sizes(size).log_average(y, mean, np.full(3, sd**2))
    expected = [
        np.log(brute_force(exact, m, sd, e, lambda d, k=k: d.pmf(k))) for m, e, k in zip(mean, size, y, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    centre, spread = likelihood.observed_moments(mean, np.full(3, sd**2), size)
    for i in range(3):
        first = brute_force(exact, mean[i], sd, size[i], lambda d: d.mean())
        second = brute_force(exact, mean[i], sd, size[i], lambda d: d.var() + d.mean() ** 2)
        np.testing.assert_allclose(centre[i], first, rtol=1e-6)
        np.testing.assert_allclose(spread[i], second - first**2, rtol=2e-3)


@of_counts
@pytest.mark.parametrize("sd", [0.02, 0.2, 0.6, 2.0])
def test_distribution_functions(likelihood, exact, sd):
    size = 50.0
    for mean in (-2.0, 0.4, 1.5):
        k = np.array([-1.0, 0.0, 1.0, 4.0, 15.0, 49.0, 50.0, 200.0])
        found = likelihood.distribution(k, np.full(8, mean), np.full(8, sd**2), np.full(8, size))
        expected = [brute_force(exact, mean, sd, size, lambda d, k=k: d.cdf(k)) for k in k]
        np.testing.assert_allclose(found, expected, atol=2e-3)


@of_counts
def test_draws_have_the_moments(likelihood, exact):
    rng, f, size = np.random.default_rng(0), np.full(40_000, 0.5), np.full(40_000, 9.0)
    y, law = likelihood.draw(rng, f, size), exact(0.5, 9.0)
    assert abs(y.mean() - law.mean()) < 4.0 * law.std() / 200.0
    assert abs(y.var() / law.var() - 1.0) < 0.06
    np.testing.assert_array_equal(y, np.round(y))


@pytest.mark.parametrize("name", NAMES)
def test_weighted_averages(name):
    _, y, _, likelihood = response_problem(name, 12)
    rng = np.random.default_rng(0)
    weights, mean, variance = rng.uniform(0.3, 3.0, 12), rng.normal(size=12), rng.uniform(0.1, 4.0, 12)
    found = likelihood.weighted(weights).log_weighted_average(y, mean, variance)
    f = mean + np.sqrt(variance) * F[:, None]
    log_p = np.array([likelihood.log_prob(y, row) for row in f])
    expected = logsumexp(weights * log_p - 0.5 * F[:, None] ** 2, axis=0) - logsumexp(-0.5 * F**2)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_probabilities_of_levels():
    likelihood = Ordinal(("low", "middle", "high"), -0.5, [1.5])
    mean, variance = np.array([-40.0, -1.0, 0.2, 30.0]), np.array([0.5, 0.1, 3.0, 0.0])
    p = likelihood.class_probabilities(mean, variance)
    assert p.shape == (3, 4)
    assert (p >= 0.0).all()
    np.testing.assert_allclose(p.sum(axis=0), 1.0, rtol=1e-14)
    log_p = np.array([likelihood.log_average(np.full(4, c), mean, variance) for c in (0.0, 1.0, 2.0)])
    np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(likelihood.probabilities_given(mean).sum(axis=-1), 1.0, rtol=1e-14)
    cuts = np.array([-0.5, 1.0])
    np.testing.assert_allclose(likelihood.cut_points(), cuts)
    z = (cuts - 0.2) / 2.0
    np.testing.assert_allclose(p[:, 2], np.diff([0.0, *stats.norm.cdf(z), 1.0]), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson([1.0, 0.0]), "'exposure' must be positive and finite.*0.0 in row 1"),
        (lambda: Poisson([1.0, np.nan]), "'exposure' must be positive"),
        (lambda: Poisson(offset=np.inf), "'offset' of Poisson must be finite"),
        (lambda: Binomial([3.0, 2.5]), "'trials' must be whole numbers; got 2.5 in row 1"),
        (lambda: NegativeBinomial(0.0), "'dispersion' of NegativeBinomial must be positive"),
        (lambda: NegativeBinomial(LogNormal(0.0, 1.0)).log_prob(np.zeros(2), np.zeros(2)), "not a number"),
        (lambda: Poisson([1.0, 2.0]).sizes(3), "2 values of 'exposure' for 3 rows"),
        (lambda: Poisson().check_targets(np.array([1.0, -2.0])), "'y' must be counts, 0 or more; it holds -2 in row 1"),
        (lambda: Poisson().check_targets(np.array([1.5, 2.0])), "whole numbers; it holds 1.5 in row 0"),
        (lambda: Poisson().check_targets(np.array([1.0, np.nan])), "'y' must be finite"),
        (lambda: Binomial([3, 2]).check_targets(np.array([1.0, 3.0])), "row 1 has 3 successes of 2 trials"),
        (lambda: Poisson().average(np.zeros(1), np.ones(1)), "explains counts"),
        (lambda: Ordinal(("a",)), "two or more different names"),
        (lambda: Ordinal(("a", "b", "b")), "two or more different names"),
        (lambda: Ordinal().check_targets(np.ones(4)), "not been told the names of its levels"),
        (lambda: Ordinal(tuple("abc")).check_targets(np.array([0.0, 3.0])), "numbers of the levels, 0 to 2; got 3"),
        (lambda: Ordinal(tuple("abc")).check_targets(np.ones(4)), "one level only, 'b'"),
        (lambda: Ordinal(tuple("abc")).average(np.zeros(1), np.ones(1)), "ask for their probabilities"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
