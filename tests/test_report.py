"""The report of a fit, and the command that writes it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier, GPRegressor, command, datasets
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]
SHORT = {"draws": 15, "tune": 40, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}
VOID = {"meta", "img", "br"}
SECTIONS = ["quality", "relevance", "effects", "sure", "rows", "data", "settings"]


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


@pytest.fixture(scope="module")
def table():
    frame = datasets.load_pima().frame.iloc[:60][["glu", "bmi", "age", "diabetes"]].copy()
    frame["group"] = np.where(frame.pop("age") > 35, "<old>", "young")
    return frame


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


def run(*arguments):
    return command.main([str(argument) for argument in arguments])


def test_fit_predict_and_report_again(table, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.assign(number=np.arange(60.0)).to_csv("pima.csv", index=False)
    options = ["--draws", 15, "--tune", 40, "--chains", 2, "--quiet"]
    assert run("fit", "pima.csv", "--target", "diabetes", "--drop", "number", *options) == command.OK
    shown = capsys.readouterr()
    assert "60 rows, 3 inputs; classification of 'diabetes'" in shown.err
    folder = tmp_path / "pima-hmcgp"
    assert sorted(p.name for p in folder.iterdir()) == ["model.hmcgp", "posterior.nc", "report.html"]
    assert run("predict", folder / "model.hmcgp", "pima.csv", "--out", "new.csv") == command.OK
    found = pd.read_csv("new.csv")
    gp = GPClassifier.load(folder / "model.hmcgp")
    np.testing.assert_allclose(found["p(Yes)"], gp.predict_proba(table[["glu", "bmi", "group"]])[:, 1], rtol=1e-9)
    assert (found["low(Yes)"] <= found["p(Yes)"]).mean() > 0.95
    assert run("report", folder / "model.hmcgp", "--out", "again.html") == command.OK
    outline(tmp_path / "again.html")


def test_regression_is_guessed_and_predicted(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=25)})
    frame["y"] = frame["x"] + 0.1 * rng.normal(size=25)
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = tmp_path / "out" / "model.hmcgp"
    arguments = ["--target", "y", "--sampler", "map", "--out", tmp_path / "out", "--quiet"]
    assert run("fit", tmp_path / "t.csv", *arguments) == command.OK
    assert "regression of 'y'" in capsys.readouterr().err
    assert run("predict", model, tmp_path / "t.csv") == command.OK
    assert capsys.readouterr().out.startswith("mean,sd,low,high\n")


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ("x,y\n1,2\n", ["--target", "z"], "the table has no column 'z': its columns are x, y."),
        ("x,y\n1,2\n", ["--target", "y", "--drop", "x"], "there are no inputs left"),
        ("x,y\n1,a\n2,\n", ["--target", "y"], "the target 'y' is missing in 1 of 2 rows"),
        (",x,y\n0,1,2\n", ["--target", "y"], "the column 'Unnamed: 0' has no name"),
        ("", ["--target", "y"], "cannot be read as a table"),
        ("x,y\n1,a\n2,a\n", ["--target", "y"], "class"),
        ("x,y\n1,a\n,b\n", ["--target", "y"], "contains NaN: in 1 of 2 rows, in the columns 'x'"),
        ("x,y\n1,a\n2,b\n", ["--target", "y", "--evidence", "epp"], "Did you mean 'ep'?"),
    ],
)
def test_bad_tables(tmp_path, capsys, columns, arguments, message):
    (tmp_path / "t.csv").write_text(columns)
    assert run("fit", tmp_path / "t.csv", *arguments, "--quiet", "--out", tmp_path / "out") == command.USAGE
    assert message in capsys.readouterr().err


def test_warnings_have_no_line_of_code(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("x,c,y\n" + "".join(f"{i * i % 17},1,{'ab'[i % 2]}\n" for i in range(20)))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        arguments = ["--target", "y", "--sampler", "map", "--out", tmp_path / "out", "--quiet"]
        assert run("fit", tmp_path / "t.csv", *arguments) == command.OK
    assert "\nhmcgp: 1 of 2 inputs are constant in the training rows (c)" in capsys.readouterr().err


def test_missing_files(tmp_path, capsys):
    assert run("fit", tmp_path / "no.csv", "--target", "y") == command.USAGE
    assert "there is no file" in capsys.readouterr().err
    assert run("predict", tmp_path / "no.hmcgp", tmp_path / "no.csv") == command.USAGE
    assert "no.hmcgp" in capsys.readouterr().err


def test_help_and_module():
    shown = subprocess.run([sys.executable, "-m", "hmcgp", "fit", "--help"], capture_output=True, text=True, check=True)
    assert "--target COLUMN" in shown.stdout


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
    page.write_text(page.read_text().replace("</body>", f"{probe}</body>"))
    dumped = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", f"--window-size={width},900", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    content, window, loaded = re.search(r"<title>(\d+) (\d+) (\w+)</title>", dumped).groups()
    assert int(content) <= int(window)
    assert loaded == "true"
