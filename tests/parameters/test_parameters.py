"""Fixed and free parameters and their supports; and the prior of all of them together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.parameters import Parameter, parameter
from hmcgp.parameters.declaration import Parametric, Value, value_of
from hmcgp.priors import Beta, Gamma, LogNormal, Normal
from hmcgp.priors.joint import HyperPrior, with_prior
from tests.helpers.checks import check_gradient


@dataclass(frozen=True)
class Noisy(Parametric):
    noise: Value = parameter("noise")
    flip: Value = parameter("flip", support=(0.0, 0.5))


def test_parameters_carry_their_support():
    noise, flip = Noisy(1.0, Beta(1.0, 4.0, 0.5)).parameters(["a", "b"])
    assert (noise.name, noise.is_free, noise.support) == ("noise", False, (0.0, np.inf))
    assert (flip.name, flip.is_free, flip.support, flip.size) == ("flip", True, (0.0, 0.5), 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"noise": 0.0}, "'noise' of Noisy must be positive and finite; got 0.0"),
        ({"noise": np.inf}, "positive and finite"),
        ({"noise": np.nan}, "positive and finite"),
        ({"flip": 0.5}, "'flip' of Noisy must be strictly between 0 and 0.5; got 0.5"),
        ({"flip": [0.1, 0.2]}, "'flip' of Noisy takes one number"),
    ],
)
def test_facts_outside_the_support_are_refused(values, message):
    with pytest.raises(InvalidInput, match=message):
        Noisy(**values)


def test_binding_answers_every_question():
    valued = Noisy(LogNormal(0.0, 1.0)).with_values([2.0, 0.1])
    assert (value_of(valued, "noise"), value_of(valued, "flip")) == (2.0, 0.1)
    with pytest.raises(InvalidInput, match="left to its default prior, not a number"):
        value_of(Noisy(), "flip")
    with pytest.raises(InvalidInput, match="3 values, 1 more than Noisy has parameters"):
        Noisy().with_values([1.0, 0.2, 3.0])


FLIP = Parameter("flip", 1, None, Beta(1.0, 4.0, 0.5), "flip", 1, (0.0, 0.5))
NOISE = Parameter("noise", 1, None, Gamma(2.0, 3.0), "noise")
SCALES = Parameter("length_scale", 2, ("a", "b"), LogNormal(0.5, 1.0), "length_scale", 2)


@pytest.mark.parametrize("prior", [Beta(1.0, 1.0), LogNormal(0.0, 1.0), Normal(0.2, 0.1)])
def test_a_prior_must_stay_within_the_support_of_its_parameter(prior):
    with pytest.raises(InvalidInput, match=r"'flip' must be strictly between 0 and 0.5, .* Beta\(alpha, beta, upper="):
        with_prior(FLIP._replace(value=prior), "labels")
    narrower = FLIP._replace(value=Beta(1.0, 1.0, 0.2))
    assert with_prior(narrower, "labels") is narrower


def test_an_open_parameter_gets_the_default_of_its_role_and_of_the_targets():
    assert with_prior(NOISE._replace(value=None), "numbers").value == LogNormal(-3.0, 2.0, lower=1e-6)
    variance = Parameter("variance", 1, None, None, "variance")
    assert with_prior(variance, "labels").value == LogNormal(2.0, 2.0)
    assert with_prior(variance, "numbers").value == LogNormal(0.0, 1.5)


def test_log_density_and_gradient_of_all_together():
    prior = HyperPrior([SCALES, NOISE, FLIP])
    assert prior.names == ["length_scale[a]", "length_scale[b]", "noise", "flip"]
    u = np.array([0.3, -1.0, 0.4, -0.7])
    theta = prior.constrain(u)
    np.testing.assert_allclose(prior.unconstrain(theta), u, rtol=1e-13)
    # p(u) = p(theta) |d theta/du|, with slopes theta and flip (1 - flip/0.5)
    slopes = np.array([theta[0], theta[1], theta[2], theta[3] * (1.0 - 2.0 * theta[3])])
    natural = LogNormal(0.5, 1.0).logpdf(theta[:2]).sum() + NOISE.value.logpdf(theta[2]) + FLIP.value.logpdf(theta[3])
    np.testing.assert_allclose(prior.logpdf_unconstrained(u)[0], natural + np.log(slopes).sum(), rtol=1e-13)
    check_gradient(prior.logpdf_unconstrained, u)
    grad = np.zeros(4)
    prior.add_pulled_back(grad, np.ones(4), u, prior.constrain(u))
    np.testing.assert_allclose(grad, slopes, rtol=1e-13)


def test_draws_and_supports():
    prior = HyperPrior([NOISE, FLIP])
    rng = np.random.default_rng(3)
    draws = np.array([prior.sample(rng) for _ in range(4000)])
    expected, sd = np.array([2.0 / 3.0, 0.1]), np.array([np.sqrt(2.0) / 3.0, 0.5 * np.sqrt(4.0 / 150.0)])
    assert (np.abs(draws.mean(axis=0) - expected) < 4.0 * sd / np.sqrt(4000)).all()
    with pytest.raises(InvalidInput, match=r"outside the support of its prior: flip = 0\.6"):
        prior.theta_vector({"noise": 1.0, "flip": 0.6})
