"""How Ctrl-C is deferred past an evaluation, and whom it does not concern."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InterruptedWarning
from hmcgp.model import Model
from hmcgp.reporting import diagnostics
from hmcgp.runtime.interrupts import (
    check_interrupt,
    defer_interrupts,
    deferred_interrupts,
    immediate_interrupts,
    take_interrupt,
)
from hmcgp.runtime.parallel import run_tasks
from hmcgp.samplers import HMC, Metropolis, sample
from tests.helpers.densities import Gaussian, correlated_gaussian

QUICK: dict[str, Any] = {"draws": 100, "tune": 40, "random_state": 3, "progressbar": False}


@pytest.fixture(autouse=True)
def _handler():
    """Python's own handler of SIGINT, which must be there afterwards too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_waits_for_a_check_or_for_the_end():
    done = []

    @defer_interrupts
    def work():
        ctrl_c()
        done.append("not at once")
        with pytest.raises(KeyboardInterrupt):
            check_interrupt()
        with pytest.raises(KeyboardInterrupt):
            work()  # an evaluation inside
        done.append("still set")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["not at once", "still set"]
    check_interrupt()  # nothing is left behind


def test_the_second_interrupt_raises_at_once():
    done = []

    @defer_interrupts
    def work():
        ctrl_c()
        done.append(take_interrupt())
        ctrl_c()
        done.append("not at once")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [True]


def test_an_interrupt_that_is_taken_is_not_raised():
    with deferred_interrupts(), deferred_interrupts():
        ctrl_c()
        assert take_interrupt()
        assert not take_interrupt()


@pytest.mark.parametrize("earlier", [True, False])
def test_who_waits_for_other_processes_is_interrupted_at_once(earlier):
    done = []

    @defer_interrupts
    def work():
        if earlier:
            ctrl_c()
        with immediate_interrupts():
            ctrl_c()
            done.append("not at once")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == []


def test_a_handler_of_the_program_stays():
    seen = []

    def own(number, frame):
        seen.append(number)

    signal.signal(signal.SIGINT, own)
    with deferred_interrupts():
        assert signal.getsignal(signal.SIGINT) is own
        ctrl_c()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is own
    assert seen == [signal.SIGINT]


def test_a_thread_of_the_program_is_left_alone():
    """Signals are the main thread's: what another thread does for itself goes on."""
    begun, struck, results = threading.Event(), threading.Event(), []

    @defer_interrupts
    def of_its_own():
        begun.set()
        struck.wait()
        check_interrupt()
        results.append(sample(correlated_gaussian(), Metropolis(1.0), **QUICK).interrupted)

    @defer_interrupts
    def in_main():
        thread = threading.Thread(target=of_its_own)
        thread.start()
        begun.wait()
        ctrl_c()
        struck.set()
        thread.join()

    with pytest.raises(KeyboardInterrupt):
        in_main()
    assert results == [False]


def test_threads_end_when_one_fails():
    """At their next evaluation, and before the error arrives."""
    begun, ended = threading.Event(), threading.Event()

    def fail():
        begun.wait()
        raise ValueError("one of them")

    def work():
        begun.set()
        try:
            while True:
                time.sleep(1e-3)
                check_interrupt()
        finally:
            time.sleep(0.02)
            ended.set()

    with pytest.raises(ValueError, match="one of them"):
        run_tasks([(fail, ()), (work, ())], 2)
    assert ended.is_set()


class Compiled(Gaussian):
    """Is struck as compiled code is where KeyboardInterrupt comes from a handler of the program's own."""

    left = 300

    def evaluate(self, u, carry=None, gradient=True):
        self.left -= 1
        if self.left == 0:
            raise SystemError("<solve> returned a result with an exception set") from KeyboardInterrupt()
        return super().evaluate(u, carry)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_in_disguise_is_no_failed_chain(n_jobs):
    with pytest.warns(InterruptedWarning, match=r"sampling was interrupted: .* draws were kept"):
        trace = sample(Compiled(np.zeros(2), np.eye(2)), Metropolis(1.0), n_jobs=n_jobs, **QUICK)
    assert trace.interrupted


def test_another_system_error_is_an_error():
    class Broken(Gaussian):
        def evaluate(self, u, carry=None, gradient=True):
            raise SystemError("a bug") from ValueError()

    with pytest.raises(Exception, match="chain 0 failed before its first draw: SystemError: a bug"):
        sample(Broken(np.zeros(2), np.eye(2)), Metropolis(1.0), n_jobs=1, **QUICK)


# -- estimators --------------------------------------------------------------------------------------------------------

SHORT: dict[str, Any] = {"sampler": HMC(n_steps=2), "draws": 5, "tune": 20, "chains": 1, "random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((12, 2))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_interrupt_after_the_last_draw_keeps_them_all(X, monkeypatch):
    monkeypatch.setattr(diagnostics, "warn", lambda trace, **options: ctrl_c())
    gp = GPClassifier(**SHORT, refine=None, progressbar=False)
    with pytest.warns(InterruptedWarning, match="the fit was interrupted when it was all but done"):
        gp.fit(X, X[:, 0] > 0.0)
    assert (gp.trace_.n_draws, gp.trace_.interrupted) == (5, False)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:the rows appended since the fit leave")
@pytest.mark.parametrize("outputs", ["independent", "coregional"])
def test_an_interrupted_append_takes_no_row(X, monkeypatch, outputs):
    """Up to the last evaluation, and with the layout of several outputs."""
    Y = X if outputs == "coregional" else X[:, 0]
    gp = GPRegressor(**SHORT, progressbar=False, outputs=outputs).fit(X, Y)
    before, original, seen = dict(gp.__dict__), Model.kernel_at, []

    def struck_at(k):
        def kernel_at(self, theta):
            seen.append(theta)
            if len(seen) == k:
                ctrl_c()
            return original(self, theta)

        seen.clear()
        monkeypatch.setattr(Model, "kernel_at", kernel_at)

    for k in range(1, len(gp.trace_.flat) + 1):
        struck_at(k)
        with pytest.raises(KeyboardInterrupt):
            gp.append(X[:2] + 0.1, Y[:2])
        assert len(seen) == k  # the next evaluation did not begin
        assert gp.__dict__ == before
    struck_at(None)
    gp.append(X[:2] + 0.1, Y[:2])
    assert len(gp.model_.X) == len(before["model_"].X) + Y[:2].size
