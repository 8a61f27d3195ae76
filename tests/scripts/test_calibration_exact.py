"""Calibration of exact posteriors: ranks of weighted draws are right, and wrong weights are caught."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import Model
from scripts.benchmarks import calibration, calibration_exact

LEVELS = calibration.LEVELS


def test_draws_of_equal_weight_have_the_usual_ranks():
    rng = np.random.default_rng(0)
    values = rng.normal(size=LEVELS)
    for truth in (-9.0, 0.1, 9.0):
        place = calibration_exact.position(values, np.full(LEVELS, 3.0), truth, rng)
        assert int((LEVELS + 1) * place) == np.sum(values < truth)


def weighted_ranks(power, n=400):
    """Ranks of N(0, 1) among draws of N(0, 1.5²), with a power of the weights that are right."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(n):
        x = 1.5 * rng.normal(size=300)
        weight = np.exp(power * (0.5 * (x / 1.5) ** 2 - 0.5 * x**2))
        found.append(int((LEVELS + 1) * calibration_exact.position(x, weight, rng.normal(), rng)))
    return np.array(found)


def test_ranks_of_weighted_draws_are_uniform_and_those_without_weights_are_not():
    by_chance = calibration.simulated_extremity(400)
    assert calibration.ecdf_p(weighted_ranks(1.0), by_chance) > 0.01
    assert calibration.ecdf_p(weighted_ranks(0.0), by_chance) < 0.001


@pytest.mark.slow
def test_the_latent_value_has_its_distribution_under_each_evidence():
    model, theta, _, _ = calibration_exact.simulate(np.random.default_rng(2))
    assert isinstance(model, Model)
    rng, means, spreads = np.random.default_rng(3), [], []
    for evidence in ("laplace", "ep", "sampled"):
        approximate = model.with_evidence(evidence)
        drawn = [calibration_exact.latent_draw(approximate, theta, rng) for _ in range(100)]
        kernel, solved = approximate.posterior(theta)
        mean, variance = solved.posterior.predict(kernel(model.X, model.X[:1]), kernel.diag(model.X[:1]))
        spreads.append(np.std(drawn) / np.sqrt(variance[0]))
        means.append((np.mean(drawn) - mean[0]) / np.sqrt(variance[0] / 100))
    np.testing.assert_array_less(np.abs(means), 3.5)
    np.testing.assert_allclose(spreads, 1.0, atol=0.25)  # 100 draws know it to 7 %
