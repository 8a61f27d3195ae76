"""Archives that are damaged, crafted or foreign: refused at load, before they do harm."""

from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InvalidInput
from tests.helpers.saved import X, members, npy, refused, rewrite, shifted


def test_members_that_are_not_those_that_were_saved(fitted, path):
    content = members(path)
    one, other = (
        next(n for n, body in content.items() if body == npy(array))
        for array in (fitted.trace_.draws, fitted.trace_.unconstrained)
    )
    for changes in ({one: content[other], other: content[one]}, {one: npy(shifted(fitted.trace_.draws))}):
        rewrite(path, content | changes, sums=False)
        refused(path, "that is not the one that was saved")
    rewrite(path, content | {"more.npy": content[one]}, sums=False)
    refused(path, "other members than it lists")
    rewrite(path, content | {"a999.npy": content[one]})
    refused(path, "nothing refers to: a999.npy")
    rewrite(path, {name: body for name, body in content.items() if name != one}, sums=False)
    refused(path, "other members than it lists")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("content.json", b"[]")
    refused(path, "two members of one name")


@pytest.mark.parametrize("array", [np.array([lambda: 1], dtype=object)], ids=["objects"])
def test_arrays_that_hold_objects(array, path):
    class Dangerous:
        def __reduce__(self):
            return (os.mkdir, (str(path) + "_executed",))

    content = members(path)
    array[0] = Dangerous()
    rewrite(path, content | {"a0.npy": npy(array)})
    refused(path, "claims to be of shape .* and type object")
    assert not os.path.exists(str(path) + "_executed")


def test_sizes_that_are_claimed_and_not_there(path):
    content = members(path)
    small = npy(np.zeros(2))
    for shape in (b"(99999999999,)", b"(-2,)", b"(2, 99999999999, 0)", b"(3,)"):
        crafted = small.replace(b"(2,), }" + b" " * (len(shape) - 4), shape + b", }")
        assert shape in crafted
        rewrite(path, content | {"a0.npy": crafted})
        refused(path, "claims to be of shape")


def test_a_zip_bomb_is_not_unpacked(path):
    content = members(path)
    rewrite(path, content | {"a0.npy": npy(np.zeros(2**22))}, compression=zipfile.ZIP_DEFLATED)  # 32 MB in 33 kB
    assert path.stat().st_size < 200_000
    refused(path, "compressed member")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.json", b" " * 2**22 + content["meta.json"])
    refused(path, "compressed member")


def test_members_that_overlap(path):
    whole = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        first, second = archive.infolist()[:2]
        start = archive.start_dir
    entry = whole.index(b"PK\x01\x02", start)
    whole[entry + 20 : entry + 28] = (second.header_offset + 999).to_bytes(4, "little") * 2  # both sizes of the first
    path.write_bytes(whole)
    refused(path, f"a member, {first.filename!r}, that is larger than its place")


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_refused_or_harmless(seed, fitted, path):
    """Harmless: time stamps and the like, which nothing depends on."""
    whole, rng, expected = path.read_bytes(), np.random.default_rng(seed), fitted.predict(X)
    noticed = 0
    for i in rng.integers(len(whole), size=100):
        damaged = bytearray(whole)
        damaged[i] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            np.testing.assert_array_equal(GPRegressor.load(path).predict(X), expected)
        except InvalidInput:
            noticed += 1
    for n in rng.integers(len(whole), size=30):
        path.write_bytes(whole[:n])
        refused(path, "is damaged" if n >= 4 else "not a saved hmcgp")
    assert noticed > 70


def test_foreign_files(tmp_path):
    path = tmp_path / "other"
    for body in (b"", b"PK", pickle.dumps([1]), b"\x89HDF\r\n\x1a\n"):
        path.write_bytes(body)
        refused(path, r"is not a saved hmcgp estimator\. Give a file")
    for member, text in (("sheet.xml", "<a/>"), ("meta.json", "[1]"), ("meta.json", '{"format": "else"}')):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, text)
        refused(path, "not a saved hmcgp estimator")
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", "is a FIFO")
    refused(tmp_path, "is a folder")
    refused(tmp_path / "none", r"^'path' '[^']*none' cannot be read: it does not exist\.")  # not that it is damaged


def test_another_class(path):
    refused(path, r"holds a GPRegressor, not a GPClassifier\. Use GPRegressor\.load", GPClassifier)
