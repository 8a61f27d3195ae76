"""Pieces of an HTML page: escaped text, tables, pictures as data, and the style sheet."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from hmcgp.plots.style import as_png

STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --quiet: #667; --line: #d8dbe0; --card: #f5f6f8;
  --good: #1a7f4b; --warn: #b25b00; --accent: #0072b2; --picture: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16181c; --quiet: #9aa3ad; --line: #363b43;
  --card: #1f2329; --good: #4cc38a; --warn: #ffa94d; --accent: #58b0e3; --picture: #1a1a1a; }
  figure img { filter: invert(0.9) hue-rotate(180deg); } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0 0.25rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 0.5rem; padding-top: 0.8rem; border-top: 1px solid var(--line); }
p { margin: 0.5rem 0; max-width: 46rem; } .quiet { color: var(--quiet); font-size: 0.92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; margin: 0.6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.28rem 0.8rem 0.28rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: var(--quiet); font-weight: 600; }
figure { margin: 0.8rem 0; background: var(--picture); border: 1px solid var(--line); border-radius: 6px;
  padding: 0.6rem; }
figure img { display: block; width: 100%; height: auto; margin: 0 auto; }
.tiles { display: flex; flex-wrap: wrap; gap: 0.8rem; margin: 1rem 0; }
.tile { background: var(--card); border-radius: 8px; padding: 0.7rem 1rem; flex: 1 1 9rem; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: var(--quiet); font-size: 0.88rem; }
.note { border-left: 4px solid var(--warn); background: var(--card); padding: 0.6rem 0.9rem; margin: 0.6rem 0;
  border-radius: 0 6px 6px 0; max-width: 46rem; }
.note.good { border-color: var(--good); }
pre { background: var(--card); padding: 0.8rem; border-radius: 6px; overflow-x: auto; font-size: 0.85rem; }
nav a { color: var(--accent); margin-right: 1rem; white-space: nowrap; } a { color: var(--accent); }
@media print { h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""


def page(title: str, sections: Sequence[tuple[str, str, str]], lead: str) -> str:
    """Return a whole page from a title, what comes first, and sections of (id, heading, content)."""
    links = "".join(f'<a href="#{anchor}">{escape(heading)}</a>' for anchor, heading, _ in sections)
    body = "".join(f'<section id="{a}"><h2>{escape(h)}</h2>{content}</section>' for a, h, content in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>{lead}<nav>{links}</nav>{body}</main></body></html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def preformatted(text: str) -> str:
    """Return text whose lines stay as they are."""
    return f"<pre>{escape(text)}</pre>"


def note(text: str, *, good: bool = False) -> str:
    """Return a highlighted remark."""
    return f'<div class="note{" good" if good else ""}">{escape(text)}</div>'


def tiles(pairs: Sequence[tuple[str, str]]) -> str:
    """Return large numbers with small labels."""
    each = (f'<div class="tile"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in pairs)
    return f'<div class="tiles">{"".join(each)}</div>'


def table(frame: pd.DataFrame) -> str:
    """Return a table with its index as first column, numbers to three digits."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in [frame.index.name or "", *frame.columns])
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in (label, *row)) + "</tr>"
        for label, row in zip(frame.index, frame.itertuples(index=False), strict=True)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def picture(ax: Any, description: str) -> str:
    """Return the figure of some axes as an image inside the page, and close it."""
    width, png = as_png(ax)
    data = base64.b64encode(png).decode("ascii")
    image = f'<img style="max-width:{width}px" alt="{escape(description)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}</figure>"


def _cell(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return "" if value is None else str(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if math.isnan(number):
        return "–"
    return f"{number:,.0f}" if abs(number) < 1e7 and number == int(number) else f"{number:.3g}"
