"""Logistic averages: exact identities, a slow trapezoidal oracle, mpmath, known errors of the approximations, speed."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import expit

from hmcgp.errors import InvalidInput
from hmcgp.numerics.quadrature import logistic_average, logistic_average_erf, logistic_average_mackay

MEANS = -np.concatenate([[0.0, 1e-8, 1e-3, 0.1], np.linspace(0.5, 30.0, 24)])
SWITCH = 25.0 / 16.0  # the variance at which the two rules meet
VARIANCES = [1e-12, 1e-4, 0.01, 0.3, 1.0, 1.5, SWITCH, np.nextafter(SWITCH, 2.0), 1.6, 2.0, 3.0, 4.0, 7.0, 12.0, 25.0]
VARIANCES += [40.0, 59.9, 60.1, 100.0, 300.0, 400.0, 1e3, 3e3, 1e4]


def oracle(mean, variance):
    """Trapezoidal sum of sigma(x) N(x; mean, variance), mean <= 0, as long as it takes for relative accuracy.

    Spacing min(1/4, s/4), half of what 5e-15 needs, over ten standard deviations around all of the integrand's mass:
    its peak lies between `mean` and min(mean + variance, 0).  Every term is positive: no cancellation.
    """
    s = math.sqrt(variance)
    h = min(0.25, 0.25 / s)  # in units of s
    t = h * np.arange(-math.ceil(10.0 / h), math.ceil((max(min(s, -mean / s), 0.0) + 10.0) / h))
    log_terms = -0.5 * t**2 - np.logaddexp(0.0, -(mean + s * t))
    return h * np.exp(log_terms).sum() / math.sqrt(2.0 * math.pi)


def test_zero_variance_is_the_sigmoid():
    m = np.array([-745.0, -700.0, -30.0, -1.0, 0.0, 1.0, 30.0, 700.0])
    # 700 rounding units of the exponent: 1e-13; a subnormal p (mean -745) has no digits left, hence the atol
    np.testing.assert_allclose(logistic_average(m, 0.0), expit(m), rtol=3e-13, atol=1e-323)


@pytest.mark.parametrize("average", [logistic_average, logistic_average_erf, logistic_average_mackay])
def test_mirror(average):
    m, v = np.meshgrid(MEANS, VARIANCES)
    # the erf coefficients reach 4e3 in size and cancel to 1: 1e-12
    np.testing.assert_allclose(average(m, v) + average(-m, v), 1.0, rtol=0.0, atol=1e-12)


def test_tilt():
    # p(m) = exp(m + v/2) (1 - p(m + v)), for pairs that the code computes by different routes
    m, v = np.meshgrid(np.linspace(-12.0, -0.1, 15), [0.5, 1.7, 3.0, 8.0])
    # rounding of the exponent is below 20 units, of 1 - p below 1e-16/p < 1e-13
    right = np.exp(m + 0.5 * v) * logistic_average(-(m + v), v)
    np.testing.assert_allclose(logistic_average(m, v), right, rtol=1e-13)


@pytest.mark.parametrize("variance", VARIANCES)
def test_relative_accuracy_against_the_oracle(variance):
    expected = np.array([oracle(m, variance) for m in MEANS])
    # both round exponents (t^2/2 + |x|, m + v/2) of size up to 500: 1e-13; the tolerance is ten times that
    np.testing.assert_allclose(logistic_average(MEANS, variance), expected, rtol=1e-12)
    np.testing.assert_allclose(logistic_average(-MEANS, variance), 1.0 - expected, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("mean", "variance"), [(-0.7, 0.25), (-3.0, 1.6), (-30.0, 9.0), (-30.0, 60.0), (-5.0, 400.0), (-700.0, 1e4)]
)
def test_against_adaptive_quadrature_in_high_precision(mean, variance):
    with mpmath.workdps(30):
        m, v = mpmath.mpf(mean), mpmath.mpf(variance)
        s, tilted = mpmath.sqrt(v), min(m + v, mpmath.mpf(0))
        cuts = sorted({m - 12 * s, m, tilted, mpmath.mpf(0), tilted + 12 * s, mpmath.mpf(-20), mpmath.mpf(20)})
        cuts = [x for x in cuts if m - 12 * s <= x]
        value = mpmath.quad(lambda x: mpmath.npdf(x, m, s) / (1 + mpmath.exp(-x)), cuts, maxdegree=10)
        relative = abs(mpmath.mpf(float(logistic_average(mean, variance))) / value - 1)
    assert relative < 1e-13  # a hundred rounding units of the exponents m + v/2, m^2/2v


def test_far_outside_the_usual_range():
    # (-700, 1e8): s is so large that p = Phi(m/s) up to pi^2/6 |m|/s^3 phi(m/s) < 5e-10 (Sommerfeld expansion)
    assert logistic_average(-700.0, 1e8) == pytest.approx(0.5 * math.erfc(0.07 / math.sqrt(2.0)), rel=1e-9)
    # the exponential tail: p = exp(m + v/2) (1 - p(m + v)), with p(-600) < 1e-238; 650 rounding units of exponent
    assert logistic_average(-700.0, 100.0) == pytest.approx(math.exp(-650.0), rel=1e-12)
    assert logistic_average(-700.0, 1.6) == pytest.approx(math.exp(-699.2), rel=1e-12)
    # a p that double precision cannot hold is 0, and infinities have their limits
    p = logistic_average([-1e8, -5e3, -np.inf, np.inf, 3.0, np.nan], [1e8, 1e4, 2.0, 0.5, np.inf, 1.0])
    np.testing.assert_array_equal(p, [0.0, 0.0, 0.0, 1.0, 0.5, np.nan])


def test_monotone_in_the_mean_and_across_the_switch_of_rules():
    m = np.linspace(-40.0, 40.0, 2001)
    for v in (0.1, 1.5, 1.6, 10.0, 1e4):
        assert np.all(np.diff(logistic_average(m, v)) >= 0.0)
    # dp/dv is at most 0.05, and the step 2e-16: whatever difference is seen comes from the rules
    below, above = logistic_average(m, SWITCH), logistic_average(m, np.nextafter(SWITCH, 2.0))
    np.testing.assert_allclose(below, above, rtol=1e-13)


def test_gauss_hermite_would_not_do():
    # negative control of the oracle: 64 nodes are 2e-2 off at variance 400
    x, w = np.polynomial.hermite_e.hermegauss(64)
    m = np.linspace(-30.0, 0.0, 61)
    hermite = expit(m[:, None] + 20.0 * x) @ w / w.sum()
    expected = np.array([oracle(mean, 400.0) for mean in m])
    assert 1e-2 < np.max(np.abs(hermite - expected)) < 4e-2


def test_erf_sum_has_its_published_error():
    x = np.linspace(-20.0, 20.0, 40001)
    sigmoid_error = np.max(np.abs(logistic_average_erf(x, 0.0) - expit(x)))
    assert 4.2e-4 < sigmoid_error < 4.4e-4
    # it interpolates at these points; coefficients of size 4e3 cost four digits
    points = np.array([0.0, 0.6, 2.0, 3.5, 4.5, np.inf])
    np.testing.assert_allclose(logistic_average_erf(points, 0.0), expit(points), rtol=0.0, atol=1e-11)
    # averaging cannot increase the largest error
    m, v = np.meshgrid(np.linspace(-30.0, 30.0, 121), [0.1, 1.0, 10.0, 100.0, 1e4])
    assert np.max(np.abs(logistic_average_erf(m, v) - logistic_average(m, v))) <= sigmoid_error


def test_erf_sum_is_wrong_in_the_tails():
    # Gaussian tails under exponential ones: 10 times too small at -10, and it gets worse
    ratio = expit([-4.5, -10.0, -12.0]) / logistic_average_erf([-4.5, -10.0, -12.0], 0.0)
    assert ratio[0] == pytest.approx(1.0, rel=1e-8)
    assert 8.0 < ratio[1] < 12.0
    assert ratio[2] > 100.0


@pytest.mark.parametrize(
    ("largest", "low", "high"), [(4.0, 1.0e-2, 1.02e-2), (25.0, 1.5e-2, 1.6e-2), (1e4, 1.75e-2, 1.7672e-2)]
)
def test_mackay_has_its_known_error(largest, low, high):
    # 0.017671 is max |Phi(z) - sigma(z sqrt(8/pi))|, the limit of large variance; below it the error grows with v
    m, v = np.meshgrid(np.linspace(-200.0, 200.0, 2001), np.logspace(-2.0, math.log10(largest), 41))
    assert low < np.max(np.abs(logistic_average_mackay(m, v) - logistic_average(m, v))) < high


def test_mackay_is_exact_without_variance():
    np.testing.assert_allclose(logistic_average_mackay([-2.0, 5.0], 0.0), expit([-2.0, 5.0]), rtol=1e-15)


@pytest.mark.parametrize("average", [logistic_average, logistic_average_erf, logistic_average_mackay])
def test_broadcasting_shapes_and_inputs(average):
    m, v = np.linspace(-3.0, 3.0, 4)[:, None], np.array([0.5, 2.0, 30.0])
    p = average(m, v)
    assert p.shape == (4, 3)
    assert p.flags.writeable
    assert p[1, 2] == average(m[1, 0], v[2])
    np.testing.assert_array_equal(average(np.asfortranarray(np.broadcast_to(m, (4, 3))), v), p)
    assert np.shape(average(0, 1)) == ()
    assert average(np.zeros((0, 3)), 1.0).shape == (0, 3)


@pytest.mark.parametrize("average", [logistic_average, logistic_average_erf, logistic_average_mackay])
def test_a_negative_variance_is_refused(average):
    with pytest.raises(InvalidInput, match=r"'variance' must not be negative; got -0\.5"):
        average([0.0, 1.0], [1.0, -0.5])
