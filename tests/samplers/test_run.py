"""Chains: streams, threads, errors."""

from __future__ import annotations

import pickle
import threading
import time
from math import inf
from typing import Any

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from hmcgp.errors import HmcgpError, InvalidInput
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.parallel import resolve_n_jobs
from hmcgp.runtime.random import as_generator, spawn_generators
from hmcgp.samplers import HMC, Metropolis, TreeInfo, sample
from hmcgp.samplers.trace import Info
from tests.helpers.densities import Gaussian, HalfSpace, correlated_gaussian

QUICK: dict[str, Any] = {"draws": 30, "tune": 40, "random_state": 3, "progressbar": False}
STATS = {
    "lp": float,
    "acceptance_rate": float,
    "step_size": float,
    "n_steps": int,
    "energy": float,
    "energy_error": float,
    "diverging": bool,
    "solver_iterations": int,
    "solver_residual": float,
    "not_positive_definite": int,
    "not_converged": int,
}


def everything(trace):
    return [trace.draws, trace.unconstrained, trace.warmup_unconstrained, trace.inv_metric, *trace.stats.values()]


@pytest.mark.parametrize("sampler", ["nuts", "hmc", "metropolis", HMC(step_size=0.2, n_steps=3), HMC(dense=False)])
def test_same_draws_whatever_the_number_of_threads(sampler):
    one, two, four = (sample(correlated_gaussian(), sampler, n_jobs=n, **QUICK) for n in (1, 2, 4))
    for a, b, c in zip(everything(one), everything(two), everything(four), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert len(np.unique(one.draws[:, -1, 0])) == 4  # and the chains differ


def test_chain_does_not_depend_on_the_number_of_chains():
    few, many = (sample(correlated_gaussian(), "hmc", chains=n, **QUICK) for n in (2, 5))
    np.testing.assert_array_equal(few.draws, many.draws[:2])


def test_seeds():
    def draws(random_state):
        return sample(correlated_gaussian(), "hmc", **(QUICK | {"random_state": random_state})).draws

    sequence = np.random.SeedSequence(3)
    for seed in (3, np.int64(3), sequence, sequence, np.random.default_rng(3)):  # a seed is a value: twice is the same
        np.testing.assert_array_equal(draws(seed), draws(3))
    generator = np.random.default_rng(3)
    assert not np.array_equal(draws(generator), draws(generator))  # a stream moves on
    np.testing.assert_array_equal(draws(np.random.RandomState(3)), draws(np.random.RandomState(3)))
    assert not np.array_equal(draws(None), draws(None))
    legacy = np.random.Generator(np.random.RandomState(3)._bit_generator)  # cannot spawn
    assert np.isfinite(draws(legacy)).all()


def test_global_random_state_is_untouched():
    before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    sample(correlated_gaussian(), "hmc", **(QUICK | {"random_state": None}))
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)  # noqa: NPY002


@pytest.mark.parametrize("seed", [-1, 1.5, "3", True, np.random])
def test_bad_seed_is_refused(seed):
    with pytest.raises(InvalidInput, match="'random_state'"):
        as_generator(seed)


def test_streams_do_not_depend_on_their_number():
    few, many = spawn_generators(8, 2), spawn_generators(8, 6)
    assert [rng.random() for rng in few] == [rng.random() for rng in many[:2]]


TREE_STATS = STATS | {"tree_depth": int, "reached_max_treedepth": bool}


@pytest.mark.parametrize(
    ("sampler", "columns"), [("nuts", TREE_STATS), ("hmc", STATS), ("metropolis", STATS)], ids=lambda x: str(x)[:10]
)
def test_trace(sampler, columns):
    assert (list(STATS), list(TREE_STATS)) == (list(Info._fields), list(TreeInfo._fields))
    trace = sample(correlated_gaussian(), sampler, chains=2, **QUICK)
    assert trace.draws.shape == trace.unconstrained.shape == (2, 30, 3)
    assert trace.warmup_draws.shape == trace.warmup_unconstrained.shape == (2, 40, 3)
    for stats, n in ((trace.stats, 30), (trace.warmup_stats, 40)):
        assert {name: column.dtype for name, column in stats.items()} == {k: np.dtype(v) for k, v in columns.items()}
        assert {column.shape for column in stats.values()} == {(2, n)}
    assert trace.flat.shape == (60, 3)
    np.testing.assert_array_equal(trace.flat[30], trace.draws[1, 0])
    assert (len(trace), trace.n_chains, trace.n_draws) == (60, 2, 30)
    assert (trace.names, trace.sampler, trace.interrupted) == (["x[0]", "x[1]", "x[2]"], sampler, False)
    assert 0 < trace.sampling_time < 60
    assert "2 chains x 30 draws" in repr(trace)
    again = pickle.loads(pickle.dumps(trace))
    for a, b in zip(everything(trace), everything(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_warmup():
    trace = sample(correlated_gaussian(), HMC(step_size=0.2), **(QUICK | {"tune": 0}))
    assert trace.warmup_draws.shape == (4, 0, 3)
    assert trace.warmup_stats["lp"].shape == (4, 0)


def test_start():
    density, still = correlated_gaussian(), Metropolis(1e-12)
    one = sample(density, still, start=np.array([1.0, 2.0, 3.0]), **QUICK)
    np.testing.assert_allclose(one.draws, np.broadcast_to([1.0, 2.0, 3.0], one.draws.shape), atol=1e-9)
    each = np.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(sample(density, still, start=each, **QUICK).draws[:, -1], each, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "'draws' must be an integer >= 1; got 0"),
        ({"draws": 2.5}, "'draws'"),
        ({"tune": -1}, "'tune' must be an integer >= 0"),
        ({"chains": 0}, "'chains'"),
        ({"chains": True}, "'chains'"),
        ({"tune": 0}, "'step_size' is None"),
        ({"tune": 0, "sampler": "metropolis"}, "'scale' is None"),
        ({"sampler": "gibbs"}, r"\['hmc', 'metropolis', 'nuts', 'surrogate'\]"),
        ({"sampler": HMC}, r"'sampler' is the class HMC: pass an instance of it, sampler=HMC\(\)"),
        ({"sampler": 3}, "'sampler' must be"),
        ({"sampler": HMC(metric=np.ones(2))}, "'metric' must have shape"),
        ({"sampler": Metropolis(np.ones(2))}, "'scale' must be"),
        ({"start": np.zeros(2)}, "'start' must have shape"),
        ({"start": np.full(3, np.nan)}, "'start' must be finite"),
        ({"n_jobs": 0}, "'n_jobs'"),
        ({"random_state": -1}, "'random_state'"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, message):
    class Untouchable(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            raise AssertionError("the density was evaluated")

    density = Untouchable(np.zeros(3), np.eye(3))
    with pytest.raises(InvalidInput, match=message):
        sample(density, **(QUICK | {"sampler": "hmc"} | options))


def test_start_is_drawn_again_where_it_cannot_be_computed():
    trace = sample(HalfSpace(edge=3.0), Metropolis(0.5), **QUICK)  # a start of sd 2 is beyond 3 in 7 % of draws
    assert trace.unconstrained[:, :, 0].min() >= 3.0


def test_no_start_can_be_found():
    with pytest.raises(InvalidInput, match=r"^the log density was -inf at all of 100 random"):
        sample(HalfSpace(edge=1e6), "hmc", **(QUICK | {"n_jobs": 1}))
    with pytest.raises(InvalidInput, match="-inf at 'start'"):
        sample(HalfSpace(), "hmc", start=np.array([-1.0, 0.0]), **QUICK)


class Failing(Gaussian):
    """Raises at the k-th evaluation in the chain that starts above zero."""

    def __init__(self, k):
        super().__init__(np.zeros(1), np.eye(1))
        self.k = k
        self.evaluations = 0
        self.others = 0

    def evaluate(self, u, carry=None, gradient=True):
        marked = carry[0] if carry else u[0] > 0
        count = carry[1] + 1 if carry else 0
        self.others += not marked
        if marked and count == self.k:
            raise ZeroDivisionError("oh no")
        time.sleep(1e-4)
        return super().evaluate(u)._replace(carry=(marked, count))


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize(("k", "where"), [(18, "at draw 17 of warm-up"), (26, "at draw 5")])
def test_failing_chain_is_named_and_stops_the_others(n_jobs, k, where):
    density = Failing(k)
    start = np.array([[-1.0], [-1.0], [1.0]])
    # with a step this small every proposal is accepted, so draw i is evaluation i + 1
    with pytest.raises(HmcgpError, match=rf"chain 2 failed {where}: ZeroDivisionError: oh no") as caught:
        sample(density, Metropolis(1e-9), draws=3000 if n_jobs > 1 else 20, tune=20, chains=3, start=start,
               random_state=0, n_jobs=n_jobs, progressbar=False)  # fmt: skip
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    if n_jobs > 1:
        assert density.others < 3000  # of 6040


def test_minus_infinity_everywhere_else_keeps_the_chain_where_it_is():
    class Island(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            evaluation = super().evaluate(u)
            return evaluation if np.all(u == 0.0) else evaluation._replace(logdensity=-inf, grad=np.zeros(2))

    trace = sample(Island(np.zeros(2), np.eye(2)), "hmc", start=np.zeros(2), **QUICK)
    assert np.all(trace.draws == 0.0)
    assert np.all(trace.stats["diverging"])


def test_chains_run_at_the_same_time():
    class Meeting(Gaussian):
        """Every first evaluation waits for the other chain's."""

        barrier = threading.Barrier(2, timeout=20)

        def evaluate(self, u, carry=None, gradient=True):
            if carry is None:
                self.barrier.wait()
            return super().evaluate(u)._replace(carry=True)

    assert sample(Meeting(np.zeros(1), np.eye(1)), Metropolis(1.0), chains=2, n_jobs=2, **QUICK).n_chains == 2


def test_n_jobs_follows_joblib():
    cores = joblib.cpu_count()
    assert resolve_n_jobs(None, 64) == min(cores, 64)
    assert resolve_n_jobs(-1, 64) == min(cores, 64)
    assert resolve_n_jobs(5, 64) == 5
    assert resolve_n_jobs(5, 3) == 3
    assert resolve_n_jobs(-1000, 3) == 1
    with joblib.parallel_config(n_jobs=3):
        assert resolve_n_jobs(None, 64) == 3
        assert resolve_n_jobs(2, 64) == 2
    nested = joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(resolve_n_jobs)(None, 64) for _ in range(2))
    assert nested == [1, 1]  # inside a worker: the cores are taken


def blas_threads():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


def test_blas_is_held_to_one_thread():
    seen, before = [], blas_threads()

    class Looking(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            seen.append(blas_threads())
            return super().evaluate(u)

    sample(Looking(np.zeros(1), np.eye(1)), Metropolis(1.0), draws=2, tune=0, chains=2, progressbar=False)
    assert seen
    assert all(threads == {1} for threads in seen)
    assert blas_threads() == before


def test_blas_limit_of_overlapping_users():
    """The first leaves before the second: the limit stays until then, and is lifted after."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = single_blas_thread(), single_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}
