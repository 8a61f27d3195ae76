"""Categories in a DataFrame."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

mpl.use("Agg")

from hmcgp import GPClassifier, GPRegressor, plots
from hmcgp.errors import DataWarning, InvalidInput
from hmcgp.estimators.columns import Columns
from hmcgp.kernels import SquaredExponential

pytestmark = pytest.mark.usefixtures("clean_pyplot")

RNG = np.random.default_rng(0)
N = 90
TABLE = pd.DataFrame(
    {
        "dose": RNG.uniform(0.0, 10.0, N),
        "site": pd.Categorical(RNG.choice(["north", "south", "east"], N)),
        "colour": RNG.choice(["red", "blue"], N),
    }
)
SHIFT = TABLE["site"].map({"north": 0.0, "south": 4.0, "east": -4.0}).astype(float)
Y = np.sin(TABLE["dose"]) + SHIFT + 0.2 * RNG.normal(size=N)
SETTINGS: dict[str, Any] = {"sampler": "map", "random_state": 0, "progressbar": False}


@pytest.fixture(scope="module")
def gp():
    return GPRegressor(**SETTINGS).fit(TABLE, Y)


def test_categories_are_found_and_named(gp):
    assert gp.model_.names == ["variance", "length_scale[dose]", "weight[site]", "weight[colour]", "noise"]
    assert list(Columns.learn(TABLE).categories) == ["site", "colour"]
    assert gp.score(TABLE, Y) > 0.95


def test_the_category_that_matters_is_told_from_the_one_that_does_not(gp):
    weights = dict(zip(gp.model_.names, gp.trace_.flat[0], strict=True))
    assert weights["weight[site]"] > 10.0 * weights["weight[colour]"]
    ax = plots.relevance(gp, of="length_scale")
    shown = [t.get_text() for t in ax.get_yticklabels()]
    assert set(shown) == {"dose", "site", "colour"}
    assert shown.index("site") < shown.index("colour")


def test_codes_do_not_depend_on_dtype_or_order():
    strings = TABLE.assign(site=TABLE["site"].astype(str))
    shuffled = TABLE.assign(site=TABLE["site"].cat.reorder_categories(["south", "north", "east"]))
    one, two, three = (GPRegressor(**SETTINGS).fit(X, Y).predict(TABLE) for X in (TABLE, strings, shuffled))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)


def test_a_new_category_is_taken_as_different_from_all(gp):
    new = TABLE[:5].assign(site="west")
    with pytest.warns(DataWarning, match=r"5 rows have categories of 'site' .* \(west\)"):
        _, sd = gp.predict(new, return_std=True)
    assert (sd > 2.0 * gp.predict(TABLE[:5], return_std=True)[1]).all()


def test_missing_categories_are_refused(gp):
    with pytest.raises(InvalidInput, match="column 'colour' holds 1 missing categories"):
        GPRegressor(missing="error", **SETTINGS).fit(TABLE.assign(colour=TABLE["colour"].where(TABLE.index != 3)), Y)
    with pytest.raises(InvalidInput, match="column 'site' holds 2 missing"):
        gp.sample_y(TABLE.assign(site=TABLE["site"].where(TABLE.index > 1)))


def test_numbers_are_not_categories():
    frame = pd.DataFrame({"a": [1, 2], "b": [1.0, 2.0], "c": [True, False], "d": np.array([1, 2], dtype=object)})
    assert not Columns.learn(frame).categories
    assert not Columns.learn(frame.to_numpy()).categories


def test_a_table_of_categories_only_and_a_kernel_of_ones_own():
    names = TABLE[["site", "colour"]]
    only = GPRegressor(**SETTINGS).fit(names, Y)
    assert only.model_.names[:3] == ["variance", "weight[site]", "weight[colour]"]
    own = GPRegressor(SquaredExponential().on(["dose"]), **SETTINGS).fit(TABLE, Y)
    assert own.model_.names == ["variance", "length_scale", "noise"]


def test_classifiers_take_categories_too():
    gp = GPClassifier(**SETTINGS).fit(TABLE, Y > 0.0)
    assert gp.score(TABLE, Y > 0.0) > 0.9
    np.testing.assert_allclose(gp.predict_proba(TABLE[::-1]), gp.predict_proba(TABLE)[::-1], rtol=1e-12)
