"""Files of saved estimators, which are read without running anything in them.

A file is a zip archive, uncompressed, of

    meta.json        format, versions of libraries, name of the estimator, sha256 of every other member
    content.json     settings, kernels, names (`hmcgp.reporting.encoding`)
    a0.npy, …        arrays, of numbers and text only

The sizes that the archive and the headers of arrays claim are compared with the size of the file, and every member with
its checksum, before anything is built.  FORMAT_VERSION goes up when the fields of a saved class change.

(skops would read estimators safely too; but it is one more dependency, has to be told to trust every dataclass in here,
and checks none of the values.)
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import platform
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.exceptions import InconsistentVersionWarning

from hmcgp.errors import HmcgpWarning, InvalidInput, warn_user
from hmcgp.reporting.encoding import ARRAY_KINDS, Decoder, Encoder, Refused, Untrusted
from hmcgp.runtime.files import library_version, open_regular, replacing, user_path

FORMAT = "hmcgp-estimator"
FORMAT_VERSION = 2
META, CONTENT = "meta.json", "content.json"
LIBRARIES = ("hmcgp", "numpy", "scipy", "scikit-learn", "numba")
COMPARED = ("hmcgp", "numpy")  # the versions on which numbers and their meaning depend

_HEADER = 30  # bytes of a member beside its name and content, at least
_AGAIN = "Restore it from a copy, or fit and save again."


class Foreign(Exception):
    """A file of another format; the message goes on after its name."""


class OtherVersionWarning(InconsistentVersionWarning, HmcgpWarning):  # type: ignore[misc]
    """An estimator was saved by other versions of the libraries than it is loaded with."""

    def __init__(self, *, estimator_name: str, current: str, original: str) -> None:
        InconsistentVersionWarning.__init__(
            self, estimator_name=estimator_name, current_sklearn_version=current, original_sklearn_version=original
        )

    def __str__(self) -> str:
        return (
            f"this {self.estimator_name} was saved with {self.original_sklearn_version} and is loaded with "
            f"{self.current_sklearn_version}: predictions may differ in the last digits, and by more where a release "
            "changed a method. Fit and save again, or load it with those versions."
        )


def save(value: Any, path: str | os.PathLike[str], estimator: str) -> None:
    """Write a value of a class named `estimator` to one file, whole or not at all; refuse what cannot be written."""
    encoder = Encoder()
    try:
        content = json.dumps(encoder.encode(value, estimator), allow_nan=False)
    except (Refused, RecursionError) as error:
        raise InvalidInput(f"this {estimator} cannot be saved: it {error}") from error
    sums = {CONTENT: _sha256(content.encode())}
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in encoder.arrays.items():
            buffer = io.BytesIO()
            npy.write_array(buffer, array, version=(1, 0), allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getbuffer())
            sums[f"{name}.npy"] = _sha256(buffer.getbuffer())
        archive.writestr(CONTENT, content)
        meta = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "created_at": datetime.now(UTC).isoformat(),
            "versions": {"python": platform.python_version(), **{name: library_version(name) for name in LIBRARIES}},
            "estimator": estimator,
            "sha256": sums,
        }
        archive.writestr(META, json.dumps(meta, indent=1))


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, and raise InvalidInput, with the path, for whatever goes wrong when its content is rebuilt.

    A file that is not there, or cannot be read, is refused as that (`runtime.files`), not as damaged.
    """
    name = repr(str(user_path(path)))
    with open_regular(path) as file:
        try:
            yield file
        except Refused as error:
            raise InvalidInput(f"{name} {error}. It is damaged, or was not written by save(). {_AGAIN}") from error
        except Foreign as error:
            raise InvalidInput(f"{name} {error}") from error
        except Untrusted as error:
            short = ", ".join(str(full).rpartition(".")[2] for full in error.args)
            raise InvalidInput(
                f"{name} uses {', '.join(error.args)}, which are not part of hmcgp, and loading it would run their "
                f"code. If they are yours, import them and pass them: load(path, trusted=[{short}])."
            ) from error
        except (Warning, MemoryError):
            raise
        except Exception as error:  # crafted content may break anywhere
            raise InvalidInput(f"{name} is damaged ({type(error).__name__}: {error}). {_AGAIN}") from error


def load(file: BinaryIO, trusted: Iterable[Any] = ()) -> Any:
    """Read a file of `save`, opened by `reading`, which may use classes and functions that are trusted."""
    archive, meta = _open(file)
    with archive:
        unused = set(meta["sha256"]) - {CONTENT}

        def read_array(name: str) -> NDArray[Any]:
            unused.discard(f"{name}.npy")
            return _array(_member(archive, f"{name}.npy", meta))

        decoder = Decoder(read_array, trusted)
        tree = _json(_member(archive, CONTENT, meta))
        decoder.check_names(tree)
        value = decoder.decode(tree)
    if unused:
        raise Refused(f"has members that nothing refers to: {', '.join(sorted(unused)[:5])}")
    _warn_of_versions(meta)
    return value


def _open(file: BinaryIO) -> tuple[zipfile.ZipFile, dict[str, Any]]:
    """Open an archive and check it up to, and not including, the content of its members."""
    not_ours = Foreign("is not a saved hmcgp estimator. Give a file written by save().")
    if file.read(4) != b"PK\x03\x04":
        raise not_ours
    archive = zipfile.ZipFile(file)
    members = {info.filename: info for info in archive.infolist()}
    _check_layout(archive, os.fstat(file.fileno()).st_size)
    meta = _json(archive.read(META)) if META in members else {}
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise not_ours
    _check_version(meta)
    sums, versions = meta["sha256"], meta["versions"]
    if not (isinstance(sums, dict) and isinstance(versions, dict) and set(COMPARED) <= set(versions)):
        raise Refused("has a meta.json without checksums or versions")
    if set(sums) | {META} != set(members):
        raise Refused("has other members than it lists")
    return archive, meta


def _check_layout(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse members that are compressed, doubled, or overlap: they would unpack to more than the file holds."""
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    if len({info.filename for info in infos}) < len(infos):
        raise Refused("has two members of one name")
    ends = [info.header_offset for info in infos[1:]] + [size]
    for info, end in zip(infos, ends, strict=True):
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored and info.filename != "estimator.pickle":  # of format 1, about which there is more to say
            raise Refused(
                f"has a compressed member, {info.filename!r}, of {info.file_size} bytes, which save() never writes"
            )
        if info.header_offset + _HEADER + len(info.filename) + info.compress_size > end:
            raise Refused(f"has a member, {info.filename!r}, that is larger than its place")


def _check_version(meta: Mapping[str, Any]) -> None:
    found = meta.get("format_version")
    if type(found) is not int or found < 1:
        raise Refused("does not say which format it has")
    if found == 1:
        raise Foreign(
            "has format 1, of hmcgp 0.1: a pickle, which runs whatever is in it when it is opened, so this version "
            "does not. If you trust the file, load it with hmcgp 0.1, or take the estimator out yourself, and save it "
            "again here: pickle.loads(zipfile.ZipFile(path).read('estimator.pickle')).save(path). Else fit "
            "and save again."
        )
    if found > FORMAT_VERSION:
        versions = meta.get("versions")
        writer = versions.get("hmcgp") if isinstance(versions, dict) else None
        raise Foreign(
            f"has format {found}, written by hmcgp {writer}; this version ({library_version('hmcgp')}) reads "
            f"{FORMAT_VERSION}. Upgrade hmcgp, or save again with the older one."
        )


def _member(archive: zipfile.ZipFile, name: str, meta: Mapping[str, Any]) -> bytes:
    content = archive.read(name)  # zipfile compares its own checksum
    if _sha256(content) != meta["sha256"][name]:
        raise Refused(f"has a member, {name!r}, that is not the one that was saved")
    return content


def _sha256(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def _array(content: bytes) -> NDArray[Any]:
    """Return an array of its own memory, once its header says no more than its content holds."""
    buffer = io.BytesIO(content)
    if npy.read_magic(buffer) != (1, 0):
        raise Refused("has an array of an unknown format")
    shape, fortran_order, dtype = npy.read_array_header_1_0(buffer)
    count, size = math.prod(shape), len(content) - buffer.tell()
    if dtype.kind not in ARRAY_KINDS or dtype.hasobject or min(shape, default=0) < 0 or count * dtype.itemsize != size:
        raise Refused(f"has an array of {size} bytes that claims to be of shape {shape} and type {dtype}")
    array = np.frombuffer(content, dtype, offset=buffer.tell()).astype(dtype.newbyteorder("="))  # aligned, writable
    codes, most = {"b": (np.uint8, 1), "U": (np.uint32, sys.maxunicode)}.get(dtype.kind, (None, 0))
    if codes is not None and (array.view(codes) > most).any():
        raise Refused("has an array of bytes that are neither False nor True, or no text")
    return array.reshape(shape, order="F" if fortran_order else "C")


def _json(content: bytes) -> Any:
    return json.loads(content, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("has JSON with a key twice")
    return found


def _no_constant(text: str) -> float:
    raise Refused(f"has JSON with {text}, which is none")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_constant(text)


def _warn_of_versions(meta: Mapping[str, Any]) -> None:
    original, current = meta["versions"], {name: library_version(name) for name in COMPARED}
    other = [name for name in COMPARED if original[name] != current[name]]
    if other:
        warning = OtherVersionWarning(
            estimator_name=str(meta.get("estimator")),
            current=" and ".join(f"{name} {current[name]}" for name in other),
            original=" and ".join(f"{name} {original[name]}" for name in other),
        )
        warn_user(warning, OtherVersionWarning)
