"""Draws on disk while chains run, so that a run that was killed goes on where it was.

A run goes on from a file of its own only: same settings, same seed, and a log density that has, where the chains stand,
the value that the file says.  Anything else is refused, and left as it is.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from hmcgp._files import replacing
from hmcgp._random import restore_generator
from hmcgp._typing import Array
from hmcgp.errors import InvalidInput
from hmcgp.samplers.chain import ChainTask, Record, Sampler, Snapshot, find_start
from hmcgp.samplers.checkpoint_file import Header, Saved, dump, encode, load
from hmcgp.samplers.integrators import evaluate
from hmcgp.target import Target

INTERVAL = 10.0  # seconds between two writings
SHARE = 0.02  # of the time may go into writing: a slow disk is written to less often
FOLDER_NAME = "hmcgp-checkpoint.nc"


class Checkpoint:
    """The file of a run.

    Parameters
    ----------
    path : str or path-like
        A file, or an existing folder in which to keep one.
    records : list of Record
        The chains, as yet unbegun; their streams are where they begin.
    settings : dict
        What a run must have in common with the file to go on from it, JSON-compatible.
    """

    def __init__(self, path: str | os.PathLike[str], records: list[Record], settings: dict[str, Any]) -> None:
        given = Path(path)
        self.path = given / FOLDER_NAME if given.is_dir() else given
        if not self.path.parent.is_dir():
            raise InvalidInput(f"'checkpoint' is in a folder that does not exist: {str(self.path.parent)!r}.")
        self.records, self.settings = records, settings
        self.error: OSError | None = None
        self.seconds = 0.0  # that the draws in the file took, by all calls
        self._begin = 0.0  # this call, by the clock, as if it had made them all
        self._written = -1  # draws in the file
        self._streams = [record.snapshot.stream for record in records]
        self._lock = threading.Lock()
        self._next = inf

    def open(self, task: ChainTask, *, seeded: bool) -> None:
        """Take the chains to where the file ends; without a file, make one.

        Parameters
        ----------
        task : ChainTask
            That of the first chain; its log density is compared with what the file says of it.
        seeded : bool
            Whether the user gave a seed, which must be that of the file.
        """
        if self.path.exists():
            self._resume(load(self.path), task.target, seeded=seeded)
        else:
            check_storable(find_start(task.target, restore_generator(self._streams[0]), task.start).carry)
            try:
                self.write()
            except OSError as error:
                raise InvalidInput(f"'checkpoint' cannot be written: {error}.") from error
        now = time.monotonic()
        self._begin, self._next = now - self.seconds, now + INTERVAL

    def tick(self) -> None:
        """Write if it is time and nobody else is at it; a full disk does not end the run."""
        if time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                begin = time.monotonic()
                try:
                    self.write()
                except OSError as error:
                    self.error = error
                now = time.monotonic()
                self._next = now + max(INTERVAL, (now - begin) / SHARE)
            finally:
                self._lock.release()

    def close(self) -> None:
        """Write what there is at the end."""
        with self._lock:
            try:
                self.write()
                self.error = None
            except OSError as error:
                self.error = error

    def write(self) -> None:
        """Replace the file by what the chains have done so far."""
        snapshots = [record.snapshot for record in self.records]  # first: rows below their counts are whole
        n_draws = sum(snapshot.done for snapshot in snapshots)
        if n_draws != self._written:
            self.seconds = time.monotonic() - self._begin if n_draws else 0.0
            content = dump(Header(self.settings, self._streams, snapshots, self.seconds), self.records)
            with replacing(self.path) as file:
                file.write(content)
            self._written = n_draws

    def _resume(self, saved: Saved, target: Target, *, seeded: bool) -> None:
        settings, streams, snapshots, self.seconds = saved.header
        n_saved = len(snapshots)
        different = [
            f"{key} is {self.settings[key]!r} here and {settings.get(key)!r} there"
            for key in self.settings
            if self.settings[key] != settings.get(key)
        ]
        if n_saved > len(self.records):
            different.append(f"chains is {len(self.records)} here and {n_saved} there")
        if max(s.done for s in snapshots) > self.records[0].total:
            different.append("it holds more draws than are asked for")
        if not different:  # from here on the shapes fit
            if seeded and streams != self._streams[:n_saved]:
                different.append("random_state is another")
            elif not same_density(target, snapshots):
                different.append("the log density is another (data, kernel, priors, or their settings)")
        if different:
            raise InvalidInput(
                f"'checkpoint' {str(self.path)!r} is of another run: {'; '.join(different)}. It was left as it is. "
                "Give another name, delete the file to start anew, or repeat the call that made it."
            )
        for c, snapshot in enumerate(snapshots):
            record, rows = self.records[c], slice(0, snapshot.done)
            stats = np.zeros(snapshot.done, dtype=record.stats.dtype)
            for name in stats.dtype.names or ():
                stats[name] = saved.stats[name][c, rows]
            record.fill(saved.positions[c, rows], stats, snapshot)
            self._streams[c] = streams[c]
        self._written = sum(snapshot.done for snapshot in snapshots)


def describe(target: Target, sampler: Sampler, tune: int, start: list[Array | None]) -> dict[str, Any]:
    """Return what makes a run the one it is, beside its density and its seed.

    Parameters
    ----------
    target : Target
        Gives the names of the parameters.
    sampler : Sampler
        With its settings, if it is a dataclass.
    tune : int
        Length of warm-up.
    start : list of ndarray or None
        Where the chains start.

    Returns
    -------
    dict
        JSON-compatible.  More draws and more chains continue a run, so they are not in here.
    """
    settings = {"parameters": list(target.names), "tune": int(tune), "sampler": sampler.name}
    if dataclasses.is_dataclass(sampler):
        settings |= {f"sampler.{f.name}": _plain(getattr(sampler, f.name)) for f in dataclasses.fields(sampler)}
    if any(u is not None for u in start):
        settings["start"] = _plain(np.array(start, dtype=float))
    return settings


def same_density(target: Target, snapshots: list[Snapshot]) -> bool:
    """Return whether the target has the log density that the chains found where they stand."""
    for state in (s.state for s in snapshots if s.state is not None):
        value = evaluate(target, state.position, None).logdensity if len(state.position) == target.n_dim else -inf
        if not abs(value - state.logdensity) <= 1e-6 * max(1.0, abs(state.logdensity)):
            return False
    return True


def check_storable(carry: object) -> None:
    """Refuse a target whose warm start cannot be written."""
    try:
        encode(carry, [])
    except TypeError as error:
        raise InvalidInput(
            f"'checkpoint' cannot store what this target carries from one evaluation to the next: {error}. "
            "Let it carry None, numbers, arrays, or tuples of them."
        ) from error


def _plain(value: Any) -> Any:
    """A setting as JSON would give it back."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
