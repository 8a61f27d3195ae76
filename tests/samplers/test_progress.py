"""The bars of a run: one of warm-up, one of draws; and the forecast before them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hmcgp.samplers import Metropolis, sample
from hmcgp.samplers.chains import forecast, progress
from tests.helpers.bars import Bar
from tests.helpers.densities import correlated_gaussian

QUICK: dict[str, Any] = {"draws": 6, "tune": 12, "chains": 2, "random_state": 3, "n_jobs": 1}


@pytest.fixture
def bars(monkeypatch):
    opened = []
    monkeypatch.setattr(progress, "tqdm_bar", lambda *args: opened.append(Bar(*args)) or opened[-1])
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    return opened


def test_warm_up_and_draws_are_two_bars(bars):
    sample(correlated_gaussian(), "hmc", **QUICK)
    warm_up, draws = bars
    assert (warm_up.n, warm_up.total, draws.n, draws.total) == (24, 24, 12, 12)
    assert warm_up.closed
    assert draws.closed
    assert set(warm_up.shown) == {progress.WAITING, "warm-up"}
    assert set(draws.shown) == {"draws"}
    assert "div" in draws.values


def test_without_warm_up_there_is_one(bars):
    sample(correlated_gaussian(), Metropolis(1.0), **(QUICK | {"tune": 0}))
    (draws,) = bars
    assert (draws.n, draws.total) == (12, 12)
    assert draws.shown[-1] == "draws"


def test_a_terminal_shows_a_forecast_which_changes_no_draw(bars, monkeypatch, capsys):
    plain = sample(correlated_gaussian(), "hmc", **QUICK)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(forecast, "bars_are_shown", lambda: True)
    told = sample(correlated_gaussian(), "hmc", **QUICK)
    timing, line = capsys.readouterr().err.split("\r")
    assert timing == forecast.TIMING
    assert re.fullmatch(
        r"hmcgp: about [\d.]+ s for 36 draws on 1 worker, if each takes .* \(one was timed\)\. *\n", line
    )
    np.testing.assert_array_equal(told.draws, plain.draws)
    sample(correlated_gaussian(), "hmc", **QUICK, progressbar=False)
    assert capsys.readouterr().err == ""


def test_a_finished_run_has_nothing_to_forecast(monkeypatch, capsys):
    monkeypatch.setattr(forecast, "bars_are_shown", lambda: True)
    forecast.announce(SimpleNamespace(finished=True), None, progressbar=True)
    assert capsys.readouterr().err == ""
