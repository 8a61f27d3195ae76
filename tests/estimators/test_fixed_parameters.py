"""Estimators whose kernel has nothing to infer: one draw, without parameters."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor, Model, sample
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.posterior import predict

X = np.random.default_rng(0).normal(size=(40, 2))
LABELS = np.where(X[:, 0] > 0.0, "a", "b")
KERNEL = SquaredExponential(variance=2.0, length_scale=1.5)


@pytest.mark.parametrize("sampler", [None, "nuts", "map", "jumps"])
def test_fit_predict_report_and_save(sampler, tmp_path):
    gp = GPClassifier(kernel=KERNEL, sampler=sampler, standardize=False, refine=None).fit(X, LABELS)
    assert gp.trace_.draws.shape == (1, 1, 0)
    p = gp.predict_proba(X[:5])
    model = Model(X, np.where(LABELS == "b", 1.0, -1.0), kernel=KERNEL)
    np.testing.assert_allclose(p, predict.probabilities(model, np.empty((1, 0)), X[:5]), rtol=1e-10)
    assert gp.summary().shape[0] == 0
    assert "r_hat" in gp.summary().columns
    assert np.isfinite(gp.loo().elpd)
    assert gp.to_arviz().sample_stats["lp"].shape == (1, 1)
    gp.save(tmp_path / "gp.hmcgp")
    np.testing.assert_array_equal(GPClassifier.load(tmp_path / "gp.hmcgp").predict_proba(X[:5]), p)


def test_regressor():
    gp = GPRegressor(kernel=KERNEL, likelihood=Gaussian(0.1)).fit(X, np.sin(X[:, 0]))
    assert gp.trace_.names == []
    assert gp.score(X, np.sin(X[:, 0])) > 0.9


def test_sample_gives_one_draw_and_still_checks_its_arguments():
    model = Model(X, np.where(LABELS == "b", 1.0, -1.0), kernel=KERNEL)
    trace = sample(model, draws=10, chains=2)
    assert (len(trace), trace.flat.shape, trace.sampler) == (1, (1, 0), "fixed")
    assert trace.stats["lp"].item() == model.evaluate(np.empty(0)).logdensity
    with pytest.raises(InvalidInput, match="'draws'"):
        sample(model, draws=0)
