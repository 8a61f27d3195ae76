"""Chains, restarts, predictions and folds in other processes: those of joblib, and of a Dask cluster."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict

from hmcgp import GPClassifier, datasets, find_map
from hmcgp.errors import HmcgpError, InterruptedWarning
from hmcgp.runtime.parallel import shares_memory
from hmcgp.samplers import Metropolis, sample
from hmcgp.samplers.chains import workers
from tests.helpers.densities import Gaussian, correlated_gaussian
from tests.helpers.processes import two_workers

QUICK: dict[str, Any] = {"draws": 30, "tune": 40, "random_state": 3, "progressbar": False}


def crabs():
    X, y = datasets.load_crabs(return_X_y=True)
    return X[::5], y[::5]


@pytest.fixture(scope="module")
def cluster():
    """A cluster that tests share, for those that leave its workers alive."""
    with two_workers() as client:
        yield client


@pytest.fixture
def doomed_cluster():
    """A cluster of one's own, to kill workers of."""
    with two_workers() as client:
        yield client


@pytest.fixture(params=["loky", "dask"])
def elsewhere(request):
    """A context in which joblib runs things in other processes."""
    if request.param == "dask":
        request.getfixturevalue("cluster")
    return lambda **options: joblib.parallel_config(backend=request.param, **options)


@pytest.fixture
def short_rounds(monkeypatch):
    monkeypatch.setattr(workers, "FIRST_ROUND", 0.05)
    monkeypatch.setattr(workers, "ROUND", 0.2)


class Marked(Gaussian):
    """Its natural parameters tell the process that computed the density."""

    def evaluate(self, u, carry=None, gradient=True):
        return super().evaluate(u)._replace(solver_iterations=os.getpid())


class Slow(Gaussian):
    def __init__(self, seconds):
        super().__init__(np.zeros(2), np.eye(2))
        self.seconds = seconds

    def evaluate(self, u, carry=None, gradient=True):
        time.sleep(self.seconds)
        return super().evaluate(u)


def test_threads_unless_told_otherwise():
    assert shares_memory()
    with joblib.parallel_config(n_jobs=2):
        assert shares_memory()
    with joblib.parallel_config(backend="threading"):
        assert shares_memory()
    with joblib.parallel_config(backend="loky"):
        assert not shares_memory()


@pytest.mark.parametrize("sampler", ["hmc", "nuts", "metropolis"])
def test_same_draws_in_other_processes(elsewhere, short_rounds, sampler):
    here = sample(correlated_gaussian(), sampler, **QUICK)
    with elsewhere():
        there = sample(correlated_gaussian(), sampler, **QUICK, n_jobs=2)
    np.testing.assert_array_equal(here.draws, there.draws)
    np.testing.assert_array_equal(here.warmup_draws, there.warmup_draws)
    np.testing.assert_array_equal(here.inv_metric, there.inv_metric)
    for name, column in here.stats.items():
        np.testing.assert_array_equal(column, there.stats[name])


def test_they_are_other_processes(elsewhere):
    with elsewhere(n_jobs=2):
        trace = sample(Marked(np.zeros(1), np.eye(1)), Metropolis(1.0), **QUICK)
    assert os.getpid() not in trace.stats["solver_iterations"]


@pytest.mark.filterwarnings("ignore:.*R-hat", "ignore:the effective sample size")  # a short run
def test_estimator_elsewhere(elsewhere):
    """Chains, restarts and predictions of a Gaussian process, and folds: the same numbers as in threads."""
    X, y = crabs()
    settings: dict[str, Any] = {
        "draws": 100,
        "tune": 100,
        "chains": 2,
        "random_state": 1,
        "progressbar": False,
        "predict_draws": 60,
    }
    here = GPClassifier(**settings).fit(X, y)
    with elsewhere(n_jobs=2):
        there = GPClassifier(**settings).fit(X, y)
        np.testing.assert_array_equal(here.trace_.draws, there.trace_.draws)
        np.testing.assert_array_equal(here.predict_proba(X), there.predict_proba(X))
        optimum = find_map(here.model_, random_state=0, n_restarts=3)
        gp = GPClassifier(sampler="map", random_state=0, progressbar=False)
        folds = cross_val_predict(gp, X, y, cv=3, method="predict_proba")
    np.testing.assert_array_equal(optimum.position, find_map(here.model_, random_state=0, n_restarts=3).position)
    np.testing.assert_array_equal(folds, cross_val_predict(gp, X, y, cv=3, method="predict_proba"))


class Failing(Gaussian):
    def evaluate(self, u, carry=None, gradient=True):
        count = 1 if carry is None else carry + 1
        if count == 20:
            raise ZeroDivisionError("oh no")
        return super().evaluate(u)._replace(carry=count)


def test_an_error_of_a_chain_comes_back(elsewhere):
    with (
        elsewhere(n_jobs=2),
        pytest.raises(HmcgpError, match=r"chain 0 failed at draw 17 of warm-up: ZeroDivisionError: oh no"),
    ):
        sample(Failing(np.zeros(1), np.eye(1)), Metropolis(1e-9), **QUICK)


def test_max_time_elsewhere(elsewhere, short_rounds):
    with elsewhere(n_jobs=2), pytest.warns(InterruptedWarning, match="stopped by max_time = 6 s"):
        trace = sample(Slow(1e-3), Metropolis(1.0), **(QUICK | {"draws": 100_000}), max_time=6)
    assert trace.n_chains == 4


class Deadly(Gaussian):
    """Kills its process, unless that is the parent, at the k-th evaluation of a chain."""

    def __init__(self, k):
        super().__init__(np.zeros(1), np.eye(1))
        self.k, self.parent = k, os.getpid()

    def evaluate(self, u, carry=None, gradient=True):
        time.sleep(1e-3)
        count = 1 if carry is None else carry + 1
        if count == self.k and os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(u)._replace(carry=count)


@pytest.mark.parametrize("backend", ["loky", pytest.param("dask", marks=pytest.mark.slow)])
def test_lost_workers_leave_the_draws_before(request, short_rounds, backend):
    """Every process that takes this chain up dies: what the rounds before have brought is kept."""
    if backend == "dask":
        request.getfixturevalue("doomed_cluster")
    options = QUICK | {"draws": 2000, "chains": 2}
    with joblib.parallel_config(backend=backend, n_jobs=2):
        with pytest.warns(
            InterruptedWarning, match=r"lost its workers \((Terminated|Killed)Worker.*\), .* draws were kept"
        ):
            trace = sample(Deadly(600), Metropolis(1e-9), **options)
        if backend == "loky":
            with pytest.raises(HmcgpError, match=r"lost its workers .* at draw \d+ of 40 of warm-up"):
                sample(Deadly(3), Metropolis(1e-9), **options)
    whole = sample(Deadly(600), Metropolis(1e-9), **options)
    assert 10 < trace.n_draws < 600
    np.testing.assert_array_equal(trace.draws, whole.draws[: trace.n_chains, : trace.n_draws])


def test_a_killed_worker_costs_no_draws(doomed_cluster, short_rounds):
    """The scheduler gives its chains to the other worker, and a new one takes its place."""
    density, options = Slow(1e-3), QUICK | {"draws": 800}
    doomed_cluster.wait_for_workers(2)
    victims = list(doomed_cluster.run(os.getpid).values())
    killer = threading.Timer(1.0, os.kill, (victims[0], signal.SIGKILL))
    with joblib.parallel_config(backend="dask"):
        killer.start()
        trace = sample(density, Metropolis(1.0), **options)
    assert not killer.is_alive()
    assert victims[0] not in doomed_cluster.run(os.getpid).values()
    np.testing.assert_array_equal(
        trace.draws, sample(Gaussian(np.zeros(2), np.eye(2)), Metropolis(1.0), **options).draws
    )


def test_a_target_that_cannot_travel_is_explained():
    class Local(Gaussian):
        def __reduce__(self):
            raise TypeError("cannot pickle 'Local' object")

    with joblib.parallel_config(backend="loky", n_jobs=2), pytest.raises(HmcgpError, match="cannot be sent to other"):
        sample(Local(np.zeros(1), np.eye(1)), "hmc", **QUICK)
