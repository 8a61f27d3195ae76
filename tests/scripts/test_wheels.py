"""Wheels with compiled functions: nothing is compiled after they are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import wheels

ROOT = Path(__file__).parents[2]

# Runs in the environment of the wheel.  Prints the functions that are compiled in each fit.
FITS = """
import json, sys, warnings
import numpy as np
from numba.core import event
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor

warnings.simplefilter("ignore")  # short chains
quick = dict(draws=30, tune=40, chains=2, random_state=3, progressbar=False)
full = dict(random_state=3, progressbar=False)
iris, classes = load_iris(return_X_y=True)
cells, benign = load_breast_cancer(return_X_y=True)
X, y = load_diabetes(return_X_y=True)
three, levels, counts = classes[::2], np.digitize(y, [100, 180])[:60], np.round(y[:60] / 50).astype(int)

def used(gp, X, *names):
    gp.predict(X)
    for name in ("predict_proba", "predict_proba_interval", "predict_interval", *names):
        if hasattr(gp, name):
            getattr(gp, name)(X)
            getattr(gp, name)(X[:1])
    gp.loo()
    gp.effect(0)

FITS = {
    "two classes, surrogate": lambda: used(GPClassifier(**full).fit(cells[:160, :4], benign[:160]), cells[160:200, :4]),
    "two classes, HMC": lambda: used(GPClassifier(**quick).fit(cells[:50], benign[:50]), cells[50:60]),
    "two classes, inducing": lambda: used(GPClassifier(inducing=15, **quick).fit(X[:60], levels > 0), X[60:90]),
    "three classes": lambda: used(GPClassifier(**quick).fit(iris[::2], three), iris[1::2]),
    "Gaussian": lambda: used(GPRegressor(**quick).fit(X[:60], y[:60]), X[60:90]),
    "Gaussian, inducing": lambda: used(GPRegressor(inducing=15, **quick).fit(X[:60], y[:60]), X[60:90]),
    "Student-t": lambda: used(GPRegressor(likelihood="student_t", **quick).fit(X[:60], y[:60]), X[60:90]),
    "counts": lambda: used(GPCounts(**quick).fit(X[:60], counts), X[60:90], "predict_rate"),
    "ordinal": lambda: used(GPOrdinal(**quick).fit(X[:60], levels), X[60:90]),
}
found = {}
for name in json.loads(sys.argv[1]) or FITS:
    with event.install_recorder("numba:compile") as recorder:
        FITS[name]()
    found[name] = sorted({e.data["dispatcher"].py_func.__qualname__ for _, e in recorder.buffer})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Interpreter of an empty environment in which the wheel for this Python has been installed, and the wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    out = folder / "dist"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, ROOT]
    subprocess.run(pip, check=True)
    (pure,) = out.iterdir()
    wheel = wheels.build(pure, sys.executable, out)
    return wheels.environment(folder / "venv", sys.executable, wheel), wheel


def compiled_functions(python, tmp_path, *names, **variables):
    """Functions that each fit compiles, in a new process with an empty home and cache."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    inherited |= {"HOME": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")} | variables
    command = [python, "-c", FITS, json.dumps(names)]
    done = subprocess.run(command, env=inherited, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_no_fit_of_the_wheel_compiles(installed, tmp_path):
    compiled = compiled_functions(installed[0], tmp_path)
    assert compiled == {name: [] for name in compiled}
    assert len(compiled) == 9


@pytest.mark.slow
def test_fits_compile_where_the_wheel_is_for_another_processor(installed, tmp_path):
    """The count of the other test can see functions being compiled."""
    compiled = compiled_functions(installed[0], tmp_path, "Gaussian", NUMBA_CPU_NAME="generic")
    assert compiled["Gaussian"]


@pytest.mark.slow
def test_the_wheel_names_what_it_is_for(installed):
    wheel = installed[1]
    python = "cp{}{}".format(*sys.version_info)
    assert f"-{python}-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as file:
        manifest = json.loads(file.read("hmcgp/machine_code/manifest.json"))
        code = file.read("hmcgp/machine_code/functions.bin")
        compressed = sum(info.compress_size for info in file.infolist() if "/machine_code/" in info.filename)
    assert manifest["cpu"] == wheels.baseline()[0]
    assert manifest["cpu_features"] == list(wheels.baseline()[1])
    assert str(ROOT).encode() not in code
    assert compressed < 8e6
