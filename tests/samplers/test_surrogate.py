"""Draws from a surrogate: the moments of weighted draws, and densities that must not fool it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest

from hmcgp.errors import HmcgpError, InterruptedWarning, InvalidInput
from hmcgp.numerics.density import NOT_CONVERGED, Evaluation
from hmcgp.reporting import diagnostics
from hmcgp.reporting.convergence import weighted_ess
from hmcgp.samplers import SurrogateHMC, sample
from hmcgp.samplers.surrogate import draws as surrogate_draws
from hmcgp.samplers.surrogate import edges, tails
from tests.helpers.densities import Gaussian, LogGamma, Skew, Warped, correlated_gaussian

QUICK: dict[str, Any] = {"draws": 200, "tune": 200, "random_state": 1, "progressbar": False, "n_jobs": 1}
DENSITIES = {"correlated Gaussian": correlated_gaussian(), "skewed": LogGamma((0.7, 3.0)), "banana": Warped(0.5)}


# -- the draws -------------------------------------------------------------------------------------------------------


def deviations(trace, density):
    """Weighted averages of x and (x - mean)² against the truth, in standard errors."""
    weight = trace.weight.reshape(trace.draws.shape[:2])
    found = []
    for i in range(density.n_dim):
        truth = density.marginal(i)
        for x, mean in (
            (trace.unconstrained[:, :, i], truth.mean()),
            ((trace.unconstrained[:, :, i] - truth.mean()) ** 2, truth.var()),
        ):
            average = np.average(x, weights=weight)
            sd = np.sqrt(np.average((x - average) ** 2, weights=weight))
            found.append((average - mean) / (sd / np.sqrt(weighted_ess(x, weight)[0])))
    return np.abs(found)


@pytest.fixture(scope="module", params=list(DENSITIES))
def run(request):
    density = DENSITIES[request.param]
    return density, sample(density, "surrogate", **(QUICK | {"draws": 500}))


def test_moments(run):
    density, trace = run
    assert trace.sampler == "surrogate"
    assert deviations(trace, density).max() < 4.0
    assert trace.pareto_k < 0.7
    assert diagnostics.check(trace) == []


def test_check_catches_missing_weights():
    density = Skew(5)
    trace = sample(density, "surrogate", **(QUICK | {"draws": 500}))
    assert deviations(trace, density).max() < 4.0
    assert deviations(replace(trace, log_weight=None), density).max() > 4.0  # draws of the flattened surrogate


def test_weights_are_ratios_of_densities(run):
    density, trace = run
    lp = np.array([density.evaluate(u).logdensity for u in trace.unconstrained.reshape(len(trace), -1)])
    np.testing.assert_allclose(trace.stats["lp"].ravel(), lp, rtol=1e-12)
    ratio = lp - trace.stats["surrogate_lp"].ravel()
    low = ratio < np.quantile(ratio, 0.7)  # below the tail that is smoothed
    left = trace.log_weight.ravel()[low] - ratio[low]
    np.testing.assert_allclose(left, left[0], atol=1e-6)
    assert np.logaddexp.reduce(trace.log_weight, axis=None) == pytest.approx(0.0, abs=1e-9)


def test_one_evaluation_for_a_draw(run):
    _, trace = run
    np.testing.assert_array_equal(trace.stats["n_steps"], 1)
    np.testing.assert_array_equal(trace.warmup_stats["surrogate_lp"], trace.warmup_stats["lp"])
    assert "evaluations with and" in trace.note
    assert "surrogates" in trace.note


def test_draws_depend_on_the_seed_alone():
    runs = [sample(Skew(), "surrogate", **(QUICK | {"n_jobs": n})) for n in (1, 2, 4)]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].draws, other.draws)
        np.testing.assert_array_equal(runs[0].log_weight, other.log_weight)
        np.testing.assert_array_equal(runs[0].warmup_draws, other.warmup_draws)
    assert not np.array_equal(runs[0].draws, sample(Skew(), "surrogate", **(QUICK | {"random_state": 2})).draws)


def test_a_generator_moves_on():
    rng = np.random.default_rng(0)
    first, second = (sample(Skew(2), "surrogate", **(QUICK | {"random_state": rng})) for _ in range(2))
    assert not np.array_equal(first.draws, second.draws)


def missing(density, proposal, draws):
    """Probability beyond draws of a proposal, weighted to a density, as the gate sees it."""
    ratios = density(draws) - proposal(draws)
    weight = np.exp(ratios - np.logaddexp.reduce(ratios))
    mean = np.log(np.mean(np.exp(ratios)))
    return max(
        tails.missing_probability(
            group,
            weight,
            density(group.moved) - density(draws[group.draws]),
            density(group.moved) - proposal(group.moved) - mean,
        )
        for group in tails.groups(draws, weight)
    )


def test_tails_beyond_the_draws():
    """Draws of a Gaussian stand for a Gaussian, wide or narrow; not for one whose tail is long on one side only."""
    draws = np.random.default_rng(0).normal(size=(2000, 3))

    def gaussian(x, variance=1.0):
        return -0.5 * np.sum(x**2, axis=1) / variance

    def one_sided(x):
        return gaussian(x) + np.where(x[:, 1] > 1.0, 0.5 * (x[:, 1] - 1.0) ** 2, 0.0)  # exp(-x_1) from 1 on

    assert missing(gaussian, gaussian, draws) == 0.0
    assert missing(lambda x: gaussian(x, 0.8), gaussian, draws) == 0.0
    assert missing(one_sided, gaussian, draws) > 2.0 * tails.TOLERATED


def test_edges_are_where_the_density_ends():
    """Moves go on until the log density has fallen by DROP, and no further."""
    sd, seen = np.array([1.0, 10.0]), []

    def evaluated(u):
        lp = -0.5 * np.sum((u / sd) ** 2, axis=1)
        seen.append((u, lp))
        return lp

    edges.explore(np.zeros((8, 2)), np.zeros(8), np.array([1.0, 3.0]), evaluated)
    u = np.concatenate([u for u, _ in seen])
    reach = np.abs(u).max(axis=0) / sd
    end = np.sqrt(2.0 * edges.DROP)
    assert ((reach >= 0.8 * end) & (reach <= edges.GROWTH * end)).all()
    assert all((u[:, j] < 0.0).any() and (u[:, j] > 0.0).any() for j in range(2))
    assert all(len(after) == np.sum(lp > -edges.DROP) for (_, lp), (after, _) in pairwise(seen))


@pytest.mark.parametrize(("draws", "length"), [(10, 10), (214, 214), (500, 229), (1000, 458), (4000, 1829)])
def test_length(draws, length):
    assert SurrogateHMC().length(draws) == length
    assert SurrogateHMC(effective=100_000).length(draws) == draws


# -- densities that must not fool it ---------------------------------------------------------------------------------


class TwoModes(Gaussian):
    """Two Gaussians, 12 standard deviations apart."""

    def __init__(self):
        super().__init__(np.zeros(2), np.diag([37.0, 1.0]))

    def evaluate(self, u, carry=None, gradient=True):
        centres = np.array([[-6.0, 0.0], [6.0, 0.0]])
        terms = -0.5 * np.sum((u - centres) ** 2, axis=1)
        value = np.logaddexp.reduce(terms)
        share = np.exp(terms - value)
        return Evaluation(float(value), share @ (centres - u))


class HeavyTails(Gaussian):
    """A t distribution with one degree of freedom."""

    def __init__(self, n_dim=3):
        super().__init__(np.zeros(n_dim), np.eye(n_dim))

    def evaluate(self, u, carry=None, gradient=True):
        power = 0.5 * (self.n_dim + 1.0)
        return Evaluation(-power * np.log1p(float(u @ u)), -2.0 * power * u / (1.0 + u @ u))


class Ridges(Gaussian):
    """A log density full of kinks, which no smooth process follows."""

    def evaluate(self, u, carry=None, gradient=True):
        found = super().evaluate(u)
        value = found.logdensity + 3.0 * np.sum(np.cos(9.0 * u))
        return Evaluation(float(value), found.grad - 27.0 * np.sin(9.0 * u))


def test_several_modes_are_given_to_hmc():
    trace = sample(TwoModes(), "surrogate", **QUICK)
    assert trace.sampler == "hmc"
    assert trace.draws.shape == (4, 200, 2)
    assert "HMC in place of the surrogate: the log density has several maxima" in trace.note
    assert "r_hat" in [finding.kind for finding in diagnostics.check(trace)]  # chains stay where they are


@pytest.mark.parametrize("density", [HeavyTails(), Ridges(np.zeros(4), np.eye(4))], ids=["heavy tails", "ridges"])
def test_bad_surrogates_are_given_up_or_flagged(density):
    trace = sample(density, SurrogateHMC(refits=2), **QUICK)
    if trace.sampler == "hmc":
        assert "HMC in place of the surrogate" in trace.note
        assert any(words in trace.note for words in ("draws effective", "maxima", "beyond the draws"))
    else:
        assert {finding.kind for finding in diagnostics.check(trace)} & {"weights", "r_hat", "ess"}


class Edge(Gaussian):
    """A standard Gaussian whose solver fails where u_0 < -1.5."""

    def __init__(self):
        super().__init__(np.zeros(2), np.eye(2))

    def evaluate(self, u, carry=None, gradient=True):
        if u[0] < -1.5:
            return Evaluation(-inf, np.zeros(2), carry, 5, inf, NOT_CONVERGED)
        return super().evaluate(u)

    def initial(self, rng):
        return np.abs(rng.standard_normal(2))


def test_draws_where_the_density_fails_have_no_weight():
    trace = sample(Edge(), SurrogateHMC(refits=4), **QUICK)
    assert trace.unconstrained[:, :, 0].min() >= -1.5
    failed = trace.stats["not_converged"] > 0
    if trace.sampler == "surrogate":
        assert failed.any()
        assert trace.log_weight is not None
        assert np.exp(trace.log_weight[failed]).max() < 1e-200
        assert "not_converged" in [finding.kind for finding in diagnostics.check(trace)]
    assert np.isfinite(trace.stats["lp"]).all()


# -- promises of every run -------------------------------------------------------------------------------------------


class Slow(Skew):
    """A density that takes its time once it has been evaluated so often."""

    def __init__(self, seconds, after=0):
        super().__init__(3)
        self.seconds, self.after, self.calls = seconds, after, 0

    def evaluate(self, u, carry=None, gradient=True):
        self.calls += 1
        if self.calls > self.after:
            time.sleep(self.seconds)
        return super().evaluate(u)


@pytest.mark.slow
def test_max_time_keeps_the_draws_so_far():
    whole = sample(Skew(3), "surrogate", **QUICK)
    counts = [int(word) for word in whole.note.replace(";", "").split() if word.isdigit()]
    assert len(whole) == 800
    before = counts[2] + counts[3] - 800  # evaluations before the first draw
    with pytest.warns(InterruptedWarning, match="stopped by max_time = 4 s: .* of 200 draws were kept in each of 4"):
        trace = sample(Slow(0.02, before), "surrogate", **QUICK, max_time=4)
    assert trace.interrupted
    assert 0 < trace.n_draws < 200
    np.testing.assert_array_equal(trace.draws, whole.draws[:, : trace.n_draws])
    assert np.logaddexp.reduce(trace.log_weight, axis=None) == pytest.approx(0.0, abs=1e-9)


def test_max_time_within_warm_up():
    with pytest.raises(HmcgpError, match="there are no draws to keep"):
        sample(Slow(5e-3), "surrogate", **QUICK, max_time=0.5)


def test_ctrl_c_within_warm_up(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    before = threading.active_count()
    monkeypatch.setattr("hmcgp.samplers.surrogate.warmup.walk", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sample(Skew(3), "surrogate", **QUICK)
    assert threading.active_count() == before


def test_ctrl_c_between_waves_keeps_draws(monkeypatch):
    calls = []

    def evaluate_all(density, u, carry, gradient, *arguments):
        calls.append(gradient)
        if calls.count(False) == 3:  # two waves, and then
            raise KeyboardInterrupt
        return surrogate_draws.evaluate_all(density, u, carry, gradient, *arguments)

    monkeypatch.setattr("hmcgp.samplers.surrogate.run.evaluate_all", evaluate_all)
    with pytest.warns(InterruptedWarning, match="sampling was interrupted: 64 of 200 draws were kept"):
        trace = sample(Skew(3), "surrogate", **QUICK)
    assert trace.draws.shape == (4, 64, 3)
    assert deviations(trace, Skew(3)).max() < 4.0


def test_errors_of_the_density_are_told():
    class Broken(Skew):
        def evaluate(self, u, carry=None, gradient=True):
            raise ZeroDivisionError("no such thing")

    with pytest.raises(HmcgpError, match="ZeroDivisionError: no such thing"):
        sample(Broken(2), "surrogate", **QUICK)


def test_refused(tmp_path):
    for settings, words in (
        ({"checkpoint": tmp_path / "run.nc"}, "takes no 'checkpoint'.*sampler='hmc'"),
        ({"start": np.zeros(5)}, "takes no 'start'.*sampler='hmc'"),
        ({"tune": 0}, "tune=0, but HMC"),
    ):
        with pytest.raises(InvalidInput, match=words):
            sample(Skew(), "surrogate", **(QUICK | settings))
    for wrong in ({"effective": 0}, {"effective": 1.5}, {"refits": 0}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            SurrogateHMC(**wrong)


@pytest.mark.slow
def test_other_processes(monkeypatch):
    import joblib

    here = sample(LogGamma(), "surrogate", **QUICK)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        there = sample(LogGamma(), "surrogate", **(QUICK | {"n_jobs": None}))
    np.testing.assert_array_equal(here.draws, there.draws)
    np.testing.assert_array_equal(here.log_weight, there.log_weight)
