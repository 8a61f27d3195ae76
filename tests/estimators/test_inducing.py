"""`inducing` of the estimators: choice of inputs, what it costs, saving, more rows, checkpoints and refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier, GPRegressor, Model, find_map
from hmcgp.errors import ApproximationWarning, InvalidInput
from hmcgp.estimators import base
from hmcgp.estimators import inducing as setting
from hmcgp.estimators.inducing_error import inducing_error
from hmcgp.evidence import Exact
from hmcgp.kernels import SquaredExponential, White
from hmcgp.model.inducing import pivoted_inputs, spread_inputs, with_inducing

N = 120
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, 2)) * [1.0, 50.0]
F = 1.5 * np.sin(2.0 * X[:, 0]) + X[:, 1] / 50.0
LABELS = np.where(F + 0.5 * RNG.logistic(size=N) > 0.0, "a", "b")
CLASSES = np.digitize(F, [-0.5, 0.5])
NUMBERS = F + 0.3 * RNG.normal(size=N)
MAP: dict[str, Any] = {"sampler": "map", "random_state": 0}
quiet = pytest.mark.filterwarnings("ignore:.*inducing inputs against", "ignore::sklearn.exceptions.ConvergenceWarning")
KERNEL = SquaredExponential(2.0, [0.7, 1.0])


# -- the choice of inputs --------------------------------------------------------------------------------------------


def test_pivots_explain_the_variance_best_in_order():
    """Against the definition: each next row is the one of largest variance given those before."""
    rows = np.unique(RNG.normal(size=(40, 2)), axis=0)
    Z = pivoted_inputs(KERNEL, rows, 6)
    for k in range(1, 6):
        cross, own = KERNEL(rows, Z[:k]), KERNEL(Z[:k], Z[:k].copy())
        left = KERNEL.diag(rows) - np.einsum("nk,kn->n", cross, np.linalg.solve(own, cross.T))
        np.testing.assert_array_equal(Z[k], rows[np.argmax(left)])
    np.testing.assert_array_equal(pivoted_inputs(KERNEL, rows, 3), Z[:3])  # nested
    np.testing.assert_array_equal(pivoted_inputs(KERNEL, rows, 6, first=Z[:3]), Z)  # and to be gone on with
    np.testing.assert_array_equal(pivoted_inputs(KERNEL + White(3.0), rows, 6), Z)  # whatever the noise


def test_choices_are_different_rows_and_never_more_than_there_are():
    rows = np.repeat(RNG.normal(size=(7, 2)), 3, axis=0)
    for m in (1, 5, 7, 20):
        for Z in (spread_inputs(rows, m), pivoted_inputs(KERNEL, rows, m), pivoted_inputs(0.1 * KERNEL, rows, m)):
            assert len(Z) == len(np.unique(Z, axis=0)) == min(m, 7)
            assert all((rows == z).all(axis=1).any() for z in Z)


def test_where_the_kernel_asks_for_no_more_rows_are_spread():
    line = np.linspace(-1.0, 1.0, 30)[:, None]
    Z = pivoted_inputs(SquaredExponential(1.0, 50.0), line, 20)
    assert len(Z) == len(np.unique(Z)) == 20


def test_pivots_come_closer_than_rows_at_random():
    """In nats of log evidence, with a third of the rows."""
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    model = Model(rows, np.where(F > 0.0, 1.0, -1.0), kernel=KERNEL)
    exact = model.posterior(np.empty(0))[1].log_z
    errors = [
        abs(with_inducing(model, Z).posterior(np.empty(0))[1].log_z - exact)
        for Z in (pivoted_inputs(KERNEL, rows, 40), rows[:40])
    ]
    assert errors[0] < 0.01
    assert errors[0] < 0.2 * errors[1]


# -- the estimators --------------------------------------------------------------------------------------------------


def test_a_number_chooses_rows_and_predicts_as_all_of_them():
    gp, dense = GPClassifier(inducing=40, **MAP).fit(X, LABELS), GPClassifier(**MAP).fit(X, LABELS)
    Z = gp.model_.inducing
    assert Z.shape == (40, 2)
    assert all((z == gp.model_.X).all(axis=1).any() for z in Z)
    assert dense.model_.inducing is None
    assert dense.inducing_error_ is None
    np.testing.assert_allclose(gp.predict_proba(X), dense.predict_proba(X), atol=0.02)
    assert abs(gp.loo().elpd - dense.loo().elpd) < 0.5
    assert gp.inducing_error_.small
    assert gp.inducing_error_.n_more == 80
    assert gp.inducing_error_.n_enough == 40
    assert "40 inducing inputs against 80" in str(gp.inducing_error_)


@quiet
def test_the_fit_is_sampled_refined_and_reproducible():
    settings: dict[str, Any] = {
        "draws": 5,
        "tune": 5,
        "chains": 2,
        "random_state": 3,
        "progressbar": False,
        "inducing": 25,
    }
    one = GPClassifier(n_jobs=1, **settings).fit(X, LABELS)
    two = GPClassifier(n_jobs=2, **settings).fit(X, LABELS)
    np.testing.assert_array_equal(one.sampling_trace_.draws, two.sampling_trace_.draws)
    assert "EP" in str(one.refinement_)


@quiet
def test_regression_with_several_outputs():
    Y = np.stack([NUMBERS, np.cos(X[:, 0])], axis=1)[:50]
    for outputs, columns in (("independent", 2), ("coregional", 3)):
        gp = GPRegressor(outputs=outputs, inducing=40, **MAP).fit(X[:50], Y)
        assert gp.model_.inducing.shape == (40, columns)
        mean, sd = gp.predict(X[:5], return_std=True)
        assert mean.shape == sd.shape == (5, 2)
    dense = GPRegressor(**MAP).fit(X, NUMBERS).predict(X)
    gp = GPRegressor(inducing=60, **MAP).fit(X, NUMBERS)
    np.testing.assert_allclose(gp.predict(X), dense, atol=0.1)
    assert np.isfinite(gp.predict(X[:3], return_cov=True)[1]).all()


@quiet
def test_categories_weights_and_inputs_in_the_units_of_the_table():
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "colour": pd.Categorical(np.where(F > 0.5, "red", "green"))})
    gp = GPClassifier(inducing=table[:45], **MAP).fit(table, LABELS, sample_weight=np.linspace(0.5, 2.0, N))
    np.testing.assert_allclose(gp.model_.inducing, gp.model_.X[:45])
    assert gp.predict_proba(table[:4]).shape == (4, 2)
    gp = GPClassifier(inducing=45, **MAP).fit(table, LABELS)
    assert gp.model_.inducing is not None
    assert set(np.unique(gp.model_.inducing[:, 2])) <= {0.0, 1.0}


@quiet
def test_auto_is_dense_for_few_rows_and_chooses_a_number_beyond(monkeypatch):
    assert GPClassifier(**MAP).fit(X, LABELS).model_.inducing is None
    monkeypatch.setattr(setting, "AUTO_ROWS", 100)
    monkeypatch.setattr(setting, "AUTO_NUMBERS", (4, 8, 16, 32))
    gp = GPClassifier(**MAP).fit(X, LABELS)
    assert len(gp.model_.inducing) in (16, 32)
    assert f"inducing={len(gp.model_.inducing)}" in repr(gp.model_)
    # what is known under dense covariances only stays with them
    kernel = SquaredExponential(1.0, 1.0, standardized=True)
    for refine, model in (
        (None, Model(X, np.where(F > 0.0, 1.0, -1.0), likelihood="probit", evidence="tap")),
        ("ep", Model(X, CLASSES, likelihood="softmax")),
        ("exact", gp.model_),
    ):
        assert setting.with_chosen_inducing(GPClassifier(refine=refine), model).model is model
    monkeypatch.setattr(setting, "AUTO_NUMBERS", (2, 3))  # too few, and so many rows are no trouble
    assert GPClassifier(kernel, **MAP).fit(X, LABELS).model_.inducing is None
    monkeypatch.setattr(setting, "DENSE_ROWS", 100)
    # more rows than that: as many as explain the rows held out like a dense subset, up to a number of operations
    assert 3 < len(GPClassifier(kernel, **MAP).fit(X, LABELS).model_.inducing) < 50
    monkeypatch.setattr(setting, "DENSE_ROWS", 10)
    assert len(GPClassifier(kernel, **MAP).fit(X, LABELS).model_.inducing) == 3


@quiet
def test_the_maximum_is_searched_for_from_that_of_the_pilot(monkeypatch):
    """It is the one that searches from all over the prior find, after a few evaluations."""
    found = []
    monkeypatch.setattr(base, "find_map", lambda *args, **more: found.append(find_map(*args, **more)) or found[-1])
    gp = GPClassifier(inducing=40, refine=None, **MAP).fit(X, LABELS)
    best = find_map(gp.model_, random_state=3)
    np.testing.assert_allclose(found[0].logdensity, best.logdensity, atol=1e-4)
    assert len(found) == len(found[0].restarts) == 1
    assert found[0].evaluations < best.evaluations / 4


def test_too_few_are_told_with_the_number_that_would_do():
    with pytest.warns(ApproximationWarning, match=r"4 inducing inputs against 8: log Z off by .*inducing=(\d+|None)"):
        gp = GPClassifier(inducing=4, **MAP).fit(X, LABELS)
    assert gp.inducing_error_.n_enough > 8
    assert not gp.inducing_error_.small


def test_the_error_is_that_of_the_larger_model():
    model = Model((X - X.mean(axis=0)) / X.std(axis=0), np.where(F > 0.0, 1.0, -1.0))
    theta = model.constrain(np.random.default_rng(0).normal(size=(3, 3)).T * 0.3).T
    small = with_inducing(model, spread_inputs(model.X, 10))
    found = inducing_error(small, theta)
    assert found.log_z.shape == (3,)
    more = pivoted_inputs(model.kernel_at(theta[0]), model.X, 20, first=small.inducing)
    expected = [with_inducing(model, more).posterior(t)[1].log_z - small.posterior(t)[1].log_z for t in theta]
    np.testing.assert_allclose(found.log_z, expected, rtol=1e-7)


# -- keeping it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refine", [None, "ep"])
def test_saved_and_loaded_with_more_rows(tmp_path, refine):
    gp = GPClassifier(SquaredExponential(ard=True), inducing=30, refine=refine, **MAP).fit(X, LABELS)
    for _ in range(2):
        gp.save(tmp_path / "gp.hmcgp")
        again = GPClassifier.load(tmp_path / "gp.hmcgp")
        np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))
        np.testing.assert_array_equal(again.model_.inducing, gp.model_.inducing)
        assert again.inducing_error_.n_more == gp.inducing_error_.n_more
        gp.append(X[:3] + 0.1, LABELS[:3])


@quiet
def test_a_checkpoint_of_other_inducing_inputs_is_refused(tmp_path):
    settings: dict[str, Any] = {"draws": 4, "tune": 4, "chains": 1, "random_state": 3, "progressbar": False}
    path = tmp_path / "run.nc"
    GPClassifier(inducing=20, refine=None, checkpoint=path, **settings).fit(X, LABELS)
    with pytest.raises(InvalidInput, match="inducing inputs"):
        GPClassifier(inducing=21, refine=None, checkpoint=path, **settings).fit(X, LABELS)


@pytest.mark.parametrize(
    ("inducing", "message"),
    [
        (N + 1, "more inducing inputs than there are rows"),
        (0, "inducing"),
        (2.5, "inducing"),
        ("some", "'inducing' must be None, a number, 'auto'"),
        (X[[0, 1, 0]], "equal rows"),
        (1e3 * X[:5], "farther outside the range of the rows"),
    ],
    ids=["more than rows", "0", "2.5", "name", "equal", "outside"],
)
def test_bad_settings_are_refused(inducing, message):
    with pytest.raises(InvalidInput, match=message):
        GPClassifier(inducing=inducing, **MAP).fit(X, LABELS)


def test_what_knows_dense_covariances_only_says_so():
    with pytest.raises(InvalidInput, match="more than two classes knows dense covariances only"):
        GPClassifier(inducing=10, refine="ep", **MAP).fit(X, CLASSES)
    with pytest.raises(InvalidInput, match="dense covariances only"):
        GPClassifier(inducing=10, likelihood="multinomial_probit", **MAP).fit(X, CLASSES)
    with pytest.raises(InvalidInput, match="NaiveMeanField knows dense covariances only"):
        GPClassifier(inducing=10, likelihood="probit", evidence="naive", **MAP).fit(X, LABELS)
    with pytest.raises(InvalidInput, match="LatentSampling knows dense covariances only"):
        GPClassifier(inducing=10, refine="exact", **MAP).fit(X, LABELS)


@dataclass(frozen=True)
class WithoutPullback(SquaredExponential):
    """A kernel whose cross-covariances have no pullback."""

    def inducing_vjp(self, X, Z):
        return self(X, Z), self.diag(X)


def test_a_kernel_without_the_pullback_of_cross_covariances_is_refused():
    with pytest.raises(InvalidInput, match=r"WithoutPullback.inducing_vjp returned .*\(K, k, pullback\) is needed"):
        GPClassifier(WithoutPullback(), inducing=10, **MAP).fit(X, LABELS)


# -- samplers, classes, bounds ---------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("sampler", ["hmc", "nuts", "metropolis", "jumps", "surrogate"])
def test_every_sampler_takes_them(sampler):
    kernel = SquaredExponential(variance=2.0)  # one length scale: quick
    settings: dict[str, Any] = {
        "draws": 20,
        "tune": 20,
        "chains": 2,
        "random_state": 0,
        "progressbar": False,
        "refine": None,
    }
    gp = GPClassifier(kernel, sampler=sampler, inducing=20, **settings).fit(X[:60], LABELS[:60])
    assert gp.model_.inducing.shape == (20, 2)
    assert np.isfinite(gp.trace_.draws).all()
    np.testing.assert_allclose(gp.predict_proba(X[:5]).sum(axis=1), 1.0)
    assert "inducing inputs against" in str(gp.to_arviz().attrs["inducing"])


@quiet
def test_several_classes_are_fitted_saved_and_continued(tmp_path):
    kernels = [SquaredExponential(length_scale=1.0, standardized=True) for _ in range(3)]  # each with a variance: quick
    gp = GPClassifier(kernels, inducing=40, **MAP).fit(X, CLASSES)
    dense = GPClassifier(kernels, refine=None, **MAP).fit(X, CLASSES)
    assert gp.refinement_ is None  # nothing better is known
    np.testing.assert_allclose(gp.predict_proba(X), dense.predict_proba(X), atol=0.02)
    assert abs(gp.loo().elpd - dense.loo().elpd) < 0.5
    gp.append(X[:2] + 0.1, CLASSES[:2])
    gp.save(tmp_path / "gp.hmcgp")
    again = GPClassifier.load(tmp_path / "gp.hmcgp")
    np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))
    assert gp.predict_proba_interval(X[:4]).shape == (4, 3, 2)


@quiet
def test_bounds_and_flipped_labels_of_the_estimator():
    kernel = SquaredExponential(length_scale=1.0)  # a variance only: quick
    gp = GPClassifier(kernel, evidence="lower", inducing=30, refine=None, **MAP).fit(X, LABELS)
    bounds = gp.evidence_bounds()
    assert np.all(bounds.lower <= bounds.upper)
    noisy = GPClassifier(kernel, likelihood="label_noise", inducing=20, **MAP).fit(X[:60], LABELS[:60])
    likelihood: Any = noisy.model_.likelihood_at(noisy.trace_.flat[0])
    assert 0.0 < likelihood.flip < 0.5


@quiet
def test_titsias_bound_of_the_regressor():
    gp = GPRegressor(evidence=Exact(variational=True), inducing=30, **MAP).fit(X, NUMBERS)
    plain = GPRegressor(inducing=30, **MAP).fit(X, NUMBERS)
    np.testing.assert_allclose(gp.predict(X), plain.predict(X), atol=0.2)
