"""One BLAS thread per caller: in every thread, with the numbers of the user restored."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hmcgp.runtime import blas_threads
from hmcgp.runtime.blas_threads import single_blas_thread

RESULTS = """
import threading, warnings
import numpy as np
from hmcgp import GPRegressor

warnings.simplefilter("ignore")  # short chains
rng = np.random.default_rng(0)
X = rng.standard_normal((80, 3))
y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(80)
X_new = rng.standard_normal((300, 3))


def results(seed):
    gp = GPRegressor(chains=1, draws=20, tune=30, random_state=seed, progressbar=False, n_jobs=1).fit(X, y)
    mean, covariance = gp.predict(X_new, return_cov=True)
    effect = gp.effect(0, values=[-1.0, 0.0, 1.0]).to_frame()
    loo, sampled, replicated = gp.loo().pointwise, gp.sample_y(X_new), gp.posterior_predictive(5)
    log_z = gp.log_marginal_likelihood()
    drawn, prior = gp.trace_.draws, gp.prior_predictive(X, n_draws=5)
    appended = gp.append(X_new[:5], y[:5]).predict(X_new, return_std=True)
    return {
        "fit": drawn, "prediction": mean, "covariance": covariance, "loo": loo, "effect": effect, "samples": sampled,
        "replicates": replicated, "log evidence": log_z, "prior": prior, "after append": appended,
    }


def in_threads(seeds):
    found = {}

    def store(k, seed):
        found[k] = results(seed)

    threads = [threading.Thread(target=store, args=pair, daemon=True) for pair in enumerate(seeds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a fit has not ended after 300 s"
    return [found[k] for k in range(len(seeds))]


def check_equal(serial, threaded):
    different = {name for one, other in zip(serial, threaded, strict=True)
                 for name in one if not np.array_equal(one[name], other[name])}
    assert not different, f"not bit-equal: {sorted(different)}"
"""

FORK = """
import os, threading
from threadpoolctl import threadpool_info, threadpool_limits
from hmcgp.runtime.blas_threads import single_blas_thread

def blas():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

def in_fork(check):
    pid = os.fork()
    if pid == 0:
        try:
            check()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def outside():
    assert blas() == {2}
    with single_blas_thread():
        assert blas() == {1}
    assert blas() == {2}

def inside():
    assert blas() == {1}
    block.__exit__(None, None, None)
    outside()

threadpool_limits(2, user_api="blas")
entered, ended = threading.Event(), threading.Event()

def hold():
    with single_blas_thread():
        entered.set()
        ended.wait()

thread = threading.Thread(target=hold)
thread.start()
entered.wait()
in_fork(outside)  # the thread that holds the limit does not exist in the fork
block = single_blas_thread()
block.__enter__()
in_fork(inside)
block.__exit__(None, None, None)
assert blas() == {1}
ended.set()
thread.join()
assert blas() == {2}
"""


def run_without_thread_variables(code):
    """Run code in a process in which BLAS may take all cores."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr


def numbers():
    return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    """The user has set two threads for each BLAS."""
    with threadpool_limits(2, user_api="blas"):
        assert numbers() == {2}
        yield


def in_thread(function):
    """Return the result of a function in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def numbers_in_block():
    with single_blas_thread():
        return numbers()


def test_a_second_thread_computes_what_the_main_thread_does():
    run_without_thread_variables(RESULTS + "check_equal([results(1)], in_threads([1]))")


def test_four_threads_at_once_compute_what_serial_calls_do():
    seeds = [1, 2, 3, 4]
    run_without_thread_variables(RESULTS + f"check_equal([results(k) for k in {seeds}], in_threads({seeds}))")


def test_limit_in_another_thread(two_threads):
    """Also while the thread that limited BLAS first, this one, is alive."""
    assert numbers_in_block() == {1}
    assert in_thread(numbers_in_block) == {1}
    assert in_thread(numbers) == {2}


def test_restored_after_an_exception(two_threads):
    def fail():
        with pytest.raises(ZeroDivisionError), single_blas_thread():
            raise ZeroDivisionError
        return numbers()

    assert fail() == {2}
    assert in_thread(fail) == {2}


def test_nested_users(two_threads):
    with single_blas_thread():
        with single_blas_thread():
            assert numbers() == {1}
        assert numbers() == {1}
    assert numbers() == {2}


def test_overlapping_users_in_two_threads(two_threads):
    """The first leaves before the second, which restores the numbers."""
    entered, ended = threading.Event(), threading.Event()

    def hold():
        with single_blas_thread():
            entered.set()
            ended.wait()

    thread = threading.Thread(target=hold)
    with single_blas_thread():
        thread.start()
        entered.wait()
    assert numbers() == {1}
    ended.set()
    thread.join()
    assert numbers() == {2}


def test_many_short_users_in_four_threads(two_threads):
    def enter_often():
        for _ in range(300):
            with single_blas_thread():
                seen.extend({library.get() for library in blas_threads._limit._libraries})

    seen: list[int] = []
    threads = [threading.Thread(target=enter_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {1}
    assert numbers() == {2}


def test_a_number_that_other_code_sets_meanwhile(two_threads):
    """The next user limits it again, and the last one restores it."""
    with single_blas_thread():
        threadpool_limits(3, user_api="blas")
        assert numbers_in_block() == {1}
    assert numbers() == {3}
    with single_blas_thread():
        threadpool_limits(2, user_api="blas")
    assert numbers() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forks():
    run_without_thread_variables(FORK)


class FakeBLAS:
    """Functions of a library, with one number of threads for the process."""

    def __init__(self, prefix="", suffix=""):
        self.n_threads = 4
        setattr(self, f"{prefix}openblas_get_num_threads{suffix}", lambda: self.n_threads)
        setattr(self, f"{prefix}openblas_set_num_threads{suffix}", self.set)

    def set(self, n):
        self.n_threads = n


class FakeOpenMP(threading.local):
    """Functions of a library with one number for each thread: OpenBLAS with OpenMP, or MKL (0: as the process)."""

    def __init__(self, start):
        self.n_threads = start

    def omp_get_max_threads(self):
        return self.n_threads

    def omp_set_num_threads(self, n):
        self.n_threads = n

    def MKL_Set_Num_Threads_Local(self, n):
        before, self.n_threads = self.n_threads, n
        return before


def controller(library, api="openblas", layer="pthreads"):
    return SimpleNamespace(
        user_api="blas", internal_api=api, threading_layer=layer, dynlib=library, filepath=f"lib{id(library)}.so"
    )


@pytest.fixture
def loaded(monkeypatch):
    """Controllers of the libraries that a search finds, with a limit that starts without any."""
    controllers: list[SimpleNamespace] = []
    found = SimpleNamespace(ThreadpoolController=lambda: SimpleNamespace(lib_controllers=list(controllers)))
    monkeypatch.setattr(blas_threads, "threadpoolctl", found)
    monkeypatch.setattr(blas_threads, "_limit", blas_threads._Limit())
    return controllers


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("", "64_"), ("scipy_", ""), ("scipy_", "64_")])
def test_names_of_the_functions_of_openblas(loaded, prefix, suffix):
    library = FakeBLAS(prefix, suffix)
    loaded.append(controller(library))
    with single_blas_thread():
        assert library.n_threads == 1
    assert library.n_threads == 4


def test_a_library_that_is_loaded_later(loaded, monkeypatch):
    first, second = FakeBLAS(), FakeBLAS()
    loaded.append(controller(first))
    with ExitStack() as outer:
        outer.enter_context(single_blas_thread())
        loaded.append(controller(second))
        monkeypatch.setitem(sys.modules, "a_module_with_another_blas", SimpleNamespace())
        assert second.n_threads == 4
        with single_blas_thread():
            assert (first.n_threads, second.n_threads) == (1, 1)
        assert (first.n_threads, second.n_threads) == (1, 1)
    assert (first.n_threads, second.n_threads) == (4, 4)


@pytest.mark.parametrize(("api", "layer", "start"), [("openblas", "openmp", 4), ("mkl", "intel", 0)])
def test_libraries_with_a_number_for_each_thread(loaded, api, layer, start):
    library = FakeOpenMP(start)
    loaded.append(controller(library, api, layer))

    def inside_and_after():
        with single_blas_thread():
            with single_blas_thread():
                pass
            inside = library.n_threads
        return inside, library.n_threads

    with single_blas_thread():
        assert library.n_threads == 1
        assert in_thread(lambda: library.n_threads) == start
        assert in_thread(inside_and_after) == (1, start)
        assert library.n_threads == 1
    assert library.n_threads == start
    assert inside_and_after() == (1, start)


@pytest.mark.parametrize("number_is_set", [False, True])
def test_an_interrupt_while_the_limit_is_set(loaded, number_is_set):
    class Interrupted(FakeBLAS):
        interrupts = 1

        def set(self, n):
            if not self.interrupts or number_is_set:
                super().set(n)
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt

    library = Interrupted()
    loaded.append(controller(library))
    with pytest.raises(KeyboardInterrupt), single_blas_thread():
        pass
    assert library.n_threads == 4
    with single_blas_thread():
        assert library.n_threads == 1
    assert library.n_threads == 4
