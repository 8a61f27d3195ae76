"""Tables and targets of any make: pandas and polars alike, and what cannot be used is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.estimators.columns import Columns, plain_targets
from hmcgp.kernels import SquaredExponential
from hmcgp.priors import LogNormal

RNG = np.random.default_rng(0)
N = 40
NUMBERS = {"dose": RNG.normal(size=N), "age": RNG.integers(20, 60, N), "male": RNG.random(N) > 0.5}
SITES = RNG.choice(["north", "south", "east"], N).tolist()
TABLE = pd.DataFrame({**NUMBERS, "site": pd.Categorical(SITES)})
SAME = pl.DataFrame({**NUMBERS, "site": pl.Series(SITES, dtype=pl.Categorical)})
Y = np.sin(NUMBERS["dose"]) + (np.array(SITES) == "north") + 0.1 * RNG.normal(size=N)
LABELS = np.where(Y > 0.5, "yes", "no")
SETTINGS: dict[str, Any] = {"sampler": "map", "random_state": 0, "progressbar": False}
DATES = pd.date_range("2020", periods=N)


@pytest.fixture
def no_sampling(monkeypatch):
    for name in ("sample", "find_map"):
        monkeypatch.setattr(f"hmcgp.estimators.base.{name}", lambda *a, **k: pytest.fail("the fit has started"))


@pytest.fixture(scope="module")
def gp():
    return GPClassifier(**SETTINGS).fit(TABLE, LABELS)


# -- polars ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["south", "north", "east", "west"]), pl.String])
def test_polars_tables_are_fitted_like_those_of_pandas(gp, dtype):
    table = SAME.with_columns(pl.col("site").cast(pl.String).cast(dtype))
    other = GPClassifier(**SETTINGS).fit(table, pl.Series("cured", LABELS.tolist()))
    assert other.model_.names == gp.model_.names
    assert list(other.feature_names_in_) == list(TABLE.columns)
    assert list(other.classes_) == ["no", "yes"]
    np.testing.assert_array_equal(other.predict_proba(table), gp.predict_proba(TABLE))
    np.testing.assert_array_equal(other.predict_proba(TABLE), gp.predict_proba(SAME))


def test_polars_targets_weights_and_more_rows():
    weights = RNG.integers(0, 3, N)
    pandas = GPRegressor(**SETTINGS).fit(TABLE, pd.Series(Y), sample_weight=pd.Series(weights))
    polars = GPRegressor(**SETTINGS).fit(SAME, pl.Series(Y), sample_weight=pl.Series(weights))
    np.testing.assert_array_equal(polars.predict(SAME), pandas.predict(TABLE))
    pandas.append(TABLE[:3], pd.Series(Y[:3]))
    polars.append(SAME[:3], pl.Series(Y[:3]))
    np.testing.assert_array_equal(polars.predict(SAME), pandas.predict(TABLE))


@pytest.mark.parametrize("outputs", ["independent", "coregional"])
def test_several_outputs_of_either_make(outputs):
    targets = {"wide": Y, "long": -2.0 * Y + 0.1 * RNG.normal(size=N)}
    fits = [
        GPRegressor(SquaredExponential(), outputs=outputs, **SETTINGS).fit(X, y)
        for X, y in [(TABLE[["dose"]], pd.DataFrame(targets)), (SAME.select("dose"), pl.DataFrame(targets))]
    ]
    assert [list(fit.output_names_) for fit in fits] == [["wide", "long"]] * 2
    np.testing.assert_array_equal(fits[1].predict(SAME.select("dose")), fits[0].predict(TABLE[["dose"]]))


def test_columns_in_another_order_are_taken_by_name(gp):
    for table in (TABLE, SAME):
        np.testing.assert_array_equal(gp.predict(table[["age", "dose", "male", "site"]]), gp.predict(table))


def test_missing_categories_of_polars_are_averaged_over(gp):
    with pytest.warns(DataWarning, match=r"2 of 40 rows have missing values .* 'site' \(2\)"):
        gp.predict(SAME.with_columns(site=pl.Series([None, None, *SITES[2:]], dtype=pl.Categorical)))


def test_a_new_category_of_polars(gp):
    with pytest.warns(DataWarning, match=r"40 rows have categories of 'site' .* \(west\)"):
        gp.predict(SAME.with_columns(site=pl.lit("west")))


def test_a_lazy_query_is_no_table():
    with pytest.raises(InvalidInput, match=r"lazy query.*X.collect\(\)"):
        GPClassifier().fit(SAME.lazy(), LABELS)


def test_categories_under_integer_names():
    found = Columns.learn(pd.DataFrame({0: [0.5, 1.5, 2.5, 3.5], 1: ["u", "v", "u", "v"]}))
    assert list(found.categories) == ["x1"]  # what scikit-learn and the model call it
    assert found.mask(["x0", "x1"]).tolist() == [False, True]


def test_nullable_numbers_and_decimals_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": pd.array([True, False], dtype="boolean")})
    np.testing.assert_array_equal(Columns({}).encode(frame), [[1.0, 1.0], [np.nan, 0.0]])
    frame = pl.DataFrame({"a": pl.Series([1, 2]).cast(pl.Decimal(10, 2)), "b": [None, None]})
    np.testing.assert_array_equal(Columns({}).encode(frame), [[1.0, np.nan], [2.0, np.nan]])


# -- what cannot be used ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame(np.ones((N, 3)), columns=["a", "b", "a"]), "several columns of the same name: 'a'"),
        (TABLE.assign(when=DATES), "column 'when' holds dates or durations .datetime64"),
        (TABLE.assign(when=DATES - DATES[0]), "column 'when' holds dates or durations .timedelta64"),
        (TABLE.assign(when=DATES.to_period()), "column 'when' holds dates or durations .period"),
        (TABLE.assign(when=pd.Series(list(DATES.date), dtype=object)), "column 'when' holds dates or durations .date"),
        (SAME.with_columns(when=pl.Series(range(N)).cast(pl.Datetime)), "column 'when' holds dates or durations"),
        (SAME.with_columns(when=pl.Series(range(N)).cast(pl.Duration)), "column 'when' holds dates or durations"),
        (np.array(DATES)[:, None], "'X' holds dates or durations .datetime64"),
        (TABLE.assign(many=[[1, 2]] * N), "column 'many' holds a list where a number belongs"),  # type: ignore[list-item]
        (SAME.with_columns(many=pl.Series([[1, 2]] * N)), "column 'many' holds a list"),
        (TABLE.assign(kind=pd.interval_range(0, N)), "column 'kind' holds a list, an interval"),
        (TABLE.assign(mixed=[1, "one"] * (N // 2)), r"column 'mixed' holds text \('one'\) in 20 of 40 rows"),
        (TABLE.to_numpy(), r"column 3 of 'X' holds text \('.*'\) in 40 of 40 rows.*DataFrame"),
        ([[1.0, "a"], [2.0, "b"]] * (N // 2), r"column 1 of 'X' holds text \('a', 'b'\)"),
        (TABLE.assign(z=1j), "Complex data not supported: column 'z'"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_sampling")
def test_columns_that_are_no_numbers_are_refused_by_name(table, message):
    for estimator in (GPClassifier(**SETTINGS), GPRegressor(**SETTINGS)):
        with pytest.raises(InvalidInput, match=message):
            estimator.fit(table, LABELS if isinstance(estimator, GPClassifier) else Y)


@pytest.mark.usefixtures("no_sampling")
def test_missing_inputs_are_named_with_what_to_do():
    table = TABLE.assign(dose=TABLE["dose"].where(TABLE.index > 2), age=TABLE["age"].where(TABLE.index != 1))
    same = pl.DataFrame({name: table[name].to_list() for name in ("dose", "age")})
    for X in (table, same, table[["dose", "age"]].to_numpy()):
        with pytest.raises(InvalidInput, match=r"Input X contains NaN: in 3 of 40 rows, in the columns") as error:
            GPClassifier(missing="error", **SETTINGS).fit(X, LABELS)
        assert "SimpleImputer" in str(error.value)
        assert "HistGradient" not in str(error.value)
        names = ("x0", "x1") if isinstance(X, np.ndarray) else ("dose", "age")
        assert f"'{names[0]}' (3 rows), '{names[1]}' (1 row)" in str(error.value)


def test_infinite_inputs_are_named(gp):
    for table in (TABLE.assign(dose=np.inf), SAME.with_columns(dose=pl.lit(np.inf))):
        with pytest.raises(InvalidInput, match=r"Input X contains infinity .* in the columns 'dose' \(40 rows\)"):
            gp.predict(table)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (pd.Series(DATES), "'y' holds dates or durations"),
        (np.array(DATES - DATES[0]), "'y' holds dates or durations"),
        (pd.Series(DATES.to_period()), "'y' holds dates or durations"),
        (pl.Series(range(N)).cast(pl.Date), "'y' holds dates or durations"),
        (pd.DataFrame({"a": Y, "b": DATES}), "column 'b' of 'y' holds dates or durations"),
        (pl.Series([[1.0]] * N), "'y' holds a list"),
    ],
)
@pytest.mark.usefixtures("no_sampling")
def test_targets_that_are_dates_or_lists_are_refused(y, message):
    for estimator in (GPClassifier(**SETTINGS), GPRegressor(**SETTINGS)):
        with pytest.raises(InvalidInput, match=message):
            estimator.fit(TABLE, y)


def test_missing_labels_are_counted():
    for y in (pd.Series(["a", "b", None]), pl.Series(["a", "b", None]), np.array(["a", "b", np.nan], dtype=object)):
        with pytest.raises(InvalidInput, match=r"'y' holds 1 missing labels .* among 3. Drop these rows"):
            plain_targets(y)


@pytest.mark.usefixtures("no_sampling")
def test_a_regressor_sends_text_to_the_classifier():
    labels = np.sort(LABELS)
    for y in (labels, pl.Series(labels.tolist()), pd.Series(labels)):
        with pytest.raises(InvalidInput, match=r"'y' holds text \('no', 'yes'\).*GPClassifier"):
            GPRegressor().fit(TABLE, y)
    with pytest.raises(InvalidInput, match="'sample_weight' holds text"):
        GPRegressor().fit(TABLE, Y, sample_weight=LABELS)


# -- what may not be meant -------------------------------------------------------------------------------------------


def test_a_category_of_many_levels_is_said_to_tell_rows_apart():
    table: Any
    for table in (TABLE, SAME):
        copy = (
            table.assign(code=[f"p{i}" for i in range(N)])
            if table is TABLE
            else table.with_columns(code=pl.Series([f"p{i}" for i in range(N)]))
        )
        with pytest.warns(DataWarning, match="'code': the text is different in every one .*Drop the column") as caught:
            Columns.learn(copy)
        assert len(caught) == 1
    most = TABLE.assign(code=[f"p{min(i, 30)}" for i in range(N)])
    with pytest.warns(DataWarning, match="'code' has 31 levels in 40 rows.*Drop the column"):
        Columns.learn(most)
    half = TABLE.assign(code=[f"p{i // 2}" for i in range(N)])
    assert len(Columns.learn(half).categories["code"]) == 20  # half the rows: no warning


def test_an_ordered_category_is_said_to_lose_its_order():
    grades = pd.Categorical(["low", "high"] * 20, categories=["low", "high"], ordered=True)
    with pytest.warns(DataWarning, match=r"order .* 'grade' \(low < high\) .*cat.codes") as w:
        Columns.learn(TABLE.assign(grade=grades))
    assert len(w) == 1
    Columns.learn(TABLE.assign(grade=grades.as_unordered()))


@pytest.mark.filterwarnings("ignore::hmcgp.errors.ApproximationWarning")  # slopes of such inputs are hard to find
def test_scales_apart_without_standardisation():
    X = pd.DataFrame({"near": RNG.normal(size=N), "far": 1e4 * RNG.normal(size=N)})
    y = np.where(X["near"] > 0.0, "a", "b")
    plain = GPClassifier(standardize=False, **SETTINGS)
    with pytest.warns(DataWarning, match=r"'near' and .*'far'.* standardize=True") as caught:
        plain.fit(X, y)
    assert sum(issubclass(w.category, DataWarning) for w in caught) == 1
    plain.fit(X * [1.0, 1e-3], y)  # a factor of ten
    for factor in (100.0, 0.01):
        with pytest.warns(DataWarning, match="deviation of '(near|far)' is .* expect about 1"):
            plain.fit(X * [factor, factor * 1e-4], y)
    own = SquaredExponential(length_scale=LogNormal(0.0, 5.0), ard=True)
    GPClassifier(own, standardize=False, **SETTINGS).fit(X, y)  # priors of one's own
    GPClassifier(**SETTINGS).fit(X, y)


def test_more_hyperparameters_than_rows():
    X, y = RNG.normal(size=(20, 3)), np.arange(20).astype(str)
    with pytest.warns(DataWarning, match=r"80 hyperparameters for 20 rows.*hare one kernel among all") as caught:
        GPClassifier([SquaredExponential(ard=True)] * 20, **SETTINGS).fit(X, y)
    assert len(caught) == 1
    assert "SquaredExponential(ard=True)" in str(caught[0].message)
    GPClassifier(SquaredExponential(ard=True), **SETTINGS).fit(X, y)  # as advised: no warning
    wide = RNG.normal(size=(8, 10))
    with pytest.warns(DataWarning, match="12 hyperparameters for 8 rows.*hare one length scale"):
        GPRegressor(**SETTINGS).fit(wide, wide[:, 0])
