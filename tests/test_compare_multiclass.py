"""Several classes by Laplace's approximation and by expectation propagation, in small."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from compare_multiclass import PAIRS, cost, methods
from reproduce_glass import DATA, cross_validate


@pytest.mark.parametrize("label", list(methods(3, 0, 10, hmc=False)))
def test_thyroid_by_map(label):
    X, y = DATA["thyroid"](return_X_y=True)
    X, y = X[::2].reset_index(drop=True), np.asarray(y).astype(str)[::2]
    score = cross_validate(methods(3, 0, 10, hmc=False)[label], X, y, repeats=1, folds=3)
    assert score.error <= 0.1
    assert score.log_loss <= (0.3 if "Laplace" in label else 0.15)


def test_hmc_is_for_the_two_with_several_classes():
    assert [name for name in methods(3, 0, 10, hmc=True) if name.endswith("HMC")] == [f"{name}, HMC" for name in PAIRS]


def test_an_evaluation_takes_time():
    milliseconds = cost(seconds=0.0)
    assert list(milliseconds) == [f"{name}, {kind}" for name in PAIRS for kind in ("cold", "warm")]
    assert all(0.0 < t < 5e3 for t in milliseconds.values())
