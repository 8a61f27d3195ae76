"""Warm-up: step size, metric, windows."""

from __future__ import annotations

import pickle
from math import exp

import numpy as np
import pytest
from scipy.linalg import sqrtm

from hmcgp.samplers import HMC, NUTS, Metropolis, sample
from hmcgp.samplers.adaptation import (
    Schedule,
    Tuning,
    adapt,
    balanced_covariance,
    build_schedule,
    find_step_size,
    init_dual_average,
    init_welford,
    regularised_covariance,
    update_dual_average,
    update_welford,
)
from hmcgp.samplers.integrators import State, init
from hmcgp.samplers.metric import as_metric
from tests.helpers.densities import Gaussian, LogGamma, correlated_gaussian


def run(density, sampler, **options):
    return sample(density, sampler, random_state=5, n_jobs=1, progressbar=False, **({"chains": 2} | options))


def test_dual_averaging_by_hand():
    """Two updates worked out from Hoffman & Gelman, eq. (6), with g = 0.2 and m = log(2 e)."""
    state = init_dual_average(0.5)
    assert (state.centre, state.log_step) == (0.0, np.log(0.5))
    state = update_dual_average(state, 0.3, 0.8)
    assert state.error == pytest.approx(0.5 / 11)
    assert state.log_step == pytest.approx(-5 * 0.5 / 11)
    assert state.log_average == pytest.approx(state.log_step)
    first = state.log_step
    state = update_dual_average(state, 1.0, 0.8)
    error = (11 / 12) * (0.5 / 11) - 0.2 / 12
    assert state.error == pytest.approx(error)
    assert state.log_step == pytest.approx(-5 * np.sqrt(2) * error)
    eta = 2**-0.75
    assert state.log_average == pytest.approx(eta * state.log_step + (1 - eta) * first)


def test_dual_averaging_finds_the_root():
    """For acceptance exp(-step), the target 0.8 is at step = -log 0.8."""
    rng, state = np.random.default_rng(0), init_dual_average(3.0)
    for _ in range(2000):
        noisy = np.clip(exp(-exp(state.log_step)) + 0.1 * rng.standard_normal(), 0.0, 1.0)
        state = update_dual_average(state, noisy, 0.8)
    assert exp(state.log_average) == pytest.approx(-np.log(0.8), rel=0.05)


def test_no_step_beyond_the_longest():
    state = init_dual_average(1.0)
    for _ in range(100):
        state = update_dual_average(state, 1.0, 0.8, longest=1.5)
        assert state.log_step <= np.log(1.5)
    assert 1.4 < exp(state.log_average) <= 1.5


@pytest.mark.parametrize("dense", [False, True])
def test_welford_is_the_covariance(dense):
    X = 1e6 + np.random.default_rng(2).standard_normal((50, 3)) @ np.array([[1.0, 2, 0], [0, 1, 0], [1, 0, 3]])
    state = init_welford(3, dense=dense)
    for x in X:
        state = update_welford(state, x)
    expected = np.cov(X.T) if dense else X.var(axis=0, ddof=1)
    np.testing.assert_allclose(state.m2 / 49, expected, rtol=1e-7)  # centred: 1e6 costs no digits that matter
    np.testing.assert_allclose(state.mean, X.mean(axis=0), rtol=1e-14)


def test_regularised_covariance():
    X = np.random.default_rng(2).standard_normal((10, 4))
    diagonal, dense = init_welford(4, dense=False), init_welford(4, dense=True)
    for x in X:
        diagonal, dense = update_welford(diagonal, x), update_welford(dense, x)
    expected = 10 / 15 * X.var(axis=0, ddof=1) + 5 / 15 * 1e-3  # Stan's rule
    np.testing.assert_allclose(regularised_covariance(diagonal), expected)
    S = regularised_covariance(dense)
    np.testing.assert_allclose(np.diag(S), expected)
    np.testing.assert_array_equal(S, S.T)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(S[off], (np.cov(X.T) * (10 / 15) * (10 / 19))[off])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_regularised_covariance_is_positive_definite_for_few_draws(n):
    state = init_welford(8, dense=True)
    for x in np.random.default_rng(1).standard_normal((n, 8)):
        state = update_welford(state, x)
    assert np.linalg.eigvalsh(regularised_covariance(state)).min() > 1e-5


def welfords(X, G, *, dense=True):
    draws = scores = init_welford(X.shape[1], dense=dense)
    for x, g in zip(X, G, strict=True):
        draws, scores = update_welford(draws, x), update_welford(scores, g)
    return draws, scores


def test_balanced_covariance_solves_its_equation():
    """S B S = A for the shrunk A and B, up to the variances, which are those of the draws."""
    rng, n, d = np.random.default_rng(1), 40, 5
    X, G = (rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) for _ in range(2))
    S = balanced_covariance(*welfords(X, G))
    keep = np.where(np.eye(d, dtype=bool), 1.0, n / (n + d + 5))
    A, B = np.cov(X.T) * keep, np.cov(G.T) * keep
    # independent: the geometric mean by square roots, A^(1/2) (A^(-1/2) B^-1 A^(-1/2))^(1/2) A^(1/2)
    root = sqrtm(A)
    inner = np.linalg.inv(root) @ np.linalg.inv(B) @ np.linalg.inv(root)
    mean = root @ sqrtm(inner) @ root
    np.testing.assert_allclose(mean @ B @ mean, A, rtol=1e-8, atol=1e-8 * np.abs(A).max())
    np.testing.assert_allclose(correlations(S), correlations(mean), atol=1e-8)
    expected = (n * np.diag(A) + 5 * np.sqrt(np.diag(A) / np.diag(B))) / (n + 5)
    np.testing.assert_allclose(np.diag(S), expected)
    np.testing.assert_allclose(balanced_covariance(*welfords(X, G, dense=False)), expected)


def correlations(S):
    sd = np.sqrt(np.diag(S))
    return S / np.outer(sd, sd)


@pytest.mark.parametrize("n", [100, 300])
def test_scores_teach_correlations(n):
    """Of a Gaussian, 100 draws or more with scores give at most half the error of draws alone, shrunk in the same way.

    With 30 draws the shrinkage rules: 0.66 of it.
    """
    d, rng = 8, np.random.default_rng(5)
    root = rng.standard_normal((d, 2 * d))
    covariance = root @ root.T
    X = rng.multivariate_normal(np.zeros(d), covariance, size=n)
    draws, scores = welfords(X, -X @ np.linalg.inv(covariance))
    together, alone = (
        np.linalg.norm(correlations(S) - correlations(covariance))
        for S in (balanced_covariance(draws, scores), regularised_covariance(draws))
    )
    assert together < 0.5 * alone


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 30])
def test_balanced_covariance_is_a_metric_for_few_draws(n, dense):
    d = 8
    X = np.random.default_rng(1).standard_normal((n, d))
    draws, scores = welfords(X, -3.0 * X, dense=dense)
    as_metric(balanced_covariance(draws, scores), d)
    as_metric(balanced_covariance(draws, init_welford(d, dense=dense)._replace(n=n)), d)  # a flat density


def test_schedule_is_stans_with_a_longer_end_where_it_is_short():
    assert build_schedule(1000) == Schedule(1000, 75, (100, 150, 250, 450, 950))  # Stan reference manual, 1000 warm-up
    assert build_schedule(150) == Schedule(150, 75, (100,))
    assert build_schedule(100) == Schedule(100, 15, (85,))
    assert build_schedule(60) == Schedule(60, 9, (45,))
    assert build_schedule(59).ends == ()
    assert build_schedule(0).ends == ()


@pytest.mark.parametrize("tune", [*range(40), *range(55, 90), 149, 150, 151, 500, 501, 777, 3000])
def test_schedule_is_within_warmup(tune):
    schedule = build_schedule(tune)
    marks = [schedule.first, *schedule.ends]
    assert marks == sorted(set(marks))
    assert marks[-1] <= tune


def test_find_step_size_scales_with_the_target():
    sizes = []
    for scale in (1e-4, 1.0, 1e4):
        density = Gaussian(np.zeros(2), scale**2 * np.eye(2))
        state = init(density, np.full(2, scale))
        sizes.append(find_step_size(density, np.random.default_rng(1), state, as_metric(None, 2)) / scale)
    assert all(0.2 < size < 8.0 for size in sizes), sizes


def test_find_step_size_ends_on_a_flat_target():
    class Flat(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            return super().evaluate(u)._replace(logdensity=0.0, grad=np.zeros(2))

    density = Flat(np.zeros(2), np.eye(2))
    assert np.isfinite(
        find_step_size(density, np.random.default_rng(1), init(density, np.zeros(2)), as_metric(None, 2))
    )


def test_adapt_uses_the_draws_of_each_window_only():
    """Two windows with different draws: each metric is the regularised variance of its own."""
    schedule = Schedule(40, 5, (15, 35))
    tuning = Tuning(1.0, as_metric(None, 1), schedule, 0, init_dual_average(1.0), init_welford(1, dense=False))
    X = np.random.default_rng(0).standard_normal((40, 1)) * np.repeat([100.0, 1.0, 5.0, 100.0], [5, 10, 20, 5])[:, None]
    metrics, restarts = [], []
    for x in X:
        tuning = adapt(
            tuning, State(x, 0.0, x), 0.8, target_accept=0.8, restart_step=lambda m, s: restarts.append(s) or 0.5
        )
        metrics.append(tuning.metric.inv_mass[0])
    expected = [1.0, 10 / 15 * X[5:15].var(ddof=1) + 5e-3 / 15, 20 / 25 * X[15:35].var(ddof=1) + 5e-3 / 25]
    np.testing.assert_allclose(metrics, np.repeat(expected, [14, 20, 6]))
    assert len(restarts) == 2
    assert tuning.dual.t == 5  # started again after the second window
    assert tuning.step_size == exp(tuning.dual.log_average)


def test_adapt_takes_the_scores_of_each_window():
    """After the second window nothing of the first is left; a chain that learns from scores goes on doing so."""
    rng, none = np.random.default_rng(0), init_welford(2, dense=True)
    tuning = Tuning(1.0, as_metric(None, 2), Schedule(60, 0, (20, 60)), 0, init_dual_average(1.0), none, none)
    X, G = rng.standard_normal((60, 2)), rng.standard_normal((60, 2))
    for x, g in zip(X, G, strict=True):
        tuning = adapt(tuning, State(x, 0.0, g), 0.8, target_accept=0.8, restart_step=lambda metric, step: step)
    np.testing.assert_allclose(tuning.metric.inv_mass, balanced_covariance(*welfords(X[20:], G[20:])))
    assert tuning.scores.n == tuning.welford.n == 0
    assert pickle.loads(pickle.dumps(tuning)).dual == tuning.dual


def test_given_settings_are_facts():
    metric = np.array([0.2, 1.0, 5.0])
    trace = run(correlated_gaussian(), HMC(step_size=0.3, n_steps=3, jitter=0.0, metric=metric), draws=20, tune=150)
    assert np.all(trace.stats["step_size"] == 0.3)
    assert np.all(trace.warmup_stats["step_size"] == 0.3)
    np.testing.assert_array_equal(trace.inv_metric, np.tile(metric, (2, 1)))
    trace = run(correlated_gaussian(), HMC(metric=metric), draws=20, tune=150)
    np.testing.assert_array_equal(trace.inv_metric, np.tile(metric, (2, 1)))
    assert len(np.unique(trace.warmup_stats["step_size"])) > 200
    trace = run(correlated_gaussian(), HMC(step_size=0.3), draws=20, tune=150)
    np.testing.assert_array_equal(trace.inv_metric, 1.0)
    trace = run(correlated_gaussian(), Metropolis(np.array([0.1, 0.5, 2.0])), draws=20, tune=150)
    np.testing.assert_allclose(trace.inv_metric, np.tile([0.01, 0.25, 4.0], (2, 1)))
    assert np.all(trace.stats["step_size"] == 1.0)


@pytest.mark.parametrize("target_accept", [0.6, 0.8, 0.95])
def test_acceptance_follows_the_target(target_accept):
    density = correlated_gaussian()
    # one step: acceptance falls with the step size, where longer trajectories of a Gaussian have resonances
    sampler = HMC(target_accept=target_accept, n_steps=1, metric=density.covariance, jitter=0.0)
    trace = run(density, sampler, draws=2000, tune=1000)
    assert trace.warmup_stats["acceptance_rate"][:, 100:].mean() == pytest.approx(target_accept, abs=0.01)
    # at the averaged step size it is a little more: acceptance is concave in log e
    assert -0.03 < trace.stats["acceptance_rate"].mean() - target_accept < 0.07


@pytest.mark.parametrize("sampler", [HMC(), NUTS()])
def test_acceptance_after_warmup_is_near_the_target(sampler):
    """With Hoffman & Gelman's constants it was 0.87 to 0.93: steps too short by a third."""
    trace = run(Gaussian(np.zeros(40), np.eye(40)), sampler, draws=300, tune=300, chains=8)
    assert trace.stats["acceptance_rate"].mean() == pytest.approx(0.82, abs=0.03)


@pytest.mark.parametrize("dense", [False, True])
def test_metric_becomes_the_posterior_covariance(dense):
    density = correlated_gaussian()
    trace = run(density, HMC(dense=dense), draws=1, tune=3000)
    expected = density.covariance if dense else np.diag(density.covariance)
    scale = np.sqrt(np.diag(density.covariance))
    unit = np.outer(scale, scale) if dense else scale**2
    # the last window has 1500 draws or more: a standard error of about 0.05 for variances
    np.testing.assert_allclose(
        trace.inv_metric / unit, np.broadcast_to(expected / unit, trace.inv_metric.shape), atol=0.2
    )
    assert not np.any(trace.stats["diverging"])


@pytest.mark.parametrize("density", [correlated_gaussian(), LogGamma(), Gaussian(np.zeros(1), np.eye(1))])
def test_metropolis_acceptance_is_in_range(density):
    trace = run(density, Metropolis(), draws=2000, tune=1000)
    assert 0.2 < trace.stats["acceptance_rate"].mean() < 0.5
    assert trace.inv_metric.shape == (2, density.n_dim, density.n_dim)


def test_a_short_warmup_leaves_no_chain_stuck():
    """The averaging restarts from a step that may be too long; it needs some draws to come back."""
    for tune in (20, 30, 60, 80):
        trace = run(correlated_gaussian(), HMC(), draws=50, tune=tune, chains=8)
        assert trace.stats["acceptance_rate"].mean(axis=1).min() > 0.4, tune


def test_every_length_of_warmup_works():
    for tune in (1, 5, 59, 60, 61):
        trace = run(correlated_gaussian(), HMC(), draws=2, tune=tune)
        assert np.all(np.isfinite(trace.stats["step_size"]))
        assert trace.warmup_unconstrained.shape == (2, tune, 3)
