"""What the default priors of each kernel say about data: neighbours alike, no probability forced."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from hmcgp.kernels import (
    Additive,
    Categorical,
    Embedded,
    ExponentialPower,
    Gibbs,
    LocallyLinear,
    Matern,
    NeuralNetwork,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Rescaled,
    SinhArcsinh,
    SquaredExponential,
)
from hmcgp.model import Model
from hmcgp.priors import SAAS, RegularizedHorseshoe

KERNELS = [
    SquaredExponential(ard=True),
    Matern(ard=True),
    Matern(nu=0.5),
    RationalQuadratic(ard=True),
    ExponentialPower(ard=True),
    NeuralNetwork(),
    NeuralNetwork(ard=True),
    Polynomial(),
    Polynomial(ard=True),
    Gibbs(),
    Additive(SquaredExponential()),
    Rescaled(SquaredExponential(ard=True)),
    SinhArcsinh(SquaredExponential(ard=True), ard=True),
]


def standardised(rng, n, d):
    X = rng.normal(size=(n, d))
    return (X - X.mean(axis=0)) / X.std(axis=0)


def prior_draws(kernel, d, n=80, n_draws=200):
    """Share of probabilities within (0.1, 0.9), and the median correlation of nearest rows, over draws of the prior."""
    rng = np.random.default_rng(d)
    middle, neighbour = np.empty(n_draws), np.empty(n_draws)
    model = Model(standardised(rng, n, d), np.tile([-1.0, 1.0], n // 2), kernel=kernel)
    for i in range(n_draws):
        X = standardised(rng, n, d)
        K = model.kernel_at(model.constrain(model.initial(rng)))(X)
        values, vectors = np.linalg.eigh(K)
        p = expit(vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=n)))
        nearest = (np.sum((X[:, None] - X) ** 2, axis=-1) + 1e9 * np.eye(n)).argmin(axis=1)
        middle[i] = np.mean((p > 0.1) & (p < 0.9))
        neighbour[i] = np.median(K[np.arange(n), nearest] / np.sqrt(np.diag(K) * np.diag(K)[nearest]))
    return middle.mean(), np.median(neighbour)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "least"), [(1, 0.98), (7, 0.45), (30, 0.15)])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_default_priors_suit_standardised_inputs(kernel, d, least):
    middle, neighbour = prior_draws(kernel, d)
    assert 0.4 < middle < 0.8
    assert neighbour > least


@pytest.mark.parametrize(
    "kernel",
    [
        *KERNELS,
        Periodic(period=2.0),
        Embedded(SquaredExponential()),
        LocallyLinear(SquaredExponential(), Matern()),
        SquaredExponential().on(0) * Categorical().on(1),
        SquaredExponential(length_scale=SAAS(), ard=True),
        Matern(length_scale=RegularizedHorseshoe(), ard=True),
    ],
    ids=str,
)
def test_every_parameter_has_a_default_and_the_density_is_finite(kernel):
    rng = np.random.default_rng(0)
    X = standardised(rng, 20, 2)
    model = Model(X, np.sign(X[:, 0]), kernel=kernel)
    for _ in range(5):
        value, grad = model.logdensity_and_grad(model.initial(rng))
        assert np.isfinite(value)
        assert np.all(np.isfinite(grad))
        assert np.any(grad != 0.0)
