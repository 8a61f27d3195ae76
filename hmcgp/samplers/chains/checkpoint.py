"""Checkpoints: draws on disk while chains run, from which a run that was killed continues.

A run continues only its own file: same settings, same seed, same data in the same order and under the same names, and
a log density that has the stored value at the last draws.  Any other file is refused and left unchanged.  Other
versions of the libraries that compute the draws cause a warning: the run continues, but not bit for bit.

Only the process that calls `sample` writes, wherever the chains run.  It holds a lock on the file from reading it to
the end, so that a second run is refused while the first one lives.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Container, Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any, Self

import numpy as np

from hmcgp.errors import CheckpointWarning, InvalidInput, warn_user
from hmcgp.numerics.density import IdentifiedDensity, LogDensity
from hmcgp.runtime.files import check_replaceable, library_version, replacing, user_path
from hmcgp.runtime.fingerprint import PREFIX
from hmcgp.runtime.locks import exclusive
from hmcgp.runtime.random import restore_generator
from hmcgp.samplers.chains.chain import Run
from hmcgp.samplers.chains.checkpoint_file import Header, Saved, dump, encode, load
from hmcgp.samplers.chains.record import Snapshot
from hmcgp.samplers.integrators import init
from hmcgp.samplers.start import first_start

INTERVAL = 10.0  # seconds between two writings
SHARE = 0.02  # largest share of the time for writing: a slow disk is written to less often
FOLDER_NAME = "hmcgp-checkpoint.nc"
LONGEST = 200  # characters of a setting quoted in a message
LIBRARIES = ("hmcgp", "numpy", "scipy", "numba")  # the last bits of a draw depend on their versions


class Checkpoint:
    """The file of a run whose chains are yet to begin; as a context, it is locked from `open` to the end."""

    def __init__(self, path: str | os.PathLike[str], run: Run) -> None:
        self.path = checkpoint_path(path)
        self.task, self.records = run.tasks[0], run.records
        self.settings = describe(run)
        self.error: OSError | InvalidInput | None = None  # of the last attempt to write
        self.seconds = 0.0  # of all calls that made the draws in the file
        self._begin = 0.0  # time at which this call would have begun, had it made them all
        self._written = -1  # draws in the file
        self._streams = [record.snapshot.stream for record in run.records]
        self._lock = threading.Lock()
        self._next = inf
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def open(self, *, seeded: bool) -> None:
        """Read the draws of the file into the records, or create one; if the user gave a seed, it must be the same."""
        task = self.task
        if not self._archived:
            self._held.enter_context(exclusive(self.path, "checkpoint"))
        if os.path.exists(self.path):
            self._resume(load(self.path), task.density, seeded=seeded)
            if not all(record.finished for record in self.records):
                check_replaceable(self.path, "checkpoint")
        else:
            check_storable(first_start(task.density, restore_generator(self._streams[0]), task.start).carry)
            try:
                self.write()
            except OSError as error:
                raise InvalidInput(f"'checkpoint' cannot be written: {error}.") from error
        now = time.monotonic()
        self._begin, self._next = now - self.seconds, now + INTERVAL

    @property
    def _archived(self) -> bool:
        """Whether the file lies in a read-only folder, where a finished run can still be read."""
        folder = os.path.dirname(os.path.realpath(self.path))
        return os.path.exists(self.path) and not os.access(folder, os.W_OK)

    def tick(self) -> None:
        """Write if it is time and no other thread does; a full disk does not end the run."""
        if time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                begin = time.monotonic()
                self._try_to_write()
                now = time.monotonic()
                self._next = now + max(INTERVAL, (now - begin) / SHARE)
            finally:
                self._lock.release()

    def close(self) -> None:
        """Write the draws at the end of the run."""
        with self._lock:
            self._try_to_write()

    def _try_to_write(self) -> None:
        self.error = None
        try:
            self.write()
        except (OSError, InvalidInput) as error:
            self.error = error

    def write(self) -> None:
        """Replace the file by one with the draws so far."""
        snapshots = [record.snapshot for record in self.records]  # first, as rows below their counts are complete
        n_draws = sum(snapshot.done for snapshot in snapshots)
        if n_draws != self._written:
            self.seconds = time.monotonic() - self._begin if n_draws else 0.0
            content = dump(Header(self.settings, self._streams, snapshots, self.seconds), self.records)
            with replacing(self.path, "checkpoint") as file:
                file.write(content)
            self._written = n_draws

    def _resume(self, saved: Saved, density: LogDensity, *, seeded: bool) -> None:
        """Fill the records with saved draws; raise InvalidInput if they are of another run."""
        settings, streams, snapshots, self.seconds = saved.header
        versions = differences(self.settings["versions"], settings["versions"])
        different = self._differences(saved.header, density, seeded=seeded)
        if different:
            different += [f"version of {change}" for change in versions]
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
        if versions and not all(record.finished for record in self.records):
            warn_user(
                f"'checkpoint' {str(self.path)!r} was begun with other versions ({'; '.join(versions)}): the run goes "
                "on, but its draws may differ in their last digits from those of a run that was never interrupted.",
                CheckpointWarning,
            )
        self._written = sum(snapshot.done for snapshot in snapshots)

    def _differences(self, header: Header, density: LogDensity, *, seeded: bool) -> list[str]:
        """Return in what the run of a file differs from this one, in words."""
        settings, streams, snapshots, _ = header
        data = differences(self.settings["data"], settings["data"])
        different = [f"the data are other: {', '.join(data)}"] if data else []
        different += differences(self.settings, settings, leave_out=("data", "versions"))
        if len(snapshots) > len(self.records):
            different.append(f"chains is {len(self.records)} here and {len(snapshots)} there")
        if max(s.done for s in snapshots) > self.records[0].total:
            different.append("it holds more draws than are asked for")
        if different:
            return different
        if seeded and streams != self._streams[: len(snapshots)]:
            return ["random_state is another"]
        if not same_density(density, snapshots):
            causes = "kernel, priors, likelihood, evidence" if self.settings["data"] else "data, kernel, priors"
            return [f"the log density is another ({causes}, or their settings)"]
        return []


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """Return the file for a user's `checkpoint`, or in that folder; raise InvalidInput if it could not be created."""
    given = user_path(path, "checkpoint")
    file = given / FOLDER_NAME if os.path.isdir(given) else given
    if not os.path.exists(file):
        check_replaceable(file, "checkpoint")
    return file


def differences(here: Mapping[str, Any], there: Mapping[str, Any], leave_out: Container[str] = ()) -> list[str]:
    """Return the differences between two descriptions, in words; values other than digests are quoted."""
    found = []
    for key in [*here, *(key for key in there if key not in here)]:
        a, b = here.get(key), there.get(key)
        if key in leave_out or a == b:
            continue
        if any(isinstance(value, str) and value.startswith(PREFIX) for value in (a, b)):
            found.append(f"{key} (values or order of rows)")
        else:
            found.append(f"{key} is {_short(a)} here and {_short(b)} there")
    return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def describe(run: Run) -> dict[str, Any]:
    """Return the settings that a run must share with a checkpoint, beside its log density and seed, JSON-compatible.

    Numbers of draws and chains are left out, as a run may be extended.  "data" is empty for a log density without data.
    """
    density, sampler, _ = run.tasks[0]
    starts = [task.start for task in run.tasks]
    settings: dict[str, Any] = {"parameters": list(density.names), "tune": run.records[0].tune, "sampler": sampler.name}
    settings["data"] = density.identity() if isinstance(density, IdentifiedDensity) else {}
    settings["versions"] = {library: library_version(library) for library in LIBRARIES}
    if dataclasses.is_dataclass(sampler):
        settings |= {f"sampler.{f.name}": _plain(getattr(sampler, f.name)) for f in dataclasses.fields(sampler)}
    if any(u is not None for u in starts):
        settings["start"] = _plain(np.array(starts, dtype=float))
    return settings


def same_density(density: LogDensity, snapshots: list[Snapshot]) -> bool:
    """Return whether the log density has its stored value at the last draw of every chain."""
    for state in (s.state for s in snapshots if s.state is not None):
        value = init(density, state.position).logdensity if len(state.position) == density.n_dim else -inf
        if not abs(value - state.logdensity) <= 1e-6 * max(1.0, abs(state.logdensity)):
            return False
    return True


def check_storable(carry: object) -> None:
    """Raise InvalidInput for a `carry` that cannot be written."""
    try:
        encode(carry, [])
    except TypeError as error:
        raise InvalidInput(
            f"'checkpoint' cannot store what this log density carries from one evaluation to the next: {error}. "
            "Let it carry None, numbers, arrays, or tuples of them."
        ) from error


def _plain(value: Any) -> Any:
    """Return a setting as JSON would."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
