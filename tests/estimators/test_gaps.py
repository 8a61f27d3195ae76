"""Missing values in X: refused, or an indicator for each input that had some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer

from hmcgp import GPClassifier, GPRegressor, datasets
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.report import comparison

FAST: dict[str, Any] = {"sampler": "map", "n_jobs": 1, "random_state": 1, "refine": None}
NAMES = ["glu", "bmi", "missingindicator_bmi"]


@pytest.fixture(scope="module")
def table():
    pima = datasets.load_pima()
    X = pima.data.iloc[:60][["glu", "bmi"]].astype(float).reset_index(drop=True)
    X["glu"] += np.arange(60) / 100  # no copies
    X.loc[::7, "bmi"] = np.nan
    return X, pima.target.iloc[:60].to_numpy()


@pytest.fixture(scope="module")
def fitted(table):
    return GPClassifier(missing="indicator", **FAST).fit(*table)


def test_a_gap_is_the_mean_and_an_indicator(table, fitted):
    """The same fit as on a table completed by hand, with scales of the rows that are there."""
    X, y = table
    gone = X["bmi"].isna()
    z = (X - X.mean()) / X.std(ddof=0)
    by_hand = np.column_stack([z["glu"], z["bmi"].fillna(0.0), gone])
    np.testing.assert_allclose(fitted.model_.X, by_hand, atol=1e-12)
    other = GPClassifier(standardize=False, **FAST).fit(by_hand, y)
    np.testing.assert_allclose(fitted.predict_proba(X), other.predict_proba(by_hand), atol=1e-6)
    assert fitted.model_.input_names == NAMES
    assert "length_scale[missingindicator_bmi]" in fitted.model_.names
    completed = SimpleImputer(add_indicator=True).set_output(transform="pandas").fit_transform(X)
    assert list(completed.columns) == NAMES  # scikit-learn's name
    assert fitted.n_features_in_ == 2
    assert list(fitted.feature_names_in_) == ["glu", "bmi"]


def test_new_rows_may_have_gaps(table, fitted):
    new = pd.DataFrame({"glu": [100.0, 100.0], "bmi": [30.0, np.nan]})
    assert np.ptp(fitted.predict_proba(new)[:, 1]) > 0.0
    new.loc[0, "glu"] = np.nan
    with pytest.warns(DataWarning, match=r"1 of 2 rows have missing values in columns that were complete.*'glu' \(1\)"):
        p = fitted.predict_proba(new)
    np.testing.assert_allclose(p[1], fitted.predict_proba(new[1:])[0], rtol=1e-9)  # the indicator of bmi alone
    with pytest.raises(InvalidInput, match=r"in 1 of 2 rows, in the columns 'glu' .1 row.. These columns were"):
        fitted.append(new, table[1][:2])
    with pytest.raises(InvalidInput, match="infinity"):
        fitted.predict_proba(new.fillna(np.inf))
    with pytest.raises(InvalidInput, match=r"contains NaN.*missing='auto'"):
        GPClassifier(missing="error", **FAST).fit(*table)


def test_weights_count_in_the_mean(table):
    X, _ = table
    weight = np.where(X["bmi"] > 30.0, 2.0, 1.0)
    twice = np.repeat(np.arange(60), weight.astype(int))
    weighted = GPRegressor(missing="indicator", sampler="map", n_jobs=1).fit(X, X["glu"], sample_weight=weight)
    repeated = GPRegressor(missing="indicator", sampler="map", n_jobs=1).fit(X.iloc[twice], X["glu"].iloc[twice])
    assert weighted._inputs.gaps.fill == pytest.approx(repeated._inputs.gaps.fill)
    np.testing.assert_allclose(weighted._inputs.scaling.sd, repeated._inputs.scaling.sd)


def test_missing_categories_are_a_level(table):
    X, y = table
    X = X[["glu"]].assign(group=np.where(np.arange(60) % 3, "a", "b").astype(object))
    X.loc[::5, "group"] = None
    with pytest.raises(InvalidInput, match="12 missing categories"):
        GPClassifier(missing="error", **FAST).fit(X, y)
    gp = GPClassifier(missing="indicator", **FAST).fit(X, y)
    assert list(gp._inputs.columns.categories["group"]) == ["(missing)", "a", "b"]
    same = gp.predict_proba(pl.DataFrame({"glu": [100.0], "group": pl.Series([None], dtype=pl.String)}))
    told = gp.predict_proba(pd.DataFrame({"glu": [100.0], "group": ["(missing)"]}))
    np.testing.assert_allclose(same, told, rtol=1e-12)
    whole = GPClassifier(missing="indicator", **FAST).fit(X.fillna("c"), y)
    with pytest.warns(DataWarning, match=r"12 of 60 rows .* 'group' \(12\)"):
        whole.predict_proba(X)


def test_saved_appended_and_explained(table, fitted, tmp_path):
    X, y = table
    fitted.save(tmp_path / "gp.hmcgp")
    again = GPClassifier.load(tmp_path / "gp.hmcgp")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    pd.testing.assert_frame_equal(fitted.training_data()[0], X, rtol=1e-12)
    effect = fitted.effect("bmi")
    assert len(effect.data[0]) == 60 - 9
    known = X.assign(bmi=effect.values[0][3])  # rows whose value is set have no gap
    np.testing.assert_allclose(effect.mean[3], fitted.predict_proba(known)[:, 1].mean(), atol=2e-3)
    gap = fitted.effect("missingindicator_bmi")
    np.testing.assert_array_equal(gap.values[0], [0.0, 1.0])
    missing = fitted.predict_proba(X.assign(bmi=np.nan))[:, 1].mean()
    np.testing.assert_allclose(gap.mean[1], missing, atol=2e-3)
    assert fitted.relevance().inputs == NAMES
    assert list(fitted.to_arviz()["constant_data"]["feature"].values) == NAMES
    again.append(X[:2], y[:2])
    assert len(again.model_.X) == 62
    linear = comparison._columns(X).fit_transform(fitted.training_data()[0])  # of the report
    assert linear.shape == (60, 3)
    assert np.isfinite(linear).all()


def test_refusals(table):
    X, y = table
    with pytest.raises(InvalidInput, match="'missing' must be one of"):
        GPClassifier(missing="mean", **FAST).fit(X, y)
    with pytest.raises(InvalidInput, match="'bmi' is missing in every row"):
        GPClassifier(missing="indicator", **FAST).fit(X.assign(bmi=np.nan), y)
    with pytest.raises(InvalidInput, match="has the name of the indicator"):
        GPClassifier(missing="indicator", **FAST).fit(X.assign(missingindicator_bmi=1.0), y)
    assert clone(GPClassifier(missing="indicator")).__sklearn_tags__().input_tags.allow_nan
