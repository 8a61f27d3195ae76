"""Settings that are wrong are refused before any work, in words that say what to do."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from hmcgp import GPClassifier, GPRegressor, Model, find_map, plots, sample
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.evidence import EP, Iterative, Laplace
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import LabelNoise, Logistic, Probit
from hmcgp.runtime.checks import name_among
from hmcgp.samplers import HMC, NUTS, JumpingHMC
from hmcgp.samplers.chains.workers import _what_happened

RNG = np.random.default_rng(1)
X = RNG.normal(size=(30, 2))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=30) > 0.0, "yes", "no")
KINDS = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
SETTINGS: dict[str, Any] = {"sampler": "map", "random_state": 0, "progressbar": False}


class Untouchable:
    """A table that must not be looked at."""

    def __getattribute__(self, name):
        raise AssertionError(f"the table was asked for {name}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"standardize": "no"}, "'standardize' must be True or False; got 'no'"),
        ({"standardize": 1}, "'standardize' must be True or False; got 1"),
        ({"standardize": None}, "'standardize' must be True or False; got None"),
        ({"progressbar": "yes"}, "'progressbar' must be True or False; got 'yes'"),
        ({"draws": 10.0}, "'draws' must be an integer >= 1; got 10.0"),
        ({"draws": "100"}, "'draws' must be an integer"),
        ({"tune": None}, "'tune' must be an integer"),
        ({"chains": True}, "'chains' must be an integer"),
        ({"predict_draws": "all"}, "'predict_draws' must be an integer"),
        ({"n_jobs": "all"}, "'n_jobs' must be None or an integer"),
        ({"n_jobs": 1.5}, "'n_jobs' must be None or an integer"),
        ({"random_state": "seed"}, "'random_state' must be None"),
        ({"random_state": 1.5}, "'random_state' must be None"),
        ({"max_time": "1h"}, "'max_time' must be a positive number of seconds"),
        ({"max_time": True}, "'max_time' must be a positive number of seconds"),
        ({"checkpoint": 3}, "'checkpoint' must be the path of a file"),
        (
            {"sampler": "nut"},
            r"one of \['hmc', 'jumps', 'map', 'metropolis', 'nuts', 'surrogate'\] .*Did you mean 'nuts'",
        ),
        ({"sampler": 3}, r"one of \['hmc', 'jumps', 'map', 'metropolis', 'nuts', 'surrogate'\] .*got 3"),
        ({"sampler": HMC}, r"'sampler' is the class HMC: pass an instance of it, sampler=HMC\(\)"),
        ({"evidence": "laplac"}, "Did you mean 'laplace'"),
        ({"evidence": EP}, r"evidence=EP\(\)"),
        ({"likelihood": "logit"}, "Did you mean 'logistic'"),
        ({"likelihood": Probit}, r"likelihood=Probit\(\)"),
        ({"likelihood": 3}, "'likelihood' must be one of .*or a Likelihood"),
        ({"likelihood": "gaussian"}, "take GPRegressor for them, or likelihood='logistic'"),
    ],
)
def test_settings_are_refused_before_the_table_is_read(settings, message):
    for sampler in ("map", "hmc"):  # whether they are used or not
        with pytest.raises(InvalidInput, match=message):
            GPClassifier(**{"sampler": sampler, **settings}).fit(Untouchable(), Untouchable())


@pytest.mark.parametrize("likelihood", ["logistic", "Probit", Logistic(), "softmax"])
def test_a_regressor_names_the_classifier(likelihood):
    with pytest.raises(InvalidInput, match=r"is for .*, and GPRegressor explains numbers: take GPClassifier"):
        GPRegressor(likelihood=likelihood).fit(Untouchable(), Untouchable())


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (SquaredExponential, r"'kernel' is the class SquaredExponential: .*kernel=SquaredExponential\(\)"),
        ([SquaredExponential, SquaredExponential], r"kernel=SquaredExponential\(\)"),
        ("rbf", r"such as SquaredExponential\(\); got 'rbf'\.$"),
        (RBF(), r"got RBF\(length_scale=1\) of sklearn.gaussian_process.kernels"),
    ],
)
def test_kernels_that_are_none(kernel, message):
    with pytest.raises(InvalidInput, match=message):
        GPClassifier(kernel, **SETTINGS).fit(X, Y)


def test_class_weight_is_refused_by_name():
    with pytest.raises(InvalidInput, match=r"'class_weight' must be .*'balanced'.*Did you mean 'balanced'"):
        GPClassifier(class_weight="ballanced", **SETTINGS).fit(X, Y)


def test_flags_and_numbers_of_samplers_have_their_types():
    for build, message in [
        (lambda: HMC(jitter="a lot"), "'jitter' must be a number x with 0 <= x < 1; got 'a lot'"),
        (lambda: HMC(jitter=1.0), "'jitter'"),
        (lambda: HMC(dense="yes"), "'dense' must be True, False or None"),
        (lambda: NUTS(target_accept="high"), "'target_accept' must be a number x with 0 < x < 1"),
        (lambda: NUTS(max_depth="deep"), "'max_depth' must be an integer from 1 to 20"),
        (lambda: NUTS(step_size=True), "'step_size' must be positive and finite"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            build()
    HMC(jitter=0.0, dense=np.True_)
    with pytest.raises(InvalidInput, match="'progressbar' must be True or False"):
        sample(Model(X, np.sign(X[:, 0])), progressbar="no")


# -- names -----------------------------------------------------------------------------------------------------------


def test_names_are_read_in_any_case():
    lower = GPClassifier(likelihood="probit", evidence="ep", **SETTINGS).fit(X, Y)
    upper = GPClassifier(likelihood="Probit", evidence="EP", **{**SETTINGS, "sampler": "MAP"}).fit(X, Y)
    assert upper.get_params()["evidence"] == "EP"  # a setting stays as it was given
    np.testing.assert_array_equal(upper.predict_proba(X), lower.predict_proba(X))
    several = GPClassifier(likelihood="Probit", evidence="EP", **SETTINGS).fit(X, KINDS)
    assert type(several.model_.evidence).__name__ == "MultinomialEP"
    assert GPRegressor(likelihood="Gaussian", evidence="Exact", outputs="Independent", **SETTINGS).fit(X, X[:, 0])
    assert isinstance(Model(X, np.sign(X[:, 0]), evidence="Laplace").evidence, Laplace)
    assert LabelNoise(link="Step").link == "step"
    assert LabelNoise(link="Step") == LabelNoise(link="step")
    assert Logistic(averaging="MacKay").averaging == "mackay"
    assert EP(sweeps="Sequential").sweeps == "sequential"
    assert Laplace(newton="Conjugate_Gradients").newton == "conjugate_gradients"
    assert Model(X, X[:, 0], likelihood="gaussian", evidence="Iterative").evidence == Iterative()
    assert find_map(Model(X, np.sign(X[:, 0])), method="LBFGS", n_restarts=1).converged
    assert sample(Model(X, np.sign(X[:, 0])), "NUTS", draws=2, tune=2, chains=1, progressbar=False).sampler == "nuts"


def test_the_closest_name_is_suggested_and_no_other():
    with pytest.raises(InvalidInput, match=r"'a' must be one of \['hmc', 'nuts'\] or more; got 'nutz'.*'nuts'"):
        name_among("a", "nutz", ["nuts", "hmc"], " or more")
    with pytest.raises(InvalidInput, match=r"got 'gibbs'\.$"):
        name_among("a", "gibbs", ["nuts", "hmc"])


def test_samplers_of_estimators_are_named_to_those_who_sample_a_model():
    model = Model(X, np.sign(X[:, 0]))
    with pytest.raises(InvalidInput, match=r"sampler='map' is a setting of the estimators .* call find_map\(model\)"):
        sample(model, "map")
    with pytest.raises(InvalidInput, match=r"sample\(model, JumpingHMC\(modes=find_modes\(model\)\)\)"):
        sample(model, "Jumps")
    with pytest.raises(InvalidInput, match=r"'sampler' is the class JumpingHMC"):
        sample(model, JumpingHMC)


# -- evidence --------------------------------------------------------------------------------------------------------


def test_evidence_is_chosen_by_the_likelihood():
    assert GPClassifier().evidence is None
    for likelihood, y, name in [
        ("logistic", Y, "Laplace"),
        ("probit", Y, "Laplace"),
        ("label_noise", Y, "EP"),
        ("logistic", KINDS, "SoftmaxLaplace"),
        ("probit", KINDS, "MultinomialEP"),
    ]:
        gp = GPClassifier(SquaredExponential(), likelihood=likelihood, refine=None, **SETTINGS).fit(X, y)
        assert type(gp.model_.evidence).__name__ == name, likelihood


def test_laplace_with_label_noise_names_ep():
    with pytest.raises(InvalidInput, match=r"Laplace cannot integrate LabelNoise .*: take evidence='ep'"):
        GPClassifier(likelihood="label_noise", evidence="laplace", **SETTINGS).fit(X, Y)


# -- warnings --------------------------------------------------------------------------------------------------------


def test_rows_that_repeat_others_are_counted_as_rows():
    X, y = np.ones((60, 1)), np.array(["a"] * 59 + ["b"])
    X[-1] = X[-2] = 2.0  # two rows of different labels at 2, and 58 of the same at 1
    gp = GPClassifier(**SETTINGS)
    with pytest.warns(DataWarning, match="60 of 60 rows repeat the inputs of another row, 2 of them those"):
        gp.fit(X, y)


def test_a_closed_client_is_not_called_want_of_memory():
    class ClosedClientError(Exception):
        pass

    for error in (
        ClosedClientError("Client is closed. Can't send update-graph message."),
        concurrent.futures.CancelledError("run_segment-1"),
    ):
        assert "the client of the dask cluster was closed" in _what_happened(error)
        assert "memory" not in _what_happened(error)

    class KilledWorker(Exception):
        pass

    assert "perhaps for want of memory" in _what_happened(KilledWorker("died"))
    assert "memory" not in _what_happened(OSError("no route to host"))


# -- pictures --------------------------------------------------------------------------------------------------------


def test_pictures_speak_of_the_estimator():
    three = RNG.normal(size=(30, 3))
    gp = GPClassifier(SquaredExponential(), **SETTINGS).fit(three, Y)
    numbers = GPRegressor(**SETTINGS).fit(X, X[:, 0])
    for draw, message in [
        (lambda: plots.predictive(gp, three, Y), "'gp' was fitted on 3"),
        (lambda: plots.relevance(gp, of="length_scale"), "'gp' has no inferred length scale per input"),
        (lambda: plots.calibration(numbers, X, Y), "GPRegressor needs real-valued targets: use GPClassifier"),
        (lambda: plots.trace(GPClassifier()), r"this GPClassifier is not fitted yet: call gp.fit\(X, y\) first"),
        (lambda: plots.loo(3), r"give what gp.loo\(\) returns"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            draw()
