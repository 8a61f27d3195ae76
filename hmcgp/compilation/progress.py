"""Show that functions are being compiled: "compiling, once: 12 of 31 functions"."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

from hmcgp.compilation.functions import functions_of
from hmcgp.runtime.progress import tqdm_bar

BAR_FORMAT = "compiling, once: {n_fmt} of {total_fmt} functions [{elapsed}]"
_EVENT = "numba:compile"
_showing = threading.Lock()  # one bar at a time, of the outermost block that began first


@contextmanager
def compilation_bar(total: int, *, enabled: bool) -> Iterator[Any]:
    """Open a bar of functions being compiled, in a terminal or notebook; it disappears in the end."""
    bar = tqdm_bar(total, 0, "", bar_format=BAR_FORMAT, leave=False, hidden=not enabled)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def shown_compilation(fits: Collection[str], *, enabled: bool) -> Iterator[None]:
    """Show a bar while functions are compiled in this block, by a fit of these kinds (`fit_names`)."""
    if not enabled or not _showing.acquire(blocking=False):
        yield
        return
    listener = _Listener(fits)
    try:
        with event.install_listener(_EVENT, listener):
            yield
    finally:
        listener.close()
        _showing.release()


class _Listener(event.Listener):  # type: ignore[misc]
    """Opens a bar when the first function is compiled, and counts those that are done.

    Functions that are compiled because another one calls them do not count.
    """

    def __init__(self, fits: Collection[str]) -> None:
        self._fits = fits
        self._depth = 0
        self._bar: Any = None

    def on_start(self, event: Any) -> None:
        if self._depth == 0 and self._bar is None:
            missing = sum(not function.is_compiled() for function in functions_of(self._fits, predictions=False))
            self._bar = tqdm_bar(missing, 0, "", bar_format=BAR_FORMAT, leave=False)
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0 and self._bar is not None:  # None: begun before the block, by another thread
            self._bar.total = max(self._bar.total, self._bar.n + 1)  # a custom kernel is not in the list
            self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
