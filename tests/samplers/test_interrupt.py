"""Ctrl-C keeps the draws, or leaves everything as it was; the progress bar shows them."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hmcgp.samplers import Metropolis, sample, start
from hmcgp.samplers.chains.assembly import largest_block
from tests.helpers.densities import Gaussian, correlated_gaussian
from tests.helpers.processes import child_environment

QUICK: dict[str, Any] = {"draws": 30, "tune": 40, "random_state": 3, "progressbar": False}


@pytest.mark.parametrize(
    ("kept", "chosen", "n"),
    [
        ([7, 7, 7], [0, 1, 2], 7),
        ([7, 5, 6], [0, 1, 2], 5),
        ([0, 900, 0, 850], [1, 3], 850),
        ([1000, 1000, 3, 2], [0, 1], 1000),
        ([0, 0], [], 0),
    ],
)
def test_largest_block(kept, chosen, n):
    assert largest_block(kept) == (chosen, n)


INTERRUPTED = """
import json, signal, sys, threading, time, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process has inherited
import numpy as np
from tests.helpers.densities import Gaussian
from hmcgp.samplers import Metropolis, sample
from hmcgp.samplers.chains import workers

workers.TURN = float("inf")  # or a slow machine would begin the next chain before the signal comes
tune, after, n_jobs, chains = (int(a) for a in sys.argv[1:])

class Slow(Gaussian):
    count, ready = 0, False
    by_thread, lock = {}, threading.Lock()
    def evaluate(self, u, carry=None, gradient=True):
        time.sleep(1e-3)
        with Slow.lock:
            Slow.count += 1
            me = threading.get_ident()
            Slow.by_thread[me] = Slow.by_thread.get(me, 0) + 1
            if not Slow.ready and sum(n >= after for n in Slow.by_thread.values()) == n_jobs:
                Slow.ready = True  # every worker has got so far, whatever the processor did meanwhile
                print("ready", flush=True)
        return super().evaluate(u)

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        trace = sample(Slow(np.zeros(2), np.eye(2)), Metropolis(1.0), draws=100000, tune=tune, chains=chains,
                       random_state=1, n_jobs=n_jobs, progressbar=False)
        report = {"shape": trace.draws.shape, "interrupted": trace.interrupted, "draws": trace.draws[:, :5].tolist(),
                  "finite": bool(np.isfinite(trace.draws).all()), "warmup": trace.warmup_draws.shape,
                  "stats": trace.stats["lp"].shape}
    except KeyboardInterrupt:
        report = {"raised": "KeyboardInterrupt"}
before = Slow.count
time.sleep(0.05)
report |= {"still_running": Slow.count - before, "warnings": [[w.category.__name__, str(w.message)] for w in caught]}
print(json.dumps(report))
"""


def interrupt(*arguments):
    """Run chains in another process, send it SIGINT in the middle, and return what it reports."""
    command = [sys.executable, "-c", INTERRUPTED, *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=child_environment(), encoding="utf-8"
    ) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            child.send_signal(signal.SIGINT)
            output, _ = child.communicate(timeout=30)
        finally:
            child.kill()  # no child outlives its test
    assert child.returncode == 0
    return json.loads(output)


@pytest.mark.parametrize(("n_jobs", "chains", "kept"), [(1, 2, 1), (2, 2, 2), (2, 4, 2)])
def test_ctrl_c_keeps_the_draws(n_jobs, chains, kept):
    starts = chains * (start.DRAWN + start.STRETCHED + 2)  # of all chains, which one thread may have chosen
    report = interrupt(10, 50 + starts, n_jobs, chains)
    assert report["interrupted"]
    assert report["finite"]
    assert report["still_running"] == 0
    n = report["shape"][1]
    assert report["shape"] == [kept, n, 2]
    assert report["warmup"] == [kept, 10, 2]
    assert report["stats"] == [kept, n]
    assert 20 <= n < 100000
    [(category, message)] = report["warnings"]
    assert category == "InterruptedWarning"
    assert f"{n} of 100000 draws were kept in each of {kept} of {chains} chains" in message
    # what was kept is what an undisturbed run draws
    whole = sample(Gaussian(np.zeros(2), np.eye(2)), Metropolis(1.0), draws=5, tune=10, chains=chains,
                   random_state=1, progressbar=False)  # fmt: skip
    np.testing.assert_array_equal(report["draws"], whole.draws[:kept])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_in_warmup_is_raised(n_jobs):
    report = interrupt(100000, 25, n_jobs, 2)
    assert report["raised"] == "KeyboardInterrupt"
    assert report["still_running"] == 0
    assert report["warnings"] == []


def strike(*arguments, **environment):
    """Run tests/helpers/interrupts.py in a process of its own; return its report."""
    command = [sys.executable, "-m", "tests.helpers.interrupts", *map(str, arguments)]
    env = child_environment(**environment)
    return json.loads(
        subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
    )


@pytest.mark.parametrize("n_strikes", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_signals_break_no_promise(n_strikes):
    report = strike("--strikes", n_strikes, "--seed", n_strikes)
    assert report["broken"] == []
    assert report["struck"] == n_strikes


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_a_signal_while_compiling_breaks_no_promise(tmp_path, seconds):
    report = strike("--compilation", seconds, NUMBA_CACHE_DIR=str(tmp_path))
    assert report == {"struck": 1, "broken": [], "outcomes": {"KeyboardInterrupt": 1}}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar_in_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    sample(correlated_gaussian(), "hmc", **(QUICK | {"progressbar": True}))
    shown = sys.stderr.getvalue()
    assert "160/160" in shown  # warm-up of 4 chains: 40 each
    assert "120/120" in shown  # draws: 30 each
    assert "div=0" in shown
    assert "acc=0." in shown
    assert "step=" in shown


def test_progress_bar_in_a_notebook(monkeypatch):
    """A notebook's stderr is no terminal, yet shows bars."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    sample(correlated_gaussian(), "hmc", **(QUICK | {"progressbar": True}))
    assert "120/120" in sys.stderr.getvalue()


def test_progress_bar_is_quiet_elsewhere(monkeypatch, capsys):
    sample(correlated_gaussian(), "hmc", **(QUICK | {"progressbar": True}))
    monkeypatch.setattr(sys, "stderr", Terminal())
    sample(correlated_gaussian(), "hmc", **QUICK)
    assert sys.stderr.getvalue() == ""
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_progress_bar_is_drawn_seldom(monkeypatch):
    """A run of a few hundredths of a second redraws a handful of times, not once for each of its 8160 draws."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    sample(correlated_gaussian(), Metropolis(0.5), **(QUICK | {"draws": 2000, "progressbar": True}))
    assert sys.stderr.getvalue().count("\r") < 400
