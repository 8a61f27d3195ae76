"""A small table with a category, and the outline of the page that is written about its fit."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np

from hmcgp import datasets

SHORT: dict[str, Any] = {"draws": 15, "tune": 40, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}
VOID = {"meta", "img", "br"}
SECTIONS = ["quality", "relevance", "effects", "sure", "rows", "data", "settings"]


def pima_table():
    """Sixty patients: two quantities, a group whose name needs escaping, and the target."""
    frame = datasets.load_pima().frame.iloc[:60][["glu", "bmi", "age", "diabetes"]].copy()
    frame["group"] = np.where(frame.pop("age") > 35, "<old>", "young")
    return frame


class Outline(HTMLParser):
    """Checks that tags are closed in order, and collects ids, images and links."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.sources, self.links, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.sources += [found["src"]] if "src" in found else []
        self.links += [found["href"]] if "href" in found else []
        assert tag != "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(path):
    found = Outline()
    found.feed(path.read_text(encoding="utf-8"))
    assert found.open == []
    assert all(source.startswith("data:image/png;base64,") for source in found.sources)
    assert found.links == [f"#{name}" for name in SECTIONS]  # nothing from the network
    assert found.ids == SECTIONS
    return found
