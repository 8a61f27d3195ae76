"""Choice of a default kernel: rows of its file, and what its report says of them."""

import pandas as pd
import pytest

from scripts.study import kernel_choice

LOSSES = {"se": 0.50, "narrow": 0.47, "se/shared": 0.40}


@pytest.fixture
def fitted(monkeypatch):
    """Names of the fits that are made, in place of the fits."""
    made = []

    def fit_row(table, fold, inference, name):
        made.append((table.name, fold.fold, name))
        shared = {"table": table.name, "kind": table.kind, "half": table.half, "repeat": fold.repeat, "fold": fold.fold}
        return shared | {
            **{"inference": inference, "kernel": name, "log_loss": LOSSES[name] + 0.01 * fold.fold},
            **{"error": 0.1, "seconds": 1.0},
        }

    monkeypatch.setattr(kernel_choice, "fit_row", fit_row)
    return made


def test_rows_that_are_there_are_not_fitted_again(fitted, tmp_path):
    path = tmp_path / "rows.csv"
    kernel_choice.run(path, ["crabs"], ["map"], ["se"], 1)
    kernel_choice.run(path, ["crabs", "iris"], ["map"], ["se", "narrow", "se/shared"], 1)
    rows = pd.read_csv(path)
    assert len(rows) == len(fitted) == len(set(fitted)) == 2 + 2 + 6
    assert not set(rows.query("table == 'crabs'")["kernel"]) - {"se", "narrow"}  # two classes share nothing


def test_a_file_of_a_header_alone_is_continued(fitted, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(",".join(kernel_choice.FIELDS) + "\n", encoding="utf-8")
    kernel_choice.run(path, ["crabs"], ["map"], ["se"], 1)
    assert pd.read_csv(path)["log_loss"].tolist() == pytest.approx([0.51, 0.52])


def test_the_report_has_differences_within_folds(fitted, tmp_path, capsys):
    path = tmp_path / "rows.csv"
    kernel_choice.run(path, ["crabs", "sonar"], ["map"], ["se", "narrow"], 1)
    kernel_choice.report(path)
    shown = capsys.readouterr().out
    assert "narrow                   2 tables  -0.0300 [-0.0300, -0.0300] worst -0.030" in shown
    kept = pd.read_csv(path).query("kernel == 'narrow'")
    kept.to_csv(path, index=False)
    with pytest.raises(SystemExit, match="no rows of the kernel 'se'"):
        kernel_choice.report(path)
