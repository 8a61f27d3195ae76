"""Moments of a likelihood times a Gaussian, against high precision and numerical integration."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from hmcgp.evidence.ep import tilted_moments
from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, STEP
from hmcgp.numerics.compiled import compiled

cumulants, flip_slope, tilted = (
    compiled(f) for f in (tilted_moments.cumulants, tilted_moments.flip_slope, tilted_moments.tilted)
)


def exact_logistic(mu, v):
    """log Ẑ, a and U of σ(f) N(f; mu, v), with 45 digits."""
    with mpmath.workdps(45):
        mu, v = mpmath.mpf(mu), mpmath.mpf(v)
        low, high = mu, mu + v  # the mode lies between
        for _ in range(200):
            f = (low + high) / 2
            low, high = (f, high) if 1 / (1 + mpmath.exp(f)) > (f - mu) / v else (low, f)

        def log_weight(x):
            return -mpmath.log1p(mpmath.exp(-x)) - (x - mu) ** 2 / (2 * v)

        top, s = log_weight(f), mpmath.sqrt(v)
        curvature = 1 / mpmath.sqrt(1 / v + mpmath.sech(f / 2) ** 2 / 4)
        ends = {f + k * curvature for k in (-40, -20, -10, -5, -2, 0, 2, 5, 10, 20, 40)}
        ends |= {f + k * s for k in (-14, -7, -3, -1, 1, 3, 7, 14)}
        ends |= {f + k for k in (-80, -40, -10, -3, 3, 10, 40, 80)}
        i0, i1, i2 = (
            mpmath.quad(lambda x, k=k: mpmath.exp(log_weight(x) - top) * (x - f) ** k, sorted(ends)) for k in range(3)
        )
        mean, variance = f + i1 / i0, i2 / i0 - (i1 / i0) ** 2
        log_z = mpmath.log(i0) + top - mpmath.log(2 * mpmath.pi * v) / 2
        return float(log_z), float((mean - mu) / v), float((1 - variance / v) / v), float(variance / v)


@pytest.mark.parametrize("v", [1e-12, 1.0, 1.6, 30.0, 1e6])
@pytest.mark.parametrize("t", [-8.0, -0.7, 2.0])
@pytest.mark.parametrize("in_sd", [True, False])
def test_logistic_moments(v, t, in_sd):
    mu = t * np.sqrt(v) if in_sd else t
    log_z, a, U = tilted(LOGISTIC, 0.0, 1.0, mu, v)
    expected = exact_logistic(mu, v)
    np.testing.assert_allclose([log_z, a, U], expected[:3], rtol=1e-11)
    np.testing.assert_allclose(1.0 - U * v, expected[3], rtol=1e-11)
    mirrored = tilted(LOGISTIC, 0.0, -1.0, -mu, v)
    assert mirrored == (log_z, -a, U)


@pytest.mark.parametrize("v", [1.6, 4.0, 100.0])
def test_logistic_moments_far_out_meet_their_limits(v):
    """p(m) = exp(m + v/2) far left, where a = 1 and U = 0, and 1 - p(m) = exp(v/2 - m) far right."""
    m = -2.0 * v - 60.0
    np.testing.assert_allclose(tilted(LOGISTIC, 0.0, 1.0, m, v)[:2], [m + 0.5 * v, 1.0], rtol=1e-14)
    log_z, a, U = tilted(LOGISTIC, 0.0, 1.0, -m, v)
    np.testing.assert_allclose([-log_z, a, U], np.exp(m + 0.5 * v), rtol=1e-12)
    grid = [tilted(LOGISTIC, 0.0, 1.0, x, v) for x in np.linspace(3.0 * m, -3.0 * m, 4001)]
    assert np.isfinite(grid).all()
    assert (np.diff([g[0] for g in grid]) >= 0.0).all()  # no seam between the rules
    assert (np.diff([g[1] for g in grid]) <= 1e-14).all()
    assert min(g[2] for g in grid) >= 0.0


@pytest.mark.parametrize("flip", [0.0, 1e-300, 1e-8, 0.05, 0.499])
@pytest.mark.parametrize("kind", [PROBIT, STEP])
@pytest.mark.parametrize("z", [-45.0, -12.0, -5.0, -1.0, 0.0, 3.0, 9.0])
def test_label_noise_moments_match_high_precision(kind, flip, z):
    v = 2.5
    with mpmath.workdps(80):
        spread = mpmath.mpf(v + (kind == PROBIT))
        eps = mpmath.mpf(flip)

        def log_z_of(mu):
            return mpmath.log(eps + (1 - 2 * eps) * mpmath.erfc(-mu / mpmath.sqrt(2 * spread)) / 2)

        mu = mpmath.mpf(float(z * np.sqrt(v + (kind == PROBIT))))
        a, second = (mpmath.diff(log_z_of, mu, k, h=mpmath.mpf(10) ** -20) for k in (1, 2))
        expected = [float(log_z_of(mu)), float(a), float(-second)]
    got = tilted(kind, flip, 1.0, float(mu), v)
    np.testing.assert_allclose(got, expected, rtol=2e-11, atol=1e-300)
    assert tilted(kind, flip, -1.0, -float(mu), v) == (got[0], -got[1], got[2])


@pytest.mark.parametrize("kind", [PROBIT, STEP])
def test_slope_in_the_flip_rate(kind):
    for mu in (-3.0, 0.1, 2.0):
        h = 1e-6
        up, down = (tilted(kind, 0.1 + d, 1.0, mu, 0.7)[0] for d in (h, -h))
        np.testing.assert_allclose(flip_slope(kind, 0.1, 1.0, mu, 0.7), (up - down) / (2.0 * h), rtol=1e-8)


@pytest.mark.parametrize("kind", [PROBIT, STEP])
@pytest.mark.parametrize("flip", [1e-8, 0.05, 0.4])
@pytest.mark.parametrize("z", [-9.0, -3.0, -0.2, 1.0, 6.0])
def test_cumulants_are_the_derivatives_of_the_log_moment(kind, flip, z):
    """κ_k = v^k dᵏ log Ẑ/dμᵏ, and v besides where k = 2."""
    v, y = 0.7, -1.0
    spread = v + 1.0 if kind == PROBIT else v
    mu = y * z * np.sqrt(spread)
    with mpmath.workdps(60):

        def log_z(m):
            return mpmath.log(flip + (1 - 2 * mpmath.mpf(flip)) * mpmath.ncdf(y * m / mpmath.sqrt(spread)))

        expected = [float(v**k * mpmath.diff(log_z, mu, k)) for k in range(5)]
    expected[2] += v
    np.testing.assert_allclose(cumulants(kind, flip, y, mu, v), expected, rtol=2e-9)
