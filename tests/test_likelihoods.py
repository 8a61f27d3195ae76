import mpmath
import numpy as np
import pytest
from scipy import stats

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import Gaussian, Logistic, Probit
from hmcgp.priors import LogNormal

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


@pytest.mark.parametrize("noise", [0.0, -1.0, np.inf, np.nan])
def test_noise_must_be_positive(noise):
    with pytest.raises(InvalidInput, match="'noise' of Gaussian must be positive and finite"):
        Gaussian(noise)


def test_numbers_have_no_classes():
    with pytest.raises(InvalidInput, match="no P"):
        Gaussian(1.0).average(np.zeros(2), np.ones(2))
    with pytest.raises(InvalidInput, match="not a number"):
        Gaussian(LogNormal(0.0, 1.0)).log_prob(np.zeros(2), np.zeros(2))
