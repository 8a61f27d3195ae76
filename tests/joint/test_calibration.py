"""Simulation-based calibration of the joint sampler: the truth has every rank among the draws equally often."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hmcgp import Model, sample_jointly
from hmcgp.kernels import SquaredExponential
from hmcgp.priors import LogNormal

N_SETS, N_ROWS, N_RANKED = 60, 20, 19
KERNEL = SquaredExponential(LogNormal(1.0, 1.0), LogNormal(0.0, 0.7))


def simulated(rng):
    """Hyperparameters, latent values and a model of labels; data of one class only are drawn again, all of them."""
    X = rng.uniform(-2.0, 2.0, size=(N_ROWS, 1))
    while True:
        labels = np.where(np.arange(N_ROWS) % 2, 1.0, -1.0)
        prior = Model(X, labels, kernel=KERNEL)
        u = prior.initial(rng)
        K = prior.kernel_at(prior.constrain(u))(X)
        f = np.linalg.cholesky(K + 1e-10 * np.diag(np.diag(K))) @ rng.standard_normal(N_ROWS)
        y = np.where(rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-f)), 1.0, -1.0)
        if abs(y.sum()) < N_ROWS:
            return u, f, Model(X, y, kernel=KERNEL)


def ranks(seed, n_sets):
    """Share of draws below the truth, of shape (n_sets, 3): two hyperparameters and the first latent value."""
    found = []
    for rng in np.random.default_rng(seed).spawn(n_sets):
        u, f, model = simulated(rng)
        joint = sample_jointly(model, draws=152, tune=100, chains=1, random_state=rng, n_jobs=1, progressbar=False)
        draws = np.concatenate([joint.trace.unconstrained[0], joint.latent[0, :, :1]], axis=1)
        thinned = draws[:: len(draws) // N_RANKED][:N_RANKED]
        found.append((thinned < np.append(u, f[0])).sum(axis=0))
    return np.array(found)


def p_values(found):
    """Chi-square test of five bins of four ranks each, for every column."""
    counts = [np.bincount(column // 4, minlength=5) for column in found.T]
    return np.array([stats.chisquare(c).pvalue for c in counts])


@pytest.mark.slow
def test_ranks_of_the_truth_are_uniform():
    found = ranks(3, N_SETS)
    assert p_values(found).min() > 0.003, found
    z = (found.mean(axis=0) - 9.5) / np.sqrt((20**2 - 1) / 12.0 / N_SETS)
    assert np.abs(z).max() < 3.3, z


def test_the_test_of_ranks_detects_what_it_should():
    """Over 1000 columns: few alarms where ranks are uniform, many where each is the least of three."""
    rng = np.random.default_rng(0)
    assert np.mean(p_values(rng.integers(0, 20, size=(N_SETS, 1000))) < 0.003) < 0.01
    assert np.mean(p_values(rng.integers(0, 20, size=(N_SETS, 1000, 3)).min(axis=2)) < 0.003) > 0.9
