"""While functions are compiled, a terminal says so."""

from __future__ import annotations

import threading

import pytest

from hmcgp.compilation import progress
from hmcgp.numerics.compiled import compiled


class Bar:
    """What tqdm's bar was asked to show."""

    def __init__(self, total):
        self.n, self.total, self.closed = 0, total, False

    def update(self):
        self.n += 1

    def close(self):
        self.closed = True


@pytest.fixture
def bars(monkeypatch):
    opened = []

    def open_bar(total, done, description, **options):
        assert options["bar_format"].startswith("compiling, once: {n_fmt} of {total_fmt} functions")
        opened.append(Bar(total))
        return opened[-1]

    monkeypatch.setattr(progress, "tqdm_bar", open_bar)
    monkeypatch.setattr(progress, "functions_of", lambda fits, predictions: [])
    return opened


def new_function():
    """A function that calls another one, both not compiled yet."""

    @compiled
    def inner(x):
        return x + 1.0

    @compiled
    def outer(x):
        return 2.0 * inner(x)

    return outer


def test_functions_are_counted_without_those_that_they_call(bars):
    with progress.shown_compilation(["logistic"], enabled=True):
        new_function()(1.0)
        new_function()(2.0)
    (bar,) = bars
    assert (bar.n, bar.total, bar.closed) == (2, 2, True)


def test_the_total_is_what_the_fit_still_lacks(bars, monkeypatch):
    class Listed:
        def __init__(self, done):
            self.is_compiled = lambda: done

    monkeypatch.setattr(
        progress, "functions_of", lambda fits, predictions: [Listed(True), Listed(False), Listed(False)]
    )
    with progress.shown_compilation(["logistic"], enabled=True):
        new_function()(1.0)
    assert (bars[0].n, bars[0].total) == (1, 2)


def test_nothing_is_shown_where_nothing_is_compiled_or_not_wanted(bars):
    function = new_function()
    with progress.shown_compilation(["logistic"], enabled=False):
        function(1.0)
    with progress.shown_compilation(["logistic"], enabled=True):
        function(1.0)
    assert bars == []


def test_blocks_in_blocks_and_other_threads_share_one_bar(bars):
    with progress.shown_compilation([], enabled=True), progress.shown_compilation([], enabled=True):
        thread = threading.Thread(target=new_function(), args=(1.0,))
        thread.start()
        thread.join()
    assert len(bars) == 1
    with progress.shown_compilation([], enabled=True):
        new_function()(1.0)
    assert len(bars) == 2


def test_an_error_ends_the_block(bars):
    def fail():
        with progress.shown_compilation([], enabled=True):
            new_function()(1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert bars[0].closed
    with progress.shown_compilation([], enabled=True):
        new_function()(1.0)
    assert len(bars) == 2
