"""The experiment with several classes, in small."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from scripts.papers.glass import DATA, ChosenByLoo, Score, compare, cross_validate, methods


@pytest.fixture(scope="module")
def thyroid():
    X, y = DATA["thyroid"](return_X_y=True)
    return X, np.asarray(y).astype(str)


@pytest.mark.slow
def test_thyroid_by_map_and_its_kept_folds(thyroid, tmp_path):
    X, y = thyroid
    score = cross_validate(methods(X.shape[1], 3, 0, 10)["MAP"], X, y, repeats=1, folds=3, keep=tmp_path / "MAP")
    assert score.error <= 0.05
    assert score.log_loss <= 0.25
    again = cross_validate(None, X, y, repeats=1, folds=3, keep=tmp_path / "MAP")  # nothing is fitted
    np.testing.assert_array_equal(again.losses, score.losses)
    assert again.seconds == score.seconds


@pytest.mark.slow
@pytest.mark.parametrize("label", ["EP-MAP", "EP-shared kernel", "EP-rest"])
def test_thyroid_by_expectation_propagation(thyroid, label):
    X, y = (table[::2] for table in thyroid)
    score = cross_validate(methods(X.shape[1], 3, 0, 10)[label], X, y, repeats=1, folds=3)
    assert score.error <= 0.1
    assert score.log_loss <= 0.15  # 0.19 by Laplace's approximation, of all rows


class Known(BaseEstimator):
    """A candidate whose leave-one-out result is known beforehand."""

    def __init__(self, elpd):
        self.elpd = elpd

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def loo(self):
        return SimpleNamespace(elpd=self.elpd)

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), self.elpd)


def test_the_candidate_with_the_best_leave_one_out_is_chosen():
    fit = ChosenByLoo([Known(-9.0), Known(-3.0), Known(-5.0)]).fit(np.zeros((4, 1)), ["a", "b", "c", "a"])
    np.testing.assert_array_equal(fit.predict_proba(np.zeros((2, 1))), np.full((2, 3), -3.0))
    assert list(fit.classes_) == ["a", "b", "c"]


def test_differences_are_paired_by_row_on_the_repeats_that_both_have():
    def score(wrong, losses):
        return Score(0.0, 0.0, 0.0, [], np.array(wrong), np.array(losses))

    once = score([[1.0, 0.0, 1.0, 0.0]], [[2.0, 1.0, 4.0, 1.0]])
    twice = score([[0.0, 0.0, 1.0, 0.0], [9.0] * 4], [[1.0, 1.0, 3.0, 1.0], [9.0] * 4])
    assert compare(once, twice) == "error +25.0 ± 25.0 %, log loss +0.5000 ± 0.2887"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The least populated class", "ignore:2 of 19. rows repeat")
def test_glass_by_map():
    """Theirs was 23.3 %.

    On folds of our own 23.4 % where the search began at five random positions, and 26.2 % where it begins at the best
    of many, and finds a mode that is 3 nats higher: the most probable is not the best.
    """
    X, y = DATA["glass"](return_X_y=True)
    y = np.asarray(y).astype(str)
    score = cross_validate(methods(X.shape[1], 6, 0, 10)["MAP"], X, y, repeats=1, folds=10)
    assert score.error <= 0.29
    assert score.log_loss <= 0.85
