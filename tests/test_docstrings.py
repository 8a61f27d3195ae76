"""Examples in docstrings run, and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "hmcgp"
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


def test_there_are_examples():
    assert {"hmcgp.estimators.classifier", "hmcgp.joint.run"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning")  # leave-one-out of four rows
def test_examples(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0
    assert "+SKIP" not in Path(importlib.import_module(name).__file__).read_text(encoding="utf-8")
