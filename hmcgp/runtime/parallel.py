"""Running calls in parallel: in threads of this process, or wherever `joblib.parallel_config` sends them.

Chains, restarts and predictions run in threads (the compiled evidence releases the interpreter lock).  Inside
`joblib.parallel_config(backend="loky")` they run in processes, inside `backend="dask"` on a cluster.  Meanwhile BLAS
runs on one thread per worker (`blas_threads`), so that draws do not depend on `n_jobs`, bit for bit.

When a call fails, or on Ctrl-C, threads end at their next evaluation and are waited for: none goes on in the
background.
"""

from __future__ import annotations

import numbers
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import Any, TypeAlias

import joblib
from joblib.parallel import get_active_backend

from hmcgp.errors import InvalidInput
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.interrupts import StopFlag, deferred_interrupts, immediate_interrupts, working_for

_GROUP = 8  # results that a worker of a cluster joins

Calls: TypeAlias = Iterable[tuple[Callable[..., Any], tuple[Any, ...]]]


def resolve_n_jobs(n_jobs: int | None, n_tasks: int) -> int:
    """Return the number of workers, never more than tasks.

    As in joblib, `n_jobs` is k > 0 workers, -1 all cores, -2 all but one.  None takes the number set by
    `joblib.parallel_config`, one inside another joblib worker, and otherwise all cores.
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


def shares_memory() -> bool:
    """Return whether workers are threads of this process, the default of `joblib.parallel_config`."""
    backend, _ = get_active_backend(prefer="threads")
    return bool(getattr(backend, "supports_sharedmem", False))


def on_cluster() -> bool:
    """Return whether workers belong to a dask cluster, through joblib's backend."""
    return _is_cluster(get_active_backend(prefer="threads")[0])


def run_tasks(calls: Calls, n_jobs: int, stop: StopFlag | None = None) -> list[Any]:
    """Run calls on n_jobs workers (see `resolve_n_jobs`), BLAS on one thread each; return their results in order.

    One worker is the thread of the caller; a cluster takes as many as it has.  Unless the workers are threads,
    functions, arguments and results must be picklable, and changes that a call makes to its arguments stay with the
    worker.  Calls in this process check the flag `stop` (`check_interrupt`), which is set when one of them fails.
    """
    backend, _ = get_active_backend(prefer="threads")
    cluster = _is_cluster(backend)
    elsewhere = not shares_memory() and (n_jobs > 1 or cluster)  # joblib runs one job here
    with deferred_interrupts(), immediate_interrupts() if elsewhere else nullcontext():
        work = _Work(StopFlag() if stop is None else stop)
        if n_jobs == 1 and not cluster:
            with working_for(work.stop), single_blas_thread():
                results: list[Any] = []  # a loop, not a comprehension: one frame less in every traceback
                for function, arguments in calls:
                    results.append(function(*arguments))
                return results
        tasks = [_Call(function, arguments, work) for function, arguments in calls]
        return _run_on_cluster(tasks, backend) if cluster else work.run(tasks, n_jobs)


def _is_cluster(backend: Any) -> bool:
    return type(backend).__name__ == "DaskDistributedBackend"


def _run_on_cluster(tasks: list[_Call], backend: Any) -> list[Any]:
    """Run tasks by the client of joblib's dask backend.

    `joblib.Parallel` would wait for ever when the scheduler gives up a task whose workers died (joblib 1.6: `_collect`
    calls no callback for a future in error); the client raises.
    """
    client = backend.client
    with backend.retrieval_context():  # inside a worker: leave its thread to the tasks that we wait for
        futures = [client.submit(task, pure=False, **backend.submit_kwargs) for task in tasks]
        try:
            return list(client.gather(futures))
        finally:
            client.cancel([future for future in futures if not future.done()])


class Workers:
    """Workers to whom the same pieces of work go again and again: threads, or those of a dask cluster.

    They are those of `joblib.parallel_config` at the time this is made.  What they `make` stays with them; on a
    cluster, a lost worker's pieces are made again by another, since the scheduler knows how.

    Parameters
    ----------
    n_jobs : int, optional
        Number of threads (see `resolve_n_jobs`); a cluster takes as many workers as it has.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        backend, _ = get_active_backend(prefer="threads")
        self._backend: Any = backend if _is_cluster(backend) else None
        self._n_jobs = n_jobs

    def make(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Pieces that a function makes of its arguments, where they stay, to be given to `map`."""
        if self._backend is None:
            return self._in_threads(function, arguments)
        client = self._backend.client
        places = sorted(client.nthreads()) or [None]  # one piece here, the next there
        calls = [_Call(function, own) for own in arguments]
        return [
            client.submit(call, pure=False, workers=places[i % len(places)], allow_other_workers=True)
            for i, call in enumerate(calls)
        ]

    def map(self, function: Callable[..., Any], pieces: Sequence[Any], *common: Any) -> list[Any]:
        """Results of a function of each piece and of arguments that all have in common, in their order."""
        if self._backend is None:
            return self._in_threads(function, [(piece, *common) for piece in pieces])
        with self._backend.retrieval_context():
            return list(self._backend.client.gather(self._submitted(function, pieces, common)))

    def total(self, join: Callable[[Any, Any], Any], function: Callable[..., Any], pieces: Any, *common: Any) -> Any:
        """Results of `map` joined two by two; on a cluster by its workers, so that one message comes back."""
        if self._backend is None:
            return reduce(join, self.map(function, pieces, *common))
        client = self._backend.client
        with self._backend.retrieval_context():
            parts = self._submitted(function, pieces, common)
            while len(parts) > 1:
                groups = [parts[i : i + _GROUP] for i in range(0, len(parts), _GROUP)]
                parts = [client.submit(_joined, join, *group, pure=False) for group in groups]
            return client.gather(parts)[0]

    def _submitted(self, function: Callable[..., Any], pieces: Sequence[Any], common: tuple[Any, ...]) -> list[Any]:
        """Futures of the results; a future as an argument of its own lets a task run where the piece is."""
        client = self._backend.client
        return [client.submit(_call_with, function, piece, common, pure=False) for piece in pieces]

    def _in_threads(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return run_tasks([(function, own) for own in arguments], resolve_n_jobs(self._n_jobs, len(arguments)))


def _joined(join: Callable[[Any, Any], Any], *parts: Any) -> Any:
    return reduce(join, parts)


def _call_with(function: Callable[..., Any], piece: Any, common: tuple[Any, ...]) -> Any:
    with single_blas_thread():
        return function(piece, *common)


class _Call:
    """A call that holds its arguments, so that a scheduler can repeat it when a worker is lost."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], work: _Work | None = None) -> None:
        self.function, self.arguments, self.work = function, arguments, work

    def __repr__(self) -> str:
        return f"hmcgp {self.function.__name__}"

    def __call__(self) -> Any:
        with nullcontext() if self.work is None else self.work.call(), single_blas_thread():
            return self.function(*self.arguments)

    def __reduce__(self) -> tuple[type[_Call], tuple[Any, ...]]:
        return _Call, (self.function, self.arguments)  # in another process nobody waits for it


class _Work:
    """Calls under way in threads of this process."""

    def __init__(self, stop: StopFlag) -> None:
        self.stop = stop
        self._idle = threading.Condition()
        self._running = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call among those under way, and make its thread check the flag."""
        with self._idle:
            self._running += 1
        try:
            with working_for(self.stop), deferred_interrupts():
                yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def run(self, tasks: list[_Call], n_jobs: int) -> list[Any]:
        """Run tasks by joblib; if one fails, the others stop at their next evaluation, unless Ctrl-C comes again."""
        parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads", pre_dispatch="all", batch_size=1, max_nbytes=None)
        try:
            with single_blas_thread():
                return list(parallel(joblib.delayed(task)() for task in tasks))
        except BaseException:
            self.stop.set()
            with self._idle:
                while self._running and not self.stop.insisted:
                    self._idle.wait(0.1)  # seconds; without a limit, Windows would not notice Ctrl-C
            raise
