"""While a function is compiled, a terminal says so."""

from __future__ import annotations

import threading

import pytest

from hmcgp.compilation import progress
from hmcgp.numerics.compiled import compiled


class Terminal:
    """Lines that have been on the screen since the test began."""

    def __init__(self, capsys):
        self._capsys = capsys

    def shown(self):
        texts = [text.strip() for text in self._capsys.readouterr().err.split("\r")]
        return list(dict.fromkeys(text for text in texts if text))


@pytest.fixture
def terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "bars_are_shown", lambda: True)
    monkeypatch.setattr(progress, "functions_of", lambda fits, predictions: [])
    return Terminal(capsys)


def new_function():
    """A function that calls another one, both not compiled yet."""

    @compiled
    def inner(x):
        return x + 1.0

    @compiled
    def outer(x):
        return 2.0 * inner(x)

    return outer


def test_functions_are_counted_without_those_that_they_call(terminal):
    with progress.shown_compilation(["logistic"], enabled=True):
        new_function()(1.0)
        new_function()(2.0)
    assert terminal.shown() == ["compiling, once: 1 of 1 functions", "compiling, once: 2 of 2 functions"]


def test_the_total_is_what_the_fit_still_lacks(terminal, monkeypatch):
    class Listed:
        def __init__(self, done):
            self.is_compiled = lambda: done

    monkeypatch.setattr(
        progress, "functions_of", lambda fits, predictions: [Listed(True), Listed(False), Listed(False)]
    )
    with progress.shown_compilation(["logistic"], enabled=True):
        new_function()(1.0)
    assert terminal.shown() == ["compiling, once: 1 of 2 functions"]


def test_the_line_is_erased(terminal, capsys):
    with progress.shown_compilation([], enabled=True):
        new_function()(1.0)
    *_, blank, end = capsys.readouterr().err.split("\r")
    assert blank.isspace()
    assert end == ""


def test_nothing_is_shown_where_nothing_is_compiled_or_not_wanted(terminal, monkeypatch):
    function = new_function()
    with progress.shown_compilation(["logistic"], enabled=False):
        function(1.0)
    with progress.shown_compilation(["logistic"], enabled=True):
        function(1.0)
    monkeypatch.setattr(progress, "bars_are_shown", lambda: False)  # neither terminal nor notebook
    with progress.shown_compilation(["logistic"], enabled=True):
        new_function()(1.0)
    assert terminal.shown() == []


def test_blocks_in_blocks_and_other_threads_share_one_line(terminal):
    with progress.shown_compilation([], enabled=True), progress.shown_compilation([], enabled=True):
        thread = threading.Thread(target=new_function(), args=(1.0,))
        thread.start()
        thread.join()
    assert terminal.shown() == ["compiling, once: 1 of 1 functions"]
    with progress.shown_compilation([], enabled=True):
        new_function()(1.0)
    assert terminal.shown() == ["compiling, once: 1 of 1 functions"]


def test_an_error_ends_the_block(terminal):
    def fail():
        with progress.shown_compilation([], enabled=True):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with progress.shown_compilation([], enabled=True):
        new_function()(1.0)
    assert terminal.shown() == ["compiling, once: 1 of 1 functions"]
