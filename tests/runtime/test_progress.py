"""The progress bar of predictions."""

import pickle
import time

import pytest

from hmcgp.runtime import progress
from tests.helpers.bars import Bar


@pytest.fixture
def opened(monkeypatch):
    bars = []
    monkeypatch.setattr(progress, "tqdm_bar", lambda *args: bars.append(Bar(*args)) or bars[-1])
    return bars


def run(monkeypatch, *, enabled=True, seconds=0.3, steps=10):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with progress.DelayedBar(steps, "predicting", enabled=enabled) as bar:
        for _ in range(steps):
            clock[0] += seconds
            bar.advance()


def test_a_bar_appears_after_two_seconds(opened, monkeypatch):
    run(monkeypatch)
    (bar,) = opened
    assert (bar.total, bar.n, bar.description, bar.closed) == (10, 10, "predicting", True)


def test_quick_work_shows_none(opened, monkeypatch):
    run(monkeypatch, seconds=0.19)
    assert opened == []


def test_nor_does_work_that_is_to_be_silent(opened, monkeypatch):
    run(monkeypatch, enabled=False)
    assert opened == []


def test_without_a_terminal_it_is_not_drawn(monkeypatch, capfd):
    run(monkeypatch)
    assert capfd.readouterr() == ("", "")


def test_in_another_process_it_is_silent(opened, monkeypatch):
    bar = pickle.loads(pickle.dumps(progress.DelayedBar(3, "predicting", enabled=True)))
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    bar.advance()
    assert opened == []
