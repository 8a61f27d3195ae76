"""Functions compiled for the use of others are not called from Python, where they would run uncompiled."""

import ast
from pathlib import Path

import pytest

import hmcgp

ROOT = Path(hmcgp.__file__).parent


def decorators(node):
    return (
        {d.id for d in node.decorator_list if isinstance(d, ast.Name)} if isinstance(node, ast.FunctionDef) else set()
    )


def module_of(path):
    return ".".join(("hmcgp", *path.relative_to(ROOT).with_suffix("").parts))


def inside_functions(trees):
    """(module, name) of every function under `@compiled_inside`."""
    return {
        (module_of(path), node.name)
        for path, tree in trees.items()
        for node in tree.body
        if "compiled_inside" in decorators(node)
    }


def called_from_python(path, tree, inside):
    """Those that the Python code of a file names."""
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    found, waiting = set(), list(tree.body)
    while waiting:
        node = waiting.pop()
        if any(name.startswith("compiled") for name in decorators(node)):
            continue
        if isinstance(node, ast.Name):
            found.add(imported.get(node.id, (module_of(path), node.id)))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            found.add((".".join(imported[node.value.id]), node.attr))
        waiting.extend(ast.iter_child_nodes(node))
    return found & inside


def test_functions_compiled_inside_are_called_by_compiled_ones_only():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("**/*.py")}
    inside = inside_functions(trees)
    assert len(inside) > 100
    for path, tree in trees.items():
        assert not called_from_python(path, tree, inside), path


@pytest.mark.parametrize("line", ["newton.copy(a, b)", "copy(a, b)"])
def test_a_call_from_python_is_found(line):
    how = "from hmcgp.evidence import newton" if "." in line else "from hmcgp.evidence.newton import copy"
    tree = ast.parse(f"{how}\ndef f(a, b):\n    {line}\n@compiled\ndef g(a, b):\n    {line}")
    inside = {("hmcgp.evidence.newton", "copy")}
    assert called_from_python(ROOT / "model" / "model.py", tree, inside) == inside
