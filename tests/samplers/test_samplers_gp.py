"""All samplers against a fine grid, on a Gaussian-process classifier with two hyperparameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from hmcgp import Model, sample
from hmcgp.kernels import SquaredExponential
from hmcgp.posterior import predict
from hmcgp.priors import LogNormal
from hmcgp.reporting import diagnostics
from hmcgp.reporting.convergence import weighted_ess
from hmcgp.samplers import HMC, NUTS, Metropolis, leapfrog
from hmcgp.samplers.integrators import init
from hmcgp.samplers.metric import kinetic_energy
from tests.helpers.checks import classification_problem
from tests.helpers.densities import WrongGradient

SIZE = 90  # grid points per axis


@pytest.fixture(scope="module")
def model():
    X, y, _ = classification_problem(24, 1, seed=3, noise=0.5)
    return Model(X, y, kernel=SquaredExponential(LogNormal(0.5, 1.0), LogNormal(0.0, 0.7)))


@pytest.fixture(scope="module")
def joint(model):
    """Probabilities of log variance and log length scale on a grid: axes (2, SIZE) and p (SIZE, SIZE)."""
    axes = np.array([np.linspace(-4.5, 6.5, SIZE), np.linspace(-3.5, 4.0, SIZE)])
    carry, lp = None, np.empty((SIZE, SIZE))
    for i, a in enumerate(axes[0]):
        for j, b in enumerate(axes[1]):
            evaluation = model.evaluate(np.array([a, b]), carry)
            lp[i, j], carry = evaluation.logdensity, evaluation.carry
    p = np.exp(lp - lp.max())
    p /= p.sum()
    assert max(p[0].sum(), p[-1].sum(), p[:, 0].sum(), p[:, -1].sum()) < 1e-5  # the grid holds all of it
    return axes, p


@pytest.fixture(scope="module")
def grid(joint):
    """Marginal densities: axes (2, SIZE) and probabilities (2, SIZE)."""
    axes, p = joint
    return axes, np.array([p.sum(axis=1), p.sum(axis=0)])


def cdf(axis, p):
    """Distribution function of a density known on a grid: a trapezoid rule, interpolated."""
    total = np.concatenate([[0.0], np.cumsum(0.5 * (p[1:] + p[:-1]))])
    return lambda x: np.interp(x, axis, total / total[-1])


@pytest.mark.parametrize(
    ("sampler", "draws"), [(NUTS(), 800), (HMC(), 1000), (Metropolis(), 4000)], ids=["nuts", "hmc", "metropolis"]
)
def test_samplers_agree_with_a_grid(model, grid, sampler, draws):
    trace = sample(model, sampler, draws=draws, tune=300, random_state=1, progressbar=False)
    axes, p = grid
    for j in range(2):
        x = trace.unconstrained[:, :, j]
        _, _, _, _, _, ess, _, r_hat, mcse = diagnostics._describe(x)
        assert r_hat < 1.01
        assert abs(x.mean() - axes[j] @ p[j]) < 3.0 * mcse
        every = int(np.ceil(x.size / ess))
        thinned = x[:, ::every].ravel()
        assert thinned.size > 300
        assert stats.kstest(thinned, cdf(axes[j], p[j])).pvalue > 0.01
        assert stats.kstest(thinned + 0.3 * x.std(), cdf(axes[j], p[j])).pvalue < 1e-4  # negative control


def test_surrogate_agrees_with_a_grid(model, joint, grid):
    """Means, standard deviations and predictive probabilities, within 4 standard errors of the weighted draws."""
    trace = sample(model, "surrogate", draws=800, tune=300, random_state=1, progressbar=False)
    assert trace.sampler == "surrogate"
    weight = trace.weight.reshape(trace.draws.shape[:2])
    X_new = np.array([[-1.5], [-0.4], [0.3], [1.2], [2.5]])
    (a, b), p = joint
    nodes = np.argwhere(p[::3, ::3] > 1e-6) * 3  # a coarser grid, as probabilities are smooth
    theta = np.exp(np.column_stack([a[nodes[:, 0]], b[nodes[:, 1]]]))
    at_nodes = predict.probabilities_per_draw(model, theta, X_new)[:, :, 1]
    p_nodes = p[nodes[:, 0], nodes[:, 1]]
    per_draw = predict.probabilities_per_draw(model, trace.flat, X_new)[:, :, 1]
    cases = [(x, p_nodes @ q / p_nodes.sum()) for x, q in zip(per_draw.T, at_nodes.T, strict=True)]
    for j, (axis, marginal) in enumerate(zip(*grid, strict=True)):
        mean = axis @ marginal
        x = trace.unconstrained[:, :, j].ravel()
        cases += [(x, mean), ((x - mean) ** 2, (axis - mean) ** 2 @ marginal)]
    for values, truth in cases:
        x = values.reshape(weight.shape)
        average = np.average(x, weights=weight)
        sd = np.sqrt(np.average((x - average) ** 2, weights=weight))
        size = weighted_ess(x, weight)[0]
        assert size > 400
        assert abs(average - truth) < 4.0 * sd / np.sqrt(size)
        assert abs(average + 0.3 * sd - truth) > 4.0 * sd / np.sqrt(size)  # negative control


@pytest.mark.parametrize("sampler", ["nuts", "hmc", "metropolis"])
def test_same_draws_whatever_the_number_of_threads(model, sampler):
    """Compiled code without the interpreter lock, and warm starts that travel with the states."""
    options: dict[str, Any] = {"draws": 20, "tune": 30, "chains": 3, "random_state": 2, "progressbar": False}
    one, three = (sample(model, sampler, n_jobs=n, **options) for n in (1, 3))
    np.testing.assert_array_equal(one.draws, three.draws)
    for name, column in one.stats.items():
        np.testing.assert_array_equal(column, three.stats[name], err_msg=name)


def energy_error(density, step_size, n_steps):
    state, momentum = init(density, np.array([0.5, -0.5])), np.array([0.8, 0.5])
    before = kinetic_energy(None, momentum) - state.logdensity
    for _ in range(n_steps):
        state, momentum, _ = leapfrog(density, state, momentum, step_size)
    return kinetic_energy(None, momentum) - state.logdensity - before


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.02, False), (0.98, False)])
def test_order_of_the_energy_error_catches_a_wrong_gradient(model, factor, right):
    """Halving the step divides the error by four, unless the gradient is that of another density."""
    density = WrongGradient(model, factor)
    ratio = energy_error(density, 0.08, 12) / energy_error(density, 0.04, 24)
    assert (3.8 < ratio < 4.2) == right
