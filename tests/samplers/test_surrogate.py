"""Draws from a surrogate: the process, the moments of weighted draws, and densities that must not fool it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest

from hmcgp.errors import HmcgpError, InterruptedWarning, InvalidInput
from hmcgp.numerics.density import NOT_CONVERGED, Evaluation
from hmcgp.reporting import diagnostics
from hmcgp.reporting.convergence import weighted_ess
from hmcgp.samplers import SurrogateHMC, sample
from hmcgp.samplers.integrators import init
from hmcgp.samplers.surrogate import draws as surrogate_draws
from hmcgp.samplers.surrogate import edges, tails
from hmcgp.samplers.surrogate.draws import SurrogateDensity, draw_chain
from hmcgp.samplers.surrogate.gaussian_process import Whitening, covariance, fit
from hmcgp.samplers.surrogate.points import Points, fitted
from tests.helpers.densities import Gaussian, LogGamma, Warped, correlated_gaussian

QUICK = {"draws": 200, "tune": 200, "random_state": 1, "progressbar": False, "n_jobs": 1}
DENSITIES = {"correlated Gaussian": correlated_gaussian(), "skewed": LogGamma((0.7, 3.0)), "banana": Warped(0.5)}


class Skew(LogGamma):
    """A skewed density in more dimensions."""

    def __init__(self, n_dim=5):
        super().__init__(np.linspace(1.0, 4.0, n_dim))


def evaluations(density, n, seed=0, spread=1.5):
    """Whitening by mean and covariance of a sample, and values and gradients at points about it."""
    rng = np.random.default_rng(seed)
    u = np.array([density.initial(rng) for _ in range(n)])
    found = [density.evaluate(x) for x in u]
    values = np.array([e.logdensity for e in found])
    return Points(u, values, np.array([e.grad for e in found]))


# -- the process -----------------------------------------------------------------------------------------------------


def test_covariances_of_gradients_are_derivatives_of_the_covariance_of_values():
    X, h = np.random.default_rng(0).normal(size=(3, 2)), 1e-4
    K = covariance(X, np.array([True, False, True]))  # rows: value, 2 slopes; value; value, 2 slopes
    e = h * np.eye(2)

    def k(a, b):
        return 1.0 / (1.0 + 0.5 * np.sum((a - b) ** 2))

    for a in range(2):
        assert K[5 + a, 0] == pytest.approx((k(X[2] + e[a], X[0]) - k(X[2] - e[a], X[0])) / (2.0 * h), abs=1e-8)
        assert K[4, 1 + a] == pytest.approx((k(X[2], X[0] + e[a]) - k(X[2], X[0] - e[a])) / (2.0 * h), abs=1e-8)
        assert K[5 + a, 3] == pytest.approx((k(X[2] + e[a], X[1]) - k(X[2] - e[a], X[1])) / (2.0 * h), abs=1e-8)
        for b in range(2):
            corners = sum(s * t * k(X[2] + s * e[a], X[0] + t * e[b]) for s in (1, -1) for t in (1, -1))
            assert K[5 + a, 1 + b] == pytest.approx(corners / (4.0 * h * h), abs=1e-6)


@pytest.fixture(scope="module")
def surrogate():
    points = evaluations(Skew(3), 60)
    points.grad[::4] = np.nan  # values alone
    mean, cov = points.u.mean(axis=0), np.cov(points.u.T)
    return fit(Whitening(mean, np.linalg.cholesky(cov)), *points, length=2.0, nugget=1e-6), points


def test_surrogate_passes_through_values_and_gradients(surrogate):
    process, points = surrogate
    np.testing.assert_allclose(process.values(points.u), points.logdensity, atol=0.02)  # the nugget
    L = process.whitening.factor
    for z, grad in zip(process.whitening.whiten(points.u), points.grad, strict=True):
        if np.isfinite(grad).all():
            np.testing.assert_allclose(process.predict(z)[1], L.T @ grad, atol=0.1)


def test_surrogate_is_the_mean_of_the_process(surrogate):
    """A plain twin: c - 1/2 z'z + k(z)' K^-1 (observations - mean), with c by generalised least squares."""
    process, points = surrogate
    z, length = process.whitening.whiten(points.u), process.length
    known = np.isfinite(points.grad[:, 0])
    K = covariance(z / length, known)
    K = np.tril(K) + np.tril(K, -1).T + 1e-6 * np.eye(len(K))
    rest, ones = [], []
    for x, value, grad in zip(z, points.logdensity, points.grad, strict=True):
        slopes = [] if np.isnan(grad[0]) else list(length * (process.whitening.factor.T @ grad + x))
        rest += [value + 0.5 * x @ x, *slopes]
        ones += [1.0, *(0.0 for _ in slopes)]
    rest, ones = np.array(rest), np.array(ones)
    a, b = np.linalg.solve(K, rest), np.linalg.solve(K, ones)
    c = (ones @ a) / (ones @ b)
    new = np.array([0.3, -0.8, 1.1])
    joint = covariance(np.vstack([z, new]) / length, np.append(known, False))
    assert process.predict(new)[0] == pytest.approx(c - 0.5 * new @ new + joint[-1, :-1] @ (a - c * b), rel=1e-6)


def test_gradient_of_the_surrogate(surrogate):
    density = SurrogateDensity(surrogate[0], temperature=1.3)
    rng = np.random.default_rng(5)
    for z in rng.normal(size=(5, 3)):
        grad = density.evaluate(z).grad
        for i, e in enumerate(1e-4 * np.eye(3)):
            numeric = (density.evaluate(z + e).logdensity - density.evaluate(z - e).logdensity) / 2e-4
            assert grad[i] == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_far_from_all_points_the_surrogate_is_nearly_gaussian(surrogate):
    process, _ = surrogate
    z = np.array([4e4, 0.0, -3e4])
    assert process.predict(z)[0] == pytest.approx(process.constant - 0.5 * z @ z, rel=1e-6)
    np.testing.assert_allclose(process.predict(z)[1], -z, rtol=1e-6, atol=1e-2)


def test_points_are_spread():
    """Copies are left out, and so is what lies deep below the highest."""
    density = Gaussian(np.zeros(2), np.eye(2))
    points = evaluations(density, 40)
    twice = Points(*(np.concatenate([part, part]) for part in points))
    chosen = twice.spread(Whitening(np.zeros(2), np.eye(2)), 20)
    assert len(np.unique(chosen.u, axis=0)) == len(chosen) == 20
    assert chosen.logdensity[0] == points.logdensity.max()
    deep = Points(points.u, np.where(np.arange(40) < 5, 0.0, -100.0), points.grad)
    assert len(deep.spread(Whitening(np.zeros(2), np.eye(2)), 20)) == 5


def test_prediction_of_new_points():
    """Held-out error far below that of the Gaussian alone."""
    density = Skew(4)
    points, new = evaluations(density, 120), evaluations(density, 50, seed=9)
    whitening = Whitening(points.u.mean(axis=0), np.linalg.cholesky(np.cov(points.u.T)))
    z = whitening.whiten(new.u)
    left = new.logdensity - fitted(points, whitening, 120).values(new.u)
    gaussian = new.logdensity + 0.5 * np.sum(z**2, axis=1)
    assert np.std(left) < 0.5 * np.std(gaussian)


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


def test_chains_on_the_surrogate_stop_with_the_work(surrogate):
    process, points = surrogate
    stream = np.random.default_rng(0).bit_generator.state
    drawn = draw_chain(process, 1.2, stream, points.u[0], 10)
    assert drawn.u.shape == (10, 3)
    density = SurrogateDensity(process, 1.2)
    z = process.whitening.whiten(drawn.u[-1:])[0]
    assert init(density, z).logdensity == pytest.approx(drawn.stats["lp"][-1], rel=1e-9)
