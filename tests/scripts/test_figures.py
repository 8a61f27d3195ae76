"""Figures that several pages quote come from one measured file."""

from __future__ import annotations

import ast
import re

import pytest

from scripts.benchmarks import figures
from scripts.benchmarks.figures import GROUPS, MARKER, QUOTES, ROOT, pages, quoting, texts

QUOTED_TWICE = {  # what must not be written down without a marker in pages: patterns of figures that once disagreed
    "evaluations of HMC or the surrogate": r"(?:10,000 to 19,000|about 2,000\)|some 2,000 evaluations|some 30,000)",
    "compilation": r"(?:up to half a minute\.|about a quarter of a minute)",
    "100,000 rows": r"100,000 rows take \d",
    "examples and digests": r"(?:ten|thirteen) (?:worked|scripts|examples)|(?:digests|predictions) of twenty",
}


def named(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=named)
def test_pages_agree_with_the_file(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"<!--fig:(\w+)-->", text)) <= set(texts())
    assert text.count("<!--fig:") == text.count("<!--/fig-->") == len(MARKER.findall(text))
    assert quoting(text, texts()) == text, "run python -m scripts.benchmarks.figures --write-pages"


@pytest.mark.parametrize("path", QUOTES)
def test_docstrings_agree_with_the_file(path):
    words = " ".join((ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or "").split())
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            words += " " + " ".join((ast.get_docstring(node) or "").split())
    for key in QUOTES[path]:
        assert re.search(rf"(?<![\d.,]){re.escape(texts()[key])}(?![\d,]|\.\d)", words), f"{path} must quote {key}"


@pytest.mark.parametrize("what", QUOTED_TWICE)
def test_figures_that_disagreed_are_not_written_by_hand(what):
    for page in pages():
        assert not re.search(QUOTED_TWICE[what], page.read_text(encoding="utf-8")), page


def test_every_figure_says_how_it_was_measured():
    content = figures.load()
    assert set(content["runs"]) == set(GROUPS) == {figure["group"] for figure in content["figures"].values()}
    for run in content["runs"].values():
        assert {"date", "processor", "cores", "load_average", "python", "numpy", "numba"} <= set(run)
    for key, figure in content["figures"].items():
        assert figure["text"], key
        assert figure["what"], key
        assert figure["value"], key


def test_pages_quote_figures_more_than_once():
    keys = [key for page in pages() for key in re.findall(r"<!--fig:(\w+)-->", page.read_text(encoding="utf-8"))]
    assert keys.count("predict_100k_rows_1000") >= 2
    assert keys.count("compile_first_fit") >= 2


def test_texts_of_figures():
    assert [figures.duration(s) for s in (1.44e-4, 0.0469, 0.43, 22.7, 123.0)] == [
        "0.14 ms", "47 ms", "0.43 s", "23 s", "120 s"
    ]  # fmt: skip
    assert figures.count_range([12511, 16459]) == "13,000 to 16,000"
    assert figures.count_range([2728, 2700]) == "2,700"
    assert [figures.bound(x) for x in (0.00516, 0.0988, 0.006, 1.2)] == ["0.006", "0.1", "0.006", "2"]
    page = "a <!--fig:x-->old<!--/fig--> b <!--fig:y-->old<!--/fig-->"
    assert quoting(page, {"x": "1 s", "y": "2 s"}) == "a <!--fig:x-->1 s<!--/fig--> b <!--fig:y-->2 s<!--/fig-->"
