"""A run that must end in time says beforehand how long it will take, and ends."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest

from hmcgp import GPRegressor
from hmcgp.errors import HmcgpError, InterruptedWarning, InvalidInput
from hmcgp.samplers import HMC, Metropolis, sample
from tests.helpers.densities import Gaussian, correlated_gaussian

QUICK: dict[str, Any] = {"draws": 30, "tune": 40, "random_state": 3, "progressbar": False}


class Slow(Gaussian):
    def __init__(self, seconds):
        super().__init__(np.zeros(2), np.eye(2))
        self.seconds = seconds

    def evaluate(self, u, carry=None, gradient=True):
        time.sleep(self.seconds)
        return super().evaluate(u, carry)


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_stops_in_time_with_what_there_is(n_jobs):
    begin = time.monotonic()
    with pytest.warns(InterruptedWarning, match="stopped by max_time = 2 s: .* of 100000 draws were kept") as caught:
        trace = sample(Slow(1e-3), Metropolis(1.0), **(QUICK | {"draws": 100_000}), n_jobs=n_jobs, max_time=2)
    elapsed = time.monotonic() - begin
    assert 1.9 < elapsed < 30.0  # the whole run would take 100 seconds or more
    assert trace.interrupted
    assert len(caught) == 1
    assert caught[0].filename == __file__
    whole = sample(Gaussian(np.zeros(2), np.eye(2)), Metropolis(1.0), **(QUICK | {"draws": trace.n_draws}))
    for kept in trace.draws:  # fewer than four on a machine that stands still for a while
        assert any(np.array_equal(kept, chain) for chain in whole.draws)


def test_chains_take_turns(monkeypatch):
    """All of them have come equally far when the time is over; by a clock that evaluations alone move."""
    density, now = Gaussian(np.zeros(2), np.eye(2)), [0.0]
    evaluate = density.evaluate

    def ticking(*args):
        now[0] += 1e-3
        return evaluate(*args)

    monkeypatch.setattr(density, "evaluate", ticking)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with pytest.warns(InterruptedWarning, match="in each of 4 of 4 chains"):
        trace = sample(density, Metropolis(1.0), **(QUICK | {"draws": 100_000}), n_jobs=1, max_time=2)
    assert trace.n_draws > 300  # of about 460


def test_does_not_wait_for_the_end_of_a_trajectory(tmp_path):
    begin = time.monotonic()
    options = QUICK | {"max_time": 0.3, "checkpoint": tmp_path / "run.nc"}  # without which it would not begin
    with pytest.raises(HmcgpError, match=r"max_time = 0.3 s, at draw 0 of 40 of warm-up: there are no draws to keep"):
        sample(Slow(5e-3), HMC(step_size=1e-3, n_steps=10_000), **options)
    assert time.monotonic() - begin < 25.0  # a trajectory would take 50 seconds


def test_enough_time_changes_nothing():
    plain = sample(correlated_gaussian(), "hmc", **QUICK)
    np.testing.assert_array_equal(sample(correlated_gaussian(), "hmc", **QUICK, max_time=1e4).draws, plain.draws)


def test_forecast(capsys):
    """Seconds are draws x evaluations x the time of one, over the workers; a busy machine only makes them more."""
    options = QUICK | {"draws": 10, "tune": 10, "progressbar": True, "n_jobs": 2}
    sample(Slow(2e-3), Metropolis(1.0), **options, max_time=7200)
    found = re.fullmatch(
        r"hmcgp: about ([\d.]+) s for 80 draws on 2 workers, if each takes 1 evaluations of ([\d.]+) ms "
        r"\(one was timed\); max_time = 2.0 h should do\.\n",
        capsys.readouterr().err,
    )
    assert found
    seconds, milliseconds = float(found[1]), float(found[2])
    assert milliseconds >= 2.0
    assert seconds == pytest.approx(80 * 1e-3 * milliseconds / 2, rel=0.06)  # two digits are printed
    with pytest.warns(InterruptedWarning, match="of 100000 draws were kept"):
        # long enough for a first draw even on a machine that stands still for a while
        sample(Slow(2e-3), Metropolis(1.0), **(options | {"draws": 100_000, "tune": 0}), max_time=4)
    assert re.search(r"max_time = 4 s will end it after about [0-3]% of them", capsys.readouterr().err)
    sample(correlated_gaussian(), "hmc", **QUICK, max_time=100)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("value", [0, -1, "1", np.nan])
def test_bad_limit(value):
    with pytest.raises(InvalidInput, match="'max_time' must be a positive number of seconds, or None"):
        sample(correlated_gaussian(), "hmc", **QUICK, max_time=value)


@pytest.mark.parametrize("progressbar", [False, True])
def test_too_short_for_warm_up_is_said_at_once(progressbar, monkeypatch):
    density, options = Slow(1e-3), QUICK | {"tune": 4000, "n_jobs": 2, "progressbar": progressbar, "max_time": 2}
    evaluate, calls = density.evaluate, []
    monkeypatch.setattr(density, "evaluate", lambda *args: calls.append(1) or evaluate(*args))
    message = (
        r"max_time = 2 s is too short: warm-up alone should take about [\d.]+ s, for 16000 draws on 2 workers "
        r"of about 1 .* there would be no draws to keep\. Allow about .*'checkpoint'.*sampler='map' \(find_map\)"
    )
    with pytest.raises(InvalidInput, match=message):
        sample(density, Metropolis(1.0), **options)
    assert len(calls) < 10


def test_an_estimator_names_its_way_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    with pytest.raises(InvalidInput, match="sampler='map'"):
        GPRegressor(tune=10_000, max_time=1e-3).fit(X, X[:, 0] + rng.normal(size=30))


def test_what_warm_up_has_behind_it_does_not_count(tmp_path):
    """A run that was stopped in warm-up, resumed: the checkpoint is there to go on from, however short the time."""
    options = QUICK | {"tune": 4000, "max_time": 0.2, "checkpoint": tmp_path / "run.nc"}
    for _ in range(2):
        with pytest.raises(HmcgpError, match=r"of 4000 of warm-up: there are no draws to keep\. The same call goes on"):
            sample(Slow(1e-3), Metropolis(1.0), **options)
