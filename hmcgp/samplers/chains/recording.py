"""The context in which chains run."""

from __future__ import annotations

import time
from typing import Self

from hmcgp.runtime.interrupts import Stopped, take_interrupt
from hmcgp.samplers.chains.chain import Run
from hmcgp.samplers.chains.checkpoint import Checkpoint
from hmcgp.samplers.chains.progress import Progress
from hmcgp.samplers.chains.workers import WorkersLost


class Recording:
    """Context in which chains run: shows progress, writes checkpoints, and keeps the event that ended it early."""

    def __init__(self, run: Run, store: Checkpoint | None, *, progressbar: bool) -> None:
        self._run, self._store = run, store
        self._begin = time.perf_counter()
        self._progress = Progress(run.records, enabled=progressbar)
        self.seconds = 0.0  # of this and of all earlier calls that share the checkpoint
        self.failure: BaseException | None = None  # KeyboardInterrupt or WorkersLost

    def __enter__(self) -> Self:
        return self

    def tick(self) -> None:
        """Redraw and write, where it is time."""
        self._progress.tick()
        if self._store is not None:
            self._store.tick()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self._run.stop.set()
        self._progress.close()
        if self._store is not None:
            self._store.close()
        self.seconds = time.perf_counter() - self._begin if self._store is None else self._store.seconds
        if error is not None and not isinstance(error, (KeyboardInterrupt, WorkersLost, Stopped)):
            return False
        if take_interrupt():
            self.failure = KeyboardInterrupt()
        elif not isinstance(error, Stopped):
            self.failure = error
        return True
