"""Locks that let one run at a time use a file, and that a dead process does not hold.

The lock (`flock`) is on a file of its own, `.name.lock`, since `runtime.files.replacing` puts new files in the place of
`name`.  The kernel releases it when the process ends, however that happens; after a kill the lock file stays, and the
next run takes it over.  A run removes its lock file while it still holds the lock; who opened it before that, and locks
it after, finds that it is no longer there, and tries again.

Without `flock` (Windows, some network file systems) there is a warning instead.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from hmcgp.errors import CheckpointWarning, InvalidInput, warn_user
from hmcgp.runtime.files import NO_WAITING, beside, check_regular, followed, refuse, user_path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)

_held: set[FileIO] = set()


@contextmanager
def exclusive(path: str | os.PathLike[str], argument: str = "path") -> Iterator[None]:
    """Hold a file, which need not exist, for one run: meanwhile a second one, in any process, is refused."""
    given = user_path(path, argument)
    lock = beside(followed(given), "lock")
    pid = os.getpid()
    try:
        file = _take(lock, given, argument)
    except OSError as error:
        refuse("written", given, argument, error)
    _held.add(file)
    try:
        yield
    finally:
        _held.discard(file)
        if os.getpid() == pid:  # not in a fork of this process
            with suppress(OSError):
                lock.unlink()
        file.close()


def _take(lock: Path, path: Path, argument: str) -> FileIO:
    """Open and lock the lock file of `path`, and write this process into it."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | _NO_LINKS | NO_WAITING
        file = FileIO(os.open(lock, flags, 0o666), "r+")
        try:
            check_regular(os.fstat(file.fileno()), lock, argument)
            _lock_now(file, path, argument)
            if _is_at(file, lock):
                with suppress(OSError):  # a full disk
                    file.truncate(0)
                    file.write(f"{os.getpid()} {socket.gethostname()}".encode())
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # the run that held it has ended and removed it, since it was opened here


def _lock_now(file: FileIO, path: Path, argument: str) -> None:
    try:
        if fcntl is None:
            raise OSError(errno.ENOTSUP, "no flock")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InvalidInput(
            f"'{argument}' {str(path)!r} is in use by {_holder(file)}: two runs would overwrite each other's draws. "
            "Wait until that run has ended, or stop it, and repeat the call; or give another name."
        ) from error
    except OSError:
        warn_user(
            f"'{argument}' {str(path)!r} cannot be locked on this system. See to it that no other run uses it at the "
            "same time: each would overwrite the draws of the other.",
            CheckpointWarning,
        )


def _holder(file: FileIO) -> str:
    """Describe the process that wrote a lock file."""
    pid, _, host = file.read(300).decode(errors="replace").partition(" ")
    if (pid, host) == (str(os.getpid()), socket.gethostname()):
        return f"another run in this process ({pid})"
    return f"process {pid} on {host}" if host else "another process"


def _is_at(file: FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _leave_to_parent() -> None:
    """Close in a fork the locks of its parent, which it would hold beyond the parent's death."""
    while _held:
        _held.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
