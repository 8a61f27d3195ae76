"""`import hmcgp` loads no large library: public names are imported on first use, and work as before."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import hmcgp

LARGE = ["numba", "scipy", "sklearn", "pandas", "matplotlib", "arviz", "xarray", "joblib", "narwhals", "tqdm"]


def loaded_after(statements):
    """Large libraries that a new process has loaded after these statements."""
    code = f"import sys\n{statements}\nprint(*[name for name in {LARGE} if name in sys.modules], file=sys.stderr)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    return done.stderr.split(), done.stdout


def test_the_import_of_the_package_loads_no_large_library():
    assert loaded_after("import hmcgp; hmcgp.__version__; dir(hmcgp)")[0] == []


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["--version"]], ids=" ".join)
def test_help_loads_no_large_library(arguments):
    call = f"from hmcgp.command import main\ntry:\n    main({arguments})\nexcept SystemExit:\n    pass"
    libraries, shown = loaded_after(call)
    assert libraries == []
    assert "hmcgp" in shown


def test_the_list_of_libraries_is_seen():
    """Negative control; and an estimator does not load what only plots and reports need."""
    libraries, _ = loaded_after("from hmcgp import GPClassifier")
    assert {"numba", "scipy", "sklearn", "pandas"} <= set(libraries)
    assert not {"matplotlib", "arviz", "xarray"} & set(libraries)


def test_every_public_name_exists():
    names: dict[str, object] = {}
    exec("from hmcgp import *", names)
    assert set(hmcgp.__all__) <= set(names)
    assert set(hmcgp.__all__) <= set(dir(hmcgp))
    for name in hmcgp.__all__:
        assert getattr(hmcgp, name) is names[name]


def test_type_checkers_see_the_same_names():
    """The names that are imported for type checkers are those of __all__, from the modules that they come from."""
    tree = ast.parse(Path(hmcgp.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {a.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert sorted(imported) == sorted(hmcgp.__all__)
    for name, module in imported.items():
        # a module of the package is no attribute of it before it is imported
        importlib.import_module(hmcgp._MODULES.get(name, module))
        assert getattr(importlib.import_module(module), name) is getattr(hmcgp, name)


def test_diagnostics_can_be_imported_as_a_module():
    code = "from hmcgp.diagnostics import summary; import hmcgp; assert hmcgp.diagnostics.summary is summary"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert hmcgp.diagnostics.__all__ == importlib.import_module("hmcgp.reporting.diagnostics").__all__


def test_a_misspelt_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'hmcgp' has no attribute 'GPClasifier'"):
        _ = hmcgp.GPClasifier  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="GPClasifier"):
        exec("from hmcgp import GPClasifier")
