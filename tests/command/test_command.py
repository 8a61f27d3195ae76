"""The command `hmcgp`."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier, GPRegressor, command
from tests.helpers.report import outline, pima_table

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning"),
]


@pytest.fixture(scope="module")
def table():
    return pima_table()


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
        ("x,y\n1,a\n,b\n", ["--target", "y", "--missing", "error"], "contains NaN: in 1 of 2 rows, in the columns 'x'"),
        ("x,y\n1,a\n2,b\n", ["--target", "y", "--evidence", "epp"], "Did you mean 'ep'?"),
    ],
)
def test_bad_tables(tmp_path, capsys, columns, arguments, message):
    (tmp_path / "t.csv").write_text(columns, encoding="utf-8")
    assert run("fit", tmp_path / "t.csv", *arguments, "--quiet", "--out", tmp_path / "out") == command.USAGE
    assert message in capsys.readouterr().err


def test_warnings_have_no_line_of_code(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(
        "x,c,y\n" + "".join(f"{i * i % 17},1,{'ab'[i % 2]}\n" for i in range(20)), encoding="utf-8"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        arguments = ["--target", "y", "--sampler", "map", "--out", tmp_path / "out", "--quiet"]
        assert run("fit", tmp_path / "t.csv", *arguments) == command.OK
    assert "\nhmcgp: 1 of 2 inputs are constant in the training rows (c)" in capsys.readouterr().err


def test_missing_files(tmp_path, capsys):
    assert run("fit", tmp_path / "no.csv", "--target", "y") == command.USAGE
    assert "there is no file" in capsys.readouterr().err
    assert run("predict", tmp_path / "no.hmcgp", tmp_path / "no.csv") == command.USAGE
    shown = capsys.readouterr().err
    assert "no.hmcgp' cannot be read: it does not exist" in shown
    assert "damaged" not in shown


def test_files_where_folders_belong(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n", encoding="utf-8")
    arguments = ["fit", tmp_path / "t.csv", "--target", "y", "--quiet", "--out"]
    assert run(*arguments, tmp_path / "t.csv") == command.USAGE
    assert "t.csv' cannot be made: there is a file of that name" in capsys.readouterr().err
    assert run(*arguments, tmp_path / "t.csv" / "below") == command.USAGE
    assert "is a file, not a folder" in capsys.readouterr().err


def test_a_full_disk_is_no_traceback(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "read_table", full)
    assert run("fit", tmp_path / "t.csv", "--target", "y") == command.FAILED
    assert "No space left on device" in capsys.readouterr().err


def test_either_kind_is_loaded_by_its_base(tmp_path):
    for cls in (GPClassifier, GPRegressor):
        cls(draws=7).save(tmp_path / "gp")
        assert type(command.load(tmp_path / "gp")) is cls


def test_gaps_have_indicators(tmp_path):
    rows = "".join(f"{'' if i % 5 == 0 else i},{i},{'ab'[i * i % 3 > 0]}\n" for i in range(20))
    (tmp_path / "t.csv").write_text("x,z,y\n" + rows, encoding="utf-8")
    arguments = ["--target", "y", "--sampler", "map", "--out", tmp_path / "out", "--quiet", "--missing", "indicator"]
    assert run("fit", tmp_path / "t.csv", *arguments) == command.OK
    gp = command.load(tmp_path / "out" / "model.hmcgp")
    assert gp.get_feature_names() == gp.model_.input_names == ["x", "z", "missingindicator_x"]


def test_parquet_is_read_as_such(tmp_path, capsys, monkeypatch):
    table = pd.DataFrame({"x": np.arange(20.0), "y": list("ab" * 10)})
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    seen = []
    monkeypatch.setattr(pd, "read_parquet", lambda file: seen.append(file) or table)
    arguments = ["--target", "y", "--sampler", "map", "--out", tmp_path / "out", "--quiet"]
    assert run("fit", tmp_path / "t.parquet", *arguments) == command.OK
    assert seen == [tmp_path / "t.parquet"]

    def without_pyarrow(file):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", without_pyarrow)
    assert run("fit", tmp_path / "t.parquet", *arguments) != command.OK
    assert "pip install pyarrow" in capsys.readouterr().err


def test_help_and_module():
    shown = subprocess.run(
        [sys.executable, "-m", "hmcgp", "fit", "--help"], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert "--target COLUMN" in shown.stdout


def test_compile_passes_its_options_on(monkeypatch, capsys):
    import hmcgp.compilation

    asked = []
    monkeypatch.setattr(hmcgp.compilation, "compile_functions", lambda *a, **k: asked.append((a, k)) or "done")
    assert command.main(["compile", "--fits", "logistic", "gaussian", "--jobs", "3", "--quiet"]) == 0
    assert command.main(["compile"]) == 0
    assert asked == [
        ((["logistic", "gaussian"],), {"n_jobs": 3, "progressbar": False}),
        ((None,), {"n_jobs": -1, "progressbar": True}),
    ]
    assert capsys.readouterr().err == "done\ndone\n"


def test_compile_names_the_fits_that_it_knows(capsys):
    assert command.main(["compile", "--fits", "nonsense"]) == 2
    assert "no compiled functions of 'nonsense': --fits takes binomial, gaussian" in capsys.readouterr().err
