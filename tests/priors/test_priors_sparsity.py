"""Joint priors of length scales: closed forms, total probability, draws, slopes, and sampling without divergences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from hmcgp import Model, sample
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Additive, SquaredExponential
from hmcgp.priors import SAAS, LogNormal, RegularizedHorseshoe
from hmcgp.priors.sparsity import Hypotenuse, log_density
from tests.helpers.checks import check_gradient

PRIORS = [SAAS(), SAAS(0.7), RegularizedHorseshoe(), RegularizedHorseshoe(0.5, slab=2.0)]


def log_sech(x):
    return -np.logaddexp(x, -x) + math.log(2.0)


@pytest.mark.parametrize("v", [-30.0, -3.0, -1e-3, 0.4, 8.0])
def test_one_number_has_a_closed_form(v):
    # ∫ sech(w - a) sech(v - w) dw = 2 (v - a)/sinh(v - a)
    value, grad = log_density(np.array([v]), 0.3)
    t = v - 0.3
    assert value == pytest.approx(math.log(2.0 * t / math.sinh(t)) - 2.0 * math.log(math.pi), rel=1e-11, abs=1e-11)
    assert grad[0] == pytest.approx(1.0 / t - 1.0 / math.tanh(t), rel=1e-8)


@pytest.mark.parametrize(("d", "spread"), [(2, 1.0), (2, 15.0), (20, 0.01), (20, 3.0), (300, 0.01), (300, 5.0)])
def test_quadrature_against_a_fine_one(d, spread):
    v = spread * np.random.default_rng(d).normal(size=d) - 2.0
    w = np.linspace(-80.0, 80.0, 40_001)
    f = log_sech(w + 1.0) + sum(log_sech(value - w) for value in v)
    expected = f.max() + math.log(np.sum(np.exp(f - f.max())) * (w[1] - w[0])) - (d + 1) * math.log(math.pi)
    assert log_density(v, -1.0)[0] == pytest.approx(expected, rel=1e-10)


def test_half_cauchy_hierarchy_by_scipy():
    # p(ρ₁, ρ₂) = ∫ HC(τ; s) HC(ρ₁; τ) HC(ρ₂; τ) dτ, in densities of ρ = 1/ℓ²
    length_scale, scale = np.array([0.8, 4.0]), 0.7
    rho = length_scale**-2.0

    def integrand(tau):
        return stats.halfcauchy.pdf(tau, scale=scale) * np.prod(stats.halfcauchy.pdf(rho, scale=tau))

    density = sum(quad(integrand, *ends, epsabs=0.0, epsrel=1e-11)[0] for ends in ((0.0, 1.0), (1.0, np.inf)))
    jacobian = np.prod(2.0 * length_scale**-3.0)
    assert SAAS(scale).logpdf(length_scale).sum() == pytest.approx(math.log(density * jacobian), rel=1e-9)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_two_numbers_have_total_probability_one(prior):
    grid = np.linspace(-40.0, 40.0, 161)
    p = [[np.exp(prior.logpdf_unconstrained(np.array([a, b]))[0].sum()) for a in grid] for b in grid]
    assert np.sum(p) * 0.25 == pytest.approx(1.0, abs=1e-6)  # (80/160)² per cell


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_slopes(prior):
    u = np.random.default_rng(0).normal(size=4)

    def unconstrained(u):
        value, grad = prior.logpdf_unconstrained(u)
        return value.sum(), grad

    def natural(x):
        return prior.logpdf(x).sum(), prior.dlogpdf(x)

    check_gradient(unconstrained, u)
    x = prior.transform.constrain(u)
    check_gradient(natural, x)
    jacobian = prior.transform.log_jacobian(u).sum()
    assert unconstrained(u)[0] == pytest.approx(natural(x)[0] + jacobian, rel=1e-12)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_draws_follow_the_density(prior):
    rng = np.random.default_rng(5)
    v = np.array([prior._rate * prior.transform.unconstrain(prior.sample(rng, 2)) for _ in range(4000)])
    t = np.sort(v[:, 0] - math.log(prior.scale))
    grid = np.linspace(-60.0, 60.0, 12_001)
    safe = np.where(grid == 0.0, 1.0, grid)
    density = np.where(grid == 0.0, 2.0, 2.0 * safe / np.sinh(safe)) / math.pi**2
    cdf = np.interp(t, grid, np.cumsum(density) * 0.01)
    assert stats.kstest(cdf, "uniform").pvalue > 1e-3
    # two values of one draw share their scale: E[log λτ]'s variance is half shared, π²/4 of π²/2
    assert np.corrcoef(v.T)[0, 1] == pytest.approx(0.5, abs=0.08)


def test_the_slab_is_the_shortest_length_scale():
    prior = RegularizedHorseshoe(10.0, slab=2.0)
    assert prior.support == (0.5, math.inf)
    draws = prior.sample(np.random.default_rng(0), 1000)
    assert np.all(draws > 0.5)
    assert np.min(draws) < 0.51
    np.testing.assert_array_equal(prior.logpdf(np.array([0.4, 3.0]))[0], -np.inf)


U = np.linspace(-6.0, 6.0, 25)


def test_hypotenuse_is_a_transform():
    transform, h = Hypotenuse(0.3), 6e-6
    np.testing.assert_allclose(transform.unconstrain(transform.constrain(U)), U, rtol=1e-9, atol=1e-9)
    for slope, fun in ((transform.dconstrain, transform.constrain), (transform.dlog_jacobian, transform.log_jacobian)):
        np.testing.assert_allclose(slope(U), (fun(U + h) - fun(U - h)) / (2.0 * h), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(transform.log_jacobian(U), np.log(transform.dconstrain(U)), rtol=1e-12, atol=1e-13)
    far = np.array([-300.0, 300.0])
    assert np.all(transform.constrain(far) > 0.3)
    assert np.all(np.isfinite(transform.log_jacobian(far)))
    with pytest.raises(InvalidInput):
        transform.unconstrain(np.array([0.3]))


def test_fewer_relevant_inputs_when_the_scale_is_small():
    rng = np.random.default_rng(1)
    relevant = [np.mean([np.sum(SAAS(scale).sample(rng, 20) < 2.0) for _ in range(500)]) for scale in (0.01, 0.1, 1.0)]
    assert relevant[0] < relevant[1] < relevant[2]


@pytest.mark.parametrize("prior", PRIORS[::2], ids=repr)
def test_in_a_model(prior):
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = np.sign(X[:, 0])
    model = Model(X, y, kernel=SquaredExponential(length_scale=prior, ard=True))
    assert model.names == ["variance", *(f"length_scale[x{k}]" for k in range(3))]
    check_gradient(model.logdensity_and_grad, np.array([0.3, -0.2, 0.4, 1.0]), rtol=1e-5)
    again = model.unconstrain(model.constrain(np.array([0.3, -0.2, 0.4, 1.0])))
    np.testing.assert_allclose(again, [0.3, -0.2, 0.4, 1.0], rtol=1e-10)
    check_gradient(
        Model(X, y, kernel=Additive(SquaredExponential(1.0, prior))).logdensity_and_grad, np.array([0.3, -0.2, 0.4])
    )


def sparse_problem(n=60, d=15, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.7 * X[:, 1] + 0.1 * rng.normal(size=n)
    return X, (y - y.mean()) / y.std()


@pytest.mark.slow
@pytest.mark.parametrize("prior", [SAAS(), RegularizedHorseshoe()], ids=repr)
@pytest.mark.parametrize("sampler", ["nuts", "hmc"])
def test_sampling_has_no_divergences_and_finds_the_inputs(prior, sampler):
    X, y = sparse_problem()
    kernel = SquaredExponential(length_scale=prior, ard=True)
    model = Model(X, y, kernel=kernel, likelihood="gaussian")
    trace = sample(model, sampler, draws=500, tune=500, chains=2, random_state=1, progressbar=False)
    assert np.sum(trace.stats["diverging"]) == 0
    medians = np.median(trace.flat[:, 1:16], axis=0)
    assert np.all(medians[:2] < 5.0)
    assert np.all(medians[2:] > 5.0)
    usual = Model(X, y, kernel=SquaredExponential(length_scale=LogNormal(0.5, 1.0), ard=True), likelihood="gaussian")
    other = sample(usual, sampler, draws=500, tune=500, chains=2, random_state=1, progressbar=False)
    # irrelevant inputs are switched off further than under independent priors
    assert np.median(medians[2:]) > 2.0 * np.median(other.flat[:, 3:16])
