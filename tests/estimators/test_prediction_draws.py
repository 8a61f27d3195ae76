"""Which draws predictions average over, and what they keep of them."""

import copy
import pickle
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import InvalidInput
from hmcgp.estimators import prediction_draws
from hmcgp.estimators.prediction_draws import N_AVERAGED, N_EACH, averaged_draws
from hmcgp.kernels import SquaredExponential

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
LABELS = np.where(X[:, 0] + 0.3 * RNG.normal(size=30) > 0.0, "yes", "no")
NUMBERS = X[:, 0] + 0.1 * RNG.normal(size=30)
NEW = 1.5 * RNG.normal(size=(40, 2))
DRAWS = 800


def with_draws(gp, y, n=DRAWS, weighted=False):
    """Fitted by maximisation, and n draws around the maximum, without the time that chains take."""
    gp.set_params(sampler="map", n_jobs=1, random_state=0).fit(X, y)
    rng = np.random.default_rng(1)
    u = gp.trace_.unconstrained + 0.4 * rng.normal(size=(1, n, gp.model_.n_dim))
    draws = np.array([[gp.model_.constrain(v) for v in u[0]]])
    log_weight = np.log(rng.dirichlet(np.full(n, 3.0)))[None] if weighted else None
    stats = {name: np.repeat(values, n, axis=1) for name, values in gp.trace_.stats.items()}
    gp.trace_ = replace(gp.trace_, draws=draws, unconstrained=u, stats=stats, log_weight=log_weight)
    return gp


@pytest.fixture(scope="module")
def gp():
    return with_draws(GPClassifier(SquaredExponential(ard=True)), LABELS, weighted=True)


def kept(gp):
    return gp._predictions.get(gp.trace_, gp.model_, gp.predict_draws, False)


def test_few_chosen_draws_predict_as_many(gp):
    assert len(kept(gp)) == N_AVERAGED
    assert len(gp._kept_draws()) == N_EACH
    p = gp.predict_proba(NEW)
    low, high = gp.predict_proba_interval(NEW)[:, 1].T
    many = copy.deepcopy(gp).set_params(predict_draws=N_EACH)
    error = p - many.predict_proba(NEW)
    assert np.sqrt(np.mean(error**2)) < 0.003
    even = copy.deepcopy(gp).set_params(predict_draws=N_AVERAGED).predict_proba(NEW) - many.predict_proba(NEW)
    assert np.sqrt(np.mean(error**2)) < 0.5 * np.sqrt(np.mean(even**2))
    all_low, all_high = many.predict_proba_interval(NEW)[:, 1].T
    np.testing.assert_allclose([low, high], [all_low, all_high], atol=0.03)
    assert gp.predict_proba_draws(NEW[:3]).shape == (N_EACH, 3, 2)


def test_a_row_has_the_same_probability_in_any_table(gp):
    whole = gp.predict_proba(NEW)
    np.testing.assert_allclose(np.vstack([gp.predict_proba(x[None]) for x in NEW]), whole, atol=1e-6)
    np.testing.assert_allclose(gp.predict_proba(NEW[::-1]), whole[::-1], atol=1e-6)


def test_the_choice_can_be_changed_after_the_fit(gp):
    other = copy.deepcopy(gp)
    for setting, n in ((7, 7), (None, DRAWS), ("auto", N_AVERAGED)):
        other.set_params(predict_draws=setting)
        other.predict_proba(NEW[:1])
        assert len(kept(other)) == n
    with pytest.raises(InvalidInput, match="'predict_draws' must be an integer >= 1, 'auto'"):
        other.set_params(predict_draws="all").fit(X, LABELS)


def test_few_draws_are_all_taken():
    one = with_draws(GPClassifier(SquaredExponential()), LABELS, n=2 * N_AVERAGED)
    np.testing.assert_array_equal(averaged_draws(one.trace_, "auto").theta, one.trace_.flat)
    assert len(averaged_draws(one.trace_, 10)) == 10


def test_later_calls_solve_nothing_until_the_cache_is_cleared(gp, monkeypatch):
    gp.clear_cache()
    first = gp.predict_proba(NEW)
    solved, solve = [], gp.model_.posterior
    monkeypatch.setattr(gp.model_, "posterior", lambda *args: solved.append(1) or solve(*args), raising=False)
    np.testing.assert_array_equal(gp.predict_proba(NEW), first)
    gp.predict(NEW[:3]), gp.predict_proba_interval(NEW[:3]), gp.latent_mean_and_variance(NEW[:3])
    assert solved == []
    gp.clear_cache()
    np.testing.assert_array_equal(gp.predict_proba(NEW), first)
    assert len(solved) == N_AVERAGED


@pytest.mark.parametrize("predict_draws", ["auto", 60])
@pytest.mark.parametrize(
    ("estimator", "calls"),
    [
        (GPClassifier, ["predict_proba_draws", "joint_draws"]),
        (GPRegressor, ["covariance", "sample_y"]),
    ],
)
def test_results_for_each_draw_and_joint_ones_solve_once(estimator, calls, predict_draws, monkeypatch):
    targets = LABELS if estimator is GPClassifier else NUMBERS
    own = with_draws(estimator(SquaredExponential(), predict_draws=predict_draws), targets, 120)
    call = {
        "predict_proba_draws": lambda: own.predict_proba_draws(NEW[:3]),
        "joint_draws": lambda: own.predict_proba_draws(NEW[:3], latent=True),
        "covariance": lambda: own.predict(NEW[:3], return_cov=True)[1],
        "sample_y": lambda: own.sample_y(NEW[:3], 50),
    }
    solved, solve = [], own.model_.posterior
    monkeypatch.setattr(own.model_, "posterior", lambda *args: solved.append(1) or solve(*args), raising=False)
    first = [call[name]() for name in calls]
    assert solved
    solved.clear()
    for name, before in zip(calls, first, strict=True):
        np.testing.assert_array_equal(call[name](), before)
    assert not solved
    own.clear_cache()
    for name, before in zip(calls, first, strict=True):
        np.testing.assert_array_equal(call[name](), before)
    assert solved


def test_fit_and_append_drop_what_was_kept():
    reg = with_draws(GPRegressor(SquaredExponential()), NUMBERS, n=30)
    before = reg.predict(NEW)
    of_fit = kept(reg).kept
    assert of_fit.nbytes > 0
    reg.append(NEW[:5], NEW[:5, 0])
    assert kept(reg).kept is not of_fit
    assert kept(reg).kept.nbytes == 0
    after = reg.predict(NEW)
    assert np.abs(after - before).max() > 1e-4
    reg.fit(X, NUMBERS[::-1])
    assert kept(reg).kept.nbytes == 0
    assert np.abs(reg.predict(NEW) - after).max() > 1e-4


def test_a_fit_that_fails_leaves_predictions_as_they_were(gp):
    before = gp.predict_proba(NEW)
    nbytes = kept(gp).kept.nbytes
    with pytest.raises(ValueError, match="NaN"):
        gp.fit(X, np.where(LABELS == "yes", np.nan, 1.0))
    assert kept(gp).kept.nbytes == nbytes > 0
    np.testing.assert_array_equal(gp.predict_proba(NEW), before)


def test_files_and_pickles_hold_nothing_of_it(gp, tmp_path):
    fresh = copy.deepcopy(gp)
    assert fresh._predictions is not gp._predictions
    fresh.save(tmp_path / "before")
    size = len(pickle.dumps(fresh))
    p = fresh.predict_proba(NEW)
    fresh.save(tmp_path / "after")
    assert len(pickle.dumps(fresh)) == size
    assert (tmp_path / "after").stat().st_size == (tmp_path / "before").stat().st_size
    for other in (pickle.loads(pickle.dumps(fresh)), GPClassifier.load(tmp_path / "after")):
        np.testing.assert_array_equal(other.predict_proba(NEW), p)


def test_predictions_change_no_attribute(gp):
    before = dict(vars(gp))
    gp.predict_proba(NEW)
    assert vars(gp) == before


def test_interrupted_predictions_leave_the_estimator_as_it_was(gp, monkeypatch):
    gp.clear_cache()
    before, solve, count = dict(vars(gp)), gp.model_.posterior, []

    def interrupted(*args):
        count.append(1)
        if len(count) == 20:
            raise KeyboardInterrupt
        return solve(*args)

    monkeypatch.setattr(gp.model_, "posterior", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        gp.predict_proba(NEW)
    assert vars(gp) == before
    monkeypatch.undo()
    whole = gp.predict_proba(NEW)
    gp.clear_cache()
    np.testing.assert_array_equal(gp.predict_proba(NEW), whole)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_mean_alone_is_that_beside_a_standard_deviation(outputs):
    y = NUMBERS if outputs == 1 else np.column_stack([NUMBERS, NUMBERS**2])
    reg = with_draws(GPRegressor(SquaredExponential()), y)
    assert len(kept(reg)) == N_AVERAGED
    np.testing.assert_allclose(reg.predict(NEW), reg.predict(NEW, return_std=True)[0], rtol=1e-9, atol=1e-12)
    _, covariance = reg.predict(NEW[:4], return_cov=True)
    sd = reg.predict(NEW[:4], return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.einsum("ii...->i...", covariance)), sd, rtol=1e-8)


def test_frames_above_the_kernel_are_few(gp, monkeypatch):
    """From `predict_proba` to the first kernel: tracebacks of users' kernels stay readable."""
    depths: list[int] = []

    def call(self, *args):
        if not depths:
            frame: Any = sys._getframe(1)
            depth = 1
            while frame.f_code.co_name != "predict_proba":
                frame, depth = frame.f_back, depth + 1
            depths.append(depth)
        return original(self, *args)

    original = SquaredExponential.__call__
    monkeypatch.setattr(SquaredExponential, "__call__", call)
    for rows in (NEW[:1], np.tile(NEW, (10, 1))):
        gp.clear_cache()
        depths.clear()
        gp.predict_proba(rows)
        assert depths[0] <= 8


def test_a_bar_is_asked_for_by_the_setting(gp, monkeypatch):
    asked = []
    from hmcgp.posterior import over_draws
    from hmcgp.runtime.progress import DelayedBar

    class Bar(DelayedBar):
        def __init__(self, total, description, *, enabled):
            asked.append((total, enabled))
            super().__init__(total, description, enabled=False)

    monkeypatch.setattr(over_draws, "DelayedBar", Bar)
    rows = np.tile(NEW, (10, 1))
    gp.predict_proba(rows)
    other = copy.deepcopy(gp).set_params(progressbar=False)
    other.predict_proba(rows)
    assert asked == [(N_AVERAGED, True), (N_AVERAGED, False)]


def test_names_of_the_numbers_of_draws():
    assert prediction_draws.n_each("auto") == N_EACH
    assert prediction_draws.n_each(None) is None
    assert prediction_draws.n_each(3) == 3
