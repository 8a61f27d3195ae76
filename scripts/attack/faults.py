"""What users get wrong: one fault in a fit that had none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from hmcgp import GPClassifier
from hmcgp.kernels import Matern, SquaredExponential

if TYPE_CHECKING:
    from scripts.attack.fits import Fit


class Fault(NamedTuple):
    """A fit that must be refused, and why."""

    name: str
    fit: Fit


def _poked(rng: np.random.Generator, X: Any, value: Any) -> Any:
    """The inputs as an array, one of them replaced."""
    A = np.asarray(X, dtype=object if isinstance(value, str | list | None) else float).copy()
    A[int(rng.integers(len(A))), 0] = value
    return A


def _frame(X: Any, column: Any, name: str = "extra") -> pd.DataFrame:
    """The inputs as a DataFrame, with one more column."""
    A = pd.DataFrame(np.asarray(X)).rename(columns=str)
    A.insert(len(A.columns), name, column, allow_duplicates=True)
    return A


SETTINGS: dict[str, list[Any]] = {
    "draws": [0, -1, 1.5, "10", None, True],
    "tune": [-1, 0.5, "x", None],
    "chains": [0, 2.5, "4"],
    "predict_draws": [0, -5, 1.5, "all"],
    "n_jobs": [0, 1.5, "2"],
    "standardize": ["no", None, 2],
    "random_state": [-1, "seed", 1.5],
    "max_time": [-1.0, 0.0, "1 h", float("nan")],
    "kernel": ["rbf", SquaredExponential, 1.0, [Matern()], Matern().on([7]), Matern().on(["nobody"])],
    "likelihood": ["poisson", None, 3, "Logistics"],
    "evidence": ["vb", 3, "upper"],
    "sampler": ["gibbs", 3, object()],
    "checkpoint": ["/nowhere/at/all/run.nc"],
}
OF_CHAINS = ("draws", "tune", "chains", "max_time", "checkpoint")  # "map" has no use for these

TABLES: dict[str, Callable[[np.random.Generator, Any], Any]] = {
    "NaN in X": lambda rng, X: _poked(rng, X, np.nan),
    "inf in X": lambda rng, X: _poked(rng, X, np.inf),
    "text in X": lambda rng, X: _poked(rng, X, "twelve"),
    "a list in X": lambda rng, X: _poked(rng, X, [1, 2]),
    "None in X": lambda rng, X: _poked(rng, X, None),
    "one-dimensional X": lambda rng, X: np.asarray(X)[:, 0],
    "three-dimensional X": lambda rng, X: np.asarray(X)[:, :, None],
    "no rows": lambda rng, X: np.asarray(X)[:0],
    "no columns": lambda rng, X: np.asarray(X)[:, :0],
    "a row too few": lambda rng, X: np.asarray(X)[1:],
    "sparse X": lambda rng, X: sparse.csr_matrix(np.asarray(X, dtype=float)),
    "complex X": lambda rng, X: np.asarray(X) + 1j,
    "X is None": lambda rng, X: None,
    "X is text": lambda rng, X: "table.csv",
    "dates": lambda rng, X: _frame(X, pd.date_range("2020-01-01", periods=len(X))),
    "durations": lambda rng, X: _frame(X, pd.to_timedelta(np.arange(len(X)), unit="h")),
    "periods": lambda rng, X: _frame(X, pd.period_range("2020-01", periods=len(X), freq="M")),
    "a name twice": lambda rng, X: _frame(X, np.arange(len(X), dtype=float), "0"),
    "lists in cells": lambda rng, X: _frame(X, [[i] for i in range(len(X))]),
    "missing categories": lambda rng, X: _frame(X, ["a", None] + ["b"] * (len(X) - 2)),
}

TARGETS: dict[str, Callable[[Any], Any]] = {
    "NaN in y": lambda y: np.where(np.arange(len(y)) == 1, np.nan, _codes(y)),
    "inf in y": lambda y: np.where(np.arange(len(y)) == 1, np.inf, _codes(y)),
    "y too long": lambda y: np.concatenate([y, y[:1]]),
    "y is None": lambda y: None,
    "y of three dimensions": lambda y: np.zeros((len(y), 1, 2)),
    "dates in y": lambda y: pd.Series(pd.date_range("2020-01-01", periods=len(y))),
    "lists in y": lambda y: pd.Series([[i] for i in range(len(y))]),
}
LABELS: dict[str, Callable[[Any], Any]] = {
    "one class": lambda y: np.zeros(len(y)),
    "continuous labels": lambda y: np.linspace(0.1, 0.9, len(y)),
    "text among numbers": lambda y: np.array([1, "a"] * len(y), dtype=object)[: len(y)],
    "two columns of labels": lambda y: np.array([[0, 1], [1, 0]] * len(y))[: len(y)],
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "text for numbers": lambda y: np.array(["a", "b"] * len(y))[: len(y)],
    "complex targets": lambda y: _codes(y) + 1j,
}
WEIGHTS: dict[str, Callable[[int], Any]] = {
    "negative weights": lambda n: -np.ones(n),
    "weights of zero": np.zeros,
    "NaN weights": lambda n: np.full(n, np.nan),
    "weights too few": lambda n: np.ones(n - 1),
    "text for weights": lambda n: ["heavy"] * n,
    "weights of two dimensions": lambda n: np.ones((n, 2)),
}


def _codes(y: Any) -> Any:
    """Targets as numbers of one dimension."""
    y = np.asarray(y)
    y = y if y.ndim == 1 else y[:, 0]
    return np.unique(y, return_inverse=True)[1].astype(float) if y.dtype.kind in "OUb" else y.astype(float)


def spoil(rng: np.random.Generator, fit: Fit) -> Fault:
    """Put one fault into a fit."""
    kind = rng.integers(5)
    if kind <= 1:
        name = str(rng.choice(sorted(SETTINGS)))
        value = SETTINGS[name][int(rng.integers(len(SETTINGS[name])))]
        changes = {name: value}
        if name in OF_CHAINS and fit.settings["sampler"] == "map":
            changes["sampler"] = "hmc"
        return Fault(f"{name}={value!r}", fit._replace(settings=fit.settings | changes))
    if kind == 2:
        name = str(rng.choice(sorted(TABLES)))
        X = fit.X.select_dtypes("number") if isinstance(fit.X, pd.DataFrame) else fit.X  # without categories
        settings = fit.settings | {"kernel": None, "missing": "error"}  # "auto" accepts missing values
        return Fault(name, fit._replace(X=TABLES[name](rng, X), settings=settings))
    if kind == 3:
        targets = TARGETS | (LABELS if fit.estimator is GPClassifier else NUMBERS)
        name = str(rng.choice(sorted(targets)))
        return Fault(name, fit._replace(y=targets[name](fit.y)))
    if rng.random() < 0.3:
        other = "gaussian" if fit.estimator is GPClassifier else "logistic"
        settings = {key: value for key, value in fit.settings.items() if key not in ("evidence", "likelihood")}
        return Fault(f"likelihood={other!r}", fit._replace(settings=settings | {"likelihood": other}))
    name = str(rng.choice(sorted(WEIGHTS)))
    return Fault(name, fit._replace(options={"sample_weight": WEIGHTS[name](len(fit.y))}))
