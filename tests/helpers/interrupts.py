"""Strike work with real SIGINTs at random moments, and count the promises that break.

    python -m tests.helpers.interrupts --strikes 50 --seed 0

Every strike aims at one evaluation of a model (a thread sends the signal a moment after it has begun, so that most land
in compiled code) or at a moment.  The same seed aims the same strikes.  Prints one line of JSON.

Promised is, whatever was struck: KeyboardInterrupt, and the estimator as it was; or the draws so far, with a warning,
where there were any.  No other exception, no thread that works on, no handler left behind, and the same call works
afterwards.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import json
import os
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from hmcgp import GPClassifier, GPRegressor, Model, find_modes
from hmcgp.runtime import blas_threads
from hmcgp.samplers import HMC
from hmcgp.samplers.chains.record import Record

SETTINGS: dict[str, Any] = {
    "sampler": HMC(n_steps=3),
    "draws": 30,
    "tune": 20,
    "chains": 2,
    "random_state": 1,
    "progressbar": False,
}


class Striker:
    """Counts evaluations, and sends SIGINT once."""

    def __init__(self):
        self.evaluations = self.kept = 0
        self._at, self._delay = None, 0.0
        self._lock = threading.Lock()
        self._timer = None
        self.struck = self.kept_then = False
        self._watch(Model, "kernel_at", self._evaluated)
        self._watch(Record, "add", self._added)

    @staticmethod
    def _watch(owner, name, seen):
        original = getattr(owner, name)

        def watched(self, *arguments):
            result = original(self, *arguments)
            seen(self)
            return result

        setattr(owner, name, watched)

    def _evaluated(self, _):
        with self._lock:
            self.evaluations += 1
            if self.evaluations == self._at:
                self._start(self._delay)

    def _added(self, record):
        self.kept = max(self.kept, record.kept)

    def _start(self, delay):
        self._timer = threading.Timer(delay, self._strike)
        self._timer.daemon = True
        self._timer.start()

    def _strike(self):
        with self._lock:
            if self._timer is not None:  # the work is not over
                self.struck, self.kept_then = True, self.kept > 0
                os.kill(os.getpid(), signal.SIGINT)

    @contextlib.contextmanager
    def aim(self, *, evaluation=None, seconds=0.0):
        """Strike at an evaluation of what runs inside, after some seconds; without one, by the clock alone."""
        self.evaluations = self.kept = 0
        self._at, self._delay, self.struck = evaluation, seconds, False
        if evaluation is None:
            self._start(seconds)
        try:
            yield
        finally:
            with self._lock:
                timer, self._timer, self._at = self._timer, None, None
            if timer is not None:
                timer.cancel()
                timer.join()


def table(n=70):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    return X, np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0.0, "yes", "no"), X[:, 0] ** 2 + rng.standard_normal(n)


class Work:
    """What is struck, by name: calls to make, and the estimators that they may change only when they succeed."""

    names = ("fit", "map", "modes", "predict", "loo", "checkpoint", "append", "joint", "refit")

    def __init__(self, folder):
        self.X, self.y, self.z = table()
        self.folder = folder
        self.fitted = GPClassifier(**SETTINGS).fit(self.X, self.y)
        self.regressor = GPRegressor(**(SETTINGS | {"draws": 60})).fit(self.X, self.z)

    def prepare(self, name, n_jobs):
        """Return a call, and the estimator that it works on."""
        gp = GPClassifier(**SETTINGS) if name in ("fit", "checkpoint") else copy.copy(self.fitted)
        if name == "joint":
            gp = copy.copy(self.regressor)
        if name == "map":
            gp.sampler = "map"
        if name == "checkpoint":
            gp.checkpoint = self.folder / f"{time.monotonic_ns()}.nc"
        if name in ("predict", "joint"):
            gp.clear_cache()  # what was kept needs no evaluation that could be struck
        gp.n_jobs = n_jobs
        calls = {
            "modes": lambda: find_modes(gp.model_, n_restarts=4, random_state=0, n_jobs=n_jobs).positions,
            "predict": lambda: gp.predict_proba(self.X),
            "loo": lambda: gp.loo().pointwise,
            "append": lambda: gp.append(self.X[:2] + 0.1, self.y[:2]),
            "joint": lambda: gp.sample_y(self.X, 20),
        }
        return calls.get(name, lambda: gp.fit(self.X, self.y)), gp


def value(result):
    """An array by which results are compared: of an estimator, the draws of its chains."""
    return np.asarray(result.sampling_trace_.unconstrained if hasattr(result, "trace_") else result).copy()


def strike(striker, call, gp, aim, whole):
    """Strike a call that returns `whole` undisturbed; return the outcome and the promises broken."""
    before, broken, error = dict(gp.__dict__), [], None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with striker.aim(**aim):
                result = call()
        except KeyboardInterrupt:
            error = "KeyboardInterrupt"
        except Exception as other:
            error = type(other).__name__
            broken.append(f"{error}: {other}")
    told = any("interrupted" in str(w.message) for w in caught)
    if error is None and not told:
        return "not heard", ["nobody heard the signal"]
    if error is None:
        found = value(result)
        if not all(any(np.array_equal(chain, other[: len(chain)]) for other in whole) for chain in found):
            broken.append("the draws that were kept are not those of an undisturbed run")
    elif before.keys() != gp.__dict__.keys() or any(before[key] is not gp.__dict__[key] for key in before):
        broken.append("it failed, and changed the estimator")
    elif striker.kept_then:
        broken.append("draws were lost")
    n_evaluations = striker.evaluations
    time.sleep(0.01)
    if striker.evaluations != n_evaluations:
        broken.append("a thread works on")
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        broken.append("a handler was left behind")
    if blas_threads._limit._users:
        broken.append("BLAS is still held to one thread")
    return error or "kept", broken


def strike_all(n_strikes, seed):
    """Strike n times; return counts of what followed, and what was broken."""
    rng = np.random.default_rng(seed)
    outcomes: collections.Counter[str] = collections.Counter()
    failures = []
    striker = Striker()
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder))
        usual = {}  # evaluations, seconds and result of what is not struck
        for i in range(n_strikes):
            name, n_jobs = work.names[i % len(work.names)], 1 + i % 2
            if name not in usual:
                begin = time.monotonic()
                with striker.aim(evaluation=0):
                    whole = value(work.prepare(name, 1)[0]())
                usual[name] = striker.evaluations, time.monotonic() - begin, whole
            evaluations, seconds, whole = usual[name]
            fraction, by_clock, delay = rng.uniform(0.0, 0.9), rng.uniform() < 0.25, rng.uniform(0.0, 2.0)
            striker.struck = False
            while not striker.struck:
                aim = {"evaluation": 1 + int(fraction * evaluations), "seconds": delay * seconds / evaluations}
                call, gp = work.prepare(name, n_jobs)
                outcome, broken = strike(striker, call, gp, {"seconds": fraction * seconds} if by_clock else aim, whole)
                fraction *= 0.7  # for the next attempt, if the work was over before the signal
            outcomes[f"{name}, {n_jobs} jobs: {outcome}"] += 1
            if name != "append" and not np.array_equal(value(call()), whole):  # append changes what it works on
                broken.append("the same call, again, has another result")
            failures += [f"strike {i} of seed {seed}, {name}, {n_jobs} jobs: {what}" for what in broken]
    return {"struck": sum(outcomes.values()), "broken": failures, "outcomes": dict(sorted(outcomes.items()))}


def strike_compilation(seconds):
    """Strike the first fit of a process, by the clock: with an empty cache it compiles for a while."""
    striker = Striker()
    X, y, _ = table()
    gp = GPClassifier(**SETTINGS)
    outcome, broken = strike(striker, lambda: gp.fit(X, y), gp, {"seconds": seconds}, [])
    again = [value(GPClassifier(**SETTINGS).fit(X, y)) for _ in range(2)]
    if not np.array_equal(*again):
        broken.append("the fits afterwards differ")
    return {"struck": int(striker.struck), "broken": broken, "outcomes": {outcome: 1}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--strikes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compilation", type=float, metavar="SECONDS")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process has inherited
    warnings.simplefilter("ignore")
    if arguments.compilation is None:
        report = strike_all(arguments.strikes, arguments.seed)
    else:
        report = strike_compilation(arguments.compilation)
    print(json.dumps(report, indent=1))
