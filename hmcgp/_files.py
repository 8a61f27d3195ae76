"""Files that are written whole or not at all, and say who wrote them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` and move it into place only if the block succeeds.

    Parameters
    ----------
    path : Path
        The file to replace; a link keeps pointing where it did.

    Yields
    ------
    binary file
        On success it is on the disk, not just in a buffer, before the old file gives way.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def library_version(library: str) -> str:
    """Return the version of an installed library."""
    try:
        return version(library)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
