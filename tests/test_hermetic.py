"""Nothing is written but what the user asks for, wherever the package is used; and tests cannot write elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hmcgp
from tests.helpers.outside_writes import watching
from tests.helpers.processes import child_environment, empty_home

SESSION = """
import matplotlib
matplotlib.use("Agg")
import warnings
import numpy as np
from hmcgp import GPClassifier, plots

warnings.simplefilter("ignore")  # chains here are short
X = np.linspace(-1.0, 1.0, 30)[:, None]
y = np.where(np.sin(4.0 * X[:, 0]) > 0.0, "\\u03bb", "\\u03bc")
gp = GPClassifier(draws=40, tune=40, chains=2, random_state=0, progressbar=False).fit(X, y)
gp.save("model.hmcgp")
GPClassifier.load("model.hmcgp").predict_proba(X)
gp.to_arviz().to_netcdf("posterior.nc")
plots.trace(gp)
plots.calibration(gp, X, y).figure.savefig("calibration.png")
gp.report("report.html")
"""
# what other libraries keep below the home folder of the user
OF_LIBRARIES = [".cache/arviz", ".cache/fontconfig", ".cache/matplotlib", ".config/matplotlib"]


def files_below(folder):
    """Relative paths of the files in a folder, without compiled modules."""
    return {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts}


@pytest.mark.parametrize("locale", ["C", pytest.param("C.UTF-8", marks=pytest.mark.slow)])
def test_a_session_writes_only_what_it_is_asked_for(tmp_path, locale):
    work = tmp_path / "a folder, λ"
    work.mkdir()
    home = empty_home(tmp_path)
    package = Path(hmcgp.__file__).parent
    before = files_below(package)
    # without UTF-8 mode, Python in the C locale opens text files as ASCII
    environment = child_environment(**home, LC_ALL=locale, PYTHONUTF8="0", TMPDIR=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", SESSION], cwd=work, env=environment, check=False, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert files_below(work) == {"model.hmcgp", "posterior.nc", "calibration.png", "report.html"}
    assert [p for p in files_below(home["HOME"]) if not p.startswith(tuple(OF_LIBRARIES))] == []
    assert files_below(package) == before
    assert sorted(os.listdir(tmp_path)) == ["a folder, λ", "home"]


def write_text(path):
    path.write_text("x", encoding="utf-8")


def rename(path):
    write_text(path.parent / "inside" / "old")
    (path.parent / "inside" / "old").rename(path)


def write_by_descriptor(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


@pytest.mark.parametrize("write", [write_text, Path.mkdir, rename, write_by_descriptor])
def test_a_write_outside_is_noticed(tmp_path, write):
    """Negative control of `no_writes_outside`, with a narrower choice of folders."""
    (tmp_path / "inside").mkdir()
    with watching([tmp_path / "inside"]) as watch:
        write_text(tmp_path / "inside" / "allowed")
        assert watch.taken() == []
        write(tmp_path / "outside")
        assert watch.taken() == [str(tmp_path / "outside")]
        (tmp_path / "inside" / "allowed").read_text(encoding="utf-8")
        assert watch.taken() == []


def test_a_link_does_not_hide_a_write_outside(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "elsewhere")
    with watching([tmp_path / "inside"]) as watch:
        write_text(tmp_path / "inside" / "link" / "x")
        assert watch.taken() == [str(tmp_path / "inside" / "link" / "x")]


def test_folders_that_lead_to_an_allowed_one_may_be_made(tmp_path):
    """arviz makes ~/.cache, in an empty home, on the way to its own folder there."""
    with watching([tmp_path / ".cache" / "arviz"]) as watch:
        (tmp_path / ".cache" / "arviz").mkdir(parents=True)
        assert watch.taken() == []
        write_text(tmp_path / ".cache" / "x")
        assert watch.taken() == [str(tmp_path / ".cache" / "x")]


def test_this_session_is_watched(session_watch, tmp_path):
    assert str(tmp_path).startswith(tuple(session_watch.allowed))
    session_watch.look_at("/outside")
    assert session_watch.taken() == ["/outside"]
