"""Kernels of transformed inputs and rescaled functions, and sums over the inputs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.kernels import (
    Additive,
    Categorical,
    Embedded,
    Linear,
    LocallyLinear,
    Matern,
    MonotoneWarp,
    Periodic,
    RadialBasis,
    Rescaled,
    SinhArcsinh,
    SquaredExponential,
    Warped,
)
from hmcgp.model import Model
from hmcgp.priors import LogNormal, default_prior
from tests.helpers.checks import check_gradient, random_symmetric

X = np.random.default_rng(3).normal(size=(9, 3)) * [1.0, 2.0, 0.5]
X2 = np.random.default_rng(4).normal(size=(5, 3))
Y = np.sign(X[:, 0])
NAMES = ["FL", "RW", "CL"]


def free_names(kernel, inputs=NAMES):
    return [n for p in kernel.parameters(inputs) if p.is_free for n in p.flat_names]


def test_a_warp_replaces_the_inputs():
    kernel = SquaredExponential(1.3, [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(Warped(kernel, np.exp)(X, X2), kernel(np.exp(X), np.exp(X2)))
    to_two = Warped(SquaredExponential(ard=True), lambda X: X[:, :2] ** 2)
    assert free_names(to_two) == ["variance", "length_scale[u0]", "length_scale[u1]"]
    assert free_names(Warped(SquaredExponential(1.0, ard=True), np.log)) == [f"length_scale[{n}]" for n in NAMES]
    check_gradient(Model(X, Y, kernel=to_two).logdensity_and_grad, np.array([0.1, -0.2, 0.3]), rtol=1e-5)


def test_a_warp_must_keep_the_rows():
    with pytest.raises(InvalidInput, match=r"\(9, 3\) gave \(9,\)"):
        Warped(SquaredExponential(1.0, 1.0), lambda X: X[:, 0])(X)


def test_the_identity_among_the_sinh_arcsinh_maps():
    kernel = Matern(variance=1.3, length_scale=[0.5, 1.0, 2.0])
    np.testing.assert_allclose(SinhArcsinh(kernel, 1.0, 0.0)(X, X2), kernel(X, X2), rtol=1e-12)
    u = SinhArcsinh(kernel, 0.4, 0.3)._map(np.linspace(-50.0, 50.0, 101)[:, None])
    assert np.all(np.diff(u[:, 0]) > 0.0)


def test_names_and_gradients_of_a_sampled_warp():
    kernel = SinhArcsinh(SquaredExponential(1.0, ard=True), ard=True)
    assert free_names(kernel) == [f"{name}[{c}]" for name in ("length_scale", "tail", "skew") for c in NAMES]
    model = Model(X, Y, kernel=kernel)
    check_gradient(model.logdensity_and_grad, 0.3 * np.random.default_rng(2).normal(size=9), rtol=1e-5)


def test_a_monotone_warp_integrates_its_slopes():
    kernel = SquaredExponential(1.3, 0.8)
    knots, slopes = [-1.0, 0.5, 1.0], [0.2, 3.0, 0.7]
    x = np.sort(np.append(np.random.default_rng(1).uniform(-3.0, 3.0, 40), knots))[:, None]
    np.testing.assert_allclose(MonotoneWarp(kernel, knots, 1.0).warped(x), x, rtol=1e-14, atol=1e-15)
    warp = MonotoneWarp(kernel, knots, slopes)
    u = warp.warped(x)[:, 0]
    fine = np.linspace(-4.0, 4.0, 800_001)
    steepness = np.interp(fine, knots, slopes)  # constant beyond the knots
    by_trapezoids = np.append(0.0, np.cumsum(0.5 * (steepness[1:] + steepness[:-1]) * np.diff(fine)))
    by_trapezoids += knots[0] - np.interp(knots[0], fine, by_trapezoids)
    np.testing.assert_allclose(u, np.interp(x[:, 0], fine, by_trapezoids), atol=1e-8)
    np.testing.assert_array_equal(warp(x), kernel(warp.warped(x)))
    numeric = (warp.warped(x + 1e-6) - warp.warped(x - 1e-6))[:, 0] / 2e-6  # u' has no jumps, at the knots neither
    np.testing.assert_allclose(numeric, np.interp(x[:, 0], knots, slopes), atol=1e-5)


def test_the_slopes_of_a_monotone_warp_are_inferred():
    kernel = MonotoneWarp(SquaredExponential(1.0), [-1.0, 0.0, 1.0]).on("FL")
    assert free_names(kernel) == ["length_scale", "slope[0]", "slope[1]", "slope[2]"]
    for inducing in (None, X[:4]):
        model = Model(X, Y, kernel=kernel, input_names=NAMES, inducing=inducing)
        check_gradient(model.logdensity_and_grad, np.array([0.1, -0.5, 0.8, 0.3]), rtol=1e-5)


@pytest.mark.parametrize("knots", [[1.0], [0.0, 0.0], [1.0, 0.0], [0.0, np.inf], "ab", [[0.0, 1.0]]])
def test_knots_increase(knots):
    with pytest.raises(InvalidInput, match="two or more increasing numbers"):
        MonotoneWarp(Linear(), knots)


def test_a_monotone_warp_is_of_one_input():
    with pytest.raises(InvalidInput, match="one input; got 3"):
        Model(X, Y, kernel=MonotoneWarp(SquaredExponential(), [0.0, 1.0]))


def test_embedding_of_the_squared_exponential_is_the_periodic_kernel():
    embedded = Embedded(SquaredExponential(1.3, np.repeat([0.5, 1.0, 2.0], 2)), [2.0, 3.0, 0.7])
    periodic = Periodic(1.3, [0.5, 1.0, 2.0], period=[2.0, 3.0, 0.7])
    np.testing.assert_allclose(embedded(X, X2), periodic(X, X2), rtol=1e-11)
    G = random_symmetric(np.random.default_rng(0), len(X))
    np.testing.assert_allclose(embedded.vjp(X)[1](G)[-3:], periodic.vjp(X)[1](G)[-3:], rtol=1e-9)


def test_names_inside_an_embedding():
    kernel = Embedded(SquaredExponential(1.0, ard=True).on("sin(RW)"), LogNormal(0.0, 0.1))
    assert free_names(kernel) == ["length_scale[sin(RW)]", "period"]
    model = Model(X, Y, kernel=kernel, input_names=NAMES)
    check_gradient(model.logdensity_and_grad, np.array([0.2, 0.1]), rtol=1e-5)
    assert free_names(Embedded(Linear(1.0), ard=True)) == [f"period[{c}]" for c in NAMES]


def test_a_map_cannot_be_inferred_through_a_kernel_without_input_derivatives():
    inside = SquaredExponential() * Warped(SquaredExponential(1.0, 1.0), np.square)
    with pytest.raises(InvalidInput, match=r"period of Embedded cannot be inferred.*does not know its derivatives"):
        Model(X, Y, kernel=Embedded(inside))
    with pytest.raises(InvalidInput, match="tail, skew of SinhArcsinh cannot be inferred"):
        Model(X, Y, kernel=SinhArcsinh(Categorical()))
    fixed = Model(X, Y, kernel=Embedded(inside, 2.0))  # a fixed period needs no derivative
    check_gradient(fixed.logdensity_and_grad, np.array([0.2, 0.1]), rtol=1e-5)


def test_rescaling_multiplies_the_amplitudes():
    kernel = SquaredExponential(1.3, 0.8)
    a, a2 = np.exp(X @ [0.2, -0.1, 0.3]), np.exp(X2 @ [0.2, -0.1, 0.3])
    expected = a[:, None] * kernel(X, X2) * a2
    np.testing.assert_allclose(Rescaled(kernel, weight=[0.2, -0.1, 0.3])(X, X2), expected, rtol=1e-13)
    given = Rescaled(kernel, lambda X: np.exp(X @ [0.2, -0.1, 0.3]))
    np.testing.assert_allclose(given(X, X2), expected, rtol=1e-13)
    assert free_names(Rescaled(SquaredExponential(1.0), np.sum)) == ["length_scale"]


def test_weights_of_an_amplitude_in_a_model():
    basis = RadialBasis([[0.0] * 3, [1.0] * 3], 1.0)
    kernel = Rescaled(SquaredExponential(1.0), basis=basis)
    assert free_names(kernel) == ["length_scale", "weight[0 0 0]", "weight[1 1 1]"]
    check_gradient(Model(X, Y, kernel=kernel).logdensity_and_grad, np.array([0.1, -0.5, 0.8]), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rescaled(Linear(), np.sum, weight=0.1), "not both"),
        (lambda: Rescaled(Linear(1.0), np.square)(X), r"\(9, 3\) gave \(9, 3\)"),
        (lambda: Rescaled(Linear(1.0), weight=[0.1, 0.2]).parameters(NAMES), "2 values for 3 basis functions"),
        (lambda: Rescaled(Linear(1.0), weight=0.1).input_vjp(X, np.eye(9)), "Rescaled does not know"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_additive_is_a_sum_over_columns():
    kernel = Additive(Matern()).with_values([np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.7, 0.9])])
    parts = [
        Matern(variance=1.0, length_scale=0.5).on(0),
        Matern(variance=2.0, length_scale=0.7).on(1),
        Matern(variance=3.0, length_scale=0.9).on(2),
    ]
    together: Any = sum(parts)
    np.testing.assert_allclose(kernel(X, X2), together(X, X2), rtol=1e-13)
    np.testing.assert_allclose(kernel.diag(X), 6.0, rtol=1e-14)


def test_additive_has_its_parameters_once_per_input():
    kernel = Additive(SquaredExponential(ard=True) + Linear(0.3))
    assert free_names(kernel) == [f"{name}[{c}]" for name in ("variance", "length_scale") for c in NAMES]
    twice = Additive(SquaredExponential(length_scale=1.0) + Linear())
    assert free_names(twice, ["a"]) == ["squared_exponential.variance[a]", "linear.variance[a]"]
    model = Model(X, Y, kernel=kernel)
    check_gradient(model.logdensity_and_grad, 0.3 * np.random.default_rng(2).normal(size=6), rtol=1e-5)
    variance, length_scale = model.parameters
    assert length_scale.value == default_prior("length_scale", 1)  # each distance has one input only
    assert variance.value == default_prior("part_variance", 3)


def test_additive_checks_the_number_of_columns():
    kernel = Additive(Linear()).with_values([np.array([1.0, 2.0])])
    with pytest.raises(InvalidInput, match="must have 2 columns"):
        kernel(X)


def test_locally_linear_with_constant_slopes_is_linear():
    flat = SquaredExponential(2.0, 1e8)
    kernel = LocallyLinear(flat, Matern(variance=0.5, length_scale=1.0))
    np.testing.assert_allclose(
        kernel(X, X2), 2.0 * X @ X2.T + Matern(variance=0.5, length_scale=1.0)(X, X2), rtol=1e-12, atol=1e-13
    )
    written_out: Any = Linear(1.0) * SquaredExponential(2.0, 0.7) + Matern(variance=0.5, length_scale=1.0)
    np.testing.assert_allclose(LocallyLinear(written_out.left.right, written_out.right)(X), written_out(X), rtol=1e-13)
    names = ["slope.variance", "slope.length_scale", "offset.variance", "offset.length_scale"]
    assert free_names(LocallyLinear(SquaredExponential(), SquaredExponential())) == names


@pytest.mark.parametrize(
    "kernel",
    [
        Additive(SquaredExponential()),
        Additive(Matern()).with_values([np.array([1.0, 2.0]), np.array([0.5, 0.7])]),
        SinhArcsinh(Linear(), [1.0, 2.0]),
        MonotoneWarp(Linear(), [0.0, 1.0], [1.0, 2.0]),
        Warped(Linear(), np.log1p),
        Rescaled(Linear(), np.sum),
    ],
    ids=["additive", "with-values", "sinh-arcsinh", "monotone-warp", "warped", "rescaled"],
)
def test_they_are_values(kernel):
    assert kernel == copy.deepcopy(kernel) == pickle.loads(pickle.dumps(kernel))
    assert hash(kernel) == hash(copy.deepcopy(kernel))
