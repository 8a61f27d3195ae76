"""The leapfrog integrator by its invariants."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from hmcgp.errors import HmcgpError, InvalidInput
from hmcgp.samplers import Evaluation, leapfrog
from hmcgp.samplers.integrators import init
from hmcgp.samplers.metric import as_metric, kinetic_energy, sample_momentum, velocity
from tests.helpers.densities import Gaussian, HalfSpace, LogGamma, Warped, WrongGradient, correlated_gaussian

DENSE = np.array([[0.5, 0.2], [0.2, 0.8]])
METRICS = {"identity": None, "diagonal": np.array([0.5, 2.0]), "dense": DENSE}
U, P = np.array([0.4, -0.9]), np.array([1.1, 0.3])


def trajectory(density, u, p, step_size, n_steps, inv_mass=None):
    state, momentum = init(density, u), p
    for _ in range(n_steps):
        state, momentum, _ = leapfrog(density, state, momentum, step_size, inv_mass)
    return state, momentum


def energy_error(density, step_size, n_steps, inv_mass=None):
    start = init(density, U)
    end, p = trajectory(density, U, P, step_size, n_steps, inv_mass)
    return kinetic_energy(inv_mass, p) - end.logdensity - kinetic_energy(inv_mass, P) + start.logdensity


def central_differences(density, u):
    """Gradient of the log density, component by component."""
    numeric = np.empty_like(u)
    for i in range(len(u)):
        h = np.zeros_like(u)
        h[i] = 6e-6  # eps ** (1/3)
        numeric[i] = (density.evaluate(u + h).logdensity - density.evaluate(u - h).logdensity) / (2 * h[i])
    return numeric


@pytest.mark.parametrize("density", [Warped(), LogGamma(), correlated_gaussian()])
def test_densities_have_right_gradients(density):
    u = np.linspace(-0.5, 0.7, density.n_dim)
    np.testing.assert_allclose(density.evaluate(u).grad, central_differences(density, u), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("inv_mass", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("density", [Warped(), LogGamma()])
def test_there_and_back(density, inv_mass):
    end, p = trajectory(density, U, P, 0.1, 40, inv_mass)
    assert np.linalg.norm(end.position - U) > 0.1  # it went somewhere
    back, p = trajectory(density, end.position, -p, 0.1, 40, inv_mass)
    np.testing.assert_allclose(back.position, U, atol=1e-10)
    np.testing.assert_allclose(-p, P, atol=1e-10)


def jacobian_determinant(step):
    """Determinant of a map of (u, p) by central differences."""
    z, d = np.concatenate([U, P]), len(U)
    J = np.empty((2 * d, 2 * d))
    for i in range(2 * d):
        h = np.zeros(2 * d)
        h[i] = 6e-6
        ends = [np.concatenate(step(x[:d], x[d:])) for x in (z + h, z - h)]
        J[:, i] = (ends[0] - ends[1]) / (2 * h[i])
    return np.linalg.det(J)


@pytest.mark.parametrize("inv_mass", METRICS.values(), ids=METRICS)
def test_volume_is_preserved(inv_mass):
    def step(u, p):
        state, p = trajectory(Warped(), u, p, 0.3, 5, inv_mass)
        return state.position, p

    assert jacobian_determinant(step) == pytest.approx(1.0, abs=1e-7)  # truncation of the differences: 1e-9


def test_volume_check_notices_friction():
    """Negative control."""

    def step(u, p):
        state, p = trajectory(Warped(), u, p, 0.3, 5)
        return state.position, 0.99 * p

    assert abs(jacobian_determinant(step) - 1.0) > 1e-3


@pytest.mark.parametrize("inv_mass", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("density", [Warped(), LogGamma()])
def test_energy_error_is_second_order(density, inv_mass):
    coarse, fine = energy_error(density, 0.02, 50, inv_mass), energy_error(density, 0.01, 100, inv_mass)
    assert 3.8 < coarse / fine < 4.2, f"ratio {coarse / fine:.2f}, expected 4"


@pytest.mark.parametrize("density", [Warped(), LogGamma()])
def test_wrong_gradient_breaks_second_order(density):
    """Negative control: a gradient that is 2 % off loses energy at any step size."""
    wrong = WrongGradient(density, 1.02)
    ratio = energy_error(wrong, 0.02, 50) / energy_error(wrong, 0.01, 100)
    assert not 3.8 < ratio < 4.2


def test_nothing_is_mutated():
    state, p, inv_mass = init(Warped(), U), P.copy(), DENSE.copy()
    kept = state.position.copy(), state.grad.copy()
    leapfrog(Warped(), state, p, 0.3, inv_mass)
    np.testing.assert_array_equal(p, P)
    np.testing.assert_array_equal(inv_mass, DENSE)
    np.testing.assert_array_equal(state.position, kept[0])
    np.testing.assert_array_equal(state.grad, kept[1])


def test_carry_goes_from_evaluation_to_evaluation():
    class Counting(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            return super().evaluate(u)._replace(carry=(carry or 0) + 1)

    density = Counting(np.zeros(2), np.eye(2))
    end, _ = trajectory(density, U, P, 0.1, 5)
    assert end.carry == 6  # the start and five steps


def test_failure_keeps_the_last_good_carry():
    state = init(HalfSpace(), np.array([0.1, 0.0]))
    end, p, evaluation = leapfrog(HalfSpace(), state, np.array([-5.0, 0.0]), 0.5)
    assert (end.logdensity, end.carry, evaluation.carry) == (-inf, "good", "bad")
    assert np.all(np.isfinite(p))


def test_runaway_position_is_not_evaluated():
    class Picky(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            assert np.all(np.abs(u) < 1e150)
            return super().evaluate(u)

    density = Picky(np.zeros(2), np.eye(2))
    end, _, _ = leapfrog(density, init(density, U), np.array([1e200, 0.0]), 1.0)
    assert end.logdensity == -inf
    np.testing.assert_array_equal(end.grad, 0.0)


@pytest.mark.parametrize("value", [nan, inf])
def test_density_that_breaks_its_contract_is_reported(value):
    class Broken(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            return Evaluation(value, np.zeros(2))

    with pytest.raises(HmcgpError, match=f"log density {value}"):
        init(Broken(np.zeros(2), np.eye(2)), U)


@pytest.mark.parametrize("S", [np.array([0.5, 2.0]), DENSE])
def test_momentum_has_the_mass_matrix_as_covariance(S):
    metric, rng = as_metric(S, 2), np.random.default_rng(1)
    p = np.array([sample_momentum(rng, metric) for _ in range(20000)])
    mass = np.diag(1 / S) if S.ndim == 1 else np.linalg.inv(S)
    standard_error = np.sqrt((np.outer(np.diag(mass), np.diag(mass)) + mass**2) / len(p))
    assert np.all(np.abs(np.cov(p.T) - mass) < 4 * standard_error)
    # a quadratic form in d Gaussians: mean d/2, variance d/2
    energies = np.array([kinetic_energy(S, x) for x in p])
    assert abs(energies.mean() - 1.0) < 4 / np.sqrt(len(p))


def test_diagonal_and_dense_metrics_agree():
    S = np.array([0.5, 2.0])
    np.testing.assert_allclose(velocity(S, P), velocity(np.diag(S), P), rtol=1e-15)
    np.testing.assert_array_equal(velocity(None, P), P)
    diagonal, dense = as_metric(S, 2), as_metric(np.diag(S), 2)
    np.testing.assert_allclose(np.diag(diagonal.momentum_factor), dense.momentum_factor, rtol=1e-15)
    np.testing.assert_allclose(np.diag(diagonal.factor), dense.factor, rtol=1e-15)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (np.ones(3), "shape"),
        (np.array([1.0, -1.0]), "positive"),
        (np.array([1.0, nan]), "positive"),
        (np.array([[1.0, 0.5], [0.2, 1.0]]), "symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (np.full((2, 2), nan), "symmetric"),
    ],
)
def test_bad_metric_is_refused(metric, message):
    with pytest.raises(InvalidInput, match=message):
        as_metric(metric, 2)
