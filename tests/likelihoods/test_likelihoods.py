import mpmath
import numpy as np
import pytest
from scipy import stats

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import Gaussian, LabelNoise, Logistic, Probit
from hmcgp.priors import Beta, LogNormal, default_prior

LIKELIHOODS = [Logistic(), Probit()]
F = np.array([-1e3, -40.0, -12.0, -9.0, -5.0 - 1e-9, -5.0, -4.9, -1.0, -1e-8, 0.0, 0.3, 2.0, 6.0, 9.0, 30.0, 1e3])


def exact_log_prob(likelihood, z):
    """log p with 250 digits: 1 - Φ(30) is 1e-198."""
    with mpmath.workdps(250):
        z = mpmath.mpf(z)
        if isinstance(likelihood, Logistic):
            return -mpmath.log1p(mpmath.exp(-z))
        return mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2)


def exact_derivative(likelihood, z, order):
    with mpmath.workdps(250):
        return mpmath.diff(lambda t: exact_log_prob(likelihood, t), z, order, h=mpmath.mpf(10) ** -25)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_log_prob_is_exact_to_1e3(likelihood, y):
    got = likelihood.log_prob(np.full(F.shape, y), F)
    expected = [float(exact_log_prob(likelihood, y * f)) for f in F]
    # erfc(z) of a rounded z is off by z² eps: 1e-14 at z = 10
    np.testing.assert_allclose(got, expected, rtol=5e-14, atol=1e-300)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_derivatives_match_high_precision(likelihood, y):
    derivatives = likelihood.derivatives(np.full(F.shape, y), F)
    for order in (1, 2, 3):
        expected = np.array([float(y**order * exact_derivative(likelihood, y * f, order)) for f in F])
        # 1 - w cancels where w -> 1 (probit, far on the wrong side): the third derivative keeps an absolute 2e-13
        np.testing.assert_allclose(derivatives[order], expected, rtol=1e-11, atol=2e-13, err_msg=f"order {order}")


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_nothing_overflows_and_curvature_is_never_negative(likelihood):
    f = np.linspace(-1e3, 1e3, 4001)
    derivatives = likelihood.derivatives(np.ones_like(f), f)
    assert all(np.isfinite(d).all() for d in derivatives)
    assert (derivatives.second <= 0.0).all()


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_average_matches_numerical_integration(likelihood):
    x, w = np.polynomial.hermite_e.hermegauss(80)
    for mean, variance in [(-3.0, 0.5), (0.4, 1.0), (2.0, 0.01)]:
        f = mean + np.sqrt(variance) * x
        expected = w @ np.exp(likelihood.log_prob(np.ones_like(f), f)) / w.sum()
        np.testing.assert_allclose(likelihood.average(np.array([mean]), np.array([variance])), expected, rtol=1e-9)


def test_averaging_options_differ_by_their_known_errors():
    mean, variance = np.array([1.5]), np.array([4.0])
    accurate = Logistic().average(mean, variance)
    assert 0.0 < abs(Logistic("erf").average(mean, variance) - accurate)[0] < 4.4e-4
    assert 1e-4 < abs(Logistic("mackay").average(mean, variance) - accurate)[0] < 1.7e-2


def test_unknown_averaging_is_refused():
    with pytest.raises(InvalidInput, match="'averaging' must be one of"):
        Logistic("hermite")


def test_gaussian_derivatives_match_central_differences():
    likelihood, h = Gaussian(0.3), 6e-6
    y, f = np.linspace(-2.0, 3.0, 9), np.linspace(1.0, -1.0, 9)
    np.testing.assert_allclose(likelihood.log_prob(y, f), stats.norm(f, np.sqrt(0.3)).logpdf(y), rtol=1e-13)
    here, up, down = (likelihood.derivatives(y, f + step) for step in (0.0, h, -h))
    for order in (1, 2, 3):
        numeric = (up[order - 1] - down[order - 1]) / (2.0 * h)
        np.testing.assert_allclose(here[order], numeric, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("noise", [-1.0, np.inf, np.nan])
def test_noise_must_be_positive(noise):
    with pytest.raises(InvalidInput, match="'noise' of Gaussian must be positive and finite"):
        Gaussian(noise)


def test_numbers_have_no_classes():
    with pytest.raises(InvalidInput, match="no P"):
        Gaussian(1.0).average(np.zeros(2), np.ones(2))
    with pytest.raises(InvalidInput, match="not a number"):
        Gaussian(LogNormal(0.0, 1.0)).log_prob(np.zeros(2), np.zeros(2))


@pytest.mark.parametrize("flip", [0.0, 1e-300, 0.05, 0.4])
def test_label_noise_behind_a_probit(flip):
    likelihood, h = LabelNoise(flip), 6e-6
    f = np.linspace(-4.0, 6.0, 11)
    y = np.where(np.arange(11) % 3 == 0, -1.0, 1.0)
    expected = np.log(flip + (1.0 - 2.0 * flip) * stats.norm.cdf(y * f))
    np.testing.assert_allclose(likelihood.log_prob(y, f), expected, rtol=1e-12, atol=1e-15)
    here, up, down = (likelihood.derivatives(y, f + step) for step in (0.0, h, -h))
    for order in (1, 2, 3):
        numeric = (up[order - 1] - down[order - 1]) / (2.0 * h)
        np.testing.assert_allclose(here[order], numeric, rtol=1e-7, atol=1e-8)


def test_label_noise_behind_a_step():
    likelihood = LabelNoise(0.1, link="step")
    f = np.array([-2.0, 0.0, 1e-9, 5.0])
    np.testing.assert_allclose(np.exp(likelihood.log_prob(np.ones(4), f)), [0.1, 0.5, 0.9, 0.9], rtol=1e-14)
    np.testing.assert_array_equal(LabelNoise(0.0, "step").log_prob(-np.ones(4), f)[2:], -np.inf)
    with pytest.raises(InvalidInput, match="a step has no derivatives"):
        likelihood.derivatives(np.ones(4), f)


@pytest.mark.parametrize("link", ["probit", "step"])
def test_average_of_label_noise(link):
    likelihood = LabelNoise(0.1, link=link)
    mean, variance = np.array([-2.0, 0.3, 1.0, 0.0]), np.array([0.5, 1.0, 0.0, 0.0])
    with np.errstate(divide="ignore", invalid="ignore"):
        z = mean / np.sqrt(variance + (link == "probit"))
    expected = 0.1 + 0.8 * stats.norm.cdf(np.nan_to_num(z, nan=0.0))
    np.testing.assert_allclose(likelihood.average(mean, variance), expected, rtol=1e-14)
    np.testing.assert_allclose(likelihood.average(-mean, variance), 1.0 - expected, rtol=1e-13)


def test_settings_of_label_noise():
    assert LabelNoise(0.0).flip == 0.0  # a fixed value may be an end of the interval; a prior may not put weight on it
    for bad in (-0.1, 0.5, 0.7, np.nan):
        with pytest.raises(InvalidInput, match="'flip' of LabelNoise must be strictly between"):
            LabelNoise(bad)
    with pytest.raises(InvalidInput, match="'link' must be one of"):
        LabelNoise(0.1, link="logit")
    with pytest.raises(InvalidInput, match="not a number"):
        LabelNoise().log_prob(np.ones(2), np.ones(2))
    assert default_prior("flip", 3) == Beta(1.0, 4.0, upper=0.5)
