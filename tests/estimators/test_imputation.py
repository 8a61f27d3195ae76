"""Missing values in new rows, in columns that were complete in the training rows."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_predict

from hmcgp import GPClassifier, GPCounts, GPOrdinal, GPRegressor
from hmcgp.errors import ApproximationWarning, DataWarning, InvalidInput
from hmcgp.estimators.imputation import N_VALUES, TrainingValues
from hmcgp.kernels import SquaredExponential
from hmcgp.likelihoods import Ordinal, StudentT

RNG = np.random.default_rng(1)
N = 100
X = pd.DataFrame({"dose": RNG.normal(size=N), "age": RNG.uniform(20.0, 80.0, N), "site": RNG.choice(["a", "b"], N)})
F = 2.0 * X["dose"] + 0.5 * (X["site"] == "a") + 0.3 * RNG.normal(size=N)
FIXED = {"draws": 3, "tune": 2, "chains": 1, "progressbar": False, "random_state": 0, "n_jobs": 1}
KERNEL = SquaredExponential(2.0, 1.0, standardized=True).on(["dose", "age"])
NEW = pd.DataFrame(
    {"dose": [0.3, np.nan, 1.0, np.nan], "age": [50.0, 50.0, 40.0, np.nan], "site": ["a", "b", None, "a"]}
)
MISSING = [1, 2, 3]
MESSAGE = r"3 of 4 rows have missing values in columns that were complete.*'dose' \(2\), 'age' \(1\), 'site' \(1\)"


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", ApproximationWarning)
        yield


@pytest.fixture(scope="module")
def regressor():
    return GPRegressor(sampler="map", progressbar=False, random_state=0, n_jobs=1).fit(X, F)


@pytest.fixture(scope="module")
def classifier():
    return GPClassifier(sampler="map", refine=None, progressbar=False, random_state=0, n_jobs=1).fit(X, F > 0.0)


def by_hand(row):
    """The row at the training values that it is averaged over."""
    gone = [name for name in X.columns if pd.isna(row[name])]
    codes = X[gone].apply(lambda c: pd.Categorical(c).codes if c.name == "site" else c)
    order = np.lexsort(codes.to_numpy().T[::-1])
    chosen = X.iloc[order[((np.arange(N_VALUES) + 0.5) / N_VALUES * N).astype(int)]]
    copies = pd.DataFrame([row] * N_VALUES).reset_index(drop=True)
    copies[gone] = chosen[gone].to_numpy()
    return copies.astype({"dose": float, "age": float})


def test_class_probabilities_are_averages_over_training_values(classifier):
    with pytest.warns(DataWarning, match=MESSAGE) as caught:
        p = classifier.predict_proba(NEW)
    assert len(caught) == 1
    np.testing.assert_allclose(p[:1], classifier.predict_proba(NEW[:1]), rtol=1e-12)
    for i in MISSING:
        np.testing.assert_allclose(p[i], classifier.predict_proba(by_hand(NEW.iloc[i])).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    with pytest.warns(DataWarning):
        np.testing.assert_array_equal(classifier.predict(NEW), classifier.classes_[p.argmax(axis=1)])
    with pytest.warns(DataWarning):
        np.testing.assert_allclose(classifier.predict_proba_draws(NEW)[0], p, rtol=1e-6)


def test_intervals_of_probabilities_are_those_of_the_mixture(classifier):
    with pytest.warns(DataWarning, match=MESSAGE):
        interval = classifier.predict_proba_interval(NEW, 0.8)[:, 1]
    with pytest.warns(DataWarning):
        mean, variance = classifier.latent_mean_and_variance(NEW)
    rng = np.random.default_rng(0)
    for i in MISSING:
        m, v = classifier.latent_mean_and_variance(by_hand(NEW.iloc[i]))
        f = (m + np.sqrt(v) * rng.standard_normal((40_000, N_VALUES))).ravel()
        np.testing.assert_allclose(interval[i], 1.0 / (1.0 + np.exp(-np.quantile(f, [0.1, 0.9]))), atol=0.003)
        assert mean[i] == pytest.approx(m.mean(), rel=1e-6)
        assert variance[i] == pytest.approx(v.mean() + m.var(), rel=1e-6)
    known = classifier.predict_proba_interval(NEW[1:2].assign(dose=X["dose"].mean()), 0.8)[0, 1]
    assert np.ptp(interval[1]) > 1.5 * np.ptp(known)


def test_regression_is_that_of_the_mixture(regressor):
    with pytest.warns(DataWarning, match=MESSAGE):
        mean, sd = regressor.predict(NEW, return_std=True)
    with pytest.warns(DataWarning):
        np.testing.assert_allclose(regressor.predict(NEW), mean, rtol=1e-8)
    with pytest.warns(DataWarning):
        interval = regressor.predict_interval(NEW, 0.8)
    with pytest.warns(DataWarning):
        log_p = regressor.log_predictive_density(NEW, np.zeros(4))
    rng = np.random.default_rng(0)
    for i in MISSING:
        m, s = regressor.predict(by_hand(NEW.iloc[i]), return_std=True)
        assert mean[i] == pytest.approx(m.mean(), rel=1e-6)
        assert sd[i] == pytest.approx(np.sqrt((s**2).mean() + m.var()), rel=1e-6)
        y = m + s * rng.standard_normal((40_000, N_VALUES))
        np.testing.assert_allclose(interval[i], np.quantile(y, [0.1, 0.9]), atol=0.02)
        each = regressor.log_predictive_density(by_hand(NEW.iloc[i]), np.zeros(N_VALUES))
        assert log_p[i] == pytest.approx(logsumexp(each) - np.log(N_VALUES), rel=1e-6)


def test_intervals_hold_observations_whose_input_is_missing(regressor):
    """Coverage of new rows whose missing inputs are distributed as those of the training rows; the mean fails."""
    rng = np.random.default_rng(5)
    new = pd.DataFrame({"dose": np.nan, "age": rng.uniform(20.0, 80.0, 400), "site": rng.choice(["a", "b"], 400)})
    y = 2.0 * rng.choice(X["dose"], 400) + 0.5 * (new["site"] == "a") + 0.3 * rng.normal(size=400)
    with pytest.warns(DataWarning):
        low, high = regressor.predict_interval(new, 0.9).T
    assert 0.85 < np.mean((low < y) & (y < high)) < 0.96
    low, high = regressor.predict_interval(new.fillna({"dose": X["dose"].mean()}), 0.9).T
    assert np.mean((low < y) & (y < high)) < 0.3


def test_counts_and_student_t():
    inputs, row = X[["dose", "age"]], NEW.loc[[1], ["dose", "age"]]
    exposure = np.full(N, 2.0)
    counts = GPCounts(KERNEL, **FIXED).fit(inputs, RNG.poisson(2.0 * np.exp(0.5 * X["dose"])), exposure=exposure)
    copies = by_hand(NEW.iloc[1])[["dose", "age"]]
    with pytest.warns(DataWarning) as caught:
        rate, interval = counts.predict_rate(row, level=0.8)
    assert len(caught) == 1
    assert rate[0] == pytest.approx(counts.predict_rate(copies).mean(), rel=1e-6)
    with pytest.warns(DataWarning):
        mean, sd = counts.predict(row, exposure=3.0, return_std=True)
    m, s = counts.predict(copies, exposure=3.0, return_std=True)
    assert (mean[0], sd[0]) == pytest.approx((m.mean(), np.sqrt((s**2).mean() + m.var())), rel=1e-6)
    with pytest.warns(DataWarning):
        quantiles = counts.predict_quantiles(row, (0.1, 0.5, 0.9), exposure=3.0)[0]
    pooled = np.stack([counts.sample_y(copies[k : k + 1], 2000, exposure=3.0)[0] for k in range(N_VALUES)])
    assert (np.abs(quantiles - np.quantile(pooled, [0.1, 0.5, 0.9])) <= 1.0).all()
    assert interval[0, 0] < rate[0] < interval[0, 1]
    robust = GPRegressor(KERNEL, likelihood=StudentT(0.1, 4.0), **FIXED).fit(inputs, F)
    with pytest.warns(DataWarning):
        interval = robust.predict_interval(row, 0.8)[0]
    pooled = np.stack([robust.sample_y(copies[k : k + 1], 2000)[0] for k in range(N_VALUES)])
    np.testing.assert_allclose(interval, np.quantile(pooled, [0.1, 0.9]), atol=0.15)


def test_intervals_of_ordered_classes_hold_those_of_all_values():
    levels = GPOrdinal(KERNEL, likelihood=Ordinal(first_cut=-1.0, width=2.0), **FIXED).fit(
        X[["dose", "age"]], np.digitize(F, [-1.0, 1.0])
    )
    with pytest.warns(DataWarning):
        interval = levels.predict_proba_interval(NEW.loc[[1], ["dose", "age"]])
    each = levels.predict_proba_interval(by_hand(NEW.iloc[1])[["dose", "age"]])
    np.testing.assert_allclose(interval[0, :, 0], each[..., 0].min(axis=0), atol=0.02)
    np.testing.assert_allclose(interval[0, :, 1], each[..., 1].max(axis=0), atol=0.02)
    assert ((interval >= 0.0) & (interval <= 1.0)).all()


def test_several_outputs():
    Y = np.column_stack([F, -F])
    for outputs in ("independent", "coregional"):
        gp = GPRegressor(outputs=outputs, sampler="map", progressbar=False, n_jobs=1, random_state=0)
        gp.fit(X[["dose", "age"]][:40], Y[:40])
        with pytest.warns(DataWarning):
            mean, sd = gp.predict(NEW[["dose", "age"]], return_std=True)
        with pytest.warns(DataWarning):
            interval = gp.predict_interval(NEW[["dose", "age"]])
        assert mean.shape == sd.shape == (4, 2)
        assert interval.shape == (4, 2, 2)
        assert (sd[1] > 2.0 * sd[0]).all()
        assert (np.ptp(interval[1], axis=1) > 1.5 * np.ptp(interval[0], axis=1)).all()


def test_tables_of_all_libraries_and_arrays(regressor):
    columns = {"dose": [0.3, None], "age": [50.0, 50.0], "site": ["a", None]}
    found = []
    for table in (pd.DataFrame(columns), pl.DataFrame(columns)):
        with pytest.warns(DataWarning, match="1 of 2 rows"):
            found.append(regressor.predict(table))
    np.testing.assert_array_equal(found[0], found[1])
    gp = GPRegressor(SquaredExponential(2.0, 1.0, standardized=True), **FIXED).fit(X[["dose"]].to_numpy(), F)
    with pytest.warns(DataWarning, match=r"'x0' \(1\)"):
        assert np.isfinite(gp.predict([[np.nan], [1.0]])).all()


def test_cross_validation_of_a_table_with_one_missing_value():
    table = X[["dose", "age"]].copy()
    table.loc[7, "age"] = np.nan
    gp = GPClassifier(SquaredExponential(2.0, 1.0, standardized=True), refine=None, **FIXED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = cross_val_predict(gp, table, F > 0.0, cv=4, method="predict_proba")
    assert np.isfinite(p).all()


def test_missing_is_an_error_where_values_are_needed(regressor, classifier):
    for call in (
        lambda: regressor.predict(NEW, return_cov=True),
        lambda: regressor.sample_y(NEW),
        lambda: regressor.append(NEW.assign(site="a"), np.zeros(4)),
        lambda: classifier.predict_proba_draws(NEW.assign(site="a"), latent=True),
    ):
        with pytest.raises(InvalidInput, match=r"contains NaN|missing categories"):
            call()
    strict = GPRegressor(missing="error", sampler="map", progressbar=False, n_jobs=1).fit(X, F)
    with pytest.raises(InvalidInput, match="Fit with missing='auto'"):
        strict.predict(NEW.assign(site="a"))
    with pytest.raises(InvalidInput, match="'site' holds 1 missing"):
        strict.predict(NEW)
    assert not strict.__sklearn_tags__().input_tags.allow_nan
    assert regressor.__sklearn_tags__().input_tags.allow_nan


def test_auto_is_the_indicator_with_a_warning():
    table = X.assign(age=X["age"].where(X.index % 9 > 0), site=X["site"].where(X.index % 7 > 0))
    settings = {"sampler": "map", "progressbar": False, "n_jobs": 1, "random_state": 0}
    with pytest.warns(DataWarning, match=r"missing values in 'age' \(an indicator.*'site' \(missing is a category"):
        auto = GPRegressor(**settings).fit(table, F)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        indicator = GPRegressor(missing="indicator", **settings).fit(table, F)
        np.testing.assert_array_equal(auto.predict(table), indicator.predict(table))


def test_representative_values_are_weighted_quantiles():
    values = TrainingValues(np.arange(10.0)[:, None], np.array([0.0] * 9 + [1.0]) + 1e-12)
    assert (values.copies(np.array([[np.nan]])) == 9.0).all()
    even = TrainingValues(np.arange(40.0)[:, None], np.ones(40)).copies(np.array([[np.nan], [np.nan]]))
    np.testing.assert_array_equal(even[:N_VALUES, 0], np.arange(0.0, 40.0, 2.0))
    np.testing.assert_array_equal(even[:N_VALUES], even[N_VALUES:])
