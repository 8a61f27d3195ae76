"""Ways to damage a file: any bytes, and the members of a zip archive with their checksums made right again."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Damage: TypeAlias = Callable[[np.random.Generator, bytes, Path], bytes]
BOMB = 300_000_000  # bytes of padding, that compress to a thousandth


def _somewhere(rng: np.random.Generator, content: bytes, size: int = 1) -> int:
    return int(rng.integers(max(1, len(content) - size)))


def flip(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Change one to eight bytes."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        changed[_somewhere(rng, content)] ^= int(rng.integers(1, 256))
    return bytes(changed)


def truncate(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Lose the end."""
    return content[: _somewhere(rng, content)]


def append(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Grow an end."""
    return content + rng.bytes(int(rng.integers(1, 5000)))


def prepend(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Grow a beginning."""
    return rng.bytes(int(rng.integers(1, 500))) + content


def zero_page(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Lose a page, as a crashed file system does."""
    at = _somewhere(rng, content, 512)
    return content[:at] + bytes(512) + content[at + 512 :]


def cut_out(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Lose a piece in the middle."""
    at, size = _somewhere(rng, content), int(rng.integers(1, 1000))
    return content[:at] + content[at + size :]


def swap_blocks(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Exchange two blocks."""
    size = int(rng.integers(1, 256))
    a, b = sorted([_somewhere(rng, content, 2 * size), _somewhere(rng, content, 2 * size)])
    b = max(b, a + size)
    first, second = content[a : a + size], content[b : b + size]
    return content[:a] + second + content[a + size : b] + first + content[b + size :]


def shuffle(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Nothing but noise."""
    return rng.bytes(len(content))


def empty(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Nothing at all."""
    return b""


OF_BYTES: dict[str, Damage] = {
    f.__name__: f for f in (flip, truncate, append, prepend, zero_page, cut_out, swap_blocks, shuffle, empty)
}

# -- archives ------------------------------------------------------------------------------------------------------


def members(content: bytes) -> dict[str, bytes]:
    """Members of an archive, by name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of members, with right checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return buffer.getvalue()


def _changed(rng: np.random.Generator, content: bytes, change: Callable[[str, bytes], bytes], of: str = "") -> bytes:
    """The archive with one member changed, of those whose name ends so (or of all, where there is none)."""
    parts = members(content)
    names = [name for name in parts if name.endswith(of)] or list(parts)
    name = names[int(rng.integers(len(names)))]
    return archive_of(parts | {name: change(name, parts[name])})


def within(damage: Damage) -> Damage:
    """Damage one member, and make its checksum right."""

    def inside(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
        return _changed(rng, content, lambda _, part: damage(rng, part, canary))

    return inside


def lose_member(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Lose one member."""
    parts = members(content)
    del parts[str(rng.choice(list(parts)))]
    return archive_of(parts)


def swap_members(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Exchange the contents of two members."""
    parts = members(content)
    a, b = rng.choice(len(parts), size=2, replace=False)
    names = list(parts)
    return archive_of(parts | {names[a]: parts[names[b]], names[b]: parts[names[a]]})


def double_member(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Add another member of a name that is there."""
    buffer, parts = io.BytesIO(content), members(content)
    name = str(rng.choice(list(parts)))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.fp.seek(0, io.SEEK_END)  # type: ignore[union-attr]
        info = zipfile.ZipInfo(name)
        archive.NameToInfo.pop(name)  # writestr warns of duplicates
        archive.writestr(info, rng.bytes(len(parts[name])))
    return buffer.getvalue()


def pad(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Pad a member with zeros that cost nothing in the file: a bomb."""
    parts = members(content)
    name = str(rng.choice(list(parts)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for other, part in parts.items():
            with archive.open(other, "w", force_zip64=True) as member:
                member.write(part)
                for _ in range(BOMB // 10_000_000 if other == name else 0):
                    member.write(bytes(10_000_000))
    return buffer.getvalue()


def numbers_in(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Replace numbers: NaN, other rows, another shape or dtype in an array; another value in a JSON."""
    return _changed(rng, content, lambda name, part: _other_numbers(rng, name, part), pick_suffix(rng, content))


def pick_suffix(rng: np.random.Generator, content: bytes) -> str:
    """The ending of the members to change: mostly arrays, where there are any."""
    return ".npy" if rng.random() < 0.7 else ".json"


def _other_numbers(rng: np.random.Generator, name: str, part: bytes) -> bytes:
    if name.endswith(".json"):
        return json.dumps(_other_json(rng, json.loads(part))).encode()
    try:
        array = np.load(io.BytesIO(part), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return _shifted_doubles(rng, part)
    buffer = io.BytesIO()
    np.save(buffer, _other_array(rng, array))
    return buffer.getvalue()


def _other_array(rng: np.random.Generator, array: Any) -> Any:
    kind = rng.integers(5)
    if array.dtype.kind == "f" and array.size and kind == 0:
        array = array.copy()
        array.flat[int(rng.integers(array.size))] = np.nan
        return array
    if array.ndim and len(array) > 1 and kind == 1:
        return np.roll(array, 1, axis=0)
    if kind == 2:
        return array[:-1] if array.ndim and len(array) else array[None]
    if kind == 3:
        return array.astype(np.float32) if array.dtype.kind == "f" else array.astype("S8")
    return array[..., None]


def _shifted_doubles(rng: np.random.Generator, part: bytes) -> bytes:
    """Eight bytes somewhere become NaN: a member of a kind that is not known here."""
    at = _somewhere(rng, part, 8)
    return part[:at] + np.float64(np.nan).tobytes() + part[at + 8 :]


def _other_json(rng: np.random.Generator, value: Any) -> Any:
    """A tree with one leaf, or one branch, replaced or lost."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = str(rng.choice(list(value)))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: _other_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = int(rng.integers(len(value)))
        return [*value[:at], _other_json(rng, value[at]), *value[at + 1 :]]
    others: list[Any] = [None, -1, 1e300, "os.system", [], {}, True, 10**12]
    return others[int(rng.integers(len(others)))]


class _Canary:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def plant_pickle(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Put a pickle that runs code in the place of a member, or beside them."""
    parts, code = members(content), pickle.dumps(_Canary(canary))
    if rng.random() < 0.3:
        return archive_of(parts | {"estimator.pickle": code})
    return _changed(rng, content, lambda _, part: code)


def plant_objects(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Put an array of objects, which numpy would unpickle, in the place of a member."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([_Canary(canary)], dtype=object), allow_pickle=True)
    return _changed(rng, content, lambda _, part: buffer.getvalue(), ".npy")


def vast_array(rng: np.random.Generator, content: bytes, canary: Path) -> bytes:
    """Put an array in the place of a member whose header promises terabytes."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    return _changed(rng, content, lambda _, part: buffer.getvalue() + part, ".npy")


OF_ARCHIVES: dict[str, Damage] = {
    **{f"{f.__name__} in a member": within(f) for f in (flip, truncate, append, zero_page, swap_blocks)},
    **{
        f.__name__: f
        for f in (
            lose_member, swap_members, double_member, pad, numbers_in, plant_pickle, plant_objects, vast_array,
        )
    },
}  # fmt: skip
