"""The tools that build the documentation: reference, links, and code that runs."""

from __future__ import annotations

import ast
import inspect

import hmcgp
from scripts.docs import reference, repository_pages, run_pages
from scripts.docs.repository_pages import DOCS, FOLDER, ROOT, with_site_links

RESULTS = (
    *("LeaveOneOut", "Effect", "Relevance", "Audit", "Residuals", "MarginalEvidence", "EvidenceBounds", "MapResult"),
    *("Refinement", "InducingError", "GradientCheck"),
)


def reference_text(folder):
    return "".join(path.read_text(encoding="utf-8") for path in reference.write_reference(folder))


def test_the_reference_holds_everything_public(tmp_path):
    text = reference_text(tmp_path)
    for name in hmcgp.__all__:
        value = getattr(hmcgp, name)
        if not inspect.ismodule(value):
            assert f":: hmcgp.{name}\n" in text
            continue
        members = [member for member in reference.public(value) if callable(getattr(value, member))]
        assert members
        for member in members:
            assert f":: hmcgp.{name}.{member}\n" in text


def test_the_reference_holds_what_public_methods_return(tmp_path):
    text = reference_text(tmp_path)
    for name in RESULTS:
        assert text.count(f".{name}\n   :members:") == 1, name
    for estimator in (hmcgp.GPClassifier, hmcgp.GPRegressor, hmcgp.GPCounts, hmcgp.GPOrdinal):
        for _, method in inspect.getmembers(estimator, inspect.isfunction):
            if not method.__name__.startswith("_"):
                for kind in reference.returned(method):
                    assert f".{kind.__name__}\n   :members:" in text, (estimator, method)


def test_annotations_of_public_functions_can_be_read():
    things = [getattr(hmcgp, name) for name in hmcgp.__all__]
    for thing in things:
        if inspect.isroutine(thing):
            assert reference.hints(thing), thing
        elif inspect.isclass(thing):
            assert all(
                reference.hints(m) for _, m in inspect.getmembers(thing, inspect.isfunction) if m.__annotations__
            )


def test_links_lead_to_the_site():
    text = "[a](../papers/README.md#bounds) [b](long_runs.md) [c](../../setup.cfg) ![d](../pictures/co2.png) [e](#f)"
    text += " [g](gallery/plot_10_priors.py)"
    found = with_site_links(text, DOCS / "guide.md", DOCS)
    assert found == (
        "[a](build/pages/papers.md#bounds) [b](long_runs.md) c ![d](../pictures/co2.png) [e](#f) "
        "[g](build/gallery/plot_10_priors.rst)"
    )
    above = with_site_links("[a](scripts/docs/guide.md) [b](README.md)", ROOT / "CHANGELOG.md", FOLDER)
    assert above == "[a](../../guide.md) [b](../../index.md)"
    page = '```{include} ../../README.md\n:start-after: "## What to choose"\n:end-before: "## How"\n```\n'
    assert "| two classes | `GPClassifier()`" in repository_pages.with_included(page, DOCS / "choose.md", DOCS)
    assert all(path.is_file() for path in repository_pages.PAGES.values())


def test_code_that_fails_is_told(tmp_path, capsys):
    page = tmp_path / "page.md"
    own = "from dataclasses import dataclass\n@dataclass\nclass Own:\n    x: int\n"
    page.write_text(
        f"```python\nx = 1\n{own}```\n\n```python\nassert x == 1\n```\n```{{code-block}} python\nno.such\n```\n",
        encoding="utf-8",
    )
    assert run_pages.ran(page)
    assert "2 blocks ran" in capsys.readouterr().out
    page.write_text("```python\nx = 1\n```\n```python\nx.no_such\n```\n", encoding="utf-8")
    assert not run_pages.ran(page)
    assert "x.no_such" in capsys.readouterr().err


def test_examples_of_the_gallery_have_titles():
    scripts = sorted((DOCS / "gallery").glob("plot_*.py"))
    assert scripts
    for script in scripts:
        title, line, *_ = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))).splitlines()
        assert line == "=" * len(title)


def test_every_page_is_in_a_table_of_contents():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.stem == "index" or f"\n{page.stem}\n" in index
    for name in repository_pages.PAGES:
        assert f"\nbuild/pages/{name}\n" in index
