"""Who may import whom: one list of rooms, and every import held to it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "hmcgp"

# A room imports only itself and rooms above it.
ROOMS = [
    "errors",
    "runtime",
    "numerics",
    "compilation",
    "parameters",
    "priors",
    "kernels",
    "likelihoods",
    "evidence",
    "model",
    "samplers",
    "optimize",
    "posterior",
    "reporting",
    "diagnostics",
    "joint",
    "plots",
    "report",
    "estimators",
    "datasets",
    "command",
]
# What a room above must not know all the same.
STRANGERS = {
    "kernels": ["priors"],
    "likelihoods": ["kernels", "priors"],
    "evidence": ["kernels", "priors"],
    "samplers": ["kernels", "likelihoods", "evidence", "priors", "model"],
    "optimize": ["kernels", "likelihoods", "evidence", "priors", "model"],
    "posterior": ["samplers", "optimize"],
    "reporting": ["kernels", "likelihoods", "evidence", "model", "optimize", "posterior"],
    "plots": ["numerics", "kernels", "likelihoods", "evidence", "model", "samplers", "optimize", "posterior"],
    "report": ["numerics", "kernels", "likelihoods", "evidence", "model", "samplers", "optimize", "posterior"],
    "command": ["numerics", "kernels", "likelihoods", "evidence", "model", "samplers", "optimize", "posterior"],
    "estimators": ["numerics"],
    "datasets": ["kernels", "likelihoods", "evidence", "model", "samplers", "posterior", "reporting", "estimators"],
}
# Libraries that only some rooms may load.
LIBRARIES = {
    "arviz": ["runtime"],
    "matplotlib": ["runtime", "plots"],
    "numba": ["numerics", "compilation", "kernels", "evidence"],
}


def rooms_of(imports):
    return {name.split(".")[1] for name in imports if name.startswith("hmcgp.")}


def run_time_imports(tree):
    """Import statements, without those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        yield from run_time_imports(node)


def modules_known(path):
    """Full names of what a module imports at run time."""
    known: set[str] = set()
    for node in run_time_imports(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names]
        known.update(names if isinstance(node, ast.Import) else [f"{node.module}.{n}" for n in names])
    return known


def files(room):
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def test_every_module_is_in_a_room():
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p.is_dir() and (p / "__init__.py").exists())}
    assert found - {"__init__", "__main__"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_above_it(room):
    below = set(ROOMS[ROOMS.index(room) + 1 :]) | set(STRANGERS.get(room, []))
    for path in files(room):
        wrong = rooms_of(modules_known(path)) & below
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {sorted(wrong)}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_stay_where_they_are_used(library):
    for room in set(ROOMS) - set(LIBRARIES[library]):
        for path in files(room):
            known = {name.split(".")[0] for name in modules_known(path)}
            assert library not in known, f"{path.relative_to(PACKAGE)} imports {library}"


def test_the_map_for_contributors_lists_the_rooms_in_this_order():
    lines = (PACKAGE / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("`")[1] for line in lines if line.startswith("| `")] == ROOMS


def test_the_reader_of_imports_sees_them(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "import arviz\nfrom hmcgp import priors\ndef f():\n    from hmcgp.model import Model\n", encoding="utf-8"
    )
    assert modules_known(path) == {"arviz", "hmcgp.priors", "hmcgp.model.Model"}


IMPORT_OF_A_TEST = re.compile(r"^\s*(from|import)\b.*\btest_\w+", re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("import test_ep as ep", True),
        ("    from tests.evidence.test_ep import PROBLEMS", True),
        ("from tests.evidence import test_ep", True),
        ("from tests.helpers.checks import PROBLEMS", False),
        ("def test_ep(): pass", False),
    ],
)
def test_imports_of_a_test_are_recognised(code, wrong):
    assert bool(IMPORT_OF_A_TEST.search(code)) == wrong


def test_no_test_imports_another():
    """Nor does the code that a test runs in another process; helpers are in tests/helpers."""
    wrong = [
        p
        for p in TESTS.rglob("*.py")
        if p.name != "test_rooms.py" and IMPORT_OF_A_TEST.search(p.read_text(encoding="utf-8"))
    ]
    assert wrong == []
