"""Fits on a surrogate: all that is made of draws works with theirs."""

from __future__ import annotations

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor, datasets
from hmcgp.errors import InvalidInput
from hmcgp.kernels import SquaredExponential
from hmcgp.numerics.weighted import pareto_smoothed
from hmcgp.posterior.evidence_bounds import log_evidence_per_draw

X, Y = datasets.load_crabs(return_X_y=True)
X, Y = X.to_numpy(), np.asarray(Y)
ORDER = np.random.default_rng(0).permutation(len(Y))
TRAIN, TEST = ORDER[:60], ORDER[60:]
SHORT = {"draws": 200, "tune": 200, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 1}


def fitted(**settings):
    kernel = SquaredExponential()
    return GPClassifier(kernel, **(SHORT | {"sampler": "surrogate"} | settings)).fit(X[TRAIN], Y[TRAIN])


@pytest.fixture(scope="module")
def gp():
    return fitted()


@pytest.fixture(scope="module")
def plain():
    return fitted(refine=None)


def test_weights_to_laplace_and_on_to_ep_are_one_product(gp, plain):
    assert gp.sampling_trace_.sampler == plain.trace_.sampler == "surrogate"
    np.testing.assert_array_equal(gp.sampling_trace_.draws, plain.trace_.draws)
    np.testing.assert_array_equal(gp.sampling_trace_.log_weight, plain.trace_.log_weight)
    log_z = [log_evidence_per_draw(model, plain.trace_.flat) for model in (gp.model_, plain.model_)]
    expected = pareto_smoothed(plain.trace_.log_weight.ravel() + log_z[0] - log_z[1])
    assert gp.refinement_.method == "weighted"
    np.testing.assert_allclose(np.sort(gp.trace_.log_weight, axis=None), np.sort(expected.log_weight), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"refine": None}, {"evidence": "ep"}], ids=["default", "laplace", "ep"])
def test_probabilities_are_those_of_hmc(gp, settings):
    fit = gp if not settings else fitted(**settings)
    other = fitted(**(settings | {"sampler": "hmc", "draws": 600}))
    p, q = fit.predict_proba(X[TEST]), other.predict_proba(X[TEST])
    assert np.sqrt(np.mean((p - q) ** 2)) < 0.01
    mean, sd = other.summary()["mean"], other.summary()["sd"]
    error = (np.log(fit.summary()["median"]) - np.log(other.summary()["median"])).abs()
    assert (error < 0.3 * sd / mean + 0.1).all()


def test_saved_and_loaded(gp, tmp_path):
    gp.save(tmp_path / "fit.hmcgp")
    again = GPClassifier.load(tmp_path / "fit.hmcgp")
    np.testing.assert_array_equal(again.predict_proba(X[TEST]), gp.predict_proba(X[TEST]))
    assert again.sampling_trace_.note == gp.sampling_trace_.note != ""
    np.testing.assert_array_equal(again.sampling_trace_.log_weight, gp.sampling_trace_.log_weight)


def test_exported(plain):
    tree = plain.to_arviz(resample=False)
    assert tree.attrs["sampler"] == "surrogate"
    assert tree.attrs["sampler_note"] == plain.trace_.note
    np.testing.assert_array_equal(tree.sample_stats["surrogate_lp"].values, plain.trace_.stats["surrogate_lp"])
    np.testing.assert_array_equal(tree.sample_stats["log_weight"].values, plain.trace_.log_weight)


def test_rows_appended(plain, tmp_path):
    plain.save(tmp_path / "fit.hmcgp")
    grown = GPClassifier.load(tmp_path / "fit.hmcgp").append(X[TEST[:2]], Y[TEST[:2]])
    assert grown.trace_.n_effective > 0.5 * plain.trace_.n_effective
    assert grown._share_at_fit() == pytest.approx(plain.trace_.n_effective / len(plain.trace_))


def test_regression():
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-2.0, 2.0, size=(40, 1))
    y = np.sin(2.0 * inputs[:, 0]) + 0.1 * rng.normal(size=40)
    settings = SHORT | {"draws": 400}
    ours, other = (GPRegressor(sampler=name, **settings).fit(inputs, y) for name in ("surrogate", "hmc"))
    assert ours.trace_.sampler == "surrogate"
    np.testing.assert_allclose(ours.predict(inputs), other.predict(inputs), atol=0.02)


def test_checkpoint_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match=r"takes no 'checkpoint'.*sampler='hmc'"):
        fitted(checkpoint=tmp_path / "run.nc")
