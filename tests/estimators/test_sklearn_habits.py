"""What users of scikit-learn expect beyond its checks: nested parameters, routing, inspection, pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hmcgp import GPClassifier, GPRegressor, Model, datasets, find_map
from hmcgp.errors import InvalidInput
from hmcgp.kernels import Linear, Matern, SquaredExponential
from hmcgp.likelihoods import Gaussian
from hmcgp.priors import LogNormal
from hmcgp.reporting import diagnostics
from hmcgp.samplers import HMC

FAST: dict[str, Any] = {"sampler": "map", "n_jobs": 1, "random_state": 1, "refine": None, "progressbar": False}


@pytest.fixture(scope="module")
def crabs():
    X, y = datasets.load_crabs(return_X_y=True)
    return X[::5][["FL", "RW"]].reset_index(drop=True), np.asarray(y)[::5]


@pytest.fixture(scope="module")
def fitted(crabs):
    return GPClassifier(SquaredExponential(ard=True), **FAST).fit(*crabs)


# -- parameters by name ------------------------------------------------------------------------------------------------


def test_parts_of_kernels_have_names():
    kernel = 2.0 * SquaredExponential(variance=LogNormal(0.0, 1.0)).on("RW") + Linear()
    found = GPClassifier(kernel, sampler=HMC(target_accept=0.9)).get_params()
    assert found["kernel__left__scale"] == 2.0
    assert found["kernel__left__kernel__kernel__variance__sigma"] == 1.0
    assert found["kernel__left__kernel__columns"] == ("RW",)
    assert found["sampler__target_accept"] == 0.9
    assert not any("__" in name for name in GPClassifier(kernel).get_params(deep=False))


def test_a_part_is_set_by_a_copy():
    kernel = SquaredExponential() + Linear()
    gp, other = GPClassifier(kernel), GPClassifier(kernel)
    gp.set_params(kernel__left__length_scale=2.0, kernel__right__variance=LogNormal(0.0, 1.0), draws=7)
    assert gp.kernel == SquaredExponential(length_scale=2.0) + Linear(variance=LogNormal(0.0, 1.0))
    assert gp.draws == 7
    assert other.kernel == kernel
    gp.set_params(kernel__length_scale=3.0, kernel=Matern())  # the kernel first
    assert gp.kernel == Matern(length_scale=3.0)
    classes = GPClassifier([Linear(), SquaredExponential()]).set_params(kernel__1__variance=1.5)
    assert classes.kernel == [Linear(), SquaredExponential(variance=1.5)]
    regressor = GPRegressor(likelihood=Gaussian(noise=0.1)).set_params(likelihood__noise=0.2)
    assert regressor.likelihood == Gaussian(noise=0.2)
    assert clone(gp).kernel == gp.kernel


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel__length_scale": 1.0}, "Invalid parameter 'length_scale' of 'kernel', which is None.*Give it a value"),
        ({"kernel": Linear(), "kernel__length_scale": 1.0}, "which is Linear.*: it has 'variance'"),
        ({"kernel": Linear(), "kernel__variance": -1.0}, "must be positive and finite"),
        ({"colonel__variance": 1.0}, "Invalid parameter 'colonel' for GPClassifier"),
        ({"draws__x": 1}, "it has no parts that can be set"),
    ],
)
def test_wrong_names_are_told(parameters, message):
    with pytest.raises(InvalidInput, match=message):
        GPClassifier().set_params(**parameters)


def test_grid_search_over_a_length_scale(crabs):
    gp = make_pipeline(StandardScaler(), GPClassifier(SquaredExponential(), **FAST))
    grid = {"gpclassifier__kernel__length_scale": [1.0, 30.0]}
    search = GridSearchCV(gp, grid, cv=2, scoring="neg_log_loss").fit(*crabs)
    assert search.best_params_ == {"gpclassifier__kernel__length_scale": 1.0}
    assert search.best_estimator_[-1].kernel_.length_scale == pytest.approx(1.0)


# -- results -----------------------------------------------------------------------------------------------------------


def test_logarithms_of_probabilities(crabs, fitted):
    X, _ = crabs
    np.testing.assert_array_equal(np.exp(fitted.predict_log_proba(X)), np.exp(np.log(fitted.predict_proba(X))))


def test_summary_is_rounded_for_reading(fitted):
    whole, shown = fitted.summary(round_to=None), fitted.summary()
    np.testing.assert_allclose(shown["mean"], whole["mean"], rtol=6e-3)
    assert max(len(f"{x:g}".replace(".", "").lstrip("0")) for x in shown["mean"]) <= 3
    rng = np.random.default_rng(0)
    table = diagnostics._rounded(
        pd.DataFrame(rng.gamma(100.0, 1e-5, size=(3, 9)), columns=diagnostics.COLUMNS).assign(r_hat=1.00049), 2
    )
    assert (table["r_hat"] == 1.0).all()
    assert (table["ess_bulk"] == 0.0).all()
    assert len(f"{table['mean'][0]:.10g}") <= len("0.0010")
    with pytest.raises(InvalidInput, match="'round_to'"):
        fitted.summary(round_to=0)


def test_the_text_of_a_maximum_is_short(fitted):
    text = repr(find_map(fitted.model_, random_state=0, n_restarts=2))
    assert text.startswith("MapResult(variance=")
    assert "converged, best of 2 searches" in text
    assert len(text) < 200
    wide = Model(np.random.default_rng(0).normal(size=(12, 12)), np.tile([-1.0, 1.0], 6),
                 kernel=SquaredExponential(ard=True))  # fmt: skip
    assert "… 5 more" in repr(find_map(wide, random_state=0, n_restarts=1))


def test_notebooks_show_the_state_of_a_fit(crabs, fitted):
    assert "fitted to" not in clone(fitted)._repr_html_()
    shown = fitted._repr_html_()
    assert "fitted to 40 rows, 2 inputs: FL, RW" in shown
    assert "one set of hyperparameters (map)" in shown
    assert fitted._repr_mimebundle_()["text/html"].count("<ul") == 1
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        sampled = GPClassifier(SquaredExponential(), draws=10, tune=20, chains=2, n_jobs=1, random_state=0).fit(*crabs)
    assert "2 chains of 10 draws (hmc)" in sampled._repr_html_()
    assert "probabilities: " in sampled._repr_html_()


# -- scikit-learn around it --------------------------------------------------------------------------------------------


def test_set_output_reaches_the_predictor_as_names(crabs):
    """set_output is of transformers; in a pipeline it gives the predictor names of columns, and tables to predict."""
    X, y = crabs
    pipeline = make_pipeline(StandardScaler(), GPClassifier(SquaredExponential(ard=True), **FAST))
    pipeline.set_output(transform="pandas").fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == ["FL", "RW"]
    assert pipeline[-1].model_.input_names == ["FL", "RW"]
    assert pipeline.predict_proba(X).shape == (40, 2)
    assert not hasattr(pipeline[-1], "set_output")


def test_weights_are_routed(crabs):
    X, y = crabs
    weight = np.where(np.arange(40) % 2, 3.0, 1.0)
    seen = []

    class Spy(GPClassifier):
        def fit(self, X, y, sample_weight=None):
            seen.append(sample_weight)
            return super().fit(X, y, sample_weight)

        def score(self, X, y, sample_weight=None):
            seen.append(sample_weight)
            return super().score(X, y, sample_weight)

    with sklearn.config_context(enable_metadata_routing=True):
        gp = Spy(SquaredExponential(), **FAST).set_fit_request(sample_weight=True)
        gp = gp.set_score_request(sample_weight=True)
        cross_validate(gp, X, y, cv=2, params={"sample_weight": weight})
        regressor = GPRegressor().set_fit_request(noise_variance=True, sample_weight=False)
        assert regressor.get_metadata_routing().fit.requests == {"noise_variance": True, "sample_weight": False}
    assert [len(w) for w in seen] == [20, 20] * 2
    assert all(set(w) == {1.0, 3.0} for w in seen)


def test_inspection_of_scikit_learn_solves_nothing_again(crabs, fitted, monkeypatch):
    """After the first prediction, importances and partial dependence are products of what was kept."""
    X, y = crabs
    ours = fitted.effect("FL", values=np.linspace(9.0, 17.0, 5))
    fitted.predict_proba(X)
    solves = []
    monkeypatch.setattr(Model, "posterior", lambda self, *a, **k: solves.append(a))
    importance = permutation_importance(fitted, X, y, n_repeats=3, random_state=0, scoring="neg_log_loss")
    assert importance.importances_mean.shape == (2,)
    assert importance.importances_mean.min() > 0.0
    found = partial_dependence(fitted, X, ["FL"], custom_values={"FL": ours.values[0]})
    assert solves == []
    np.testing.assert_allclose(found["average"][0], ours.mean, atol=2e-3)
    fitted.clear_cache()
    with pytest.raises(TypeError):  # the negative control: now it must solve, and gets None
        fitted.predict_proba(X)
