"""Processes that run cases: one that dies, or does not answer, is a broken promise, and another takes its place."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

from scripts.attack.cases import Report, run_case

Run: TypeAlias = Callable[[str, int, int], Report]

# of processor time for one case; more is "it hangs".  Generous: the first to use a kernel may have to compile it
SECONDS = {"models": 90.0, "fits": 180.0, "files": 90.0, "interrupts": 60.0}
PATIENCE = 10.0  # so many times as long by the clock, on a machine that others use too, or for one that sleeps
POLL = 1.0  # seconds


class Worker:
    """A process with one case at a time, which `run` makes of a section, a seed and an index."""

    def __init__(self, section: str, seed: int, run: Run) -> None:
        self.section = section
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # not daemonic: the cases of interrupts have children of their own
        self.process = context.Process(target=serve, args=(section, seed, run, theirs))
        self.process.start()
        theirs.close()
        self.index, self.deadline, self.used = -1, 0.0, 0.0

    def give(self, index: int) -> None:
        """Start a case."""
        self.index, self.used = index, self.processor_seconds
        self.deadline = time.monotonic() + PATIENCE * SECONDS[self.section]
        self.connection.send(index)

    @property
    def processor_seconds(self) -> float:
        """Processor time that the process has used; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def hangs(self) -> bool:
        """Whether its case takes too long."""
        used = self.processor_seconds - self.used
        return used > SECONDS[self.section] or time.monotonic() > self.deadline

    def take(self) -> Report | None:
        """Return the report of the case, or None if the process died."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            return None

    def lost(self, what: str) -> Report:
        """Return a report for a case that cannot give one."""
        return Report(self.section, self.index, Counter(lost=1), [what])

    def end(self) -> None:
        """End the process; one that is idle has time to tidy up."""
        self.connection.close()
        self.process.join(1.0 if self.hangs else 10.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def serve(section: str, seed: int, run: Run, connection: Connection) -> None:
    """Run cases until the other end hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the program, which then ends us
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    while True:
        try:
            connection.send(run(section, seed, connection.recv()))
        except (EOFError, BrokenPipeError):
            return


def run_cases(section: str, seed: int, indices: Iterable[int], jobs: int, run: Run = run_case) -> Iterator[Report]:
    """Run cases in `jobs` processes; yield their reports as they come."""
    waiting = list(indices)[::-1]
    busy: dict[Any, Worker] = {}
    try:
        for _ in range(min(jobs, len(waiting))):
            _next(Worker(section, seed, run), waiting, busy)
        while busy:
            for connection in wait(list(busy), timeout=POLL):
                worker = busy.pop(connection)
                report = worker.take()
                if report is None:
                    worker.process.join()
                    report = worker.lost(f"the process died, with exit code {worker.process.exitcode}")
                    worker = Worker(section, seed, run)
                _next(worker, waiting, busy)
                yield report
            for connection, worker in list(busy.items()):
                if worker.hangs:
                    del busy[connection]
                    worker.end()
                    yield worker.lost(f"no answer within {SECONDS[section]:g} seconds of work")
                    _next(Worker(section, seed, run), waiting, busy)
    finally:
        for worker in busy.values():
            worker.process.kill()
            worker.process.join()


def _next(worker: Worker, waiting: list[int], busy: dict[Any, Worker]) -> None:
    """Give a worker the next case, or end it."""
    if waiting:
        worker.give(waiting.pop())
        busy[worker.connection] = worker
    else:
        worker.end()
