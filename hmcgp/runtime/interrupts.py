"""Stopping work between two evaluations: on Ctrl-C, at a deadline, or when other work has failed.

Python raises KeyboardInterrupt wherever the main thread happens to be: inside a compiled function, which turns it into
a SystemError; between two assignments, which leaves half a fit; or while threads work, which leaves them behind.  So
inside `deferred_interrupts` the first Ctrl-C only sets a flag.  `check_interrupt`, called before every evaluation in
every thread, raises when the flag of its thread is set.  A second Ctrl-C raises at once, in case an evaluation takes
too long.

Only the main thread receives signals, and a program may have a handler of its own (a debugger, asyncio).  In another
thread, or with such a handler, none is installed here and KeyboardInterrupt is raised as that handler does it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from math import inf
from types import FrameType
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Here(threading.local):
    flag: StopFlag | None = None  # checked by the work in this thread


_here: Final = _Here()


class StopFlag:
    """A request to stop, shared by threads; it counts as set when the flag of the enclosing work is."""

    def __init__(self) -> None:
        self._parent = _here.flag
        self._set = False
        self.root: StopFlag = self if self._parent is None else self._parent.root
        self.signals = 0  # how often Ctrl-C has come; of a root

    def set(self) -> None:
        """Ask all work under this flag to stop."""
        self._set = True

    def is_set(self) -> bool:
        """Return whether to stop."""
        return self._set or (self._parent is not None and self._parent.is_set())

    def check(self) -> None:
        """Raise KeyboardInterrupt if the flag is set."""
        if self.is_set():
            raise KeyboardInterrupt

    @property
    def insisted(self) -> bool:
        """Whether Ctrl-C has come a second time: wait for nothing."""
        return self.root.signals > 1

    def take(self) -> bool:
        """Return whether the flag is set, and unset it."""
        taken, self._set = self._set, False
        return taken


class Stopped(Exception):
    """Raised between two evaluations when a deadline has passed, or was brought forward by `set`."""


class Deadline(StopFlag):
    """A flag that sets itself some seconds from now, and raises `Stopped`."""

    def __init__(self, seconds: float = inf) -> None:
        super().__init__()
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    def is_set(self) -> bool:
        return super().is_set() or time.monotonic() >= self._end

    def check(self) -> None:
        """Raise KeyboardInterrupt if the enclosing work is to stop, Stopped if only this one is."""
        if self._parent is not None:
            self._parent.check()
        if self.is_set():
            raise Stopped


class _Listener(StopFlag):
    """The flag that SIGINT sets."""

    def __init__(self) -> None:
        super().__init__()
        self.patient = True  # False: raise at once
        self.closed = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals += 1
        if self.closed or (self.patient and self.signals == 1):
            self.set()
        else:
            raise KeyboardInterrupt

    def open(self) -> None:
        """Install the handler, in the main thread and unless the program has its own."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):  # the main thread of a subinterpreter
                signal.signal(signal.SIGINT, self._on_signal)

    def close(self) -> None:
        """Restore Python's handler."""
        if signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def check_interrupt() -> None:
    """Raise if the work of this thread is to stop: KeyboardInterrupt, or Stopped at a `Deadline`."""
    if _here.flag is not None:
        _here.flag.check()


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let Ctrl-C only set a flag; raise KeyboardInterrupt at the end of the block unless it was taken.

    Inside another such block, of this thread or of the one that it works for, the outer one raises; an interrupt that
    came earlier is raised on entry.
    """
    if _here.flag is not None:
        check_interrupt()
        yield
        return
    listener = _Listener()
    try:
        _here.flag = listener
        listener.open()
        yield
    except SystemError as error:
        raise_if_interrupt(error)
        raise
    finally:
        listener.closed = True  # first, so that nothing is raised from here to the end
        _here.flag = None
        listener.close()
    if listener.is_set():
        raise KeyboardInterrupt


def take_interrupt() -> bool:
    """Return whether Ctrl-C has come, and clear the flag: the caller decides what follows."""
    return _here.flag is not None and _here.flag.root.take()


def defer_interrupts(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run inside `deferred_interrupts`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with deferred_interrupts():
            return function(*args, **kwargs)

    return call


@contextmanager
def immediate_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise at once, while the main thread only waits for processes that check no flag."""
    listener = None if _here.flag is None else _here.flag.root
    if not isinstance(listener, _Listener):
        yield
        return
    try:
        listener.patient = False
        check_interrupt()
        yield
    finally:
        listener.patient = True


@contextmanager
def working_for(flag: StopFlag) -> Iterator[None]:
    """Make a flag the one that this thread checks."""
    before = _here.flag
    try:
        _here.flag = flag
        yield
    finally:
        _here.flag = before


def raise_if_interrupt(error: BaseException) -> None:
    """Raise the KeyboardInterrupt that a compiled function has turned into a SystemError; ignore other errors."""
    cause = error.__cause__ or error.__context__
    if isinstance(error, SystemError) and isinstance(cause, KeyboardInterrupt):
        raise KeyboardInterrupt from error
