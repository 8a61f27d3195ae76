"""Kim & Ghahramani (2006): labels that may be wrong, inputs that do not matter, and five tables."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import kim_ghahramani_data as data
import reproduce_kim_ghahramani as paper


def labels_of(X):
    return np.where(np.hypot(*X.T) < data.GAP[1], 1.0, -1.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_circle_has_one_wrong_label_of_each_class_and_a_gap(seed):
    split, flipped = data.circle(seed)
    wrong = np.flatnonzero(split.y != labels_of(split.X))
    assert sorted(flipped) == sorted(wrong)
    assert sorted(split.y[flipped]) == [-1.0, 1.0]
    np.testing.assert_array_equal(split.y_test, labels_of(split.X_test))
    radius = np.hypot(*np.concatenate([split.X, split.X_test]).T)
    assert not np.any((radius > data.GAP[0]) & (radius < data.GAP[1]))
    assert radius.max() < data.EDGE


def test_a_disc_without_a_gap_is_evenly_filled():
    split, flipped = data.circle(0, data.NO_GAP, 0)
    assert len(flipped) == 0
    share = np.mean(np.hypot(*split.X_test.T) < 1.0)  # a quarter of the area
    assert abs(share - 0.25) < 4.0 * np.sqrt(0.25 * 0.75 / 2000)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("new thyroid", (215, 5)), ("ionosphere", (351, 33)), ("crabs", (200, 5)), ("Pima.tr", (200, 7))],
)
def test_folds_share_the_rows_out(name, shape):
    splits = data.folds(name)
    assert len(splits) == 10
    assert sum(len(split.y_test) for split in splits) == shape[0]
    for split in splits:
        assert split.X.shape == (shape[0] - len(split.y_test), shape[1])
        np.testing.assert_allclose(split.X.mean(), 0.0, atol=1e-12)
        assert abs(np.mean(split.y > 0.0) - np.mean(split.y_test > 0.0)) < 0.06


def test_heart_rows_that_lack_a_value_are_left_out(tmp_path):
    names = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(294, 10)), columns=names)
    frame = frame.assign(slope=np.nan, ca=np.nan, thal=np.nan, num=np.arange(294) % 2)
    frame.loc[:6, "chol"] = np.nan
    frame.to_csv(tmp_path / "heart.csv", index=False)
    inputs, target = data.table("heart", str(tmp_path / "heart.csv"))
    assert list(inputs.columns) == names
    assert len(inputs) == len(target) == 287
    assert not inputs.isna().any(axis=None)


def test_summary_of_folds():
    rows = [{"SVC": paper.Rate(e), "HMC": paper.Rate(e, 2.0 * e, r)} for e, r in ((0.1, 1.2), (0.3, 1.1))]
    found = paper.columns(rows)
    np.testing.assert_allclose(found["SVC"][:2], [0.2, 0.1])  # sd 0.1 √2, over √2
    np.testing.assert_allclose(found["HMC"], [0.2, 0.1, 0.4, 1.2])


def test_one_circle_and_its_picture(tmp_path):
    found = paper.circle_replicate(0)
    assert 0.02 < found.flip < 0.09
    assert found.error < found.error_hard < 0.1
    scales = np.array([1.0, 1.0, 1.0, 9.0, 9.0, 9.0])
    paper.draw([paper.Relevance(-1.0, -2.0, scales * x) for x in (1.0, 1.1)], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_every_method_gets_a_column():
    found = paper.cross_validate(data.folds("crabs")[:2], hmc=False)
    assert list(found) == [name for name in paper.COLUMNS if name != "HMC"]
    assert all(column.error < 0.15 for column in found.values())
    assert np.isnan(found["SVC"].log_loss)
