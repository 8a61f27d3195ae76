"""Fits of the study: one row of a CSV for each table, repeat, fold and contender, written as soon as it is there.

Fold 1 of repeat 1 of all tables comes first, then fold 2, then repeat 2; within a fold contenders come one after the
other, so that a run that is stopped leaves results that can be compared.  Rows that are in the file are not made again.
"""

from __future__ import annotations

import csv
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from scripts.study import contenders, tables
from scripts.study.forecast import Chains
from scripts.study.scores import Scores, scores
from scripts.study.tables import Fold, Table

KEY = ("table", "repeat", "fold", "contender")
COLUMNS = (*KEY, "n", "d", *Scores._fields, "seconds", "r_hat")
SHORTEST = Chains(1, 2, 2)

Part: TypeAlias = tuple[int, int]  # repeat and fold


class Task(NamedTuple):
    """A fold of a table, and contenders that share a fit."""

    table: str
    repeat: int
    fold: int
    family: tuple[str, ...]


def run(
    path: Path, names: Sequence[str], wanted: Sequence[str], parts: Sequence[Part], chains: Chains, jobs: int
) -> int:
    """Make the rows that are missing; return the number of fits that failed, which are told on stderr."""
    made = done(path)
    todo = [task for task in tasks(names, wanted, parts) if set(keys(task, wanted)) - made]
    print(f"{len(todo)} fits to make, {len(made)} rows in {path}", flush=True)
    failed = 0
    work = Parallel(n_jobs=jobs, return_as="generator_unordered")
    for rows in work(delayed(attempt)(task, chains) for task in todo):
        failed += not rows
        new = [row for row in rows if row["contender"] in wanted and key(row) not in made]
        append(path, new)
        for row in new:
            print(
                "{table:15} {repeat} {fold} {contender:22} {log_loss:7.4f} {seconds:8.2f} s".format(**row), flush=True
            )
    return failed


def tasks(names: Sequence[str], wanted: Sequence[str], parts: Sequence[Part]) -> Iterator[Task]:
    """Tasks in the order in which they are done."""
    for repeat, fold in parts:
        for family in contenders.FAMILIES:
            if set(family) & set(wanted):
                yield from (Task(name, repeat, fold, family) for name in names)


def keys(task: Task, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
    """Keys of the rows that a task is to make."""
    return [(task.table, task.repeat, task.fold, name) for name in task.family if name in wanted]


def attempt(task: Task, chains: Chains) -> list[dict[str, Any]]:
    """Rows of a task; none, and the reason on stderr, if it failed."""
    try:
        return fit(task, chains)
    except Exception:
        print(f"{task} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return []


def fit(task: Task, chains: Chains) -> list[dict[str, Any]]:
    """Fit the contenders of a task, and score them."""
    table = tables.load(task.table)
    fold = find_fold(table, task.repeat, task.fold)
    _warm_up(task.family, table.kind, len(table.categories) > 0)
    forecasts = contenders.FAMILIES[task.family](table, fold, chains)
    code = np.searchsorted(np.unique(table.y), table.y[fold.test])
    size = {"n": len(fold.train), "d": table.X.shape[1]}
    return [
        {
            **dict(zip(KEY, (task.table, task.repeat, task.fold, name), strict=True)),
            **size,
            **scores(forecast.probability, code)._asdict(),
            "seconds": forecast.seconds,
            "r_hat": forecast.r_hat,
        }
        for name, forecast in forecasts.items()
    ]


def find_fold(table: Table, repeat: int, number: int) -> Fold:
    """One fold of a table."""
    return next(f for f in tables.make_folds(table, repeat) if (f.repeat, f.fold) == (repeat, number))


@cache
def _warm_up(family: tuple[str, ...], kind: str, categories: bool) -> None:
    """Compile, or load what was compiled, outside of the seconds that count."""
    name = {"classes": "penguins" if categories else "iris", "numbers": "crabs"}.get(kind, "saheart")
    table = tables.load(name)
    small = tables.make_folds(table, 1, cap=40)[0]
    contenders.FAMILIES[family](table, small._replace(test=small.test[:5]), SHORTEST)


# -- the file --------------------------------------------------------------------------------------------------------


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Key of a row."""
    return tuple(row[name] for name in KEY)


def done(path: Path) -> set[tuple[Any, ...]]:
    """Keys of the rows of a file."""
    if not path.exists():
        return set()
    return set(pd.read_csv(path)[list(KEY)].itertuples(index=False, name=None))


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append rows to a file, which has a header."""
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows({name: f"{v:.5g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)
