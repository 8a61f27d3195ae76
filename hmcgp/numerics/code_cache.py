"""Cache of compiled functions: machine code that the wheel contains, then numba's cache on disk.

numba stamps a cached function with a hash of the file that defines it and does not notice a change in a function that
it calls.  Here the stamp is a hash over all sources of the package, so code from other sources is never loaded, neither
from the wheel (`shipped_code`) nor from the disk.  A file that is damaged counts as missing.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache, _Cache

from hmcgp.numerics import shipped_code

PACKAGE = Path(__file__).parents[1]
_DIGEST_SIZE = hashlib.sha256().digest_size


@cache
def source_digest() -> str:
    """SHA-256 over the names and contents of all Python files of the package."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        total.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


@cache
def shipped() -> shipped_code.ShippedCode:
    """Machine code that this installation contains; empty unless it was made for this machine and these sources."""
    return shipped_code.read(PACKAGE, source_digest())


class CodeCache(_Cache):  # type: ignore[misc]
    """Compiled versions of one function, one for each signature.

    Nothing is read or written before the function is first called: importing the package touches no file of the cache.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._enabled = True
        self._opened: Any = None

    @property
    def cache_path(self) -> str | None:
        """Folder of the cache on disk."""
        return self._disk().cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled version for a signature, or None."""
        if not self._enabled:
            return None
        loaded = shipped().load(self._function, sig, target_context)
        return self._disk().load_overload(sig, target_context) if loaded is None else loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a version that has just been compiled, on disk."""
        if self._enabled:
            self._disk().save_overload(sig, data)

    def contains(self, sig: Any, target_context: Any) -> bool:
        """Return whether the code for a signature can be loaded."""
        return shipped().contains(self._function, sig) or self._disk().reduced(sig, target_context) is not None

    def reduced(self, sig: Any, target_context: Any) -> Any:
        """Picklable form of the code on disk for a signature, or None."""
        return self._disk().reduced(sig, target_context)

    def enable(self) -> None:
        """Enable the cache."""
        self._enabled = True

    def disable(self) -> None:
        """Disable the cache."""
        self._enabled = False

    def flush(self) -> None:
        """Delete the versions on disk."""
        self._disk().flush()

    def _disk(self) -> Any:
        if self._opened is None:
            try:
                self._opened = _DiskCache(self._function)
            except RuntimeError:  # no folder can be written to
                self._opened = _NoDisk()
        return self._opened


class _NoDisk(NullCache):  # type: ignore[misc]
    def reduced(self, sig: Any, target_context: Any) -> None:
        return None


class _DiskCache(FunctionCache):  # type: ignore[misc]
    """numba's cache on disk, stamped with all sources of the package."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (self._impl.locator.get_source_stamp(), source_digest())
        self._cache_file = _CheckedFile(self._cache_path, self._impl.filename_base, stamp)

    def reduced(self, sig: Any, target_context: Any) -> Any:
        """Picklable form of the code for a signature, or None."""
        return self._cache_file.load(self._index_key(sig, target_context.codegen()))


class _CheckedFile(IndexDataCacheFile):  # type: ignore[misc]
    """Index and data files of numba, each preceded by its SHA-256: what is damaged is compiled again."""

    def _load_index(self) -> dict[Any, str]:
        try:
            version, stamp, overloads = self._load_data(self._index_name)
        except (OSError, _Damaged):
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._save_data(self._index_name, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        digest, data = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if hashlib.sha256(data).digest() != digest:
            raise _Damaged(name)
        return pickle.loads(data)

    def _save_data(self, name: str, data: Any) -> None:
        dumped = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(dumped).digest() + dumped)


class _Damaged(OSError):
    """A file whose content does not have its digest."""
