"""Kim & Ghahramani (2006): labels that may be wrong, inputs that do not matter, and five tables."""

import numpy as np
import pandas as pd
import pytest

from scripts.papers import kim_ghahramani as paper
from scripts.papers import kim_ghahramani_data as data
from scripts.papers import kim_ghahramani_methods as methods
from scripts.papers import kim_ghahramani_model as model


def labels_of(X):
    return np.where((X**2).sum(axis=1) >= 0.5, 1.0, -1.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_circle_has_two_wrong_labels_of_forty(seed):
    split, flipped = data.circle(seed)
    assert split.X.shape == (40, 2)
    assert split.X_test.shape == (960, 2)
    np.testing.assert_array_equal(np.flatnonzero(split.y != labels_of(split.X)), flipped)
    assert len(flipped) == 2
    np.testing.assert_array_equal(split.y_test, labels_of(split.X_test))
    assert 0.9 < np.abs(split.X_test).max() < 1.0


def test_means_of_relevant_inputs_are_the_class():
    many = [data.relevance_data(seed) for seed in range(20)]
    assert many[0].X.shape == (300, 6)
    assert many[0].X_test.shape == (100, 6)
    X, y = (np.concatenate([split[i] for split in many]) for i in (0, 1))
    means = (X * y[:, None]).mean(axis=0)
    np.testing.assert_allclose(means, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], atol=5.0 / np.sqrt(len(y)))


@pytest.mark.parametrize(
    ("name", "rows", "continuous", "discrete"),
    [("thyroid", 215, 5, 0), ("ionosphere", 351, 33, 0), ("crabs", 200, 5, 2), ("Pima.tr", 200, 7, 0)],
)
def test_folds_share_the_rows_out(name, rows, continuous, discrete):
    folds = data.folds(name)
    assert len(folds) == 10
    assert sum(len(fold.y_test) for fold in folds) == rows
    for fold in folds:
        assert fold.X.shape == (rows - len(fold.y_test), continuous + discrete)
        assert fold.n_continuous == continuous
        np.testing.assert_allclose(fold.X[:, :continuous].mean(axis=0), 0.0, atol=1e-12)
        assert abs(np.mean(fold.y > 0.0) - np.mean(fold.y_test > 0.0)) < 0.06


def test_missing_values_of_heart_are_filled(tmp_path):
    names = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, 3, 294).astype(float) for name in names})
    frame = frame.assign(slope=np.nan, ca=np.nan, thal=np.nan, num=np.arange(294) % 2)
    frame.loc[:6, "chol"] = np.nan
    frame.loc[:3, "thal"] = 7.0
    frame.to_csv(tmp_path / "heart.csv", index=False)
    continuous, codes, target = data.table("heart", str(tmp_path / "heart.csv"))
    assert list(continuous.columns) == ["age", "trestbps", "chol", "thalach", "oldpeak"]  # ca has no value at all
    np.testing.assert_allclose(continuous["chol"][:7], frame["chol"].mean())
    assert list(codes.columns) == data.DISCRETE["heart"]
    np.testing.assert_array_equal(codes["thal"], (np.arange(294) > 3).astype(int))
    assert len(target) == 294


def distances(fold):
    """d_k between the training rows, of shape (inputs, n, n), as the paper has them."""
    difference = fold.X.T[:, :, None] - fold.X.T[:, None, :]
    discrete = np.arange(len(difference)) >= fold.n_continuous
    return np.where(discrete[:, None, None], difference != 0.0, difference**2)


def test_indicators_are_at_distance_one():
    fold = data.folds("crabs")[0]
    X = fold.spread().X
    squared = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared, distances(fold).sum(axis=0), atol=1e-10)


def test_covariance_is_the_papers():
    """One l for each input, discrete ones too: v0 exp(-½ Σ l d) + v1 + v2 δ, at the start that was asked for."""
    fold = data.folds("crabs")[0]
    l = np.linspace(0.01, 0.5, 7)  # noqa: E741
    start = {"flip": 0.02, "constant": 0.3, "white": 0.05, "l": l}
    several = model.build(fold.X, fold.y, ard=True, n_continuous=5)
    position = model.position_of(several, start, 5)
    fitted = model.Fitted(several, several.constrain(position), position, 0, 5)
    np.testing.assert_allclose(fitted.l, l, rtol=1e-10)
    smooth = np.exp(-0.5 * np.tensordot(l, distances(fold), 1)) + 0.3
    np.testing.assert_allclose(
        several.kernel_at(fitted.theta)(fold.X), smooth + 0.05 * np.eye(len(smooth)), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(fitted.smooth_covariance(fold.X, fold.X.copy()), smooth, rtol=1e-10, atol=1e-12)
    again = fitted.start()
    np.testing.assert_allclose([again[k] for k in ("flip", "constant", "white")], [0.02, 0.3, 0.05], rtol=1e-10)


def test_one_l_for_all_needs_indicators():
    fold = data.folds("crabs")[0]
    with pytest.raises(ValueError, match="indicators"):
        model.build(fold.X, fold.y, ard=False, n_continuous=5)


def test_summary_of_folds():
    rows = [{"SVM": methods.Rate(e), "HMC": methods.Rate(e, 2.0 * e, r)} for e, r in ((0.1, 1.2), (0.3, 1.1))]
    found = methods.columns(rows)
    np.testing.assert_allclose(found["SVM"][:2], [0.2, 0.1])  # sd 0.1 √2, over √2
    np.testing.assert_allclose(found["HMC"], [0.2, 0.1, 0.4, 1.2])


def test_one_circle_and_its_picture(tmp_path):
    found = paper.circle_replicate(0)
    assert 0.02 < found.flip < 0.1
    assert found.error < found.error_without
    assert found.n_found == 2
    scales = np.array([1.0, 1.0, 1.0, 9.0, 9.0, 9.0])
    relevance = [paper.Relevance(-2.0, -1.0, 0.1, 0.1, scales * x) for x in (1.0, 1.1)]
    paper.draw([found, found], relevance, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_em_ep_climbs_to_the_same_place():
    split, _ = data.circle(3)
    found = paper.climbs(split.X, split.y, model.CIRCLE_START, ard=True, flips=False)
    assert abs(found.difference) < 1e-3  # EM's last steps are small
    assert found.em_ep > found.lbfgs


def test_every_method_gets_a_column():
    few = [fold._replace(X=fold.X[:60], y=fold.y[:60], numbers=fold.numbers[:60]) for fold in data.folds("Pima.tr")[:2]]
    found = methods.cross_validate(few, hmc=False)
    assert list(found) == [name for name in methods.METHODS if "HMC" not in name]
    assert set(paper.PUBLISHED) == set(found)
    assert all(column.error < 0.5 for column in found.values())
    assert np.isnan(found["SVM soft"].log_loss)
    assert found["GPC s-soft"].log_loss < np.log(2.0)


@pytest.mark.slow
def test_learning_the_rate_of_wrong_labels_helps():
    """Published, of one data set: 0.028 against 0.074.  Of ours, 68 of 100 are better so and 15 worse, by 15 %."""
    rows = paper.replicates(paper.circle_replicate, 40)
    flip, error, without = np.array(rows, dtype=float)[:, :3].T
    assert 0.01 < flip.mean() < 0.06
    assert error.mean() < without.mean()
    assert np.sum(error < without) > 2 * np.sum(error > without)
    assert np.quantile(error, 0.9) > 0.0281  # theirs is easier than most


@pytest.mark.slow
def test_relevance():
    """Published: log evidence -55.45 with one length scale, -35.41 with one per input; l of noise tends to 0."""
    rows = paper.replicates(paper.relevance_replicate, 10)
    gain = np.array([row.log_evidence_m - row.log_evidence_s for row in rows])
    assert gain.min() > 1.0
    assert 2.5 < gain.mean() < 6.0  # a gain of 20 is not to be had with data as the paper defines them
    medians = np.median([row.length_scales for row in rows], axis=0)
    assert medians[data.N_RELEVANT :].min() > 4.0 * medians[: data.N_RELEVANT].max()
    assert np.mean([row.error_m for row in rows]) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thyroid", "ionosphere", "crabs"])  # Pima.tr takes two minutes
def test_table_2(name):
    """Every method's error is within two and a half standard errors of the published one (measured: within 1.3)."""
    found = methods.cross_validate(data.folds(name), hmc=False)
    for method, row in paper.PUBLISHED.items():
        error, error_se = row[name]
        assert abs(found[method].error - error) < 2.5 * np.hypot(found[method].error_se, error_se), method
    assert found["GPC m-soft"].log_loss < found["LDA"].log_loss + 0.03


@pytest.mark.slow
def test_averaging_by_hmc():
    """On some folds, by short chains: no worse than the mode."""
    folds = data.folds("Pima.tr")[:3]
    optima = methods.optimise(folds)
    mode = methods.columns([methods.rates_of_optima(f, o) for f, o in zip(folds, optima, strict=True)])["GPC m-soft"]
    rows = [methods.averaged(f, o.m_soft, draws=60, tune=60) for f, o in zip(folds, optima, strict=True)]
    ours = methods.columns(rows)["GPC m-soft, HMC"]
    assert ours.error <= mode.error + 0.05  # one of 20 test rows
    assert ours.log_loss < mode.log_loss + 0.02
    assert ours.r_hat < 1.3
