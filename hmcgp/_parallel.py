"""How many workers, and how many BLAS threads they may start.

Chains and restarts run in threads (the compiled evidence releases the interpreter lock).  While they do, BLAS
runs on one thread.  Two reasons: workers x BLAS threads never exceeds the workers asked for, and the sums inside a
factorisation keep one order, so that draws are the same bit for bit whatever `n_jobs`.
"""

from __future__ import annotations

import numbers
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import joblib
import scipy.linalg  # noqa: F401  its BLAS must be loaded before the controller looks for libraries
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from hmcgp.errors import InvalidInput


def resolve_n_jobs(n_jobs: int | None, n_tasks: int) -> int:
    """Return the number of threads for n_tasks tasks.

    Parameters
    ----------
    n_jobs : int or None
        As in joblib: k > 0 threads, -1 all cores, -2 all but one.  None takes the number set by
        `joblib.parallel_config`, one inside another joblib worker, and otherwise all cores.
    n_tasks : int
        Never more threads than tasks.

    Returns
    -------
    int
    """
    if n_jobs is None:
        backend, n_jobs = get_active_backend()
        if n_jobs is None:
            n_jobs = 1 if getattr(backend, "nesting_level", 0) else -1
    if not isinstance(n_jobs, numbers.Integral) or isinstance(n_jobs, bool) or int(n_jobs) == 0:
        raise InvalidInput(f"'n_jobs' must be None or an integer other than 0; got {n_jobs!r}. Use -1 for all cores.")
    k = int(n_jobs)
    workers = k if k > 0 else max(joblib.cpu_count() + 1 + k, 1)
    return min(workers, n_tasks)


def run_threads(calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...]]], n_threads: int) -> list[Any]:
    """Run delayed calls in n_threads threads of this process, BLAS on one thread each, and return their results.

    Parameters
    ----------
    calls : iterable of (function, arguments)
        The work, in the order of the results.
    n_threads : int
        One runs them in the calling thread, one after another.

    Returns
    -------
    list
    """
    with single_blas_thread():
        parallel = joblib.Parallel(n_jobs=n_threads, require="sharedmem", pre_dispatch="all", batch_size=1)
        return list(parallel(joblib.delayed(function)(*arguments) for function, arguments in calls))


@cache
def _controller() -> Any:
    return ThreadpoolController()  # the scan of loaded libraries takes 6 ms, a limit afterwards 0.03 ms


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread per caller, process-wide, until the last of all users has left.

    The limit of OpenBLAS belongs to the process.  Two overlapping users who each restored "what was before" would
    leave it at one thread for good, so the first to come sets it and the last to go restores it.
    """
    global _blas_users, _blas_limit  # noqa: PLW0603  the limit is the process's, so is the count
    with _blas_lock:
        if _blas_users == 0:
            _blas_limit = _controller().limit(limits=1, user_api="blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                _blas_limit.restore_original_limits()
