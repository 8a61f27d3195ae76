"""Models check the derivatives of custom kernels: wrong ones raise an error, correct ones of any shape pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor, Model, RowBlocks, SpreadModel
from hmcgp.errors import InvalidInput
from hmcgp.kernels import (
    Additive,
    Categorical,
    Constant,
    Kernel,
    Rescaled,
    SinhArcsinh,
    SquaredExponential,
    Warped,
    WithDerivatives,
    parameter,
)
from hmcgp.kernels.algebra import Wrapped
from hmcgp.parameters.declaration import REAL
from hmcgp.priors import HalfCauchy, LogNormal, Normal
from tests.helpers.custom_kernels import Cauchy, N, X, Y, bent

TWICE = {"bend_grad": lambda self, grad: 2.0 * grad}


@dataclass(frozen=True)
class Smooth(Kernel):
    """variance exp(-|x - x'|²/2 length_scale²), whose derivatives are multiplied by the factors."""

    variance: float = parameter("variance")
    length_scale: float = parameter("length_scale")
    factors: tuple = (1.0, 1.0)
    input_factor: float = 1.0

    def _squares(self, X, X2):
        return np.sum((X[:, None] - X2) ** 2, axis=2)

    def __call__(self, X, X2=None):
        return self.variance * np.exp(-0.5 * self._squares(X, X if X2 is None else X2) / self.length_scale**2)

    def vjp(self, X):
        K = self(X)
        R = self._squares(X, X)

        def pullback(G):
            slopes = np.array([np.sum(G * K) / self.variance, np.sum(G * K * R) / self.length_scale**3])
            return slopes * np.array(self.factors)

        return K, pullback

    def diag(self, X):
        return np.full(len(X), float(self.variance))

    def input_vjp(self, X, G):
        S = G * self(X)
        difference = X[:, None] - X
        return -2.0 * self.input_factor * np.einsum("ij,ijk->ik", S, difference) / self.length_scale**2


@dataclass(frozen=True)
class Hat(Kernel):
    """variance max(0, 1 - |x - x'|/reach) of one input: a kink where inputs are `reach` apart."""

    variance: float = parameter("variance")
    reach: float = parameter("length_scale")

    def __call__(self, X, X2=None):
        return self.variance * np.maximum(
            0.0, 1.0 - np.abs(X[:, 0, None] - (X if X2 is None else X2)[:, 0]) / self.reach
        )

    def vjp(self, X):
        K, R = self(X), np.abs(X[:, 0, None] - X[:, 0])

        def pullback(G):
            return np.array([np.sum(G * K) / self.variance, self.variance * np.sum(G * R * (K > 0.0)) / self.reach**2])

        return K, pullback

    def diag(self, X):
        return np.full(len(X), float(self.variance))


@dataclass(frozen=True)
class Change(Kernel):
    """variance if two rows lie on the same side of `place`, else 0: K jumps as `place` passes a row."""

    variance: float = parameter("variance")
    place: float = parameter("skew", support=REAL)

    def __call__(self, X, X2=None):
        X2 = X if X2 is None else X2
        return self.variance * ((X[:, 0, None] > self.place) == (X2[:, 0] > self.place)).astype(float)

    def vjp(self, X):
        K = self(X)
        return K, lambda G: np.array([np.sum(G * K) / self.variance, 0.0])

    def diag(self, X):
        return np.full(len(X), float(self.variance))


@dataclass(frozen=True)
class SinglePrecision(Smooth):
    """Computed in single precision, as many libraries do on a graphics card."""

    def __call__(self, X, X2=None):
        X2 = X if X2 is None else X2
        Z, Z2 = ((part / self.length_scale).astype(np.float32) for part in (X, X2))
        R = np.sum((Z[:, None] - Z2) ** 2, axis=2)
        return (np.float32(self.variance) * np.exp(np.float32(-0.5) * R)).astype(float)


@dataclass(frozen=True)
class Noise(Kernel):
    """variance on the diagonal of the covariances of rows with themselves."""

    variance: float = parameter("noise")

    def __call__(self, X, X2=None):
        return self.variance * np.eye(len(X)) if X2 is None else np.zeros((len(X), len(X2)))

    def vjp(self, X):
        return self(X), lambda G: np.array([np.trace(G)])

    def diag(self, X):
        return np.full(len(X), float(self.variance))


@dataclass(frozen=True)
class Squared(Wrapped):
    """The square of another kernel."""

    def __call__(self, X, X2=None):
        return self.kernel(X, X2) ** 2

    def vjp(self, X):
        K, pull = self.kernel.vjp(X)
        return K**2, lambda G: pull(2.0 * G * K)

    def diag(self, X):
        return self.kernel.diag(X) ** 2


CORRECT = {
    "guide": Cauchy(),
    "smooth": Smooth(),
    "kink": Hat(),
    "jump": Change(place=Normal(0.0, 1.0)),
    "single precision": SinglePrecision(),
    "noise": Noise() + Smooth(),
    "wide priors": Smooth(HalfCauchy(1.0), LogNormal(0.0, 3.0)),
    "tiny": Smooth(LogNormal(-40.0, 1.0), LogNormal(0.0, 1.0)),
    "no free parameter": Smooth(1.0, 1.0),
    "composite": Squared(Smooth() + SquaredExponential(ard=True)),
    "sum and product": Smooth() * Cauchy() + 2.0 * Hat().on([0]) + Constant(1.0),
    "warps": Rescaled(SinhArcsinh(Smooth())) + Warped(Cauchy(), np.tanh),
    "additive": Additive(Smooth()),
    "categories": Cauchy().on([0]) * Categorical().on([1]),
}


@pytest.mark.parametrize("kernel", CORRECT.values(), ids=CORRECT)
@pytest.mark.parametrize("rows", ["normal", "integers", "large"])
def test_correct_kernels_pass(kernel, rows):
    """On rows at random, on a grid where kinks would sit, and far from 0."""
    inputs = {"normal": X, "integers": np.round(2.0 * X), "large": 1e3 + X}[rows]
    model = Model(inputs, Y, kernel=kernel)
    assert model.kernel == kernel.with_positions(["x0", "x1"])


@pytest.mark.parametrize("seed", range(20))
def test_kernels_with_kinks_and_jumps_pass_at_other_rows(seed):
    rng = np.random.default_rng(seed)
    inputs = rng.integers(0, 4, size=(30, 1)).astype(float)
    y = np.where(rng.random(30) < 0.5, -1.0, 1.0)
    y[:2] = [-1.0, 1.0]
    Model(inputs, y, kernel=Hat() + Change(place=Normal(1.5, 1.0)))


WRONG = {
    "alone": (bent(**TWICE), "'variance'.* in the custom kernel Mine: .* gives 2 times the value of central"),
    "half": (bent(bend_grad=lambda self, grad: 0.5 * grad), "Mine: .* gives 0.5 times"),
    "sign": (bent(bend_grad=lambda self, grad: -grad), "Mine: .* gives -1 times"),
    "NaN": (bent(bend_grad=lambda self, grad: np.nan * grad), "Mine: .* gives nan times"),
    "second parameter": (Smooth(factors=(1.0, 2.0)), "'length_scale' is wrong in the custom kernel Smooth: .* 2 times"),
    "sum": (SquaredExponential() + bent(**TWICE), "'mine.variance'.* in the custom kernel Mine"),
    "product": (bent(**TWICE) * SquaredExponential(1.0, 1.0), "'variance'.* in the custom kernel Mine"),
    "scaled": (3.0 * bent(**TWICE).on([1]), "'variance'.* in the custom kernel Mine"),
    "warp": (Warped(bent(**TWICE), np.tanh), "'variance'.* in the custom kernel Mine"),
    "input_vjp": (SinhArcsinh(Smooth(input_factor=2.0)), r"'tail'.*custom kernel Smooth: .* 2 times .*or input_vjp"),
    "two custom kernels": (Smooth() * bent(**TWICE), "custom kernel Smooth or Mine"),
    "inside a custom one": (Squared(bent(**TWICE)), "'variance'.* in the custom kernel Squared or Mine"),
    "inducing": (
        bent(inducing_vjp=lambda self, X, Z: (self(X, Z), self.diag(X), lambda G, g: np.zeros(1))),
        "the pullback of inducing_vjp gives 0 times",
    ),
}


@pytest.mark.parametrize(("kernel", "message"), WRONG.values(), ids=WRONG)
def test_wrong_derivatives_raise_an_error(kernel, message):
    with pytest.raises(InvalidInput, match=message):
        Model(X, Y, kernel=kernel)


def test_the_kernel_of_one_class_is_named():
    classes = (np.arange(N) % 3).astype(float)
    kernels = [SquaredExponential(), bent(**TWICE), SquaredExponential()]
    with pytest.raises(InvalidInput, match=r"'class1\.variance'.*Mine"):
        Model(X, classes, kernel=kernels, likelihood="softmax")
    Model(X, classes, kernel=[SquaredExponential(), Cauchy(), Smooth()], likelihood="softmax")


@pytest.mark.parametrize("sampler", ["hmc", "map", "surrogate"])
def test_fit_raises_before_sampling(sampler):
    gp = GPClassifier(bent(**TWICE), sampler=sampler, progressbar=False)
    with pytest.raises(InvalidInput, match=r"Mine: .* gives 2 times"):
        gp.fit(X, Y)
    with pytest.raises(InvalidInput, match=r"Mine: .* gives 2 times"):
        GPRegressor(SquaredExponential() + bent(**TWICE), sampler=sampler, progressbar=False).fit(X, X[:, 0])


def test_distributed_rows_are_checked():
    with pytest.raises(InvalidInput, match=r"Mine: .* gives 2 times"):
        SpreadModel(RowBlocks.of_arrays(X, Y), inducing=5, kernel=bent(**TWICE))


def test_parameters_of_the_likelihood_are_left_alone():
    Model(X, X[:, 0], kernel=Smooth(), likelihood="gaussian")
    Model(X, X[:, 0], kernel=Smooth(), likelihood="student_t")


def test_two_equal_rows_suffice():
    Model(np.ones((2, 1)), np.array([-1.0, 1.0]), kernel=Smooth())
    with pytest.raises(InvalidInput, match=r"Mine: .* gives 2 times"):
        Model(np.ones((2, 1)), np.array([-1.0, 1.0]), kernel=bent(**TWICE))


def test_derivatives_of_functions_are_observed():
    rows = np.column_stack([X, np.arange(N) % 3])
    Model(rows, Y, kernel=WithDerivatives(SquaredExponential()) + Cauchy().on([0]))
