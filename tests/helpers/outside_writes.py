"""Watch a process for writes outside the folders that tests may write to.

A Python audit hook sees every file that Python code opens for writing, in any thread.  It does not see compiled
libraries (HDF5 opens files itself) or child processes: for these, `.ci/run` looks at the home folder after the tests.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.mkdir": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.remove": 1,
    "os.rmdir": 1,
}
# files that other libraries keep for themselves, below the folder of the user's caches
CACHES = ["arviz", "fontconfig", "matplotlib"]
_watches: list[Watch] = []


class Watch:
    """Paths outside `allowed` that were opened for writing, made, moved or removed."""

    def __init__(self, allowed):
        self.allowed = [os.path.realpath(folder) for folder in allowed]
        self.found = []

    def take(self, event, arguments):
        """Look at one event of the audit hook."""
        if event == "open":
            path, _, flags = arguments
            paths = [path] if isinstance(flags, int) and flags & WRITING else []
        else:
            paths = arguments[: CHANGES[event]]
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                self.look_at(os.path.abspath(os.fsdecode(path)), makes_folder=event == "os.mkdir")

    def look_at(self, path, *, makes_folder=False):
        """Remember a path, unless it may be written; a folder that leads to an allowed one may be made."""
        folder = os.path.realpath(os.path.dirname(path))
        place = os.path.join(folder, os.path.basename(path))
        if "__pycache__" in place or any(place == top or place.startswith(f"{top}{os.sep}") for top in self.allowed):
            return
        if makes_folder and any(top.startswith(f"{place}{os.sep}") for top in self.allowed):
            return
        if os.path.isdir(folder):  # a folder that is missing cannot be written to
            self.found.append(path)

    def taken(self):
        """Return what was found since the last call."""
        found, self.found = self.found, []
        return found


def _hook(event, arguments):
    if event == "open" or event in CHANGES:
        for watch in _watches:
            watch.take(event, arguments)


@contextlib.contextmanager
def watching(allowed):
    """Watch this process for writes outside some folders."""
    if not hasattr(sys, "_hmcgp_audit_hook"):  # a hook stays until the process ends: one is enough
        sys.addaudithook(_hook)
        vars(sys)["_hmcgp_audit_hook"] = True
    watch = Watch(allowed)
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


def allowed_folders():
    """Folders that a test session may write to: the checkout, temporary folders, devices and caches of libraries."""
    checkout, home = Path(__file__).parents[2], Path(os.path.expanduser("~"))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    of_matplotlib = os.environ.get("MPLCONFIGDIR") or home / ".config" / "matplotlib"
    of_numba = [os.environ["NUMBA_CACHE_DIR"]] if "NUMBA_CACHE_DIR" in os.environ else []
    return [
        checkout, sys.prefix, tempfile.gettempdir(), "/dev", "/proc", of_matplotlib, *of_numba,
        *(caches / name for name in CACHES),
    ]  # fmt: skip
