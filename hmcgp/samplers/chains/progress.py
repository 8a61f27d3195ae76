"""One progress bar for all chains.

Chains call `tick` after each draw, which reads the clock; ten times a second one of them redraws the bar from the
records of all chains.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from hmcgp.runtime.progress import INTERVAL, tqdm_bar
from hmcgp.samplers.chains.record import Record

WAITING = "starting (compiles once)"
RECENT = 50  # draws per chain that the acceptance rate is averaged over


class Progress:
    """A tqdm bar over the draws of all chains, hidden where there is no terminal or notebook, or not `enabled`."""

    def __init__(self, records: list[Record], *, enabled: bool) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._bar: Any = _opened(records) if enabled else None
        self._next = float("inf") if self._bar is None or self._bar.disable else 0.0

    def tick(self) -> None:
        """Redraw if it is time and no other thread does."""
        if time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._redraw()
                self._next = time.monotonic() + INTERVAL
            finally:
                self._lock.release()

    def close(self) -> None:
        """Draw the last state and leave the bar on the screen."""
        if self._bar is not None:
            with self._lock:
                if not self._bar.disable:
                    self._redraw()
                self._bar.close()

    def _redraw(self) -> None:
        self._bar.set_description_str("sampling", refresh=False)
        self._bar.set_postfix(self.summary(), refresh=False)
        self._bar.update(sum(r.count for r in self._records) - self._bar.n)
        self._bar.refresh()

    def summary(self) -> dict[str, str]:
        """Divergences after warm-up, recent acceptance rate and step size, of all chains with draws."""
        begun = [(r.stats, r.count) for r in self._records if r.count]
        if not begun:
            return {}
        diverged = sum(int(r.stats["diverging"][r.tune : r.count].sum()) for r in self._records)
        acceptance = np.mean([stats["acceptance_rate"][max(n - RECENT, 0) : n].mean() for stats, n in begun])
        step_size = np.mean([stats["step_size"][n - 1] for stats, n in begun])
        return {"div": f"{diverged}", "acc": f"{acceptance:.2f}", "step": f"{step_size:.2g}"}


def _opened(records: list[Record]) -> Any:
    return tqdm_bar(sum(r.total for r in records), sum(r.count for r in records), WAITING)
