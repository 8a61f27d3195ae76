"""Text columns that hold numbers, spellings, identifiers, and columns that change between fit and predict."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from hmcgp import GPRegressor
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.estimators.columns import Columns
from hmcgp.kernels import SquaredExponential

try:
    import pyarrow as pa
except ImportError:  # not among the dependencies of the tests
    pa = None

RNG = np.random.default_rng(0)
N = 60
RESULTS = [f"{value:.1f}" for value in RNG.uniform(0.6, 9.9, N)]
KERNEL = SquaredExponential(1.0, 1.0)
SETTINGS = {"sampler": "map", "random_state": 0, "progressbar": False}


def libraries(**columns):
    """The same table of pandas, polars and, where it is installed, pyarrow."""
    pyarrow = [] if pa is None else [pa.table(columns)]
    return [pd.DataFrame(columns), pl.DataFrame(columns), *pyarrow]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["<0.6"] * 12 + RESULTS[12:], r"'crp' holds text, but 48 of its 60 values \(80 %\) are numbers, and 12 are "
                                       r"not \('<0.6'\).*limit or half of it.*astype\('category'\)"),
        ([text.replace(".", ",") for text in RESULTS], r"60 of its 60 .*comma \('.,.'.*decimal=','"),
        (["1,234.5", "987.0", "12,000.0"] * 20, r"\('1,234.5', '12,000.0'\).*thousands separators"),
        (["NA", *RESULTS[1:]], r"59 of its 60 .* 1 are not \('NA'\).*missing values as NaN"),
        (["?", "1", "2", "3"] * 15, r"45 of its 60 .*\('\?'\).*missing values as NaN"),
        (["-", *map(str, range(18, 77))], r"'-'.*missing values as NaN"),
        (["90+", *map(str, range(18, 77))], r"'90\+'.*Replace the other values"),
        (RESULTS, r"60 of its 60 values \(100 %\) are numbers\. .*astype\(float\)"),
    ],
)  # fmt: skip
def test_numbers_written_as_text_are_an_error(values, message):
    for table in libraries(age=np.arange(float(N)), crp=values):
        with pytest.raises(InvalidInput, match=message):
            Columns.learn(table)


def test_codes_and_declared_categories_stay_categories():
    for values in (["1", "2", "3+"] * 20, ["0", "1", "2"] * 20, ["a", "b", "1.5"] * 20, ["01", "02"] * 30):
        for table in libraries(code=values):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert list(Columns.learn(table).categories) == ["code"]
    declared = pd.DataFrame({"code": pd.Categorical(["1.5", "2.5", "<1"] * 20)})
    assert Columns.learn(declared).categories["code"].tolist() == ["1.5", "2.5", "<1"]


def test_objects_that_mix_numbers_and_text_name_the_text_only():
    table = pd.DataFrame({"crp": [1.0, "2.5", "<0.6"] * 20}, dtype=object)
    with pytest.raises(InvalidInput, match=r"'crp' holds text \('<0.6'\) in 20 of 60 rows\. Replace this text"):
        GPRegressor(KERNEL, **SETTINGS).fit(table, np.arange(float(N)))


def test_spellings_of_one_category_are_named():
    for table in libraries(sex=["F", " F", "f", "M"] * 15):
        with pytest.warns(DataWarning, match=r"case or spaces.*'sex' \(' F' and 'F' and 'f'\)") as caught:
            Columns.learn(table)
        assert len(caught) == 1


def test_a_new_spelling_of_a_known_category_is_named():
    columns = Columns.learn(pd.DataFrame({"sex": ["F", "M"] * 30}))
    with pytest.warns(DataWarning, match=r"taken as different.*case or spaces only: 'f' instead of 'F'"):
        columns.encode(pd.DataFrame({"sex": ["f", "M"]}))


def test_identifiers_are_named():
    for table in libraries(patient=[f"p{i}" for i in range(N)]):
        with pytest.warns(DataWarning, match=r"'patient': the text is different in every one of the 60 rows") as caught:
            Columns.learn(table)
        assert len(caught) == 1


@pytest.fixture(scope="module")
def gp():
    table = pd.DataFrame({"dose": RNG.normal(size=N), "site": ["north", "south", "east"] * 20})
    return GPRegressor(**SETTINGS).fit(table, RNG.normal(size=N) + table["dose"])


def test_a_type_that_changes_between_fit_and_predict_is_an_error(gp):
    for table in libraries(dose=["0.1", "<0.6"], site=["north", "south"]):
        with pytest.raises(InvalidInput, match=r"'dose' holds text or categories \('<0.6'\), and held numbers"):
            gp.predict(table)
    for table in libraries(dose=[0.1, 0.2], site=[1.0, 2.0]):
        with pytest.raises(InvalidInput, match=r"'site' holds numbers \(1.0, 2.0\), and held text.*'east'"):
            gp.predict(table)


def test_columns_in_another_order_are_reordered_by_name(gp):
    columns = {"dose": [0.1, 0.2], "site": ["north", "south"]}
    wanted = gp.predict(pd.DataFrame(columns))
    for table in libraries(**dict(reversed(columns.items()))):
        np.testing.assert_array_equal(gp.predict(table), wanted)


def test_reordered_columns_are_reordered_when_appended(gp, tmp_path):
    gp.save(tmp_path / "gp.hmcgp")
    new = pd.DataFrame({"site": ["north"], "dose": [0.7]})
    one, two = (GPRegressor.load(tmp_path / "gp.hmcgp") for _ in range(2))
    one.append(new, [0.0])
    two.append(new[["dose", "site"]], [0.0])
    np.testing.assert_array_equal(one.model_.X, two.model_.X)


def test_missing_and_extra_columns_are_named(gp):
    for table in libraries(dose=[0.1, 0.2], centre=["a", "b"]):
        with pytest.raises(InvalidInput, match=r"unseen at fit time: 'centre'.*yet now missing: 'site'"):
            gp.predict(table)
    for table in libraries(site=["north"], dose=[0.1], note=["<0.6"]):
        with pytest.raises(InvalidInput, match=r"should match those .* unseen at fit time: 'note'\. Drop"):
            gp.predict(table)
