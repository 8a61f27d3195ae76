"""Tables and pictures of README.md, from results.csv.

python -m scripts.study.analysis
python -m scripts.study.analysis --contenders default/smooth logistic catboost --half confirm
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from scripts.study import contenders, pictures, tables
from scripts.study.__main__ import RESULTS
from scripts.study.comparison import by_table, difference, friedman, holm, mean_ranks, n_folds

PEERS = (  # the best of which hmcgp is to reach
    *("logistic", "svm", "forest", "forest tuned", "histogram", "histogram tuned"),
    *("lightgbm", "lightgbm tuned", "catboost", "catboost tuned"),
)
ALLOWED = 0.03  # nats behind the best of the peers


def present(results: pd.DataFrame, wanted: Sequence[str] | None) -> list[str]:
    """Contenders wanted, or all that have every table of the results."""
    if wanted:
        return list(wanted)
    n_tables = results.groupby("contender")["table"].nunique()
    return [name for name in contenders.NAMES if n_tables.get(name, 0) == n_tables.max()]


def overview(results: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """One row for each contender: rank, and means over tables (of seconds, the median)."""
    means = {score: by_table(results, names, score) for score in ("log_loss", "brier", "error", "ece", "ece_noise")}
    seconds = by_table(results, names, "seconds")
    losses = means["log_loss"]
    behind = losses.sub(losses.min(axis=1), axis=0)
    table = pd.DataFrame(
        {
            "mean rank": mean_ranks(losses),
            "log loss": losses.mean(),
            "behind the best": behind.mean(),
            "at most": behind.max(),
            "Brier": means["brier"].mean(),
            "error": means["error"].mean(),
            "ECE": means["ece"].mean(),
            "of which noise": means["ece_noise"].mean(),
            "seconds": seconds.median(),
        }
    )
    return table.sort_values("mean rank")


def differences(results: pd.DataFrame, names: Sequence[str], reference: str) -> pd.DataFrame:
    """Log loss of a reference minus that of each other, paired by table, with intervals and adjusted p-values."""
    means = by_table(results, names)
    others = [name for name in names if name != reference]
    found = pd.DataFrame([difference(means, reference, name) for name in others], index=others)
    found["p_value"] = holm(list(found["p_value"]))
    return found.sort_values("mean")


def shortfalls(results: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Nats by which contenders of hmcgp are behind the best peer, of tables where one is by more than is allowed."""
    means = by_table(results, names)
    best = means[[name for name in PEERS if name in names]].min(axis=1)
    ours = [name for name in names if "/" in name]
    gaps = means[ours].sub(best, axis=0)
    return gaps[gaps.max(axis=1) > ALLOWED]


def catalogue() -> pd.DataFrame:
    """Size, half and origin of every table."""
    loaded = [tables.load(name) for name in tables.NAMES]
    rows = [
        {
            "rows": len(t.y),
            "inputs (categories)": f"{t.X.shape[1]} ({len(t.categories)})" if t.categories else str(t.X.shape[1]),
            "classes": t.n_classes,
            "half": t.half,
            "source": t.source,
            "licence": t.licence,
            "left out": t.dropped,
        }
        for t in loaded
    ]
    return pd.DataFrame(rows, index=[t.name for t in loaded])


def markdown(frame: pd.DataFrame, digits: int = 3) -> str:
    """A table in Markdown."""
    cells = frame.map(lambda v: f"{v:.{digits}f}" if isinstance(v, float) else str(v)).replace("nan", "")
    head = ["", *map(str, frame.columns)]
    lines = [head, ["---"] * len(head), *([str(i), *row] for i, row in zip(cells.index, cells.to_numpy(), strict=True))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--contenders", nargs="+")
    parser.add_argument("--half", choices=tables.HALVES)
    parser.add_argument("--reference", default="default/smooth")
    parser.add_argument("--pictures", type=Path, default=RESULTS.parent, help="folder")
    parser.add_argument("--catalogue", action="store_true", help="list the tables only")
    given = parser.parse_args()
    if given.catalogue:
        print(markdown(catalogue()))
        return
    results = pd.read_csv(given.results)
    if given.half:
        results = results[results["table"].map(tables.half) == given.half]
    names = present(results, given.contenders)
    means = by_table(results, names)
    folds = n_folds(results, names)
    print(f"{len(means)} tables, {folds.min()} to {folds.max()} folds of each; Friedman p = {friedman(means):.2g}\n")
    print(markdown(overview(results, names)), "\n")
    print(f"log loss of {given.reference} minus that of\n\n{markdown(differences(results, names, given.reference))}\n")
    print(f"behind the best peer by more than {ALLOWED} nats on some table\n\n{markdown(shortfalls(results, names))}\n")
    print(markdown(means), "\n")
    chains = results.dropna(subset="r_hat").groupby("contender")["r_hat"]
    print(markdown(pd.DataFrame({"median R-hat": chains.median(), "share above 1.05": chains.apply(_share)})))
    suffix = f"_{given.half}" if given.half else ""
    given.pictures.mkdir(parents=True, exist_ok=True)
    pictures.critical_difference(means, given.pictures / f"ranks{suffix}.png")
    seconds = by_table(results, names, "seconds")
    pictures.losses_and_seconds(means, seconds, given.pictures / f"losses_and_seconds{suffix}.png")


def _share(r_hat: pd.Series) -> float:
    return float(np.mean(r_hat > 1.05))


if __name__ == "__main__":
    main()
