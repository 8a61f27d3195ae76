"""The report of a fit."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor, diagnostics
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.report.page import _trust
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


def weighted_to_few(gp):
    """The fit with weights that leave about 3 of its draws effective, as a refinement may."""
    log_weight = np.full(gp.trace_.draws.shape[:2], -20.0)
    log_weight[:, 0] = 0.0
    log_weight -= np.logaddexp.reduce(log_weight, axis=None)
    gp.trace_ = dataclasses.replace(gp.sampling_trace_, log_weight=log_weight, pareto_k=0.1)
    return gp


def test_the_draws_that_are_shown_are_judged():
    """The box said that nothing was wrong above effective sample sizes of 26."""
    X = np.random.default_rng(0).normal(size=(20, 1))
    gp = weighted_to_few(GPRegressor(SquaredExponential(), **SHORT).fit(X, X[:, 0]))
    kinds = [f.kind for f in diagnostics.check_averaged(gp.sampling_trace_, gp.trace_)]
    assert {"weights", "averaged_ess"} <= set(kinds)
    gp.warnings_ = []
    text = _trust(gp, [])
    assert "Nothing was found to be wrong" not in text
    assert "draws that predictions average over is" in text


def test_every_warning_of_the_fit_is_on_the_page(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    X[:, 1] = 3.0
    with pytest.warns(DataWarning) as caught:
        gp = GPRegressor(SquaredExponential(), sampler="map", **SHORT).fit(X, X[:, 0] + X[::-1, 0])
    messages = [str(w.message) for w in caught]
    assert gp.warnings_ == messages
    gp.save(tmp_path / "fit.hmcgp")
    again = GPRegressor.load(tmp_path / "fit.hmcgp")
    assert again.warnings_ == messages
    text = " ".join(" ".join(outline(again.report(tmp_path / "report.html")).text).split())
    assert all(" ".join(message.split()) in text for message in messages)
    assert gp.fit(X[:, :1], X[:, 0] + X[::-1, 0]).warnings_ == []
