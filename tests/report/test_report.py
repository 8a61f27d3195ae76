"""The report of a fit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from tests.helpers.report import SHORT, outline, pima_table

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]


@pytest.fixture(scope="module")
def table():
    return pima_table()


def test_classifier(table, tmp_path):
    gp = GPClassifier(**SHORT).fit(table[["glu", "bmi", "group"]], table["diabetes"])
    path = gp.report(tmp_path / "report.html", title="a < b")
    found = outline(path)
    text = " ".join(found.text)
    assert "a < b" in text  # escaped in the file
    assert "logistic regression (10-fold)" in text
    assert "<old>" in text
    assert "effective sample size" in text  # so short a run is told
    assert len(found.sources) == 4
    X, y = gp.training_data()
    np.testing.assert_allclose(X[["glu", "bmi"]], table[["glu", "bmi"]], rtol=1e-12)
    assert list(X["group"]) == list(table["group"])
    assert list(y) == list(table["diabetes"])


def test_regressor_and_one_draw(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 2))
    gp = GPRegressor(SquaredExponential(), sampler="map", **SHORT).fit(X, 3.0 * X[:, 0] + rng.normal(size=25))
    text = " ".join(outline(gp.report(tmp_path / "report.html")).text)
    assert "ridge regression" in text
    assert "one set of hyperparameters" in text
    with pytest.raises(InvalidInput, match="does not exist"):
        gp.report(tmp_path / "nowhere" / "report.html")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser")
@pytest.mark.parametrize("width", [1200, 420])
def test_a_browser_shows_it(table, tmp_path, width):
    """The page is laid out within the window: pictures load, and nothing but tables reaches beyond it."""
    gp = GPClassifier(**SHORT).fit(table[["glu", "bmi", "group"]], table["diabetes"])
    page = gp.report(tmp_path / "report.html")
    probe = (
        "<script>addEventListener('load', () => { const d = document; d.title = ["
        "d.documentElement.scrollWidth, innerWidth, [...d.images].every(i => i.naturalWidth > 0)].join(' '); });"
        "</script>"
    )
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{probe}</body>"), encoding="utf-8")
    home = tmp_path / "home"  # the browser writes to the home folder, whatever --user-data-dir says
    home.mkdir()
    folders = {f"XDG_{kind}_HOME": str(home / kind) for kind in ["CACHE", "CONFIG", "DATA", "STATE"]}
    dumped = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", f"--user-data-dir={tmp_path / 'browser'}",
         f"--window-size={width},900", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, check=True, timeout=120, encoding="utf-8",
        env={**os.environ, **folders, "HOME": str(home)},
    ).stdout  # fmt: skip
    content, window, loaded = re.search(r"<title>(\d+) (\d+) (\w+)</title>", dumped).groups()
    assert int(content) <= int(window)
    assert loaded == "true"
