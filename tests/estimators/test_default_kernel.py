"""The kernel of a classifier that names none: its terms, and the priors of its hyperparameters."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hmcgp import GPClassifier
from hmcgp.estimators.default_kernel import OFFSET, curve_line_and_offset
from hmcgp.priors import LogNormal

RNG = np.random.default_rng(3)
N = 30
NUMBERS = {"a": RNG.normal(size=N), "b": 100.0 * RNG.normal(size=N)}
SITE = pd.Categorical(RNG.choice(["u", "v", "w"], N))
Y = np.where(NUMBERS["a"] > 0.0, "yes", "no")
FAST: dict[str, Any] = {"sampler": "map", "refine": None, "random_state": 0, "progressbar": False}


def priors(mask):
    """Priors of the free parameters, by name."""
    mask = np.array(mask)
    kernel = curve_line_and_offset(mask)
    return {p.name: p.value for p in kernel.parameters([f"x{i}" for i in range(len(mask))]) if p.is_free}


def test_quantities_have_a_curve_and_a_line():
    found = priors([False] * 4)
    assert list(found) == ["squared_exponential.variance", "length_scale", "linear.variance"]
    assert found["length_scale"] == LogNormal(0.5 + 0.5 * math.log(4), 0.5)
    assert found["linear.variance"] == LogNormal(-math.log(4), 2.0)


def test_categories_change_the_curve_and_add_effects():
    found = priors([False, True, True])
    assert list(found)[-2:] == ["linear.variance", "category_effects.variance"]
    assert found["category_effects.variance"] == LogNormal(-math.log(2), 2.0)
    assert found["length_scale"] == LogNormal(0.5, 0.5)
    assert "weight" in found


def test_categories_alone_have_effects():
    assert "category_effects.variance" in priors([True, True])
    assert not any(name.startswith(("linear", "length")) for name in priors([True, True]))


@pytest.mark.parametrize("columns", [["a"], ["a", "b"], ["a", "b", "site"]])
def test_far_from_all_rows_the_offset_is_what_is_left(columns):
    """Two rows far apart, of different categories, have in common the offset, and the line through the mean."""
    X = pd.DataFrame({**NUMBERS, "site": SITE})[columns]
    gp = GPClassifier(**FAST).fit(X, Y)
    width = len(gp.model_.input_names)
    near = np.zeros((1, width))
    far = np.full((1, width), 1e3)
    if "site" in columns:
        near[:, -1], far[:, -1] = 0.0, 1.0
    assert gp.kernel_(near, far)[0, 0] == pytest.approx(OFFSET, abs=1e-6)
    assert gp.score(X, Y) >= 0.5


def test_several_classes_share_it():
    X = pd.DataFrame(NUMBERS)
    gp = GPClassifier(**FAST).fit(X, np.array(["p", "q", "r"])[np.arange(N) % 3])
    assert gp.model_.names == ["squared_exponential.variance", "length_scale[a]", "length_scale[b]", "linear.variance"]
