"""Show that functions are being compiled: "compiling, once: 12 of 31 functions"."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from hmcgp.compilation.functions import functions_of
from hmcgp.runtime.progress import bars_are_shown, tqdm_bar

LINE = "compiling, once: {n_fmt} of {total_fmt} functions"
_EVENT = "numba:compile"
_showing = threading.Lock()  # one line at a time, of the outermost block that began first


@contextmanager
def compilation_bar(total: int, *, enabled: bool) -> Iterator[Any]:
    """Open a bar of functions being compiled, in a terminal or notebook; it disappears in the end."""
    bar = tqdm_bar(total, 0, "", bar_format=LINE + " [{elapsed}]", leave=False, hidden=not enabled)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def shown_compilation(fits: Collection[str], *, enabled: bool) -> Iterator[None]:
    """Show a line while a function is compiled in this block, by a fit of these kinds (`fit_names`)."""
    if not (enabled and bars_are_shown()) or not _showing.acquire(blocking=False):
        yield
        return
    try:
        with event.install_listener(_EVENT, _Listener(fits)):
            yield
    finally:
        _showing.release()


class _Listener(event.Listener):  # type: ignore[misc]
    """Writes a line on stderr when a function is compiled, and erases it afterwards: bars of chains come in between.

    Functions that are compiled because another one calls them do not count.
    """

    def __init__(self, fits: Collection[str]) -> None:
        self._fits = fits
        self._depth = self._begun = self._total = 0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            if self._begun == 0:
                missing = [f for f in functions_of(self._fits, predictions=False) if not f.is_compiled()]
                self._total = len(missing)
            self._begun += 1
            self._total = max(self._total, self._begun)  # a custom kernel is not in the list
            self._write(LINE.format(n_fmt=self._begun, total_fmt=self._total))
        self._depth += 1

    def on_end(self, event: Any) -> None:
        if self._depth == 1:  # 0: begun before the block, by another thread
            self._write("")
        self._depth = max(self._depth - 1, 0)

    @staticmethod
    def _write(text: str) -> None:
        blank = " " * (shutil.get_terminal_size().columns - 1)
        print(f"\r{blank}\r", end=text, file=sys.stderr, flush=True)
