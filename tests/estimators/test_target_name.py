"""The name of the targets: learnt in every estimator, shown in plots, saved."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor, plots
from hmcgp.estimators import saving
from hmcgp.estimators.columns import target_name

RNG = np.random.default_rng(2)
X = pd.DataFrame(RNG.normal(size=(24, 1)), columns=["dose"])
Y = np.digitize(X["dose"] + 0.3 * RNG.normal(size=24), [-0.4, 0.4])
SETTINGS = {"sampler": "map", "random_state": 0, "progressbar": False, "n_jobs": 1}
LABELS = {
    GPClassifier: "P(grade = yes)",
    GPRegressor: "grade",
    GPCounts: "rate of grade",
    GPOrdinal: "P(grade = 0)",
}


def targets(estimator, name="grade"):
    return pd.Series(np.where(Y > 0, "yes", "no") if estimator is GPClassifier else Y, name=name)


@pytest.mark.parametrize("estimator", LABELS)
def test_plots_show_the_name_of_the_targets(estimator, tmp_path):
    y = targets(estimator)
    gp = estimator(**SETTINGS).fit(X, y)
    assert gp.target_name_ == "grade"
    gp.save(tmp_path / "fit.hmcgp")
    for fit in (gp, estimator.load(tmp_path / "fit.hmcgp")):
        assert fit.target_name_ == "grade"
        assert plots.effect(fit, "dose")[0].get_ylabel() == LABELS[estimator]
    if estimator is not GPOrdinal:
        label = "grade" if estimator is GPCounts else LABELS[estimator]
        assert plots.predictive(gp, X, np.asarray(y)).get_ylabel() == label  # also where y itself has no name
    gp.fit(X, np.asarray(y))
    assert not hasattr(gp, "target_name_")
    gp.save(tmp_path / "unnamed.hmcgp")
    assert not hasattr(estimator.load(tmp_path / "unnamed.hmcgp"), "target_name_")


def test_files_without_the_name_of_the_targets_load(tmp_path, monkeypatch):
    gp = GPRegressor(**SETTINGS).fit(X, targets(GPRegressor, name=None))
    monkeypatch.setattr(saving, "OPTIONAL", ("feature_names_in_",))
    monkeypatch.setattr(saving, "COMMON", {k: v for k, v in vars(saving)["COMMON"].items() if k != "target_name_"})
    gp.save(tmp_path / "old.hmcgp")
    monkeypatch.undo()
    with zipfile.ZipFile(tmp_path / "old.hmcgp") as archive:
        text = "".join(archive.read(n).decode() for n in archive.namelist() if n.endswith(".json"))
        assert json.dumps("target_name_") not in text
    np.testing.assert_allclose(GPRegressor.load(tmp_path / "old.hmcgp").predict(X), gp.predict(X))


def test_names_of_any_make():
    polars = pytest.importorskip("polars")
    assert target_name(polars.Series("grade", [1, 2])) == "grade"
    assert target_name(polars.DataFrame({"grade": [1, 2]})) == "grade"
    assert target_name(pd.DataFrame({"grade": [1, 2]})) == "grade"
    assert target_name(pd.DataFrame({"a": [1, 2], "b": [1, 2]})) is None
    assert [target_name(y) for y in (pd.Series([1]), pd.Series([1], name=3), np.ones(2), [1, 2])] == [None] * 4
