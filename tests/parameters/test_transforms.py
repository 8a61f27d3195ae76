"""Transforms: inverse pairs, slopes by central differences, total probability, far tails."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from hmcgp.errors import InvalidInput
from hmcgp.parameters.transforms import Identity, Log, Logit

TRANSFORMS = [Identity(), Log(), Logit(), Logit(0.3)]
U = np.linspace(-6.0, 6.0, 25)
H = 6e-6  # eps ** (1/3): truncation and rounding of a central difference are both near 1e-10


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_unconstrain_inverts_constrain(transform):
    # 1 - x loses exp(6) = 400 rounding units for the logit at u = 6
    np.testing.assert_allclose(transform.unconstrain(transform.constrain(U)), U, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_slopes_match_central_differences(transform):
    def numeric(fun):
        return (fun(U + H) - fun(U - H)) / (2.0 * H)

    # rounding: eps * x / h, with x up to exp(6) relative to a slope as large; 1e-9 covers it and truncation h^2
    np.testing.assert_allclose(transform.dconstrain(U), numeric(transform.constrain), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(transform.dlog_jacobian(U), numeric(transform.log_jacobian), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(transform.log_jacobian(U), np.log(transform.dconstrain(U)), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize(
    ("transform", "density"),
    [
        (Identity(), stats.norm(1.0, 2.0)),
        (Log(), stats.gamma(2.5, scale=0.3)),
        (Logit(), stats.beta(2.0, 3.5)),
        (Logit(0.5), stats.beta(2.0, 3.5, scale=0.5)),
    ],
    ids=["identity", "log", "logit", "logit to 0.5"],
)
def test_transformed_density_integrates_to_one(transform, density):
    u = np.linspace(-30.0, 30.0, 3001)  # smooth and dead at the ends: exponentially accurate
    f = density.pdf(transform.constrain(u)) * np.exp(transform.log_jacobian(u))
    assert abs(trapezoid(f, u) - 1.0) < 1e-10
    without_jacobian = trapezoid(density.pdf(transform.constrain(u)), u)
    if not isinstance(transform, Identity):  # negative control: forgetting the Jacobian shows
        assert abs(without_jacobian - 1.0) > 0.1


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_far_tails_are_finite(transform):
    u = np.array([-700.0, -40.0, 40.0, 700.0])
    x = transform.constrain(u)
    for values in (x, transform.dconstrain(u), transform.log_jacobian(u), transform.dlog_jacobian(u)):
        assert np.all(np.isfinite(values))
    assert np.all(np.diff(x) >= 0.0)
    transform.unconstrain(x)  # still strictly inside the support


def test_far_tails_of_the_logit():
    u = np.array([-700.0, 700.0])
    # log x(1 - x) = -|u| there, to all digits: 2 log(1 + exp(-700)) is 1e-304
    np.testing.assert_array_equal(Logit().log_jacobian(u), [-700.0, -700.0])
    np.testing.assert_array_equal(Logit().dlog_jacobian(u), [1.0, -1.0])
    np.testing.assert_allclose(Logit().constrain(u)[0], np.exp(-700.0), rtol=1e-12)
    assert Logit().constrain(u)[1] < 1.0


def test_past_the_end_of_double_precision_nothing_warns():
    np.testing.assert_array_equal(Log().constrain(np.array([-1e4, 1e4])), [0.0, np.inf])
    assert np.all(np.isfinite(Logit().constrain(np.array([-1e4, 1e4]))))


@pytest.mark.parametrize(
    ("transform", "x"),
    [
        (Log(), 0.0),
        (Log(), -1.0),
        (Log(), np.inf),
        (Logit(), 0.0),
        (Logit(), 1.0),
        (Logit(0.5), 0.5),
        (Identity(), np.nan),
    ],
    ids=repr,
)
def test_unconstrain_refuses_values_outside_the_support(transform, x):
    with pytest.raises(InvalidInput, match="strictly between"):
        transform.unconstrain(np.array([0.5, x]))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_shapes_are_kept_and_values_are_frozen(transform):
    u = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
    before = u.copy()
    for fun in (transform.constrain, transform.dconstrain, transform.log_jacobian, transform.dlog_jacobian):
        assert fun(u).shape == (2, 3)
        assert np.shape(fun(0.3)) == ()
    np.testing.assert_array_equal(u, before)
    with pytest.raises(dataclasses.FrozenInstanceError):
        transform.anything = 1
