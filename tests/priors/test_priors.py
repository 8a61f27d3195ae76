"""Priors: densities against scipy.stats, slopes, total probability, draws, edges, and what the defaults imply."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid
from scipy.special import expit

from hmcgp.errors import InvalidInput
from hmcgp.parameters.transforms import Identity, Log, Logit
from hmcgp.priors import (
    Beta,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
    Normal,
    PooledLogNormal,
    Prior,
    default_prior,
)
from hmcgp.priors.sparsity import SparsityPrior
from hmcgp.priors.units import InUnits

CASES = [
    (Normal(-3.0, 3.0), stats.norm(-3.0, 3.0), Identity()),
    (Normal(1e3, 0.01), stats.norm(1e3, 0.01), Identity()),
    (LogNormal(-3.0, 3.0), stats.lognorm(3.0, scale=math.exp(-3.0)), Log()),
    (LogNormal(1.5, 0.2), stats.lognorm(0.2, scale=math.exp(1.5)), Log()),
    (LogNormal(0.5, 0.8, lower=2.0), stats.lognorm(0.8, loc=2.0, scale=math.exp(0.5)), Log(2.0)),
    (Gamma(0.5, 2.0), stats.gamma(0.5, scale=0.5), Log()),
    (Gamma(7.0, 0.1), stats.gamma(7.0, scale=10.0), Log()),
    (InverseGamma(0.8, 3.0), stats.invgamma(0.8, scale=3.0), Log()),
    (InverseGamma(5.0, 5.0), stats.invgamma(5.0, scale=5.0), Log()),
    (HalfNormal(2.5), stats.halfnorm(scale=2.5), Log()),
    (HalfCauchy(0.3), stats.halfcauchy(scale=0.3), Log()),
    (Beta(2.0, 5.0), stats.beta(2.0, 5.0), Logit()),
    (Beta(0.5, 0.7), stats.beta(0.5, 0.7), Logit()),
    (Beta(1.5, 4.0, upper=0.5), stats.beta(1.5, 4.0, scale=0.5), Logit(0.5)),
    (Beta(2.0, 2.0, upper=0.3), stats.beta(2.0, 2.0, scale=0.3), Logit(0.3)),
]
IDS = [repr(case[0]) for case in CASES]
QUANTILES = np.linspace(0.001, 0.999, 41)


def test_every_prior_is_tested():
    joint = {SparsityPrior, PooledLogNormal, InUnits}  # test_priors_sparsity, test_priors_pooled, test_units
    assert {type(prior) for prior, _, _ in CASES} == set(Prior.__subclasses__()) - joint


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_logpdf_matches_scipy(prior, reference, transform):
    x = reference.ppf(QUANTILES)
    # two correct formulas differ by rounding: a few units of the largest term, which is below 1e3
    np.testing.assert_allclose(prior.logpdf(x), reference.logpdf(x), rtol=1e-11, atol=1e-11)
    assert prior.transform == transform


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_dlogpdf_matches_central_differences(prior, reference, transform):
    x = reference.ppf(QUANTILES)
    # step eps^(1/3) of the distance over which log p changes: sigma for Normal, else the way to the nearest edge
    lower, upper = reference.support()
    room = np.full_like(x, prior.sigma) if isinstance(prior, Normal) else np.minimum(x - lower, upper - x)
    h = 6e-6 * room
    numeric = (prior.logpdf(x + h) - prior.logpdf(x - h)) / ((x + h) - (x - h))
    # in units of 1/room, rounding gives eps |log p| / 6e-6 < 1e-9 and truncation 4e-11 times a third derivative
    np.testing.assert_allclose(prior.dlogpdf(x) * room, numeric * room, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_density_of_u_integrates_to_one(prior, reference, transform):
    if isinstance(prior, Normal):
        u = prior.mu + prior.sigma * np.linspace(-12.0, 12.0, 4001)
    else:
        u = np.linspace(-90.0, 90.0, 40001)  # the slowest tails here are exp(-|u|/2): 3e-20 at 90
    log_p = prior.logpdf(transform.constrain(u)) + transform.log_jacobian(u)
    # Beta(0.5, 0.7): x rounds to 1 - 1.1e-16 past u = 37, where (1 - x)^0.7 holds 1e-11 of the mass
    assert abs(trapezoid(np.exp(log_p), u) - 1.0) < 1e-9


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_draws_follow_the_density(prior, reference, transform):
    draws = prior.sample(np.random.default_rng(7), 20_000)
    assert draws.shape == (20_000,)
    # one look at a fixed seed; a right sampler fails a level of 1e-4 once in 10 000 seeds
    assert stats.kstest(draws, reference.cdf).pvalue > 1e-4
    # negative control: the same draws, stretched by 5 % about their median (in u), must be found out
    u = transform.unconstrain(draws)
    wrong = transform.constrain(np.median(u) + 1.05 * (u - np.median(u)))
    assert stats.kstest(wrong, reference.cdf).pvalue < 1e-2


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_single_draws_and_streams(prior, reference, transform):
    one = prior.sample(np.random.default_rng(3), None)
    assert isinstance(one, float)
    assert one == prior.sample(np.random.default_rng(3), 1)[0]
    assert one != prior.sample(np.random.default_rng(4), None)


@pytest.mark.parametrize(
    "prior", [Beta(0.001, 0.001), Beta(0.001, 0.001, 0.3), Gamma(0.001, 1.0), InverseGamma(0.001, 1.0)], ids=repr
)
def test_draws_stay_inside_the_open_support(prior):
    # most draws of these underflow to an edge before they are moved inside
    draws = prior.sample(np.random.default_rng(0), 500)
    assert np.all(np.isfinite(prior.transform.unconstrain(draws)))


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_edges_and_outside_give_minus_infinity(prior, reference, transform):
    inside = float(reference.median())
    lower, upper = reference.support()
    outside = np.array([lower, upper, np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf), -np.inf, np.nan])
    x = np.append(outside, inside)
    np.testing.assert_array_equal(prior.logpdf(x)[:-1], -np.inf)
    np.testing.assert_array_equal(prior.dlogpdf(x)[:-1], 0.0)
    np.testing.assert_allclose(prior.logpdf(x)[-1], reference.logpdf(inside), rtol=1e-12)


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_far_out_there_is_no_nan(prior, reference, transform):
    u = np.array([-1e5, -700.0, -300.0, 300.0, 700.0, 1e5])
    x = transform.constrain(u)
    log_p = prior.logpdf(x)
    assert not np.any(np.isnan(log_p))
    assert np.all(log_p < np.inf)
    assert not np.any(np.isnan(prior.dlogpdf(x)))


def test_far_tail_of_the_half_cauchy_is_a_power():
    # p ~ 2 scale/(pi x^2), so d log p/d log x = -2 even where x^2 overflows
    x = np.array([1e160, 1e300])
    np.testing.assert_allclose(HalfCauchy(3.0).dlogpdf(x) * x, -2.0, rtol=1e-14)
    np.testing.assert_allclose(HalfCauchy(3.0).logpdf(x), math.log(6.0 / math.pi) - 2.0 * np.log(x), rtol=1e-14)


@pytest.mark.parametrize(("prior", "reference", "transform"), CASES, ids=IDS)
def test_shapes_are_kept(prior, reference, transform):
    x = reference.ppf(np.array([[0.2, 0.4, 0.6], [0.3, 0.5, 0.7]]))
    assert prior.logpdf(x).shape == prior.dlogpdf(x).shape == (2, 3)
    assert np.shape(prior.logpdf(x[0, 0])) == ()
    assert prior.logpdf(x)[0, 0] == prior.logpdf(x[0, 0])


def test_repr_and_frozen():
    assert repr(LogNormal(-3, 3)) == "LogNormal(mu=-3, sigma=3)"
    assert repr(HalfCauchy(0.25)) == "HalfCauchy(scale=0.25)"
    assert repr(Beta(1.0, 2.0)) == "Beta(alpha=1, beta=2)"
    assert repr(Beta(1.0, 2.0, 0.5)) == "Beta(alpha=1, beta=2, upper=0.5)"
    assert LogNormal(-3, 3) == LogNormal(-3.0, 3.0)
    assert hash(LogNormal(-3, 3)) == hash(LogNormal(-3.0, 3.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogNormal(-3, 3).mu = 0.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normal(0.0, 0.0), "'sigma' of Normal must be positive; got 0"),
        (lambda: LogNormal(0.0, -1.0), "'sigma' of LogNormal"),
        (lambda: Gamma(0.0, 1.0), "'alpha' of Gamma"),
        (lambda: InverseGamma(1.0, -2.0), "'beta' of InverseGamma"),
        (lambda: HalfNormal(math.nan), "'sigma' of HalfNormal must be finite"),
        (lambda: HalfCauchy(math.inf), "'scale' of HalfCauchy must be finite"),
        (lambda: Beta("2", 1.0), "'alpha' of Beta must be a number"),
        (lambda: Normal(True, 1.0), "'mu' of Normal must be a number"),
        (lambda: default_prior("colour", 3), "no default prior for the role 'colour'"),
        (lambda: default_prior("variance", 0), "'n_inputs'"),
        (lambda: default_prior("variance", 1.5), "'n_inputs'"),
    ],
)
def test_invalid_parameters_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def prior_draws(rng, d, n_draws=300, n=100, length_scale=None):
    """Probabilities (n_draws, n), and the correlation of each row with its nearest (n_draws,), under the defaults."""
    length_scale = length_scale or default_prior("length_scale", d)
    p, neighbour = np.empty((n_draws, n)), np.empty(n_draws)
    for i in range(n_draws):
        X = rng.standard_normal((n, d))
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        D = ((X[:, None] - X) ** 2 / length_scale.sample(rng, d) ** 2).sum(axis=-1)
        C = np.exp(-0.5 * D) + 1e-9 * np.eye(n)
        f = math.sqrt(default_prior("variance", d).sample(rng)) * np.linalg.cholesky(C) @ rng.standard_normal(n)
        p[i] = expit(f)
        nearest = (((X[:, None] - X) ** 2).sum(axis=-1) + 1e9 * np.eye(n)).argmin(axis=1)
        neighbour[i] = np.median(C[np.arange(n), nearest])
    return p, neighbour


@pytest.mark.parametrize(
    ("d", "middle", "extreme", "neighbour"), [(1, 0.58, 0.22, 1.0), (7, 0.59, 0.21, 0.82), (30, 0.58, 0.22, 0.42)]
)
def test_defaults_imply_what_their_docstring_says(d, middle, extreme, neighbour):
    p, correlation = prior_draws(np.random.default_rng(11), d)
    inner = np.mean((p > 0.1) & (p < 0.9), axis=1)
    outer = np.mean((p < 0.01) | (p > 0.99), axis=1)
    # 4 standard errors of 300 draws (rows of one draw share their hyperparameters), plus rounding to two digits
    assert abs(inner.mean() - middle) < 4.0 * inner.std() / math.sqrt(300) + 0.005
    assert abs(outer.mean() - extreme) < 4.0 * outer.std() / math.sqrt(300) + 0.005
    # the standard error of a median is about 1.25 standard deviations / sqrt(300)
    assert abs(np.median(correlation) - neighbour) < 5.0 * correlation.std() / math.sqrt(300) + 0.005


def test_length_scales_that_ignore_the_dimension_give_white_noise():
    # negative control of the table above: the prior of d = 1 applied to 30 inputs
    _, correlation = prior_draws(
        np.random.default_rng(11), 30, n_draws=50, length_scale=default_prior("length_scale", 1)
    )
    assert np.median(correlation) < 0.02


def test_default_length_scale_grows_with_the_square_root_of_the_inputs():
    one: Any = default_prior("length_scale", 1)
    many: Any = default_prior("length_scale", np.int64(49))
    assert math.exp(many.mu - one.mu) == pytest.approx(7.0, rel=1e-12)
    assert many.sigma == one.sigma
    assert default_prior("variance", 1) == default_prior("variance", 49)


def test_default_weights_share_the_sum_over_inputs():
    one: Any = default_prior("weight", 1)
    many: Any = default_prior("weight", 49)
    assert math.exp(one.mu - many.mu) == pytest.approx(49.0, rel=1e-12)
    assert default_prior("bias", 1) == default_prior("bias", 49)


@pytest.mark.parametrize(
    "prior",
    [
        Normal(1.0, 2.0),
        LogNormal(-3.0, 3.0),
        Gamma(2.0, 0.5),
        InverseGamma(3.0, 2.0),
        HalfNormal(2.0),
        HalfCauchy(1.5),
        Beta(2.0, 3.0),
        Beta(2.0, 3.0, 0.5),
    ],
    ids=repr,
)
def test_unconstrained_density_is_density_and_jacobian(prior):
    u = np.linspace(-4.0, 4.0, 41)
    value, slope = prior.logpdf_unconstrained(u)
    expected = prior.logpdf(prior.transform.constrain(u)) + prior.transform.log_jacobian(u)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    h = 1e-5
    numeric = (prior.logpdf_unconstrained(u + h)[0] - prior.logpdf_unconstrained(u - h)[0]) / (2.0 * h)
    np.testing.assert_allclose(slope, numeric, rtol=1e-7, atol=1e-7)
