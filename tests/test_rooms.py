"""Who may know whom: the imports of every module, held to the table of rooms."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hmcgp"

FORBIDDEN = {
    "_interrupts": "*",
    "linalg": "*",
    "quadrature": "*",
    "mixture": "*",
    "basis": "*",
    "_files": "*",
    "_fingerprint": "*",
    "_locks": ["_fingerprint", "kernels", "likelihoods", "priors", "evidence", "model", "samplers", "estimators"],
    "_memory": ["kernels", "likelihoods", "priors", "evidence", "model", "samplers", "predict", "optimize"],
    "pairs": ["kernels", "priors", "transforms", "model", "samplers", "predict", "optimize", "estimators"],
    "parameters": ["kernels", "likelihoods", "priors", "transforms", "evidence", "model", "samplers"],
    "hyperprior": ["kernels", "likelihoods", "evidence", "model", "samplers", "predict", "optimize"],
    "kernels": ["likelihoods", "_likelihood_core", "priors", "transforms", "evidence", "model", "samplers"],
    "likelihoods": ["kernels", "priors", "evidence", "model", "samplers"],
    "evidence": ["kernels", "priors", "transforms", "samplers", "model", "predict", "optimize"],
    "priors": ["kernels", "likelihoods", "evidence", "model", "samplers"],
    "samplers": ["kernels", "evidence", "likelihoods", "priors", "model", "predict", "estimators"],
    "optimize": ["kernels", "evidence", "likelihoods", "priors", "model", "predict", "estimators"],
    "modes": ["kernels", "evidence", "likelihoods", "priors", "model", "predict", "estimators"],
    "model": ["samplers", "optimize", "predict", "estimators", "export", "diagnostics", "plots", "arviz", "matplotlib"],
    "predict": ["samplers", "optimize", "estimators", "export", "plots", "arviz", "matplotlib"],
    "online": ["samplers", "optimize", "estimators", "export", "plots", "arviz", "matplotlib"],
    "brackets": ["samplers", "optimize", "estimators", "export", "plots", "arviz", "matplotlib"],
    "loo": ["samplers", "optimize", "estimators", "export", "plots", "arviz", "matplotlib"],
    "label_noise": ["samplers", "optimize", "estimators", "export", "plots", "arviz", "matplotlib"],
    "compare": ["kernels", "likelihoods", "model", "predict", "samplers", "export", "plots", "arviz", "matplotlib"],
    "plots": ["linalg", "likelihoods", "quadrature", "evidence", "model", "optimize", "predict", "numba"],
    "export": ["linalg", "likelihoods", "quadrature", "evidence", "model", "optimize", "predict", "numba"],
    "saving": ["kernels", "priors", "likelihoods", "evidence", "model", "samplers", "predict", "estimators", "pickle"],
    "_encoding": ["kernels", "priors", "likelihoods", "evidence", "model", "samplers", "estimators", "pickle"],
    "_conformity": "*",
    "diagnostics": ["linalg", "kernels", "likelihoods", "evidence", "model", "optimize", "predict", "numba"],
}  # fmt: skip
LEAVES = {"_typing", "errors"}  # what "*" still allows


def modules(room):
    folder = PACKAGE / room
    return sorted(folder.glob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def run_time_imports(tree):
    """Import statements, without those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        yield from run_time_imports(node)


def rooms_known(path):
    """First names below hmcgp, or of other packages, that a module imports."""
    known = set()
    for node in run_time_imports(ast.parse(path.read_text())):
        names = [a.name for a in node.names]
        if isinstance(node, ast.Import):
            full = names
        else:
            full = [f"{node.module}.{n}" for n in names] if node.module == "hmcgp" else [node.module]
        for name in full:
            parts = name.split(".")
            known.add(parts[1] if parts[0] == "hmcgp" and len(parts) > 1 else parts[0])
    return known


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_does_not_know_what_it_must_not(room):
    for path in modules(room):
        known = rooms_known(path)
        if FORBIDDEN[room] == "*":
            ours = {p.stem for p in PACKAGE.iterdir()} - LEAVES - {room}
            assert not known & ours, f"{path.name} imports {known & ours}"
        else:
            assert not known & set(FORBIDDEN[room]), f"{path.name} imports {known & set(FORBIDDEN[room])}"


def test_the_reader_of_imports_sees_them(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("import arviz\nfrom hmcgp import priors\ndef f():\n    from hmcgp.model import Model\n")
    assert rooms_known(path) == {"arviz", "priors", "model"}
