"""Partial pooling of length scales: against scipy's multivariate normal, slopes, draws, limits, and in a model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hmcgp import Model
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Additive, Constant, Linear, SquaredExponential
from hmcgp.priors import Gamma, LogNormal, PooledLogNormal
from tests.helpers.checks import check_gradient

PRIOR = PooledLogNormal(0.4, 1.0, 0.3)


def reference(d, mu=0.4, sigma=1.0, within=0.3):
    return stats.multivariate_normal(np.full(d, mu), within**2 * np.eye(d) + sigma**2)


@pytest.mark.parametrize("d", [1, 2, 7, 60])
def test_the_logarithms_are_jointly_normal(d):
    u = np.random.default_rng(d).normal(size=d)
    value, _ = PRIOR.logpdf_unconstrained(u)
    assert value.sum() == pytest.approx(reference(d).logpdf(u), rel=1e-11)
    # log p(x) = log p(u) - Σ log x
    assert PRIOR.logpdf(np.exp(u)).sum() == pytest.approx(reference(d).logpdf(u) - u.sum(), rel=1e-11)
    mean, precision = PRIOR.normal_law(d)
    np.testing.assert_allclose(np.linalg.inv(precision), reference(d).cov, rtol=1e-9, atol=1e-9)
    assert set(mean) == {0.4}


def test_slopes():
    u = np.random.default_rng(0).normal(size=5)

    def summed(value, grad):
        return value.sum(), grad

    check_gradient(lambda u: summed(*PRIOR.logpdf_unconstrained(u)), u)
    check_gradient(lambda x: (PRIOR.logpdf(x).sum(), PRIOR.dlogpdf(x)), np.exp(u))


def test_without_a_common_scale_values_are_independent():
    u = np.random.default_rng(1).normal(size=4)
    alone, together = LogNormal(0.4, 0.3), PooledLogNormal(0.4, 1e-9, 0.3)
    for part, other in zip(alone.logpdf_unconstrained(u), together.logpdf_unconstrained(u), strict=True):
        assert part.sum() == pytest.approx(other.sum(), rel=1e-9)


def test_draws_share_their_scale():
    rng = np.random.default_rng(2)
    u = np.log([PRIOR.sample(rng, 3) for _ in range(4000)])
    # standard errors of variances: sqrt(2/4000) of 1.09; of the covariance about 0.017
    np.testing.assert_allclose(np.cov(u.T), reference(3).cov, atol=0.1)
    assert np.var(u[:, 0] - u[:, 1]) == pytest.approx(2 * 0.3**2, rel=0.1)
    assert stats.kstest(u[:, 0], stats.norm(0.4, np.sqrt(1.09)).cdf).pvalue > 1e-3


def test_parameters_are_checked():
    for numbers in ((0.0, 1.0, 0.0), (0.0, -1.0, 1.0), (np.nan, 1.0, 1.0)):
        with pytest.raises(InvalidInput, match="PooledLogNormal"):
            PooledLogNormal(*numbers)


X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.sign(X[:, 0])


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(length_scale=PRIOR, ard=True),
        SquaredExponential(length_scale=PRIOR, ard=True) + Linear() + Constant(),
        SquaredExponential(Gamma(2.0, 1.0), PRIOR, ard=True) + Constant(),  # not all are normal
        Additive(SquaredExponential(1.0, PRIOR)),
    ],
    ids=["alone", "with a line", "with others", "additive"],
)
def test_in_a_model(kernel):
    model = Model(X, Y, kernel=kernel)
    u = 0.3 * np.random.default_rng(3).normal(size=model.n_dim)
    check_gradient(model.log_prior, u)
    check_gradient(model.logdensity_and_grad, u, rtol=1e-5)
    one_by_one = [p.value.logpdf_unconstrained(u[s])[0].sum() for p, s in _placed(model)]
    assert model.log_prior(u)[0] == pytest.approx(sum(one_by_one), rel=1e-12)


def _placed(model):
    ends = np.cumsum([p.size for p in model.parameters])
    return [(p, slice(end - p.size, end)) for p, end in zip(model.parameters, ends, strict=True)]
