"""Pages that readers meet: links lead somewhere, programs and names exist, and the front page is short."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in sorted(ROOT.rglob("*.md"))
    if not any(part.startswith((".", "build", "node_modules")) for part in page.relative_to(ROOT).parts)
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PROGRAM = re.compile(r"python -m (scripts(?:\.\w+)*)")


def named(page):
    return str(page.relative_to(ROOT))


def anchors(page):
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def test_there_are_pages():
    assert {"README.md", "CHANGELOG.md", "hmcgp/README.md", "scripts/README.md"} <= set(map(named, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_lead_to_files_and_headings(page):
    assert list(broken_links(page)) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One two\n[a](#one-two) [b](#three) [c](page.md) [d](absent.md) [e](https://example.org)\n", encoding="utf-8"
    )
    assert list(broken_links(page)) == ["#three", "absent.md"]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_programs_exist(page):
    for name in PROGRAM.findall(page.read_text(encoding="utf-8")):
        if not name.endswith("NAME"):
            assert importlib.util.find_spec(name) is not None, name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_blocks_parse_and_their_imports_of_hmcgp_work(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for node in ast.parse(block).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hmcgp"):
                exec(ast.unparse(node), {})


def test_the_front_page_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 130
    assert len(text.split()) <= 1500
