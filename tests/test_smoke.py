"""One short fit per estimator, saved, loaded, exported and plotted: what `scripts/lower_bounds` runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import hmcgp
from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor, plots
from hmcgp.runtime import arviz_compat

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # chains here are short
    pytest.mark.filterwarnings("ignore::hmcgp.errors.HmcgpWarning"),
]

X = pd.DataFrame({"a": np.linspace(-1.0, 1.0, 24), "b": np.cos(5.0 * np.arange(24))})
F = 2.0 * X["a"] + np.sin(3.0 * X["b"])
SHORT = {"draws": 40, "tune": 40, "chains": 2, "random_state": 0, "progressbar": False}
TARGETS: dict[str, tuple[Any, Any]] = {
    "two classes": (GPClassifier, np.where(F > 0.0, "yes", "no")),
    "three classes": (GPClassifier, np.digitize(F, [-0.7, 0.7])),
    "regression": (GPRegressor, F.to_numpy()),
    "counts": (GPCounts, np.round(np.exp(F)).astype(int)),
    "ordinal": (GPOrdinal, np.digitize(F, [-0.7, 0.7])),
}


@pytest.mark.parametrize("target", TARGETS)
def test_fit_predict_save_load_and_export(target, tmp_path):
    estimator, y = TARGETS[target]
    gp = estimator(**SHORT).fit(X, y)
    predicted = gp.predict(X)
    assert predicted.shape == y.shape
    gp.save(tmp_path / "model.hmcgp")
    np.testing.assert_array_equal(estimator.load(tmp_path / "model.hmcgp").predict(X), predicted)

    gp.to_arviz().to_netcdf(str(tmp_path / "posterior.nc"))
    tree = arviz_compat.import_arviz().from_netcdf(str(tmp_path / "posterior.nc"))
    assert dict(tree["posterior"].sizes)["chain"] == 2
    assert "r_hat" in gp.summary()


@pytest.mark.usefixtures("clean_pyplot")
def test_plots_and_report(tmp_path):
    gp = GPClassifier(**SHORT).fit(X, TARGETS["two classes"][1])
    assert len(plots.calibration(gp, X, TARGETS["two classes"][1]).lines)
    plots.trace(gp)
    gp.report(tmp_path / "report.html")
    assert "<svg" in (page := (tmp_path / "report.html").read_text(encoding="utf-8")) or "<img" in page


@pytest.mark.parametrize("evidence", ["laplace", "ep"])
@pytest.mark.parametrize("sampler", ["nuts", "map"])
def test_samplers_and_evidence(evidence, sampler):
    y = TARGETS["two classes"][1]
    gp = GPClassifier(evidence=evidence, sampler=sampler, **SHORT).fit(X, y)
    assert gp.score(X, y) > 0.7
    assert gp.loo().elpd < 0.0


def test_joint_sampling():
    y = np.where(F > 0.0, 1.0, -1.0)
    gp = GPClassifier(**SHORT).fit(X, y)
    sample = hmcgp.sample_jointly(gp.model_, draws=8, tune=10, chains=2, random_state=0, progressbar=False)
    assert isinstance(sample, hmcgp.JointSample)
