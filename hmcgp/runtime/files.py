"""Reading and writing of files that users name: regular files only, written whole or not at all.

A write goes to a temporary file in the same folder, which takes the place of the old file once it is complete and on
the disk.  Its writer holds a lock on it (`flock`), which the kernel releases when the process dies: a temporary file
that nobody holds is left over from a killed write, and the next writer of the same file removes it.

Without `flock` (Windows, some network file systems) left-over temporary files stay.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, NoReturn

from hmcgp.errors import InvalidInput

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would wait for its other end
_BINARY = getattr(os, "O_BINARY", 0)  # of Windows
_LONGEST_NAME = 200  # bytes of a name that still leave room for what is added to it
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REASONS = {
    errno.ENOENT: "it does not exist",
    errno.EEXIST: "there is a file of that name",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.ELOOP: "its symbolic links lead in a circle",
    errno.EACCES: "permission is denied to the file or to its folder",
    errno.EPERM: "permission is denied to the file or to its folder",
    errno.EROFS: "the file system is read-only",
}


def user_path(path: str | os.PathLike[str], argument: str = "path") -> Path:
    """Return the path that the user gave as `argument`, if a file can have such a name at all.

    Refused are names that are no text, empty, hold a NUL character, cannot be encoded, or end in a slash and are no
    folder.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise InvalidInput(f"'{argument}' must be a path, as text or as pathlib.Path; got {path!r}.")
    if not text:
        raise InvalidInput(f"'{argument}' is an empty path, '': give the name of a file.")
    try:
        possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise InvalidInput(f"'{argument}' {text!r} cannot be the name of a file: take the odd characters out.")
    if text.endswith(tuple(filter(None, (os.sep, os.altsep)))) and not os.path.isdir(text):
        raise InvalidInput(f"'{argument}' {text!r} ends like a folder, and there is no such folder: name a file.")
    return Path(text)


def open_regular(path: str | os.PathLike[str], argument: str = "path") -> BinaryIO:
    """Open a regular file for reading, through symbolic links; anything else is refused without opening it."""
    given = user_path(path, argument)
    try:
        check_regular(os.stat(given), given, argument)  # opening a device can already do something
        file = os.fdopen(os.open(given, os.O_RDONLY | _BINARY | NO_WAITING), "rb")
    except OSError as error:
        refuse("read", given, argument, error)
    try:
        check_regular(os.fstat(file.fileno()), given, argument)  # it may have changed since
    except InvalidInput:
        file.close()
        raise
    return file


def check_replaceable(path: str | os.PathLike[str], argument: str = "path") -> os.stat_result | None:
    """Return the status of the file that `replacing` would replace; None if there is none.

    Refused, as far as can be told without writing, are a folder that is missing or cannot be written to, and a file
    that is write-protected or not regular.
    """
    given, old = user_path(path, argument), None
    try:
        with suppress(FileNotFoundError):
            old = os.stat(given)
        target = followed(given)
        if old is not None:
            check_regular(old, given, argument)
            os.close(os.open(target, os.O_WRONLY | NO_WAITING))  # changes nothing
        elif not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "the folder cannot be written to")
    except OSError as error:
        refuse("written", given, argument, error)
    return old


@contextmanager
def replacing(path: str | os.PathLike[str], argument: str = "path") -> Iterator[BinaryIO]:
    """Open a file beside `path` and, if the block succeeds, put it on the disk and then in the place of the old one.

    A symbolic link keeps pointing where it did, and the file that it points to is replaced, or made if there is none.
    The new file has the mode of the old one, and its owner and group where that is permitted; without an old one it
    follows the umask.  Other hard links keep the old content.

    Where nothing can be written, InvalidInput is raised before the block begins.  A disk that fills up raises OSError.
    """
    given = user_path(path, argument)
    old, target = check_replaceable(given, argument), followed(given)
    _remove_left_over(target)
    try:
        file, temporary = _create_temporary(target, private=old is not None)
    except OSError as error:
        refuse("written", given, argument, error)
    try:
        with file:
            if old is not None:
                _copy_status(target, old, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows does not move open files; elsewhere the lock is kept until it has moved
            try:
                os.replace(temporary, target)
            except OSError as error:
                refuse("written", given, argument, error)
    finally:
        temporary.unlink(missing_ok=True)


def library_version(library: str) -> str:
    """Return the version of an installed library."""
    try:
        return version(library)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


# -- regular files -----------------------------------------------------------------------------------------------------


def check_regular(status: os.stat_result, path: Path, argument: str) -> None:
    """Refuse a folder, FIFO, socket or device."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise InvalidInput(f"'{argument}' {str(path)!r} is {kind}, not a regular file. It was left alone: name a file.")


def refuse(done: str, path: Path, argument: str, error: OSError) -> NoReturn:
    """Raise InvalidInput for an error of the operating system, in the user's terms."""
    missing = next((p for p in reversed(followed(path).parents) if not p.is_dir()), None)
    if error.errno == errno.ENOTDIR or (missing is not None and missing.exists()):
        reason = f"{str(missing or path.parent)!r} is a file, not a folder"
    elif error.errno == errno.ENOENT and missing is not None:
        reason = f"the folder {str(missing)!r} does not exist"
    else:
        reason = _REASONS.get(error.errno or 0, str(error))
    raise InvalidInput(
        f"'{argument}' {str(path)!r} cannot be {done}: {reason}. Correct it, or give another."
    ) from error


def followed(path: Path) -> Path:
    """Return the path with all symbolic links followed."""
    return Path(os.path.realpath(path))


def beside(target: Path, ending: str) -> Path:
    """Return the path of a hidden file that belongs to `target` alone."""
    name = os.fsencode(target.name)
    stem = target.name if len(name) <= _LONGEST_NAME else hashlib.sha256(name).hexdigest()
    return target.with_name(f".{stem}.{ending}")


# -- temporary files ---------------------------------------------------------------------------------------------------


def _create_temporary(target: Path, *, private: bool) -> tuple[BinaryIO, Path]:
    """Create a temporary file, and hold it for as long as it is open."""
    mode = 0o600 if private else 0o666  # less the umask
    while True:
        temporary = beside(target, f"{secrets.token_hex(4)}.tmp")
        file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode), "wb")
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink > 0:
            return file, temporary
        file.close()  # taken for left over, between the creation and the lock


def _remove_left_over(target: Path) -> None:
    """Remove temporary files of this target whose writers are dead."""
    if fcntl is None:
        return
    name = re.compile(re.escape(beside(target, "").name) + r"[0-9a-f]{8}\.tmp")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(OSError), open(entry.path, "r+b") as file:  # BlockingIOError: its writer is alive
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def _copy_status(target: Path, old: os.stat_result, temporary: Path) -> None:
    """Give a file the owner, group, mode and extended attributes of another, as far as permitted."""
    if hasattr(os, "chown"):
        try:
            os.chown(temporary, old.st_uid, old.st_gid)
        except OSError:
            mode = stat.S_IMODE(old.st_mode) & 0o777  # set-user-id was for the other owner
            try:
                os.chown(temporary, -1, old.st_gid)
            except OSError:
                mode = (mode & 0o707) | (mode & 0o007) << 3  # another group: it may do what all others may
            os.chmod(temporary, mode)
            return
    shutil.copystat(target, temporary)
