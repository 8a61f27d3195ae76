"""Random kernels, and tables for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hmcgp import priors
from hmcgp.kernels import (
    Additive,
    Categorical,
    CategoryEffects,
    Constant,
    Coregional,
    Embedded,
    ExponentialPower,
    Gibbs,
    IntegratedWiener,
    Kernel,
    Linear,
    LocallyLinear,
    Matern,
    MonotoneWarp,
    NeuralNetwork,
    Periodic,
    Polynomial,
    RadialBasis,
    RationalQuadratic,
    Rescaled,
    SinhArcsinh,
    Spherical,
    SquaredExponential,
    Triangle,
    Warped,
    White,
    Wiener,
    WithDerivatives,
)

Rng = np.random.Generator


def chance(rng: Rng, probability: float) -> bool:
    return bool(rng.random() < probability)


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def amplitude(X: Any) -> Any:
    """A fixed amplitude, for `Rescaled`."""
    return 1.0 + np.tanh(X[:, 0]) ** 2


def positive(rng: Rng) -> Any:
    """A positive parameter: left to its default prior, a fact, or a prior."""
    return pick(
        rng,
        [None] * 6
        + [float(np.exp(rng.normal()))]
        + [
            priors.LogNormal(0.0, 1.0),
            priors.Gamma(2.0, 1.0),
            priors.InverseGamma(2.0, 1.0),
            priors.HalfNormal(2.0),
            priors.HalfCauchy(1.0),
        ],
    )


def sized(rng: Rng, kind: Callable[..., Kernel], **more: Any) -> Kernel:
    """A kernel with a length scale, under one of the priors that fit it."""
    length_scale = priors.RegularizedHorseshoe() if chance(rng, 0.05) else positive(rng)
    if chance(rng, 0.05):
        length_scale = priors.SAAS()
    return kind(variance=positive(rng), length_scale=length_scale, ard=chance(rng, 0.5), **more)


def bumps(rng: Rng, d: int) -> RadialBasis:
    """Two or three bumps in d dimensions."""
    centres = rng.normal(size=(int(rng.integers(2, 4)), d)).round(2)
    return RadialBasis(tuple(centres[:, 0] if d == 1 else centres), float(rng.uniform(0.5, 2.0)))


def leaf(rng: Rng, d: int) -> Kernel:
    """A kernel of d inputs that is made of no other."""
    leaves: list[Callable[[], Kernel]] = [
        lambda: sized(rng, SquaredExponential),
        lambda: sized(rng, Matern, nu=pick(rng, [0.5, 1.5, 2.5])),
        lambda: sized(rng, RationalQuadratic, shape=positive(rng)),
        lambda: sized(rng, ExponentialPower, power=pick(rng, [None, 2.0, 1.0, 0.3])),
        lambda: sized(rng, Periodic, period=positive(rng)),
        lambda: sized(rng, Gibbs, basis=bumps(rng, d) if chance(rng, 0.3) else None),
        lambda: NeuralNetwork(positive(rng), pick(rng, [None, 0.0]), ard=chance(rng, 0.5)),
        lambda: Constant(positive(rng)),
        lambda: Linear(positive(rng), ard=chance(rng, 0.5)),
        lambda: White(positive(rng)),
        lambda: Polynomial(positive(rng), pick(rng, [None, 0.0]), int(rng.integers(1, 5)), ard=chance(rng, 0.5)),
        lambda: pick(rng, [Categorical, CategoryEffects])(positive(rng), ard=chance(rng, 0.5)),
    ]
    if d == 1:
        leaves += [
            lambda: pick(rng, [Wiener, IntegratedWiener])(positive(rng), origin=float(rng.normal())),
            lambda: sized(rng, Triangle),
        ]
    if d <= 3:
        leaves.append(lambda: sized(rng, Spherical))
    return pick(rng, leaves)()


def tree(rng: Rng, d: int, depth: int = 3) -> Kernel:
    """A random kernel of d inputs."""
    if depth == 0 or chance(rng, 0.3):
        return leaf(rng, d)
    columns = sorted(rng.choice(d, size=int(rng.integers(1, d + 1)), replace=False).tolist())
    branches: list[Callable[[], Kernel]] = [
        lambda: tree(rng, d, depth - 1) + tree(rng, d, depth - 1),
        lambda: tree(rng, d, depth - 1) * tree(rng, d, depth - 1),
        lambda: tree(rng, len(columns), depth - 1).on(columns),
        lambda: pick(rng, [2.0, 1e-3, priors.LogNormal(0.0, 1.0)]) * tree(rng, d, depth - 1),
        lambda: Additive(leaf(rng, 1)),
        lambda: LocallyLinear(tree(rng, d, depth - 1), leaf(rng, d)),
        lambda: Warped(tree(rng, d, depth - 1), pick(rng, [np.tanh, np.arcsinh])),
        lambda: _mapped(rng, tree(rng, d, depth - 1), SinhArcsinh, {"tail": 0.8, "skew": 0.1}),
        lambda: MonotoneWarp(SquaredExponential(), (-1.0, 0.0, 2.0)).on(columns[0]),
        lambda: _mapped(rng, tree(rng, 2 * d, depth - 1), Embedded, {"period": 2.0}),
        lambda: Rescaled(tree(rng, d, depth - 1), basis=bumps(rng, d) if chance(rng, 0.5) else None),
        lambda: Rescaled(tree(rng, d, depth - 1), amplitude),
    ]
    weights = np.array([4, 4, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1], dtype=float)
    return branches[int(rng.choice(len(branches), p=weights / weights.sum()))]()


def _mapped(rng: Rng, inner: Kernel, kind: Any, facts: dict[str, float]) -> Kernel:
    """A map with parameters, which are facts where the kernel inside cannot tell how it depends on its inputs."""
    return kind(inner, ard=chance(rng, 0.5)) if inner.has_input_vjp else kind(inner, **facts)


def inputs(rng: Rng, n: int, d: int) -> Any:
    """Inputs of shape (n, d): ordinary, rounded, repeated, constant, and of any scale."""
    X = rng.normal(size=(n, d)) if chance(rng, 0.6) else rng.uniform(-3.0, 3.0, size=(n, d))
    if chance(rng, 0.3):
        X = X.round(1)
    if chance(rng, 0.3):  # copies of rows
        X = X[rng.integers(max(1, n // 2), size=n)]
    if chance(rng, 0.15):
        X[:, int(rng.integers(d))] = rng.normal()
    if chance(rng, 0.15):
        X[:, int(rng.integers(d))] *= 10.0 ** rng.uniform(-8.0, 8.0)
    if chance(rng, 0.1):
        X[:, int(rng.integers(d))] = rng.integers(4, size=n)
    return X


def labels(rng: Rng, X: Any) -> Any:
    """-1 and +1: at random, separable, or all but one alike."""
    n = len(X)
    kind = rng.integers(4)
    if kind == 0:
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    elif kind == 1:
        y = np.where(X[:, 0] > np.median(X[:, 0]), 1.0, -1.0)
    elif kind == 2:
        y = np.where(X[:, 0] + X.std() * rng.normal(size=n) > X[:, 0].mean(), 1.0, -1.0)
    else:
        y = np.where(np.arange(n) == rng.integers(n), 1.0, -1.0)
    y[:2] = rng.permutation([-1.0, 1.0]) if kind == 3 or len(np.unique(y)) < 2 else y[:2]
    return y


def numbers(rng: Rng, X: Any, shape: tuple[int, ...]) -> Any:
    """Targets of a regression: a function with noise, constant, with an outlier, or of any scale."""
    unit = (X[:, :1] - X[:, :1].mean()) / (np.ptp(X[:, :1]) or 1.0)
    y = np.broadcast_to(np.sin(5.0 * unit).reshape((-1,) + (1,) * (len(shape) - 1)), shape).copy()
    y += pick(rng, [0.0, 0.1, 1.0]) * rng.normal(size=shape)
    if chance(rng, 0.1):
        y[:] = y.flat[0]
    if chance(rng, 0.1):
        y.flat[int(rng.integers(y.size))] = 1e6
    if chance(rng, 0.1):
        y *= 10.0 ** rng.uniform(-6.0, 6.0)
    return y


def with_derivatives(rng: Rng, X: Any) -> tuple[Any, Kernel]:
    """Inputs with a last column that says what is observed, and a kernel for them."""
    d = X.shape[1]
    inner: Any = sized(rng, SquaredExponential) if chance(rng, 0.5) else sized(rng, Matern, nu=pick(rng, [1.5, 2.5]))
    return np.column_stack([X, rng.integers(d + 1, size=len(X))]), WithDerivatives(inner)


def coregional(rng: Rng, X: Any, k: int) -> tuple[Any, Kernel]:
    """Inputs with a last column that numbers one of k outputs, and a kernel for them."""
    d = X.shape[1]
    kernel = tree(rng, d, 1).on(list(range(d))) * Coregional(k).on([d])
    return np.column_stack([X, rng.integers(k, size=len(X))]), kernel
