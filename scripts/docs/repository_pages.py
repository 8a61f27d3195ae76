"""Pages of the repository as pages of the site: each text has one place, and links lead to where it is shown.

Links are written as relative paths between files, which work wherever the repository is read.  On the site, those to a
page become links to it, and those to other files plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = Path(__file__).parent
FOLDER = DOCS / "build" / "pages"
PAGES = {
    "papers": ROOT / "scripts/papers/README.md",
    "study": ROOT / "scripts/study/README.md",
    "kernel_choice": ROOT / "scripts/study/kernel_choice.md",
    "benchmarks": ROOT / "scripts/benchmarks/README.md",
    "surrogate": ROOT / "scripts/benchmarks/surrogate.md",
    "contributing": ROOT / "hmcgp/README.md",
    "changes": ROOT / "CHANGELOG.md",
}
INCLUDE = re.compile(r'```\{include\} (\S+)\n(?::start-after: "(.+)"\n)?:end-before: "(.+)"\n(?::\S+\n)*```\n')
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def write_pages() -> None:
    """Copy the pages into the folder that the site is built from."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, source in PAGES.items():
        path, text = FOLDER / f"{name}.md", with_site_links(source.read_text(encoding="utf-8"), source, FOLDER)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
            path.write_text(text, encoding="utf-8")


def with_included(text: str, source: Path, folder: Path) -> str:
    """Text of a page with the parts of other files that it includes, their links rewritten."""

    def part(found: re.Match[str]) -> str:
        other = (source.parent / found.group(1)).resolve()
        whole = other.read_text(encoding="utf-8")
        begin = whole.index(found.group(2)) + len(found.group(2)) if found.group(2) else 0
        return with_site_links(whole[begin : whole.index(found.group(3), begin)], other, folder)

    return INCLUDE.sub(part, with_site_links(text, source, folder))


def with_site_links(text: str, source: Path, folder: Path) -> str:
    """Text of a file of the repository with the links of the site, for a page in `folder`."""
    shown = {path.resolve(): FOLDER / f"{name}.md" for name, path in PAGES.items()}
    shown[ROOT / "README.md"] = DOCS / "index.md"
    shown |= {script: DOCS / "build" / "gallery" / f"{script.stem}.rst" for script in (DOCS / "gallery").glob("*.py")}

    def site_link(found: re.Match[str]) -> str:
        mark, label, path, anchor = found.group(1), found.group(2), found.group(3), found.group(4) or ""
        if not path or "://" in path:
            return found.group(0)
        target = (source.parent / path).resolve()
        target = shown.get(target, target)
        on_site = target.is_relative_to(DOCS) or mark == "!"
        return f"{mark}[{label}]({os.path.relpath(target, folder)}{anchor})" if on_site else label

    return LINK.sub(site_link, text)
