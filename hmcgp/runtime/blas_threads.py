"""Limit BLAS to one thread while a fit or a prediction runs, whichever thread of the program makes it.

Two reasons: workers x BLAS threads never exceeds the number of workers, and sums inside a factorisation keep their
order, so that results do not depend on `n_jobs` or on the number of cores, bit for bit.

Where a library stores its number of threads decides how it is limited:

- OpenBLAS (with pthreads, as in the wheels of NumPy and SciPy), BLIS and FlexiBLAS: once per process.  The first of
  overlapping users sets it and the last one restores it.
- MKL, and OpenBLAS built with OpenMP: once per thread.  Every thread sets its own number, and restores it.

threadpoolctl finds the libraries, but does not set their numbers here: since version 3.8 a limit of OpenBLAS is ignored
silently in all threads except the first one that set a limit.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import scipy.linalg  # noqa: F401  loads the BLAS of SciPy, which may differ from the one of NumPy
import threadpoolctl

_SYMBOL_PREFIXES = ("", "scipy_")  # of the functions of OpenBLAS: the wheels of NumPy and SciPy rename them
_SYMBOL_SUFFIXES = ("", "64_", "_64")


@dataclass(frozen=True)
class _Library:
    """A loaded BLAS library: its number of threads, and whether each thread has a separate number."""

    filepath: str
    get: Callable[[], int] = field(compare=False)
    set: Callable[[int], Any] = field(compare=False)
    per_thread: bool = False


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread per caller until the last of overlapping blocks, in all threads, has ended.

    Afterwards every library has the number of threads that it had before, or that other code set in the meantime.
    """
    user = object()
    try:
        _limit.enter(user)
        yield
    finally:
        _limit.leave(user)


class _ThreadState(threading.local):
    """Users of the limit in this thread, and numbers to restore after the last of them."""

    def __init__(self) -> None:
        self.users: set[object] = set()
        self.previous: dict[_Library, int] = {}


class _Limit:
    """The limit of this process: its users, and the numbers of threads to restore after the last of them.

    An exception at any point of `enter` (a second Ctrl-C) leaves a state from which `leave` restores all numbers.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users: set[object] = set()
        self._previous: dict[_Library, int] = {}
        self._here = _ThreadState()
        self._libraries: tuple[_Library, ...] = ()
        self._n_modules = 0

    def enter(self, user: object) -> None:
        """Add a user, and set all numbers that are not 1: also of new libraries, and those set by other code."""
        with self._lock:
            self._users.add(user)
            self._here.users.add(user)
            for library in self._loaded_libraries():
                _set_to_one(library, self._here.previous if library.per_thread else self._previous)

    def leave(self, user: object) -> None:
        """Remove a user, and restore the numbers of threads that no user is left for."""
        with self._lock:
            self._users.discard(user)
            self._here.users.discard(user)
            if not self._users:
                _restore(self._previous)
            if not self._here.users:
                _restore(self._here.previous)

    def before_fork(self) -> None:
        """Let no other thread be inside `enter` or `leave` during a fork."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the users in other threads, which do not exist in a fork."""
        self._users = set(self._here.users)
        self._lock.release()
        if not self._users:
            _restore(self._previous)

    def _loaded_libraries(self) -> tuple[_Library, ...]:
        """Return the loaded BLAS libraries; search again (milliseconds) if modules were imported since."""
        n_modules = len(sys.modules)
        if n_modules != self._n_modules:
            controllers = threadpoolctl.ThreadpoolController().lib_controllers
            self._libraries = tuple(_as_library(each) for each in controllers if each.user_api == "blas")
            self._n_modules = n_modules
        return self._libraries


def _set_to_one(library: _Library, previous: dict[_Library, int]) -> None:
    n_threads = library.get()
    if n_threads != 1:
        previous[library] = n_threads
        library.set(1)


def _restore(previous: dict[_Library, int]) -> None:
    for library, n_threads in previous.items():
        if library.get() == 1:  # otherwise other code has set a number since
            library.set(n_threads)
    previous.clear()


def _as_library(controller: Any) -> _Library:
    """Return the functions by which a library itself reads and sets its number of threads."""
    path, functions = controller.filepath, controller.dynlib
    if controller.internal_api == "mkl" and hasattr(functions, "MKL_Set_Num_Threads_Local"):
        set_local = functions.MKL_Set_Num_Threads_Local  # returns the previous number, 0 for the one of the process
        return _Library(path, lambda: _swap_back(set_local), set_local, per_thread=True)
    if controller.internal_api == "openblas":
        if controller.threading_layer == "openmp" and hasattr(functions, "omp_set_num_threads"):
            return _Library(path, functions.omp_get_max_threads, functions.omp_set_num_threads, per_thread=True)
        for prefix, suffix in product(_SYMBOL_PREFIXES, _SYMBOL_SUFFIXES):
            get = getattr(functions, f"{prefix}openblas_get_num_threads{suffix}", None)
            if get is not None:
                return _Library(path, get, getattr(functions, f"{prefix}openblas_set_num_threads{suffix}"))
    return _Library(path, controller.get_num_threads, controller.set_num_threads)


def _swap_back(set_local: Callable[[int], int]) -> int:
    n_threads = set_local(1)
    set_local(n_threads)
    return n_threads


class _SciPyOpenBLAS(threadpoolctl.LibController):
    """The OpenBLAS in the wheels of NumPy 2 and SciPy 1.13, for versions of threadpoolctl that do not know its name."""

    user_api = "blas"
    internal_api = "openblas"
    filename_prefixes = ("libscipy_openblas",)
    threading_layer = "pthreads"

    def get_num_threads(self) -> int:
        return _as_library(self).get()

    def set_num_threads(self, num_threads: int) -> None:
        _as_library(self).set(num_threads)

    def get_version(self) -> None:
        return None


if tuple(int(part) for part in threadpoolctl.__version__.split(".")[:2]) < (3, 5):
    threadpoolctl.register(_SciPyOpenBLAS)

_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_limit.before_fork,
        after_in_parent=_limit.after_fork_in_parent,
        after_in_child=_limit.after_fork_in_child,
    )
