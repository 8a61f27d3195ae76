"""Data for `kim_ghahramani.py`: two synthetic sets and the folds of five tables.

How Kim & Ghahramani made their synthetic data was not at hand; ours are of the same size and, where known, difficulty.

Circle: 20 points in a disc of radius 1 (class +1) and 20 in a ring of radii 1.5 to 2, one label of each class flipped,
drawn from the half of its class that is farther from the other class; 2000 clean test points.  There must be a gap:
without it (`NO_GAP`) 40 points leave, with no label flipped, an error above the 0.028 that they report with two.  This
definition was kept after a look at about five layouts with several rules for the flips, 20 replicates each: the ratio
of the two errors was 0.38 to 0.69 with this gap, depending on the rule, and 0.63 to 0.96 without one.
Relevance: 100 rows, six standard normal inputs, class sign(sin 2x₁ + x₂x₃): of four functions tried, the one whose
evidence comes nearest theirs.  The gain of the others was 20 (a sphere), 15 (a product and a line) and 6 nats (a line).
Tables: stratified 10-fold cross-validation, inputs standardised in every fold.  Thyroid: normal against the rest.
Crabs: sex from five measures.  Pima.tr: Ripley's 200 rows.  Ionosphere: without its constant input.  Heart: a file of
the user's, without `slope`, `ca` and `thal`, which are mostly missing, and without the 33 rows that lack another value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

from hmcgp import datasets
from scripts.papers.barber_williams import Split, standardised

GAP, NO_GAP, EDGE = (1.0, 1.5), (np.sqrt(2.0), np.sqrt(2.0)), 2.0  # radii of disc and ring, and where the ring ends
N_RELEVANT, N_INPUTS = 3, 6
TABLES = {"new thyroid": "Abnormal", "crabs": "M", "Pima.tr": "Yes", "heart": "1", "ionosphere": "good"}  # class +1


class Circle(NamedTuple):
    """A disc in a ring."""

    split: Split
    flipped: Any  # rows of the training set with the wrong label


def disc_and_ring(rng: np.random.Generator, n: int, radii: tuple[float, float]) -> tuple[Any, Any]:
    """Half of the points in a disc, half in a ring, each of even density; classes +1 and -1."""
    y = rng.permutation(np.repeat([1.0, -1.0], n // 2))
    low, high = np.where(y > 0.0, 0.0, radii[1]), np.where(y > 0.0, radii[0], EDGE)
    radius, angle = np.sqrt(rng.uniform(low**2, high**2)), rng.uniform(0.0, 2.0 * np.pi, n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def circle(seed: int, radii: tuple[float, float] = GAP, flips: int = 1) -> Circle:
    """40 training points, `flips` of each class with the wrong label."""
    rng = np.random.default_rng(seed)
    (X, y), (X_test, y_test) = disc_and_ring(rng, 40, radii), disc_and_ring(rng, 2000, radii)
    flipped = []
    for label in (1.0, -1.0):
        rows = np.flatnonzero(y == label)
        far = rows[np.argsort(label * np.hypot(*X[rows].T))][: len(rows) // 2]  # from the other class
        flipped.extend(rng.choice(far, flips, replace=False))
    y[flipped] *= -1.0
    return Circle(Split(X, y, X_test, y_test), np.array(flipped, dtype=int))


def relevance_data(seed: int, n: int = 100) -> tuple[Any, Any]:
    """Three inputs that decide and three that do not."""
    X = np.random.default_rng(seed).normal(size=(n, N_INPUTS))
    return X, np.sign(np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2])


def table(name: str, heart: str | None = None) -> tuple[pd.DataFrame, Any]:
    """Inputs and target of one of `TABLES`, complete rows and inputs that vary."""
    if name == "heart":
        bunch = datasets.load_heart(heart)
        data = bunch.data.drop(columns=["slope", "ca", "thal"])
        rows = data.notna().all(axis=1).to_numpy()
    else:
        load = {
            "new thyroid": lambda: datasets.load_thyroid(binary=True),
            "ionosphere": datasets.load_ionosphere,
            "crabs": datasets.load_crabs,
            "Pima.tr": datasets.load_pima,
        }
        bunch = load[name]()
        data, rows = bunch.data, bunch.train if name == "Pima.tr" else np.ones(len(bunch.data), dtype=bool)
    data = data[rows].reset_index(drop=True)
    return data.loc[:, data.nunique() > 1], np.asarray(bunch.target)[rows]


def folds(name: str, heart: str | None = None, seed: int = 0) -> list[Split]:
    data, target = table(name, heart)
    splits = []
    for rows, _ in StratifiedKFold(10, shuffle=True, random_state=seed).split(data, target):
        train = np.isin(np.arange(len(data)), rows)
        splits.append(standardised(data, target, TABLES[name], train))
    return splits
