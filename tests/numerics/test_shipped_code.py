"""Machine code of a wheel is used where everything matches, and never where something does not."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import numba
import numpy as np
import pytest
from numba import types
from numba.core import event

from hmcgp.numerics import code_cache, shipped_code
from hmcgp.numerics.compiled import compiled

SOURCES = "digest of the sources"
SIGNATURE = (types.float64,)


@pytest.fixture
def function(tmp_path, monkeypatch):
    """A function with an empty cache on disk."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    for name in shipped_code.COMPILER_SETTINGS:
        monkeypatch.delenv(name, raising=False)  # CI plays other processors by these
    path = tmp_path / "shipped_function.py"
    path.write_text("def double(x):\n    return 2.0 * x\n", encoding="utf-8")
    module = ModuleType("shipped_function")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "shipped_function", module)
    return module.double


@pytest.fixture
def package(function, tmp_path):
    """Folder of a package with the compiled function in it, as a wheel has it."""
    dispatcher = compiled(function)
    dispatcher(1.0)
    reduced = dispatcher._cache.reduced(SIGNATURE, dispatcher.targetctx)
    folder = tmp_path / "package"
    folder.mkdir()
    name = shipped_code.function_key(function, SIGNATURE)
    shipped_code.write(folder, SOURCES, "baseline", [], {name: reduced})
    return folder


def times_compiled(function, package, monkeypatch, tmp_path):
    """How often numba compiles with this package installed and nothing cached on disk; the result must be right."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "another cache"))
    monkeypatch.setattr(code_cache, "shipped", lambda: shipped_code.read(package, SOURCES))
    with event.install_recorder("numba:compile") as recorder:
        assert compiled(function)(3.0) == 6.0
    return sum(happened.is_end for _, happened in recorder.buffer)


def test_a_matching_function_is_not_compiled(function, package, monkeypatch, tmp_path):
    assert times_compiled(function, package, monkeypatch, tmp_path) == 0


def test_without_machine_code_there_is_nothing_to_refuse(tmp_path):
    assert shipped_code.read(tmp_path, SOURCES) == shipped_code.ShippedCode(tmp_path / "machine_code" / "functions.bin")


def test_other_types_of_arguments_are_compiled(function, package, monkeypatch, tmp_path):
    times_compiled(function, package, monkeypatch, tmp_path)
    with event.install_recorder("numba:compile") as recorder:
        assert compiled(function)(np.float32(3.0)) == 6.0
    assert recorder.buffer


def changed(package, **values):
    path = package / shipped_code.FOLDER / shipped_code.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"numba": "0.1"}, "compiled with numba 0.1, and this is"),
        ({"llvmlite": "0.1"}, "compiled with llvmlite 0.1"),
        ({"numpy": "0"}, "compiled with numpy 0"),
        ({"python": "CPython 2.7"}, "compiled with python CPython 2.7"),
        ({"platform": "vax-dec-ultrix"}, "compiled with platform vax-dec-ultrix"),
        ({"sources": "others"}, "sources have changed"),
        ({"cpu": "x86-64-v9", "cpu_features": ["avx9"]}, "it is for x86-64-v9, and this processor lacks avx9"),
        ({"format": 2}, "its format is 2, not 1"),
    ],
)
def test_code_for_another_environment_is_refused(function, package, monkeypatch, tmp_path, values, reason):
    changed(package, **values)
    assert reason in shipped_code.read(package, SOURCES).refused
    assert times_compiled(function, package, monkeypatch, tmp_path) == 1


@pytest.mark.parametrize("name", shipped_code.COMPILER_SETTINGS)
def test_who_sets_the_compiler_gets_its_code(package, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert shipped_code.read(package, SOURCES).refused == f"{name} is set"


def test_functions_moved_within_the_manifest_are_refused(package):
    changed(package, functions={"shipped_function:double(float64)": [0, 10, "0" * 64]})
    assert shipped_code.read(package, SOURCES).refused == "manifest.json is damaged"


DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[: len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1 :],
    "other content": lambda data: b"something else entirely",
    "JSON that is no object": lambda data: b"[]",
    "not UTF-8": lambda data: b"\xff" * 100,
}


@pytest.mark.parametrize("name", [shipped_code.MANIFEST, shipped_code.CODE])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_costs_a_compilation(function, package, monkeypatch, tmp_path, name, damage):
    path = package / shipped_code.FOLDER / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert times_compiled(function, package, monkeypatch, tmp_path) == 1


@pytest.mark.parametrize("name", [shipped_code.MANIFEST, shipped_code.CODE])
def test_a_missing_file_costs_a_compilation(function, package, monkeypatch, tmp_path, name):
    (package / shipped_code.FOLDER / name).unlink()
    assert times_compiled(function, package, monkeypatch, tmp_path) == 1


def test_the_source_tree_has_no_machine_code():
    """Editable installs compile, whatever wheels were built beside them."""
    assert not (code_cache.PACKAGE / shipped_code.FOLDER).exists()
    assert code_cache.shipped().functions == {}
