"""Stationary kernels: independent formulas, limits, coincident rows, refusals."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from hmcgp import GPClassifier
from hmcgp.errors import InvalidInput
from hmcgp.kernels import (
    ExponentialPower,
    Matern,
    Periodic,
    RationalQuadratic,
    Spherical,
    SquaredExponential,
    Triangle,
)
from hmcgp.model import Model
from hmcgp.priors import LogNormal
from tests.helpers.checks import random_symmetric

X = np.random.default_rng(3).normal(size=(9, 3)) * [1.0, 2.0, 0.5]
X2 = np.random.default_rng(4).normal(size=(5, 3))
LENGTHS = np.array([0.5, 1.0, 3.0])


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_against_scikit_learn(nu):
    ours, theirs = Matern(variance=1.3, length_scale=LENGTHS, nu=nu), sk.ConstantKernel(1.3) * sk.Matern(LENGTHS, nu=nu)
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-12)
    np.testing.assert_allclose(ours(X, X2), theirs(X, X2), rtol=1e-12)


def test_rational_quadratic_against_scikit_learn():
    theirs = sk.ConstantKernel(1.3) * sk.RationalQuadratic(length_scale=0.8, alpha=0.6)
    np.testing.assert_allclose(RationalQuadratic(1.3, 0.8, shape=0.6)(X, X2), theirs(X, X2), rtol=1e-12)


def test_rational_quadratic_tends_to_the_squared_exponential():
    G = random_symmetric(np.random.default_rng(0), len(X))
    limit, pull_limit = SquaredExponential(1.3, LENGTHS).vjp(X)
    for shape, rtol in ((1e6, 1e-3), (1e12, 1e-9)):  # relative difference r⁴/8α
        K, pullback = RationalQuadratic(1.3, LENGTHS, shape=shape).vjp(X)
        np.testing.assert_allclose(K, limit, rtol=rtol, atol=1e-12)
        np.testing.assert_allclose(pullback(G)[:-1], pull_limit(G), rtol=10 * rtol)
        assert abs(pullback(G)[-1]) * shape < 1e4 / shape


@pytest.mark.parametrize(
    "kernel",
    [
        *(Matern(variance=1.3, length_scale=0.7, nu=nu) for nu in (0.5, 1.5, 2.5)),
        RationalQuadratic(1.3, 0.7, shape=2.0),
        Spherical(1.3, 0.7),
        ExponentialPower(1.3, 0.7, power=1.2),
        Periodic(1.3, 0.7, period=3.0),
    ],
    ids=str,
)
def test_coincident_rows(kernel):
    Z = np.vstack([X[:3], X[:3]])
    G = random_symmetric(np.random.default_rng(0), len(Z))
    K, pullback = kernel.vjp(Z)
    np.testing.assert_array_equal(K[:3, 3:], K[:3, :3])
    np.testing.assert_array_equal(np.diag(K[:3, 3:]), 1.3)
    assert np.all(np.isfinite(pullback(G)))
    assert np.all(np.isfinite(kernel.input_vjp(Z, G)))
    # 0/0 at r = 0 must be the limit: rows a hair apart give nearly the same derivatives
    moved = Z + np.vstack([np.zeros((3, 3)), np.full((3, 3), 1e-9)])
    np.testing.assert_allclose(kernel.vjp(moved)[1](G), pullback(G), rtol=1e-6, atol=1e-7)


def test_compact_kernels_are_overlaps_of_blurs():
    r = np.linspace(0.0, 1.2, 25)
    at = r[:, None] * 2.0
    # white noise averaged over an interval of length ℓ = 2: covariance = overlap of two intervals / ℓ
    overlap = np.maximum(0.0, np.minimum(1.0, at[:, 0] + 1.0) - np.maximum(-1.0, at[:, 0] - 1.0)) / 2.0
    np.testing.assert_allclose(Triangle(1.0, 2.0)(at, np.zeros((1, 1)))[:, 0], overlap, atol=1e-15)
    # balls of diameter 1: volume of the lens π(1 - r)²(2 + r)/12 over π/6
    lens = np.where(r < 1.0, (1.0 - r) ** 2 * (2.0 + r) / 2.0, 0.0)
    where = np.column_stack([r, np.zeros((25, 2))])
    np.testing.assert_allclose(Spherical(1.0, 1.0)(where, np.zeros((1, 3)))[:, 0], lens, atol=1e-15)


def test_compact_kernels_refuse_what_would_not_be_positive_definite():
    with pytest.raises(InvalidInput, match="of one input; got 3"):
        Triangle(1.0, 1.0)(X)
    with pytest.raises(InvalidInput, match="up to 3 inputs; got 6"):
        Spherical(1.0, 1.0)(np.hstack([X, X]))
    with pytest.raises(InvalidInput, match=r"on\(columns\)"):
        Model(np.hstack([X, X]), np.sign(X[:, 0]), kernel=Spherical())
    # the reason: the triangle of a distance in the plane has negative eigenvalues on a grid
    grid = np.stack(np.meshgrid(*[np.arange(12.0)] * 2), axis=-1).reshape(-1, 2)
    r = np.linalg.norm(grid[:, None] - grid, axis=-1)
    assert np.linalg.eigvalsh(np.maximum(0.0, 1.0 - r / 1.6))[0] < -0.01


def test_smoothness_must_have_a_formula():
    with pytest.raises(InvalidInput, match=r"0\.5, 1\.5 or 2\.5; got 1"):
        Matern(nu=1.0)


@pytest.mark.parametrize("n", [1, 2, 65, 130])
def test_far_rows_underflow_quietly(n):
    Z = np.arange(float(n))[:, None] * 1e6
    for kernel in (
        Matern(variance=1.0, length_scale=1.0),
        RationalQuadratic(1.0, 1.0, shape=3.0),
        Spherical(1.0, 1.0),
        Triangle(1.0, 1.0),
    ):
        np.testing.assert_allclose(kernel(Z), np.eye(n), atol=1e-30)


def test_exponential_power_has_the_squared_exponential_and_the_exponential_as_limits():
    smooth = SquaredExponential(1.3, LENGTHS / np.sqrt(2.0))
    np.testing.assert_allclose(ExponentialPower(1.3, LENGTHS, power=2.0)(X, X2), smooth(X, X2), rtol=1e-12)
    one = X[:, :1]
    np.testing.assert_allclose(
        ExponentialPower(1.3, 0.7, power=1.0)(one), Matern(variance=1.3, length_scale=0.7, nu=0.5)(one), rtol=1e-13
    )
    G = random_symmetric(np.random.default_rng(0), len(X))
    exact = smooth.vjp(X)[1](G)
    ours = ExponentialPower(1.3, LENGTHS, power=2.0).vjp(X)[1](G)
    np.testing.assert_allclose(ours[:4], exact / [1.0, *[np.sqrt(2.0)] * 3], rtol=1e-10)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
def test_compiled_loops_match_plain_formulas(n):
    Z = np.random.default_rng(n).normal(size=(n, 3))
    differences = np.abs(Z[:, None] - Z) / LENGTHS
    r = np.sqrt(np.sum(differences**2, axis=-1))
    twins = {
        ExponentialPower(1.7, LENGTHS, power=1.3): np.exp(-np.sum(differences**1.3, axis=-1)),
        Periodic(1.7, 0.8, period=LENGTHS): np.exp(-2.0 * np.sum(np.sin(np.pi * differences) ** 2, axis=-1) / 0.64),
        Matern(variance=1.7, length_scale=LENGTHS): (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
        RationalQuadratic(1.7, LENGTHS, shape=0.7): (1.0 + r**2 / 1.4) ** -0.7,
        Spherical(1.7, LENGTHS): np.where(r < 1.0, 1.0 - 1.5 * r + 0.5 * r**3, 0.0),
    }
    for kernel, twin in twins.items():
        np.testing.assert_allclose(kernel(Z), 1.7 * twin, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("power", [0.0, 2.1, -1.0, np.nan])
def test_powers_beyond_two_are_refused(power):
    with pytest.raises(InvalidInput, match="strictly between 0 and 2"):
        ExponentialPower(power=power)


def test_a_power_above_two_would_not_be_positive_definite():
    t = np.arange(30.0)[:, None]
    assert np.linalg.eigvalsh(np.exp(-(np.abs(t - t.T) ** 2.5) / 20.0))[0] < -1e-4


def test_the_power_can_be_inferred():
    model = Model(X, np.sign(X[:, 0]), kernel=ExponentialPower(1.0, 1.0))
    assert model.names == ["power"]
    assert model.constrain(np.array([30.0]))[0] < 2.0
    assert Model(X, np.sign(X[:, 0]), kernel=ExponentialPower(power=2.0)).names == ["variance", "length_scale"]


def test_periodic_against_scikit_learn():
    one, one2 = X[:, :1], X2[:, :1]  # with several inputs, scikit-learn's takes the sine of a Euclidean distance
    theirs = sk.ConstantKernel(1.3) * sk.ExpSineSquared(length_scale=0.7, periodicity=1.9)
    np.testing.assert_allclose(Periodic(1.3, 0.7, period=1.9)(one, one2), theirs(one, one2), rtol=1e-12)


def test_periodic_repeats_itself():
    kernel, period = Periodic(1.3, 0.7, period=[1.0, 2.5, 0.3]), np.array([1.0, 2.5, 0.3])
    np.testing.assert_allclose(kernel(X, X2 + 7.0 * period), kernel(X, X2), rtol=1e-11)
    np.testing.assert_allclose(kernel(X, X2 + np.array([3.0, 0.0, 0.0])), kernel(X, X2), rtol=1e-11)
    assert not np.allclose(kernel(X, X2 + 0.5 * period), kernel(X, X2))


def test_periodic_names_with_one_period_per_input():
    y = np.sign(X[:, 0])
    assert Model(X, y, kernel=Periodic(1.0, 1.0, ard=True)).names == [f"period[x{k}]" for k in range(3)]
    assert Model(X, y, kernel=Periodic(1.0, period=2.0)).names == ["length_scale"]


@pytest.mark.parametrize(
    "arguments", [(0.5,), (1.5,), (2.5,), (1.0, 1.5), (LogNormal(0.0, 1.0),), (1.0, 1.0, True, 0.5)]
)
def test_matern_takes_no_positional_arguments(arguments):
    with pytest.raises(InvalidInput, match=r"Matern\(nu=0\.5\) for 'nu', Matern\(variance="):
        Matern(*arguments)


@pytest.mark.parametrize(
    ("kernel", "name"), [(RationalQuadratic, "shape"), (ExponentialPower, "power"), (Periodic, "period")]
)
def test_a_single_positional_argument_of_a_kernel_with_a_shape_is_an_error(kernel, name):
    with pytest.raises(InvalidInput, match=f"{kernel.__name__}\\({name}="):
        kernel(1.5)
    assert kernel(1.5, **{name: 1.2}) == kernel(variance=1.5, **{name: 1.2})
    assert kernel(1.5, 0.7) == kernel(variance=1.5, length_scale=0.7)


def test_matern_is_rebuilt_from_its_repr_and_its_parts():
    kernel = Matern(variance=2.0, length_scale=[1.0, 3.0], nu=0.5, standardized=True)
    assert repr(kernel) == "Matern(variance=2.0, length_scale=(1.0, 3.0), nu=0.5, standardized=True)"
    assert eval(repr(kernel)) == kernel
    assert copy.deepcopy(kernel) == pickle.loads(pickle.dumps(kernel)) == kernel
    assert dataclasses.replace(kernel, nu=2.5).nu == 2.5
    assert [p.name for p in kernel.parameters(["a", "b"])] == ["variance", "length_scale"]
    parameters = inspect.signature(Matern).parameters
    assert parameters["nu"].kind is inspect.Parameter.KEYWORD_ONLY
    names = GPClassifier(kernel).get_params()
    assert {"kernel__nu", "kernel__variance", "kernel__length_scale", "kernel__ard"} <= set(names)
