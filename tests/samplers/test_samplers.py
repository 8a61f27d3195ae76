"""HMC, NUTS and Metropolis: do they draw from the right density?"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from hmcgp.errors import InvalidInput
from hmcgp.samplers import HMC, NUTS, Metropolis, hmc, sample
from hmcgp.samplers.integrators import State, init, leapfrog
from tests.helpers.densities import (
    Funnel,
    Gaussian,
    HalfSpace,
    LogGamma,
    Warped,
    WrongGradient,
    correlated_gaussian,
    step_of,
)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def standard_error(f):
    """Standard error of the mean of f (chains, draws) by batch means, 20 batches per chain."""
    batches = f[:, : f.shape[1] // 20 * 20].reshape(f.shape[0], 20, -1).mean(axis=2)
    return batches.std(ddof=1) / np.sqrt(batches.size)


def deviations(draws, density):
    """How many standard errors each moment and quantile of (chains, draws, d) is off."""
    off = {}
    for i in range(density.n_dim):
        x, truth = draws[:, :, i], density.marginal(i)
        statistics = {"mean": (x, truth.mean()), "variance": ((x - truth.mean()) ** 2, truth.var())}
        statistics |= {f"{q:.0%}": ((x < truth.ppf(q)).astype(float), q) for q in QUANTILES}
        for name, (f, expected) in statistics.items():
            off[f"{name} of x[{i}]"] = (f.mean() - expected) / max(standard_error(f), 1e-12)
    return off


def worst(draws, density):
    return max(deviations(draws, density).items(), key=lambda item: abs(item[1]))


def run(density, sampler, draws, seed=11, **options):
    return sample(density, sampler, draws=draws, chains=4, random_state=seed, n_jobs=1, progressbar=False, **options)


DENSITIES = {"gaussian": correlated_gaussian(), "log-gamma": LogGamma()}
BENT = {"banana": Warped(), "funnel": Funnel()}
SAMPLERS: dict[str, tuple[Any, int]] = {
    "nuts": (NUTS(), 2000),
    "nuts-plain": (NUTS(step_size=0.25), 1000),
    "hmc": (HMC(), 2000),
    "hmc-diagonal": (HMC(dense=False), 2000),
    "hmc-plain": (HMC(step_size=0.25, n_steps=6, jitter=0.0), 2000),
    "hmc-metric": (HMC(metric=np.array([0.1, 1.0, 4.0])), 2000),
    "metropolis": (Metropolis(), 10000),
    "metropolis-scale": (Metropolis(0.6), 12000),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", DENSITIES)
def test_moments_and_quantiles(name, sampler):
    density, (settings, draws) = DENSITIES[name], SAMPLERS[sampler]
    if sampler == "hmc-metric":
        settings = HMC(metric=settings.metric[: density.n_dim])
    trace = run(density, settings, draws)
    which, off = worst(trace.unconstrained, density)
    assert abs(off) < 4.0, f"{which} is {off:.1f} standard errors off"
    np.testing.assert_array_equal(trace.draws[1, 5], density.constrain(trace.unconstrained[1, 5]))


@pytest.mark.parametrize("sampler", ["nuts", "hmc", "metropolis"])
@pytest.mark.parametrize("name", BENT)
def test_moments_and_quantiles_where_the_curvature_changes(name, sampler):
    density, (settings, draws) = BENT[name], SAMPLERS[sampler]
    which, off = worst(run(density, settings, draws).unconstrained, density)
    assert abs(off) < 4.0, f"{which} is {off:.1f} standard errors off"


def wrong_signed_kick(density, state, momentum, step_size, inv_mass=None):
    """Leapfrog whose second half kick goes the wrong way."""
    end, momentum, evaluation = hmc_leapfrog(density, state, momentum, step_size, inv_mass)
    return end, momentum - step_size * end.grad, evaluation


hmc_leapfrog = leapfrog


@pytest.mark.parametrize("name", DENSITIES)
def test_check_catches_a_wrong_signed_kick(name, monkeypatch):
    """Negative control; for NUTS it is in test_nuts."""
    monkeypatch.setattr(hmc, "leapfrog", wrong_signed_kick)
    trace = run(DENSITIES[name], HMC(step_size=0.25, n_steps=6, jitter=0.0), 1500)
    assert abs(worst(trace.unconstrained, DENSITIES[name])[1]) > 6.0


@pytest.mark.parametrize("sampler", [HMC(step_size=0.25, n_steps=6), NUTS(step_size=0.25)])
def test_a_gradient_2_percent_off_is_forgiven(sampler):
    """The wrong leapfrog is reversible and keeps volumes, and the weights are right: only the order of the energy
    error betrays it (test_integrators), never the draws."""
    density = LogGamma()
    assert abs(worst(run(WrongGradient(density), sampler, 1000, tune=100).unconstrained, density)[1]) < 4.0


@pytest.mark.parametrize(("name", "step_size"), [("gaussian", 0.25), ("log-gamma", 0.6)])
def test_check_catches_a_missing_accept_step(name, step_size, monkeypatch):
    """Negative control: a step near the limit of stability (0.27 for the Gaussian), and every proposal taken."""
    monkeypatch.setattr(hmc, "exp", lambda x: 1.0)
    trace = run(DENSITIES[name], HMC(step_size=step_size, n_steps=5, jitter=0.0), 1500)
    assert np.all(trace.stats["acceptance_rate"] == 1.0)
    assert abs(worst(trace.unconstrained, DENSITIES[name])[1]) > 6.0


def test_check_catches_metropolis_on_another_density():
    """Negative control: the variance is 20 % off."""
    density = correlated_gaussian()
    other = Gaussian(density.mean, 1.2 * density.covariance)
    assert abs(worst(run(other, "metropolis", 15000).unconstrained, density)[1]) > 6.0


class Mirror:
    """A stream whose Gaussian draws have the other sign."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def standard_normal(self, size):
        return -self._rng.standard_normal(size)

    def random(self):
        return self._rng.random()


class Halved(Warped):
    """The density of Warped in the coordinates u = -θ/2."""

    def evaluate(self, u, carry=None, gradient=True):
        evaluation = super().evaluate(-2.0 * u)
        return evaluation._replace(grad=-2.0 * evaluation.grad)


def test_paper_coordinates_by_the_metric():
    """HMC of θ with unit mass is HMC of u = -θ/2 with inverse mass 1/4, draw by draw."""
    settings: dict[str, Any] = {"step_size": 0.4, "n_steps": 10, "jitter": 0.0}
    step_theta = step_of(HMC(**settings), Warped())
    step_u = step_of(HMC(metric=np.full(2, 0.25), **settings), Halved())
    theta0 = np.array([0.5, -0.3])
    theta, u = init(Warped(), theta0), init(Halved(), -theta0 / 2)
    rng_theta, rng_u = np.random.default_rng(4), Mirror(4)  # p_u = -2 p_θ
    accepted = 0
    for _ in range(200):
        before = theta.position
        theta, info_theta = step_theta(rng_theta, theta)
        u, info_u = step_u(rng_u, u)
        np.testing.assert_allclose(u.position, -theta.position / 2, atol=1e-9)
        assert info_u.energy_error == pytest.approx(info_theta.energy_error, abs=1e-9)
        accepted += not np.array_equal(before, theta.position)
    assert 20 < accepted < 200  # both outcomes were compared


def test_hmc_statistics_of_one_step():
    density = correlated_gaussian()
    step = step_of(HMC(step_size=0.2, n_steps=9, jitter=0.0), density)
    rng, state = np.random.default_rng(3), init(density, density.mean + 0.1)
    for _ in range(50):
        new, info = step(rng, state)
        moved = new is not state
        assert info.n_steps == 9
        assert info.step_size == 0.2
        assert info.lp == new.logdensity == density.evaluate(new.position).logdensity
        assert info.acceptance_rate == pytest.approx(min(1.0, np.exp(-info.energy_error)))
        assert info.energy > -info.lp  # the kinetic energy is positive
        assert not info.diverging
        if moved:
            assert not np.array_equal(new.position, state.position)
        state = new


def test_jitter_spreads_the_step_size():
    trace = run(correlated_gaussian(), HMC(step_size=0.2, n_steps=3, jitter=0.3), 500, tune=0)
    steps = trace.stats["step_size"] / 0.2
    assert 0.7 <= steps.min() < 0.71
    assert 1.29 < steps.max() <= 1.3


def test_jitter_spreads_the_time_of_a_trajectory():
    """2.0 ± 30 %, in the fewest equal steps of at most 0.35."""
    stats = run(correlated_gaussian(), HMC(step_size=0.35, trajectory=2.0, jitter=0.3), 500, tune=0).stats
    time = stats["step_size"] * stats["n_steps"]
    assert 1.4 <= time.min() < 1.41
    assert 2.59 < time.max() <= 2.6
    assert stats["step_size"].max() <= 0.35
    np.testing.assert_array_equal(stats["n_steps"], np.ceil(time / 0.35))


def test_trajectory_sets_the_number_of_steps():
    density = correlated_gaussian()
    for sampler, n_steps, step_size in (
        (HMC(step_size=0.3, trajectory=2.0, jitter=0.0), 7, 2.0 / 7),
        (HMC(step_size=0.001, trajectory=2.0, max_steps=12), 12, 0.001),
        (HMC(step_size=0.3, n_steps=4, jitter=0.0), 4, 0.3),
    ):
        stats = run(density, sampler, 5, tune=0).stats
        assert np.all(stats["n_steps"] == n_steps)
        np.testing.assert_allclose(stats["step_size"], step_size)


def test_an_easy_target_does_not_drive_the_step_to_infinity():
    """One step of pi/2 is accepted more often than asked for; what is learnt stays within the trajectory."""
    sampler, density = HMC(target_accept=0.5), Gaussian(np.zeros(1), np.eye(1))
    rng = np.random.default_rng(0)
    state = init(density, np.zeros(1))
    tuning = sampler.init_tuning(density, rng, state, 200)
    for _ in range(200):
        state, info = sampler.build_step(density, tuning)(rng, state)
        tuning = sampler.adapt(density, rng, tuning, state, info)
    assert 1.0 < tuning.step_size <= 1.2 * np.pi / 2 + 1e-12


def test_divergence_is_rejected_and_marked():
    trace = run(correlated_gaussian(), HMC(step_size=50.0, n_steps=30), 20, tune=0)
    assert np.all(trace.stats["diverging"])
    assert np.all(trace.stats["acceptance_rate"] == 0.0)
    assert np.all(trace.unconstrained == trace.unconstrained[:, :1])


@pytest.mark.parametrize("sampler", [HMC(step_size=0.3, n_steps=5), Metropolis(0.8)])
def test_region_that_cannot_be_computed(sampler):
    """Half of a Gaussian is -inf: no draw lands there, failures are counted, the other half is sampled rightly."""
    trace = run(HalfSpace(), sampler, 2000)
    x = trace.unconstrained[:, :, 0]
    assert x.min() >= 0.0
    assert abs(x.mean() - np.sqrt(2 / np.pi)) < 4 * standard_error(x)
    failed = trace.stats["not_positive_definite"]
    assert 0.05 < failed.mean() < 0.6
    assert trace.stats["not_converged"].sum() == 0
    has_trajectory = trace.sampler != "metropolis"  # nothing else can diverge
    np.testing.assert_array_equal(trace.stats["diverging"], (failed > 0) & has_trajectory)
    np.testing.assert_array_equal(trace.stats["energy_error"] == inf, failed > 0)
    assert np.all(trace.stats["solver_iterations"] == 2 * trace.stats["n_steps"] + failed)  # 2 each, 3 when it fails
    np.testing.assert_array_equal(trace.stats["solver_residual"], np.where(failed > 0, 0.5, 1e-9))


def test_rejection_returns_the_same_state():
    state = State(np.array([0.1, 0.0]), -0.005, np.array([-0.1, 0.0]), "mine")
    step = step_of(HMC(step_size=100.0, n_steps=3, jitter=0.0), HalfSpace())
    assert step(np.random.default_rng(0), state)[0] is state


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0.0}, "'step_size' must be positive"),
        ({"step_size": inf}, "'step_size'"),
        ({"n_steps": 0}, "'n_steps'"),
        ({"jitter": 1.0}, "'jitter'"),
        ({"target_accept": 1.0}, "'target_accept'"),
        ({"trajectory": -1.0}, "'trajectory'"),
        ({"max_energy_error": 0.0}, "'max_energy_error'"),
    ],
)
def test_bad_hmc_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        HMC(**settings)


@pytest.mark.parametrize("scale", [0.0, -1.0, inf, np.eye(2), np.array([1.0, -1.0])])
def test_bad_metropolis_scale_is_refused(scale):
    with pytest.raises(InvalidInput, match="'scale'"):
        Metropolis(scale)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HMC(n_steps=2.5),
        lambda: HMC(max_steps=0.5),
        lambda: HMC(step_size="a"),
        lambda: Metropolis("a"),
        lambda: HMC(metric="dense").check(2, 10),
    ],
)
def test_settings_of_the_wrong_type_are_refused(make):
    with pytest.raises(InvalidInput, match="must be"):
        make()
