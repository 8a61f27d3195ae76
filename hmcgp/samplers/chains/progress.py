"""One progress bar for all chains: first of their warm-up, which stays on the screen, then of their draws.

Chains call `tick` after each draw, which reads the clock; ten times a second one of them redraws the bar from the
records of all chains.  A chain that has finished warm-up before the others draws meanwhile, and these draws count once
the second bar is there.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from hmcgp.runtime.progress import INTERVAL, tqdm_bar
from hmcgp.samplers.chains.record import Record

WAITING = "starting"
RECENT = 50  # draws per chain that the acceptance rate is averaged over


class Progress:
    """A tqdm bar over the draws of all chains, hidden where there is no terminal or notebook, or not `enabled`."""

    def __init__(self, records: list[Record], *, enabled: bool) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._warms_up = any(r.count < r.tune for r in records)
        self._bar: Any = self._opened(WAITING) if enabled else None
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
        self._show("warm-up" if self._warms_up else "draws")
        if self._warms_up and all(r.count >= r.tune for r in self._records):
            self._bar.close()
            self._warms_up = False
            self._bar = self._opened("draws")
            self._show("draws")

    def _show(self, description: str) -> None:
        self._bar.set_description_str(f"{description:7}", refresh=False)
        self._bar.set_postfix(self.summary(), refresh=False)
        self._bar.update(self._counted()[0] - self._bar.n)
        self._bar.refresh()

    def _opened(self, description: str) -> Any:
        done, total = self._counted()
        return tqdm_bar(total, done, description)

    def _counted(self) -> tuple[int, int]:
        """Draws of the present phase so far, of all chains, and in the end."""
        if self._warms_up:
            return sum(min(r.count, r.tune) for r in self._records), sum(r.tune for r in self._records)
        return sum(r.kept for r in self._records), sum(r.total - r.tune for r in self._records)

    def summary(self) -> dict[str, str]:
        """Divergences after warm-up, recent acceptance rate and step size, of all chains with draws."""
        begun = [(r.stats, r.count) for r in self._records if r.count]
        if not begun:
            return {}
        diverged = sum(int(r.stats["diverging"][r.tune : r.count].sum()) for r in self._records)
        acceptance = np.mean([stats["acceptance_rate"][max(n - RECENT, 0) : n].mean() for stats, n in begun])
        step_size = np.mean([stats["step_size"][n - 1] for stats, n in begun])
        return {"div": f"{diverged}", "acc": f"{acceptance:.2f}", "step": f"{step_size:.2g}"}
