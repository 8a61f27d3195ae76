"""Covariances of derivatives: by differences of the kernel itself, in samples, and in a fit to slopes."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.kernels import Matern, Periodic, SquaredExponential, WithDerivatives, check_gradient
from hmcgp.model import Model

X = np.random.default_rng(3).normal(size=(10, 2))
CODES = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2], dtype=float)
ROWS = np.column_stack([X, CODES])
KERNELS = [
    SquaredExponential(1.3, [0.8, 1.7]),
    Matern(variance=1.3, length_scale=[0.8, 1.7], nu=2.5),
    Matern(variance=1.3, length_scale=[0.8, 1.7]),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_against_differences_of_the_function(kernel):
    # ∂f/∂x_k is the limit of (f(x + h) - f(x - h))/2h, whose covariances are those of 2 values each
    h = 1e-3
    shift = np.zeros((10, 2))
    for i, code in enumerate(CODES.astype(int)):
        if code:
            shift[i, code - 1] = h
    both = kernel(np.vstack([X + shift, X - shift]))
    A = np.hstack([np.diag(np.where(CODES > 0, 1 / (2 * h), 0.5)), np.diag(np.where(CODES > 0, -1 / (2 * h), 0.5))])
    # errors of h² k⁗/3, below 3e-5 here, but of order h where k(r) has a |r|³ term
    rough = getattr(kernel, "nu", 2.5) == 1.5
    np.testing.assert_allclose(WithDerivatives(kernel)(ROWS), A @ both @ A.T, atol=2e-2 if rough else 4e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_it_is_a_kernel(kernel):
    check_gradient(WithDerivatives(kernel), np.vstack([ROWS, ROWS[::3]]))  # coincident rows too


@pytest.mark.parametrize("kernel", [SquaredExponential(1.3, 0.9), Matern(variance=1.3, length_scale=0.9)], ids=str)
def test_one_length_scale_for_all(kernel):
    check_gradient(WithDerivatives(kernel), ROWS)


def test_values_alone_have_the_covariance_of_the_kernel():
    kernel = KERNELS[0]
    values = np.column_stack([X, np.zeros(10)])
    np.testing.assert_allclose(WithDerivatives(kernel)(values), kernel(X), rtol=1e-13)


def test_slopes_tell_the_function():
    # f = sin x, known only by its value at 0 and its derivative at 25 points
    t = np.linspace(-3.0, 3.0, 25)
    rows = np.vstack([[0.0, 0.0], np.column_stack([t, np.ones(25)])])
    y = np.append(0.0, np.cos(t))
    kernel = WithDerivatives(SquaredExponential(1.0, 1.5))
    at = np.column_stack([t, np.zeros(25)])
    mean = kernel(at, rows) @ np.linalg.solve(kernel(rows) + 1e-8 * np.eye(26), y)
    np.testing.assert_allclose(mean, np.sin(t), atol=1e-3)


def test_in_a_model():
    kernel = WithDerivatives(SquaredExponential(ard=True))
    model = Model(ROWS, X[:, 0], kernel=kernel, likelihood="gaussian", input_names=["a", "b", "what"])
    assert model.names == ["variance", "length_scale[a]", "length_scale[b]", "noise"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WithDerivatives(Matern(nu=0.5)), "nu 1.5 or 2.5"),
        (lambda: WithDerivatives(Periodic()), "must be SquaredExponential"),
        (lambda: WithDerivatives(SquaredExponential(1.0, 1.0))(ROWS + 0.5), "last column must say"),
        (lambda: WithDerivatives(SquaredExponential()).parameters(["a"]), "needs a last column"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
