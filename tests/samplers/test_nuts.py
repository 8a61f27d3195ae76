"""NUTS: trees that double, turn back after half a period, and leave the density invariant."""

from __future__ import annotations

from math import inf, pi

import numpy as np
import pytest
from scipy import stats

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import Parameter
from hmcgp.reporting.arviz_export import build_tree
from hmcgp.samplers import HMC, NUTS, Evaluation, nuts, sample
from hmcgp.samplers.integrators import State, init, leapfrog
from hmcgp.samplers.nuts import End, Explorer, Tree, join, turns
from tests.helpers.densities import Gaussian, HalfSpace, LogGamma, Warped, correlated_gaussian, step_of


def run(density, sampler, **options):
    options = {"draws": 200, "tune": 0, "chains": 2, "random_state": 3, "n_jobs": 1, "progressbar": False} | options
    return sample(density, sampler, **options)


class Flat(Gaussian):
    """No force: trajectories are straight and never turn; the carry is the position, and every visit is recorded."""

    def __init__(self, n_dim=2):
        super().__init__(np.zeros(n_dim), np.eye(n_dim))
        self.visits, self.carries = [], []

    def evaluate(self, u, carry=None, gradient=True):
        self.visits.append(u)
        self.carries.append(carry)
        return Evaluation(0.0, np.zeros_like(u), u)


@pytest.mark.parametrize("max_depth", [1, 2, 5])
def test_tree_doubles(max_depth):
    """From a straight line the steps can be read: one unbroken range about the start, each from its neighbour."""
    rng = np.random.default_rng(0)
    orders = set()
    for _ in range(20):
        density = Flat(1)
        step = step_of(NUTS(step_size=0.5, max_depth=max_depth), density)
        state, info = step(rng, State(np.zeros(1), 0.0, np.zeros(1), np.zeros(1)))
        visits, carries = np.array(density.visits)[:, 0], np.array(density.carries)[:, 0]
        unit = np.abs(visits[0])
        index = np.rint(visits / unit).astype(int)
        first = min(index.min(), 0)
        assert len(index) == info.n_steps == 2**max_depth - 1
        assert sorted([*index, 0]) == list(range(first, first + 2**max_depth))
        for k in range(max_depth):  # doubling k visits 2^k states, in one direction
            block = index[2**k - 1 : 2 ** (k + 1) - 1]
            assert len(set(np.diff(block))) <= 1
        np.testing.assert_allclose(np.abs(visits - carries), unit)  # the carry of each end is its own
        assert info.tree_depth == max_depth
        assert info.reached_max_treedepth
        assert np.rint(state.position[0] / unit) in index[2 ** (max_depth - 1) - 1 :]  # of equal weight: the newer half
        orders.add(tuple(index))
    assert len(orders) >= min(20, 2**max_depth) / 2


def tree_of(weight, name):
    end = End(State(np.zeros(1), 0.0, np.zeros(1)), np.ones(1), np.ones(1))
    return Tree(end, end, np.ones(1), np.log(weight), name, 0.0)


@pytest.mark.parametrize(("biased", "expected"), [(False, 0.6 / 2.6), (True, 0.3)])
@pytest.mark.parametrize("swap", [False, True])
def test_join_draws_by_weight(biased, expected, swap):
    rng, first, second = np.random.default_rng(1), tree_of(2.0, "first"), tree_of(0.6, "second")
    if swap:
        first, second = second, first
        expected = 1.0 if biased else 2.0 / 2.6
    joined = [join(rng, first, second, biased=biased) for _ in range(20000)]
    assert joined[0].log_weight == pytest.approx(np.log(2.6))
    assert joined[0].rho == 2.0
    share = np.mean([tree.draw == second.draw for tree in joined])
    assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 20000))


def test_reversed_twice_is_the_same():
    density = Warped()
    explorer = Explorer(density, np.random.default_rng(0), np.ones(2), 0.1, 1000.0)
    tree = explorer.root(init(density, np.array([0.3, 0.2])), np.array([1.0, 0.4]))
    new = explorer.grow(tree.far, 3, 1)
    assert new.reversed().near is new.far
    assert new.reversed().reversed() == new
    # walking back from the far end meets the near end
    back = explorer.grow(new.far, 3, -1)
    np.testing.assert_allclose(back.far.state.position, tree.far.state.position, atol=1e-12)
    np.testing.assert_allclose(back.far.momentum, tree.far.momentum, atol=1e-12)
    # a turn is seen from both sides
    rho = tree.rho + new.rho
    assert turns(tree, new, rho) == turns(new.reversed(), tree, rho)


def test_trajectory_turns_after_half_a_period():
    """In many dimensions the phases average out, and a Gaussian turns back when it has gone half its period, pi."""
    n_dim, step_size = 1000, 0.02
    density, rng = Gaussian(np.zeros(n_dim), np.eye(n_dim)), np.random.default_rng(4)
    explorer = Explorer(density, rng, np.ones(n_dim), step_size, 1000.0)
    tree = explorer.root(init(density, rng.standard_normal(n_dim)), rng.standard_normal(n_dim))
    n_steps = 0
    while True:
        new = explorer.grow(tree.far, 0, 1)
        n_steps += 1
        old, tree = tree, join(rng, tree, new)
        if turns(old, new, tree.rho):
            break
    assert n_steps * step_size == pytest.approx(pi, rel=0.05)


def test_depth_follows_the_step_size():
    """32 states of 0.13 span 4.0, more than half a period; 16 span 1.95, less: every tree has depth 5."""
    density = Gaussian(np.zeros(500), np.eye(500))
    trace = run(density, NUTS(step_size=0.13), draws=20, start=np.random.default_rng(0).standard_normal(500))
    assert np.all(trace.stats["tree_depth"] == 5)
    assert np.all(trace.stats["n_steps"] == 31)
    assert not np.any(trace.stats["reached_max_treedepth"])


def dense_metric_trace(scale):
    """The same chain in other coordinates: u -> A u with metric A A'."""
    A = np.array([[1.0, 0.0], [0.7, scale]])

    class Linear(Warped):
        def evaluate(self, u, carry=None, gradient=True):
            evaluation = super().evaluate(np.linalg.solve(A, u))
            return evaluation._replace(grad=np.linalg.solve(A.T, evaluation.grad))

    start = A @ np.array([0.3, -0.2])
    trace = run(Linear(), NUTS(step_size=0.5, metric=A @ A.T), draws=60, start=start)
    return np.linalg.solve(A, trace.unconstrained[..., None])[..., 0], trace.stats


def test_metric_is_a_change_of_coordinates():
    """Momentum sums, turns and weights do not see it."""
    one, stats_one = dense_metric_trace(1.0)
    two, stats_two = dense_metric_trace(30.0)
    np.testing.assert_allclose(one, two, atol=1e-7)
    np.testing.assert_array_equal(stats_one["tree_depth"], stats_two["tree_depth"])


def one_step_p_values(n=8000, step_size=0.6):
    """Exact draws, one transition each: Kolmogorov-Smirnov tests of where they land."""
    density, rng = LogGamma(), np.random.default_rng(12)
    step = step_of(NUTS(step_size=step_size), density)
    starts = np.log(rng.gamma(density.shape, size=(n, 2)))
    ends = np.array([step(rng, init(density, u))[0].position for u in starts])
    return [stats.kstest(ends[:, i], density.marginal(i).cdf).pvalue for i in range(2)]


@pytest.mark.parametrize("step_size", [0.2, 0.6, 1.0])
def test_one_step_leaves_the_target_invariant(step_size):
    assert min(one_step_p_values(step_size=step_size)) > 0.01


def always_second(rng, first, second, *, biased=False):
    return true_join(rng, first, second, biased=biased)._replace(draw=second.draw)


def too_greedy(rng, first, second, *, biased=False):
    return true_join(rng, first, second, biased=True)


def wrong_signed_kick(density, state, momentum, step_size, inv_mass=None):
    """Leapfrog whose second half kick goes the wrong way."""
    end, momentum, evaluation = true_leapfrog(density, state, momentum, step_size, inv_mass)
    return end, momentum - step_size * end.grad, evaluation


true_join, true_leapfrog = nuts.join, leapfrog


@pytest.mark.parametrize(
    ("name", "wrong", "step_size"),
    [("join", always_second, 0.6), ("join", too_greedy, 0.2), ("leapfrog", wrong_signed_kick, 1.0)],
)
def test_invariance_test_catches_wrong_samplers(name, wrong, step_size, monkeypatch):
    """Negative control: the last state of each tree; the bias of doublings used within them; a wrong kick."""
    monkeypatch.setattr(nuts, name, wrong)
    assert min(one_step_p_values(step_size=step_size)) < 1e-5


def test_statistics_of_one_step():
    density = correlated_gaussian()
    step = step_of(NUTS(step_size=0.2), density)
    rng, state = np.random.default_rng(3), init(density, density.mean + 0.1)
    for _ in range(50):
        state, info = step(rng, state)
        assert info.step_size == 0.2
        assert info.lp == state.logdensity == density.evaluate(state.position).logdensity
        assert 0.0 < info.acceptance_rate <= 1.0
        assert info.energy > -info.lp  # the kinetic energy is positive
        assert abs(info.energy_error) < 3.0
        assert 2**info.tree_depth - 1 <= info.n_steps < 2 ** (info.tree_depth + 1)
        assert not info.diverging
        assert not info.reached_max_treedepth


def test_max_depth_is_flagged():
    trace = run(correlated_gaussian(), NUTS(step_size=1e-3, max_depth=3))
    assert np.all(trace.stats["reached_max_treedepth"])
    assert np.all(trace.stats["tree_depth"] == 3)
    assert np.all(trace.stats["n_steps"] == 7)


def test_divergence_ends_the_trajectory():
    trace = run(correlated_gaussian(), NUTS(step_size=500.0))
    assert np.all(trace.stats["diverging"])
    assert np.all(trace.stats["n_steps"] == 1)
    assert np.all(trace.stats["tree_depth"] == 0)
    assert np.all(trace.stats["acceptance_rate"] == 0.0)
    assert np.all(trace.unconstrained == trace.unconstrained[:, :1])


def test_region_that_cannot_be_computed():
    """Half of a Gaussian is -inf: the tree ends there, what it had is kept, the other half is sampled rightly."""
    trace = run(HalfSpace(), NUTS(step_size=0.3), draws=4000)
    x = trace.unconstrained[:, :, 0]
    assert x.min() >= 0.0
    batches = x.reshape(2, 20, -1).mean(axis=2)
    assert abs(x.mean() - np.sqrt(2 / np.pi)) < 4 * batches.std(ddof=1) / np.sqrt(batches.size)
    failed = trace.stats["not_positive_definite"]
    assert 0.05 < failed.mean() < 0.9
    assert set(np.unique(failed)) == {0, 1}
    np.testing.assert_array_equal(trace.stats["diverging"], failed > 0)
    assert np.all(np.isfinite(trace.stats["energy_error"]))
    assert np.all(trace.stats["solver_iterations"] == 2 * trace.stats["n_steps"] + failed)
    np.testing.assert_array_equal(trace.stats["solver_residual"], np.where(failed > 0, 0.5, 1e-9))


@pytest.mark.parametrize("sampler", [NUTS, HMC])
@pytest.mark.parametrize(("n_dim", "dense", "ndim"), [(30, None, 3), (31, None, 2), (31, True, 3), (4, False, 2)])
def test_metric_is_dense_up_to_30_dimensions(sampler, n_dim, dense, ndim):
    trace = run(Gaussian(np.zeros(n_dim), np.eye(n_dim)), sampler(dense=dense), draws=1, tune=60)
    assert trace.inv_metric.ndim == ndim


@pytest.mark.parametrize("target_accept", [0.6, 0.9])
def test_acceptance_follows_the_target(target_accept):
    density = correlated_gaussian()
    trace = run(density, NUTS(target_accept=target_accept, metric=density.covariance), draws=500, tune=600)
    assert trace.warmup_stats["acceptance_rate"][:, 100:].mean() == pytest.approx(target_accept, abs=0.02)
    assert -0.05 < trace.stats["acceptance_rate"].mean() - target_accept < 0.2


@pytest.mark.parametrize("tune", [1, 5, 19, 20, 60])
def test_every_length_of_warmup_works(tune):
    assert np.all(np.isfinite(run(correlated_gaussian(), NUTS(), draws=2, tune=tune).stats["step_size"]))


def test_tree_statistics_are_exported():
    trace = run(correlated_gaussian(), "nuts", draws=8, tune=60)
    tree = build_tree(trace, [Parameter("x", 3, None, None, "x")])
    for group, columns in (("sample_stats", trace.stats), ("warmup_sample_stats", trace.warmup_stats)):
        for name in ("tree_depth", "reached_max_treedepth"):
            np.testing.assert_array_equal(tree[group][name], columns[name])
        assert "int_time" not in tree[group]  # of static trajectories only
    assert tree["sample_stats"]["inv_metric"].dims == ("chain", "parameter", "parameter_bis")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0.0}, "'step_size' must be positive"),
        ({"target_accept": 1.0}, "'target_accept'"),
        ({"max_depth": 0}, "'max_depth' must be an integer from 1 to 20"),
        ({"max_depth": 2.5}, "'max_depth'"),
        ({"max_energy_error": inf}, "'max_energy_error'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        NUTS(**settings)
