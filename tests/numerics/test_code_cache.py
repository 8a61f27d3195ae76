"""Compiled functions come from the cache if it is intact and of these sources, and are compiled otherwise."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core import event

from hmcgp.numerics import code_cache
from hmcgp.numerics.compiled import compiled
from tests.helpers.processes import child_environment

_names = itertools.count()


@pytest.fixture
def function(tmp_path, monkeypatch):
    """A function of a file in an empty folder, with an empty cache, to be compiled as often as it is decorated."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / f"module_{next(_names)}.py"
    path.write_text("def double(x):\n    return 2.0 * x\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module.double


def times_compiled(function):
    """How often numba compiles when a new version of the function is called."""
    with event.install_recorder("numba:compile") as recorder:
        assert compiled(function)(3.0) == 6.0
    return sum(happened.is_end for _, happened in recorder.buffer)


def cache_files(tmp_path):
    return sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_a_function_is_compiled_once(function, tmp_path):
    assert times_compiled(function) == 1
    assert times_compiled(function) == 0
    assert [path.suffix for path in cache_files(tmp_path)] == [".nbc", ".nbi"]


DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "other content": lambda data: b"something else entirely",
}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_compiled_again(function, tmp_path, suffix, damage):
    assert times_compiled(function) == 1
    (path,) = [path for path in cache_files(tmp_path) if path.suffix == suffix]
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert times_compiled(function) == 1
    assert times_compiled(function) == 0


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_file_that_is_gone_is_compiled_again(function, tmp_path, suffix):
    times_compiled(function)
    for path in cache_files(tmp_path):
        if path.suffix == suffix:
            path.unlink()
    assert times_compiled(function) == 1


def test_code_of_other_sources_of_the_package_is_not_loaded(function, monkeypatch):
    """Numba alone does not notice a change in a function that a cached one calls."""
    times_compiled(function)
    monkeypatch.setattr(code_cache, "source_digest", lambda: "other")
    assert times_compiled(function) == 1


def test_the_digest_depends_on_names_and_contents(tmp_path, monkeypatch):
    monkeypatch.setattr(code_cache, "PACKAGE", tmp_path)
    seen = set()
    for name, content in [("a.py", "x"), ("b.py", "x"), ("b.py", "y"), ("sub/c.py", "x")]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
        seen.add(code_cache.source_digest.__wrapped__())
    assert len(seen) == 4
    (tmp_path / "notes.txt").write_text("", encoding="utf-8")
    assert code_cache.source_digest.__wrapped__() in seen


def test_without_a_folder_to_write_to_functions_are_compiled_in_memory(function, monkeypatch):
    def refuse(*args):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(code_cache, "_DiskCache", refuse)
    assert times_compiled(function) == 1
    assert times_compiled(function) == 1


def test_importing_the_package_writes_nothing(tmp_path):
    folder = tmp_path / "cache"
    code = "import hmcgp.estimators, hmcgp.plots"
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment(NUMBA_CACHE_DIR=str(folder)))
    assert not folder.exists()


def test_functions_run_uncompiled_where_numba_is_disabled():
    code = "from hmcgp.numerics.interpolation import solve_small; assert not hasattr(solve_small, 'overloads')"
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment(NUMBA_DISABLE_JIT="1"))


def test_the_package_is_the_one_that_runs():
    import hmcgp

    assert Path(os.path.dirname(hmcgp.__file__)) == code_cache.PACKAGE
