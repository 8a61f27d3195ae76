"""Data for `kim_ghahramani.py`: two synthetic sets as the paper defines them, and the folds of five tables.

Circle: 1000 points evenly spread on (-1, 1)², class +1 where x₁² + x₂² ≥ 0.5; 40 of them drawn as training set, the
labels of two of these flipped; the other 960, with their true labels, are the test set.
Relevance: y = ±1 with equal probability, x₁, x₂, x₃ ~ N(y, 1) and x₄, x₅, x₆ ~ N(0, 1); 300 rows to train, 100 to test.
Tables: ten stratified folds; continuous inputs standardised by the training rows, discrete ones as codes 0, 1, …

What the paper leaves open.  Thyroid: which of its three classes were merged (here: abnormal against normal).  Crabs:
which two of the inputs are discrete (here: colour form and running number, the two columns beside the five measures).
Heart: how missing values were filled (here: a level of its own for a discrete input, the mean for a continuous one).
Ionosphere: its constant input is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

from hmcgp import datasets
from scripts.papers.barber_williams import Split

RADIUS_SQUARED = 0.5
N_RELEVANT, N_INPUTS = 3, 6
TABLES = {"heart": "1", "thyroid": "Abnormal", "ionosphere": "good", "crabs": "M", "Pima.tr": "Yes"}  # class +1
DISCRETE = {"heart": ["sex", "cp", "fbs", "restecg", "exang", "slope", "thal"], "crabs": ["species", "index"]}


class Circle(NamedTuple):
    """Points inside and outside a circle."""

    split: Split
    flipped: Any  # rows of the training set with the wrong label


def circle(seed: int, flips: int = 2) -> Circle:
    """40 training points, `flips` of them with the wrong label."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(1000, 2))
    y = np.where((X**2).sum(axis=1) >= RADIUS_SQUARED, 1.0, -1.0)
    train = np.zeros(1000, dtype=bool)
    train[rng.choice(1000, 40, replace=False)] = True
    labels, flipped = y[train], np.sort(rng.choice(40, flips, replace=False))
    labels[flipped] *= -1.0
    return Circle(Split(X[train], labels, X[~train], y[~train]), flipped)


def relevance_data(seed: int) -> Split:
    """Three inputs whose means depend on the class, and three of noise."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], 400)
    X = rng.normal(size=(400, N_INPUTS))
    X[:, :N_RELEVANT] += y[:, None]
    return Split(X[:300], y[:300], X[300:], y[300:])


class Fold(NamedTuple):
    """Rows to train and to test; the first `n_continuous` inputs are standardised, the others are codes."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    n_continuous: int
    numbers: Any  # all inputs as they are in the table, codes as numbers
    numbers_test: Any

    def spread(self) -> Split:
        """The same rows with an indicator of size √½ for each level, so that different levels are at distance 1.

        With d = (x - x')² for continuous inputs and 1 - δ(x, x') for discrete ones, Σ d is then the squared distance
        between rows, which is what a method that knows only numbers needs.
        """
        n = self.n_continuous
        both = np.concatenate([self.X, self.X_test])
        indicators = [(both[:, [k]] == np.unique(both[:, k])) * np.sqrt(0.5) for k in range(n, both.shape[1])]
        wide = np.concatenate([both[:, :n], *indicators], axis=1)
        return Split(wide[: len(self.X)], self.y, wide[len(self.X) :], self.y_test)


def table(name: str, heart: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Continuous inputs, discrete ones as codes, and the target of one of `TABLES`."""
    load: dict[str, Callable[[], Any]] = {
        "heart": lambda: datasets.load_heart(heart),
        "thyroid": lambda: datasets.load_thyroid(binary=True),
        "ionosphere": datasets.load_ionosphere,
        "crabs": datasets.load_crabs,
        "Pima.tr": datasets.load_pima,
    }
    bunch = load[name]()
    rows = bunch.train if name == "Pima.tr" else np.ones(len(bunch.data), dtype=bool)
    discrete = DISCRETE.get(name, [])
    continuous = bunch.data.drop(columns=discrete, errors="ignore").astype(float)
    codes = pd.DataFrame(index=continuous.index)
    for column in discrete:
        codes[column] = pd.factorize(bunch.frame[column], sort=True, use_na_sentinel=False)[0]
    continuous = continuous.fillna(continuous.mean()).loc[rows]
    varying = continuous.loc[:, continuous.nunique() > 1]
    return varying.reset_index(drop=True), codes.loc[rows].reset_index(drop=True), np.asarray(bunch.target)[rows]


def folds(name: str, heart: str | None = None, seed: int = 0) -> list[Fold]:
    """The ten folds of one of `TABLES`."""
    continuous, codes, target = table(name, heart)
    y = np.where(target == TABLES[name], 1.0, -1.0)
    made = []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=seed).split(continuous, y):
        Z = continuous.to_numpy()
        spread = Z[train].std(axis=0)
        Z = (Z - Z[train].mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
        levels = codes.to_numpy(dtype=float)
        X, numbers = (np.concatenate([part, levels], axis=1) for part in (Z, continuous.to_numpy()))
        made.append(Fold(X[train], y[train], X[test], y[test], Z.shape[1], numbers[train], numbers[test]))
    return made
