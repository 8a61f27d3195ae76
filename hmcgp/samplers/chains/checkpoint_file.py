"""The format of checkpoint files.

One netCDF file holds for each chain the draws so far, in unconstrained coordinates, with their statistics, and the
snapshot after the last of them: random stream, state, and adaptation.  The snapshot is stored as JSON that refers to a
block of numbers; nothing in the file is code.  A checksum of all of it follows the last byte that HDF5 reads.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.runtime.files import library_version, open_regular
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import DualAverage, Schedule, Tuning, Welford
from hmcgp.samplers.chains.record import Record, Snapshot
from hmcgp.samplers.integrators import State
from hmcgp.samplers.metric import Metric

FORMAT = "hmcgp-checkpoint"
FORMAT_VERSION = 2
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
SEAL_SIZE = len(FORMAT) + len(" sha256 ") + 64


class Header(NamedTuple):
    """Settings of a run, and snapshots of its chains."""

    settings: dict[str, Any]  # with the identity of the data and the versions of libraries
    streams: list[Mapping[str, Any]]  # of each chain, at its beginning
    snapshots: list[Snapshot]  # of each chain, after its last draw
    seconds: float  # running time so far


KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Header, Snapshot, State, Tuning, Metric, Schedule, DualAverage, Welford)
}


class Saved(NamedTuple):
    """Content of a file."""

    header: Header
    positions: Array  # (chains, tune + draws, n_dim)
    stats: dict[str, NDArray[Any]]  # (chains, tune + draws)


def dump(header: Header, records: list[Record]) -> bytes:
    """Return the bytes of a file; rows of the records beyond the snapshots in the header are unused."""
    import h5netcdf

    variables = _variables(header, records)
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        for dims, values in variables.values():
            file.dimensions.update(
                {dim: size for dim, size in zip(dims, values.shape, strict=True) if dim not in file.dimensions}
            )
        for name, (dims, values) in variables.items():
            file.create_variable(name, dims, values.dtype, data=values)
        file.attrs["format"] = FORMAT
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["hmcgp_version"] = library_version("hmcgp")
        file.attrs["parameters"] = json.dumps(header.settings["parameters"])
    body = buffer.getvalue()
    return body + _seal(body)


def _variables(header: Header, records: list[Record]) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    """Return dimensions and values of the netCDF variables."""
    arrays: list[NDArray[Any]] = []
    tree = {"header": encode(header, arrays), "arrays": [[a.dtype.str, a.shape] for a in arrays]}
    variables: dict[str, tuple[tuple[str, ...], NDArray[Any]]] = {
        "done": (("chain",), np.array([s.done for s in header.snapshots])),
        "unconstrained": (("chain", "draw", "parameter"), np.stack([r.positions for r in records])),
        "header": (("header_byte",), _bytes(json.dumps(tree).encode())),
        "state": (("state_byte",), _bytes(b"".join(a.tobytes() for a in arrays) or b"\0")),
    }
    for name in records[0].stats.dtype.names or ():
        column = np.stack([r.stats[name] for r in records])
        variables[name] = (("chain", "draw"), column.astype(np.int8) if column.dtype == bool else column)
    return variables


def load(path: Path) -> Saved:
    """Read a file and verify its checksum.

    Parameters
    ----------
    path : Path
        The file; it is not changed.

    Returns
    -------
    Saved

    Raises
    ------
    InvalidInput
        If the file is foreign, of another format, or damaged.
    """
    import h5netcdf

    name = repr(str(path))
    with open_regular(path, "checkpoint") as file:
        content = file.read()
    body, seal = content[:-SEAL_SIZE], content[-SEAL_SIZE:]
    if seal != _seal(body):
        if content.startswith(HDF5_SIGNATURE) and FORMAT.encode() in content:
            raise InvalidInput(
                f"'checkpoint' {name} is damaged: its checksum is wrong. It was left as it is: restore it from a copy, "
                "or give another name to start anew."
            )
        raise InvalidInput(
            f"'checkpoint' {name} exists and is not a checkpoint of hmcgp. It was left as it is: give another name."
        )
    with h5netcdf.File(io.BytesIO(body), "r") as file:
        if file.attrs["format_version"] != FORMAT_VERSION:
            raise InvalidInput(
                f"'checkpoint' {name} has format {file.attrs['format_version']}, written by hmcgp "
                f"{file.attrs['hmcgp_version']}; this version reads {FORMAT_VERSION}. It was left as it is: finish the "
                "run with that version, or give another name."
            )
        values = {key: np.asarray(variable[...]) for key, variable in file.variables.items()}
    tree = json.loads(values.pop("header").tobytes())
    arrays = _split(values.pop("state").tobytes(), tree["arrays"])
    return Saved(decode(tree["header"], arrays), values.pop("unconstrained"), values)


def _bytes(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)


def _seal(content: bytes) -> bytes:
    return f"{FORMAT} sha256 {hashlib.sha256(content).hexdigest()}".encode()


def _split(content: bytes, layout: list[tuple[str, list[int]]]) -> list[NDArray[Any]]:
    arrays, offset = [], 0
    for dtype, shape in layout:
        size = np.dtype(dtype).itemsize * int(np.prod(shape))
        arrays.append(np.frombuffer(content[offset : offset + size], dtype=dtype).reshape(shape).copy())
        offset += size
    return arrays


def encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return JSON for numbers, text, None, arrays, and tuples and dicts of them; arrays are appended to the list."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return encode(value.item(), arrays)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays.append(np.ascontiguousarray(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": {key: encode(item, arrays) for key, item in value.items()}}
    if type(value) in (tuple, list, *KINDS.values()):
        return {type(value).__name__: [encode(item, arrays) for item in value]}
    raise TypeError(f"a {type(value).__name__}")


def decode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Return the value that `encode` was given."""
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "array":
        return arrays[content]
    if kind == "dict":
        return {key: decode(item, arrays) for key, item in content.items()}
    items = [decode(item, arrays) for item in content]
    if kind == "list":
        return items
    return tuple(items) if kind == "tuple" else KINDS[kind](*items)
