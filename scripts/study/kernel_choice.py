"""Default kernels compared: chosen on half of the tables, confirmed once on the other half.

    python -m scripts.study.kernel_choice run --half choose            EP, most probable hyperparameters
    python -m scripts.study.kernel_choice run --half confirm --kernels se narrow+linear
    python -m scripts.study.kernel_choice run --inference laplace default --kernels se narrow+linear --repeats 1
    python -m scripts.study.kernel_choice report

One row per fit is written to the CSV; rows that are there are not fitted again.  Kernels: `kernels.py`.  Findings:
kernel_choice.md.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.metrics import log_loss

from hmcgp import GPClassifier
from scripts.study.kernels import KERNELS, kernel_of
from scripts.study.tables import NAMES, Fold, Table, half, load, make_folds

FIELDS = ("table", "kind", "half", "repeat", "fold", "inference", "kernel", "log_loss", "error", "seconds")
REFERENCE = "se"
CHAINS = {"draws": 200, "tune": 200, "chains": 2}
INFERENCES: dict[str, dict[str, Any]] = {
    "map": {"evidence": "ep", "sampler": "map"},
    "laplace_map": {"sampler": "map", "refine": None},
    "laplace": {"sampler": "hmc", "refine": None, **CHAINS},
    "default": {"sampler": "hmc", **CHAINS},
    "ep": {"evidence": "ep", "sampler": "hmc", **CHAINS},
}


def fit_row(table: Table, fold: Fold, inference: str, name: str) -> dict[str, Any]:
    """One row of the CSV."""
    settings = dict(INFERENCES[inference])
    if table.n_classes > 2 and "evidence" in settings:
        settings["likelihood"] = "probit"
    gp = GPClassifier(
        kernel_of(name, table), **settings, n_jobs=1, random_state=0, progressbar=False, inducing=None
    )  # fmt: skip
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains, and of few rows for many hyperparameters
        gp.fit(table.X.iloc[fold.train], table.y[fold.train])
        p = gp.predict_proba(table.X.iloc[fold.test])
    y = table.y[fold.test]
    return {
        **{"table": table.name, "kind": table.kind, "half": table.half, "repeat": fold.repeat, "fold": fold.fold},
        **{"inference": inference, "kernel": name, "log_loss": log_loss(y, p, labels=gp.classes_)},
        **{"error": float(np.mean(gp.classes_[p.argmax(axis=1)] != y)), "seconds": time.process_time() - begin},
    }


def run(path: Path, names: Sequence[str], inferences: Sequence[str], kernels: Sequence[str], repeats: int) -> None:
    """Fit what the CSV lacks."""
    done = set()
    if path.exists():
        done = set(pd.read_csv(path)[list(FIELDS[:1] + FIELDS[3:7])].itertuples(index=False, name=None))
    with path.open("a", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, FIELDS)
        if handle.tell() == 0:
            writer.writeheader()
        for name in names:
            table = load(name)
            todo = kernels if table.n_classes > 2 else [k for k in kernels if "/" not in k]
            for fold in make_folds(table, repeats):
                for inference in inferences:
                    for kernel in todo:
                        if (name, fold.repeat, fold.fold, inference, kernel) not in done:
                            writer.writerow(fit_row(table, fold, inference, kernel))
                            handle.flush()
            print(name, flush=True)


def differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Log loss minus that of the reference in the same fold, averaged over the folds of each table."""
    keys = ["kind", "half", "inference", "table", "repeat", "fold"]
    wide = rows.pivot_table(index=keys, columns="kernel", values="log_loss")
    if REFERENCE not in wide:
        raise SystemExit(f"no rows of the kernel {REFERENCE!r}, with which others are compared.")
    return wide.sub(wide[REFERENCE], axis=0).groupby(level=keys[:4]).mean().drop(columns=REFERENCE)


def interval(values: pd.Series) -> str:
    """Mean over tables with the 95 % interval of Student's t."""
    x = values.dropna().to_numpy()
    if len(x) < 2:
        return ""
    half_width = student.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x))
    return f"{x.mean():+.4f} [{x.mean() - half_width:+.4f}, {x.mean() + half_width:+.4f}] worst {x.max():+.3f}"


def report(path: Path) -> None:
    """Print mean losses of tables, and differences from the reference with intervals over tables."""
    rows = pd.read_csv(path)
    several = np.where(rows["kind"] == "classes", "several", "two")
    losses = rows.pivot_table(index=["inference", "half", "kind", "table"], columns="kernel", values="log_loss")
    print(losses.round(3).to_string(na_rep=""))
    seconds = rows.groupby([several, rows["inference"], rows["kernel"]])["seconds"].median()
    print("\nmedian seconds\n", seconds.unstack().round(2).to_string(na_rep=""))
    found = differences(rows)
    print(f"\nlog loss minus that of {REFERENCE!r}: mean over tables [95 %], worst table")
    kinds, inference, halves = (found.index.get_level_values(level) for level in ("kind", "inference", "half"))
    for group, part in found.groupby([inference, np.where(kinds == "classes", "several", "two"), halves]):
        for kernel, values in part.items():
            n = len(values.dropna())
            if n:
                print("{:<12} {:<8} {:<8}".format(*group), f"{kernel:<22} {n:3d} tables  {interval(values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("run", "report"))
    parser.add_argument("--csv", type=Path, default=Path("kernel_choice.csv"))
    parser.add_argument("--half", choices=("choose", "confirm", "both"), default="choose")
    parser.add_argument("--tables", nargs="*", default=None)
    parser.add_argument("--inference", nargs="*", default=["map"], choices=INFERENCES)
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    if args.task == "report":
        return report(args.csv)
    names = args.tables or [name for name in NAMES if args.half in ("both", half(name))]
    return run(args.csv, names, args.inference, args.kernels, args.repeats)


if __name__ == "__main__":
    main()
