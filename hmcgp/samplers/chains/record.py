"""Draws of one chain as they are made, and the snapshot from which it continues.

Records belong to the caller of the chains, so that draws survive when a chain is stopped or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.integrators import State
from hmcgp.samplers.trace import AnyInfo, stat_dtype


class Snapshot(NamedTuple):
    """State of a chain between two draws: all that is needed to continue it, bit for bit, in any process."""

    done: int  # draws so far, warm-up included
    stream: Mapping[str, Any]  # state of its random bit generator
    state: State | None = None  # None: no draw yet
    tuning: Tuning | None = None


class Record:
    """Draws of one chain so far, with their statistics.

    The snapshot is set last, so that rows below its count are always complete, even while another thread writes.
    """

    def __init__(self, tune: int, draws: int, n_dim: int, info: type[AnyInfo], snapshot: Snapshot) -> None:
        self.tune = tune
        self.total = tune + draws
        self.positions: Array = np.zeros((self.total, n_dim))
        self.stats = np.zeros(self.total, dtype=stat_dtype(info))
        self.snapshot = snapshot
        self.error: Exception | None = None

    @property
    def count(self) -> int:
        """Draws so far, warm-up included."""
        return self.snapshot.done

    @property
    def length(self) -> tuple[int, int]:
        """Draws of warm-up, and draws to keep, when the chain is finished."""
        return self.tune, self.total - self.tune

    @property
    def kept(self) -> int:
        """Draws after warm-up."""
        return max(self.count - self.tune, 0)

    @property
    def finished(self) -> bool:
        """Whether all draws are made."""
        return self.count >= self.total

    @property
    def where(self) -> str:
        """The draw that the chain has reached, in words."""
        if self.snapshot.state is None:
            return "before its first draw"
        if self.count < self.tune:
            return f"at draw {self.count} of warm-up"
        return f"at draw {self.kept}"

    def add(self, info: AnyInfo, state: State, tuning: Tuning, rng: np.random.Generator) -> None:
        """Append one draw."""
        i = self.count
        self.positions[i] = state.position
        self.stats[i] = info
        self.snapshot = Snapshot(i + 1, rng.bit_generator.state, state, tuning)

    def fill(self, positions: Array, stats: NDArray[np.void], snapshot: Snapshot) -> None:
        """Insert draws made elsewhere; the snapshot is taken after the last of them."""
        rows = slice(snapshot.done - len(positions), snapshot.done)
        self.positions[rows] = positions
        self.stats[rows] = stats
        self.snapshot = snapshot
