"""Moments of powers of a likelihood under a Gaussian, against a fine grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_expit, log_ndtr

from hmcgp.evidence.ep import power_moments
from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, STEP
from hmcgp.numerics.compiled import compiled

cumulants_power, flip_slope_power, tilted_power = (
    compiled(f) for f in (power_moments.cumulants_power, power_moments.flip_slope_power, power_moments.tilted_power)
)

CAVITIES = [(0.0, 1e-4), (0.3, 1.0), (-4.0, 2.0), (5.0, 10.0), (-6.0, 4.0), (-30.0, 50.0), (30.0, 400.0), (-100.0, 1e3)]


def log_p(kind, flip, f):
    if kind == LOGISTIC:
        return log_expit(f)
    clean = log_ndtr(f) if kind == PROBIT else np.where(f > 0.0, 0.0, -np.inf)
    return np.logaddexp(np.log(flip) if flip else -np.inf, np.log1p(-2.0 * flip) + clean)


def moments_on_a_grid(kind, flip, power, mu, v):
    """Log Ẑ, mean less mu, cumulants 2 to 4 and ∂ log Ẑ/∂ε by the trapezoidal rule, on either side of 0."""
    sides = []
    for sign in (-1.0, 1.0):
        t = np.linspace(1e-9, 1.0, 50_001)
        reach = 12.0 * np.sqrt(v) + abs(mu)
        f, df = sign * reach * t**2, reach * 2.0 * t * (t[1] - t[0])
        log_g = power * log_p(kind, flip, f) - 0.5 * (f - mu) ** 2 / v - 0.5 * np.log(2.0 * np.pi * v)
        sides.append((f, log_g + np.log(df)))
    f, log_g = (np.concatenate(x) for x in zip(*sides, strict=True))
    top = log_g.max()
    g = np.exp(log_g - top)
    g, log_z = g / g.sum(), top + np.log(g.sum())
    mean = g @ f
    m2, m3, m4 = (g @ (f - mean) ** k for k in (2, 3, 4))
    p = np.exp(log_p(kind, flip, f))
    slope = power * g @ ((1.0 / p - 2.0) / (1.0 - 2.0 * flip)) if flip else None
    return np.array([log_z, mean - mu, m2, m3, m4 - 3.0 * m2**2]), slope


@pytest.mark.parametrize(("kind", "flip"), [(LOGISTIC, 0.0), (PROBIT, 0.0), (PROBIT, 0.05), (PROBIT, 1e-6)])
@pytest.mark.parametrize("power", [0.9, 0.3, 0.01])
@pytest.mark.parametrize(("mu", "v"), CAVITIES)
def test_moments_of_a_power(kind, flip, power, mu, v):
    expected, slope = moments_on_a_grid(kind, flip, power, mu, v)
    got = np.array(cumulants_power(kind, flip, power, 1.0, mu, v))
    scale = np.sqrt(expected[2]) ** np.arange(5)
    np.testing.assert_allclose(got / scale, expected / scale, rtol=1e-8, atol=1e-8)  # what the grid can do
    log_z, a, U = tilted_power(kind, flip, power, -1.0, -mu, v)
    np.testing.assert_allclose([log_z, -a * v, v - U * v * v], got[:3], rtol=1e-12, atol=1e-12 * scale[1])
    if flip:
        np.testing.assert_allclose(flip_slope_power(kind, flip, power, 1.0, mu, v), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kind", "flip"), [(LOGISTIC, 0.0), (PROBIT, 0.0), (PROBIT, 0.05), (STEP, 0.05)])
def test_no_cavity_is_too_far_away_to_end(kind, flip):
    for mu in (1e17, -1e17, 1e300, -1e300, np.inf, -np.inf, np.nan, 0.0):
        for v in (1e-300, 1.0, 1e8, 1e300):
            log_z = tilted_power(kind, flip, 0.5, 1.0, mu, v)[0]
            assert np.isnan(log_z) or log_z <= 1e-12
            flip_slope_power(kind, flip, 0.5, 1.0, mu, v)


@pytest.mark.parametrize(("mu", "v"), [(0.3, 1.0), (-4.0, 2.0), (5.0, 10.0)])
def test_a_power_of_a_step_is_a_step(mu, v):
    expected, slope = moments_on_a_grid(STEP, 0.1, 0.3, mu, v)
    got = np.array(cumulants_power(STEP, 0.1, 0.3, 1.0, mu, v))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)  # a jump on a grid
    np.testing.assert_allclose(tilted_power(STEP, 0.1, 0.3, 1.0, mu, v)[0], got[0], rtol=1e-14)
    np.testing.assert_allclose(flip_slope_power(STEP, 0.1, 0.3, 1.0, mu, v), slope, rtol=1e-5)


@pytest.mark.parametrize(("kind", "flip"), [(LOGISTIC, 0.0), (PROBIT, 0.0), (PROBIT, 0.05), (PROBIT, 1e-6)])
@pytest.mark.parametrize(("ratio", "s"), [(1.0, 1e20), (1.0, 1e70), (-2.0, 1e15), (-1e-16, 1e33)])
def test_a_vast_cavity_sees_a_step(kind, flip, ratio, s):
    """Beside s, where p rises is a point; there were too many panels to wait for beside a peak that is far away."""
    got = np.array(cumulants_power(kind, flip, 0.5, 1.0, ratio * s, s * s)) / s ** np.arange(5)
    expected = np.array(cumulants_power(STEP, flip, 0.5, 1.0, ratio, 1.0))
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
    if flip:
        slope = flip_slope_power(STEP, flip, 0.5, 1.0, ratio, 1.0)
        np.testing.assert_allclose(flip_slope_power(kind, flip, 0.5, 1.0, ratio * s, s * s), slope, rtol=1e-10)
