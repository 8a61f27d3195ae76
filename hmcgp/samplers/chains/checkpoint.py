"""Draws on disk while chains run, so that a run that was killed goes on where it was.

A run goes on from a file of its own only: same settings, same seed, same data in the same order and under the same
names, and a log density that has, where the chains stand, the value that the file says.  Anything else is refused, and
left as it is.  Other versions of the libraries that compute the draws are a warning: the run goes on, but not bit for
bit.

The process that calls `sample` is the only one that writes, wherever the chains run.  From its first look at the file
to the end it holds a lock on it, so that a second run is refused for as long as the first one lives.
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
from hmcgp.runtime.typing import Array
from hmcgp.samplers.chains.chain import ChainTask, Record, Sampler, Snapshot, find_start
from hmcgp.samplers.chains.checkpoint_file import Header, Saved, dump, encode, load
from hmcgp.samplers.integrators import evaluate

INTERVAL = 10.0  # seconds between two writings
SHARE = 0.02  # of the time may go into writing: a slow disk is written to less often
FOLDER_NAME = "hmcgp-checkpoint.nc"
LONGEST = 200  # characters of a setting to quote in a message
LIBRARIES = ("hmcgp", "numpy", "scipy", "numba")  # on which the last bits of a draw depend


class Checkpoint:
    """The file of a run; as a context, it is held by this run until the end.

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
        self.path = checkpoint_path(path)
        self.records, self.settings = records, settings
        self.error: OSError | InvalidInput | None = None
        self.seconds = 0.0  # that the draws in the file took, by all calls
        self._begin = 0.0  # this call, by the clock, as if it had made them all
        self._written = -1  # draws in the file
        self._streams = [record.snapshot.stream for record in records]
        self._lock = threading.Lock()
        self._next = inf
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def open(self, task: ChainTask, *, seeded: bool) -> None:
        """Take the chains to where the file ends; without a file, make one.

        Parameters
        ----------
        task : ChainTask
            That of the first chain; its log density is compared with what the file says of it.
        seeded : bool
            Whether the user gave a seed, which must be that of the file.
        """
        if not self._archived:
            self._held.enter_context(exclusive(self.path, "checkpoint"))
        if os.path.exists(self.path):
            self._resume(load(self.path), task.density, seeded=seeded)
            if not all(record.finished for record in self.records):
                check_replaceable(self.path, "checkpoint")
        else:
            check_storable(find_start(task.density, restore_generator(self._streams[0]), task.start).carry)
            try:
                self.write()
            except OSError as error:
                raise InvalidInput(f"'checkpoint' cannot be written: {error}.") from error
        now = time.monotonic()
        self._begin, self._next = now - self.seconds, now + INTERVAL

    @property
    def _archived(self) -> bool:
        """Whether nobody can write it, its folder being read-only: a finished run can still be read."""
        folder = os.path.dirname(os.path.realpath(self.path))
        return os.path.exists(self.path) and not os.access(folder, os.W_OK)

    def tick(self) -> None:
        """Write if it is time and nobody else is at it; a full disk does not end the run."""
        if time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                begin = time.monotonic()
                try:
                    self.write()
                except (OSError, InvalidInput) as error:
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
            except (OSError, InvalidInput) as error:
                self.error = error

    def write(self) -> None:
        """Replace the file by what the chains have done so far."""
        snapshots = [record.snapshot for record in self.records]  # first: rows below their counts are whole
        n_draws = sum(snapshot.done for snapshot in snapshots)
        if n_draws != self._written:
            self.seconds = time.monotonic() - self._begin if n_draws else 0.0
            content = dump(Header(self.settings, self._streams, snapshots, self.seconds), self.records)
            with replacing(self.path, "checkpoint") as file:
                file.write(content)
            self._written = n_draws

    def _resume(self, saved: Saved, density: LogDensity, *, seeded: bool) -> None:
        settings, streams, snapshots, self.seconds = saved.header
        n_saved = len(snapshots)
        versions = differences(self.settings["versions"], settings["versions"])
        data = differences(self.settings["data"], settings["data"])
        different = [f"the data are other: {', '.join(data)}"] if data else []
        different += differences(self.settings, settings, leave_out=("data", "versions"))
        if n_saved > len(self.records):
            different.append(f"chains is {len(self.records)} here and {n_saved} there")
        if max(s.done for s in snapshots) > self.records[0].total:
            different.append("it holds more draws than are asked for")
        if not different:  # from here on the shapes fit
            if seeded and streams != self._streams[:n_saved]:
                different.append("random_state is another")
            elif not same_density(density, snapshots):
                causes = "kernel, priors, likelihood, evidence" if self.settings["data"] else "data, kernel, priors"
                different.append(f"the log density is another ({causes}, or their settings)")
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


def checkpoint_path(path: str | os.PathLike[str]) -> Path:
    """Return the file that a user's `checkpoint` means; one that could not be made is refused.

    Parameters
    ----------
    path : str or path-like
        A file, or an existing folder in which to keep one.
    """
    given = user_path(path, "checkpoint")
    file = given / FOLDER_NAME if os.path.isdir(given) else given
    if not os.path.exists(file):
        check_replaceable(file, "checkpoint")
    return file


def differences(here: Mapping[str, Any], there: Mapping[str, Any], leave_out: Container[str] = ()) -> list[str]:
    """Say in what two descriptions differ.

    Parameters
    ----------
    here, there : mapping of str to object
        Of this run, and in the file; all but digests is quoted.
    leave_out : container of str
        Keys to leave out.
    """
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


def describe(density: LogDensity, sampler: Sampler, tune: int, start: list[Array | None]) -> dict[str, Any]:
    """Return what makes a run the one it is, beside its density and its seed.

    Parameters
    ----------
    density : LogDensity
        Gives the names of the parameters and the identity of the data.
    sampler : Sampler
        With its settings, if it is a dataclass.
    tune : int
        Length of warm-up.
    start : list of ndarray or None
        Where the chains start.

    Returns
    -------
    dict
        JSON-compatible.  More draws and more chains continue a run, so they are not in here.  "data" is empty for a
        density that has none.
    """
    settings: dict[str, Any] = {"parameters": list(density.names), "tune": int(tune), "sampler": sampler.name}
    settings["data"] = density.identity() if isinstance(density, IdentifiedDensity) else {}
    settings["versions"] = {library: library_version(library) for library in LIBRARIES}
    if dataclasses.is_dataclass(sampler):
        settings |= {f"sampler.{f.name}": _plain(getattr(sampler, f.name)) for f in dataclasses.fields(sampler)}
    if any(u is not None for u in start):
        settings["start"] = _plain(np.array(start, dtype=float))
    return settings


def same_density(density: LogDensity, snapshots: list[Snapshot]) -> bool:
    """Return whether the density has the log density that the chains found where they stand."""
    for state in (s.state for s in snapshots if s.state is not None):
        value = evaluate(density, state.position, None).logdensity if len(state.position) == density.n_dim else -inf
        if not abs(value - state.logdensity) <= 1e-6 * max(1.0, abs(state.logdensity)):
            return False
    return True


def check_storable(carry: object) -> None:
    """Refuse a density whose warm start cannot be written."""
    try:
        encode(carry, [])
    except TypeError as error:
        raise InvalidInput(
            f"'checkpoint' cannot store what this density carries from one evaluation to the next: {error}. "
            "Let it carry None, numbers, arrays, or tuples of them."
        ) from error


def _plain(value: Any) -> Any:
    """A setting as JSON would give it back."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
