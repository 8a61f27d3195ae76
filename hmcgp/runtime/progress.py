"""Progress bars, in terminals and notebooks only."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from typing import Any

# without tqdm's rate, so that everything fits into 80 columns
BAR_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
DELAY = 2.0  # seconds before the bar of a prediction appears
INTERVAL = 0.1  # seconds between two drawings


def tqdm_bar(
    total: int,
    done: int,
    description: str,
    *,
    bar_format: str = BAR_FORMAT,
    leave: bool = True,
    hidden: bool = False,
) -> Any:
    """Open a bar of tqdm, which is disabled where there is neither a terminal nor a notebook, or if `hidden`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets shows text
        from tqdm.auto import tqdm
    return tqdm(
        total=total,
        initial=done,
        disable=True if hidden else False if _in_notebook() else None,  # None: off unless stderr is a terminal
        desc=description,
        mininterval=0.0,
        bar_format=bar_format,
        leave=leave,
    )


def bars_are_shown() -> bool:
    """Return whether there is a terminal or a notebook to draw bars in."""
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    """Return whether a notebook shows the output: it can draw bars, though its stderr is no terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


class DelayedBar:
    """A bar that appears once the work has taken DELAY seconds; work that is quicker shows nothing.

    Threads advance it together.  Sent to another process, it does nothing there.
    """

    def __init__(self, total: int, description: str, *, enabled: bool) -> None:
        self._total, self._description = total, description
        self._done = 0
        self._bar: Any = None
        self._lock = threading.Lock()
        self._next = time.monotonic() + DELAY if enabled else float("inf")

    def __reduce__(self) -> tuple[Any, ...]:
        return _silent, (self._total, self._description)

    def advance(self) -> None:
        """Count one piece of work as done, and redraw if it is time."""
        with self._lock:
            self._done += 1
            if time.monotonic() >= self._next:
                self._redraw()

    def _redraw(self) -> None:
        if self._bar is None:
            self._bar = tqdm_bar(self._total, 0, self._description)
        self._bar.update(self._done - self._bar.n)
        self._bar.refresh()
        self._next = float("inf") if self._bar.disable else time.monotonic() + INTERVAL

    def __enter__(self) -> DelayedBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.update(self._done - self._bar.n)
            self._bar.close()


def _silent(total: int, description: str) -> DelayedBar:
    return DelayedBar(total, description, enabled=False)
