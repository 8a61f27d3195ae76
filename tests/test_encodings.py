"""Text is read and written as UTF-8, whatever the locale."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT_METHODS = {"read_text": 0, "write_text": 1}  # of pathlib.Path: positional arguments before the encoding


def without_encoding(source):
    """Lines of calls of `read_text` and `write_text` that name no encoding; ruff (PLW1514) finds `open` and others."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in TEXT_METHODS
        and len(call.args) <= TEXT_METHODS[call.func.attr]
        and "encoding" not in {keyword.arg for keyword in call.keywords}
    ]


@pytest.mark.parametrize("folder", ["hmcgp", "scripts", "tests"])
def test_text_files_have_an_encoding(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert [p for p in paths if without_encoding(p.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [("p.read_text()", [1]), ("p.read_text('utf-8')", []), ("x\np.write_text('λ')", [2]), ("p.read_bytes()", [])],
)
def test_calls_without_an_encoding_are_recognised(code, lines):
    assert without_encoding(code) == lines
