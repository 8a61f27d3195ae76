"""check_gradient: passes what is right, and names what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.kernels import (
    Additive,
    Categorical,
    Constant,
    Embedded,
    ExponentialPower,
    Gibbs,
    Kernel,
    NeuralNetwork,
    Rescaled,
    SinhArcsinh,
    SquaredExponential,
    White,
    check_gradient,
)
from hmcgp.kernels.base import Value, parameter
from hmcgp.model import Model

X = np.random.default_rng(3).normal(size=(8, 2))


@dataclass(frozen=True)
class Cauchy(Kernel):
    """variance / (1 + |x - x'|²): the ten lines of the README."""

    variance: Value = parameter("variance")

    def __call__(self, X, X2=None):
        X2 = X if X2 is None else X2
        return self.variance / (1.0 + np.sum((X[:, None] - X2) ** 2, axis=-1))

    def vjp(self, X):
        K = self(X)
        return K, lambda G: np.array([np.sum(G * K) / self.variance])

    def diag(self, X):
        return np.full(len(X), self.variance)


def test_a_kernel_of_ten_lines_passes_and_works():
    result = check_gradient(Cauchy(), X)
    assert result.names == ["variance"]
    np.testing.assert_allclose(result.pullback, result.numeric, rtol=1e-8)
    model = Model(X, np.sign(X[:, 0]), kernel=Cauchy() + Constant(1.0))
    assert np.isfinite(model.logdensity_and_grad(np.array([0.3]))[0])


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(ard=True),
        SquaredExponential(2.0, [0.5, 1.0]) + White(),
        NeuralNetwork() * ExponentialPower(),
        Gibbs(ard=True),
        Additive(SquaredExponential()),
        SinhArcsinh(Rescaled(SquaredExponential()), 1.2, 0.1),
        Embedded(Categorical(), 2.0),
        SquaredExponential(1.0, 1.0).on("b"),
    ],
    ids=str,
)
def test_right_kernels_pass(kernel):
    check_gradient(kernel, X, input_names=["a", "b"])


def broken(**methods):
    return type("Broken", (Cauchy,), methods)()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (broken(vjp=lambda self, X: (self(X), lambda G: np.array([np.sum(G * self(X))]))), "variance: .* for "),
        (broken(vjp=lambda self, X: (self(X), lambda G: np.zeros(2))), r"1 derivatives, for \['variance'\].*\(2,\)"),
        (broken(vjp=lambda self, X: (2.0 * self(X), lambda G: np.zeros(1))), r"kernel\(X\) must equal vjp\(X\)\[0\]"),
        (broken(diag=lambda self, X: np.ones(len(X)) * 9.0), r"diag\(X\) must be the diagonal"),
        (broken(diag=lambda self, X: np.ones((len(X), 1))), r"shapes are \(8, 1\) and \(8,\)"),
        (broken(__call__=lambda self, X, X2=None: np.full((8, 8), np.nan)), "differ by up to nan|symmetric"),
        (broken(__call__=lambda self, X, X2=None: -Cauchy.__call__(self, X, X2)), "diagonal|positive semidefinite"),
        (
            broken(inducing_vjp=lambda self, X, Z: (self(X, Z), self.diag(X), lambda G, g: np.zeros(1))),
            "pullback of its inducing_vjp does not match.*variance",
        ),
        (
            broken(inducing_vjp=lambda self, X, Z: (self(X, Z), self.diag(X)[:1], lambda G, g: np.zeros(1))),
            r"inducing_vjp\(X, Z\)\[1\] must equal diag",
        ),
        (broken(add_to=lambda self, K, X, X2: None), r"add_to\(A, X, None\) must add kernel\(X\) to A"),
        (
            broken(add_vjp=lambda self, K, X, offset, out: np.add(K, self(X), out=out)),
            r"add_vjp\(A, X, c, out\) must write A \+ c \+ kernel\(X\)",
        ),
        (broken(input_vjp=lambda self, X, G: np.zeros(X.shape)), r"its input_vjp does not match.*X\[0, x0\]"),
    ],
)
def test_wrong_kernels_are_told_what_is_wrong(kernel, message):
    with pytest.raises(InvalidInput, match=message):
        check_gradient(kernel, X)


def test_an_indefinite_kernel_is_refused():
    def cosine_of_distance(self, X, X2=None):
        return self.variance * np.cos(3.0 * np.linalg.norm(X[:, None] - (X if X2 is None else X2), axis=-1))

    with pytest.raises(InvalidInput, match="smallest eigenvalue is -"):
        check_gradient(broken(__call__=cosine_of_distance), X)


def test_one_row_is_not_enough():
    with pytest.raises(InvalidInput, match="at least 2 rows"):
        check_gradient(Cauchy(), X[:1])
