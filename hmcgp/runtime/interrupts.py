"""Ctrl-C while work is under way: noted at once, acted upon between two evaluations.

Python raises KeyboardInterrupt wherever the main thread happens to be.  Inside a compiled function that ends in a
`SystemError`, between two assignments in half a fit, and while threads work it leaves them behind.  So inside
`deferred_interrupts` the first Ctrl-C only sets a flag.  `check_interrupt`, called before every evaluation and in
whatever thread, raises KeyboardInterrupt when it is set.  A second Ctrl-C raises at once, in case an evaluation takes
too long.

Signals are the main thread's, and their handlers the program's: in another thread, and where the program has a handler
of its own (a debugger, asyncio), none is installed, and KeyboardInterrupt comes as that handler raises it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Here(threading.local):
    flag: StopFlag | None = None  # that work in this thread looks at


_here: Final = _Here()


class StopFlag:
    """A flag that threads share: set by `set`, or with that of the work which this is a part of."""

    def __init__(self) -> None:
        self._parent = _here.flag
        self._set = False
        self.root: StopFlag = self if self._parent is None else self._parent.root
        self.signals = 0  # how often Ctrl-C has come; of a root

    def set(self) -> None:
        """Ask those who look at this flag to stop."""
        self._set = True

    def is_set(self) -> bool:
        """Return whether to stop."""
        return self._set or (self._parent is not None and self._parent.is_set())

    @property
    def insisted(self) -> bool:
        """Whether Ctrl-C has come a second time: wait for nothing."""
        return self.root.signals > 1

    def take(self) -> bool:
        """Return whether the flag is set, and unset it."""
        taken, self._set = self._set, False
        return taken


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
        """Listen, if this is the main thread and nobody else does."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            with suppress(ValueError):  # the main thread of a subinterpreter
                signal.signal(signal.SIGINT, self._on_signal)

    def close(self) -> None:
        """Listen no longer."""
        if signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if the work that this thread does is to stop."""
    if _here.flag is not None and _here.flag.is_set():
        raise KeyboardInterrupt


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let Ctrl-C set a flag until the end, where KeyboardInterrupt is raised unless somebody has taken it.

    Inside another such block, of this thread or of the one that it works for, that one's end counts; an interrupt that
    has come before is raised on entry.
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
    """Return whether Ctrl-C has come, and leave it to the caller what follows: it will not be raised."""
    return _here.flag is not None and _here.flag.root.take()


def defer_interrupts(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run inside `deferred_interrupts`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if _here.flag is None:
            with deferred_interrupts():
                return function(*args, **kwargs)
        check_interrupt()  # as `deferred_interrupts` does, in less time: evaluations come here
        return function(*args, **kwargs)

    return call


@contextmanager
def immediate_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise at once: while the main thread only waits for other processes, which look at no flag."""
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
    """Look at another's flag, in the thread that works for it."""
    before = _here.flag
    try:
        _here.flag = flag
        yield
    finally:
        _here.flag = before


def raise_if_interrupt(error: BaseException) -> None:
    """Raise the KeyboardInterrupt that has struck inside a compiled function, which calls it a SystemError.

    Parameters
    ----------
    error : BaseException
        Left alone if it is anything else.
    """
    cause = error.__cause__ or error.__context__
    if isinstance(error, SystemError) and isinstance(cause, KeyboardInterrupt):
        raise KeyboardInterrupt from error
