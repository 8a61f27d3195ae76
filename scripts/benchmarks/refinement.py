"""Laplace, its refinement by expectation propagation, and EP sampled all along: log loss and processor time.

    python -m scripts.benchmarks.refinement                          every table: about half an hour on one core
    python -m scripts.benchmarks.refinement --tables crabs --splits 10

Each table is split at random into rows to learn from and rows to predict, the same for all three fits, and a split is a
seed.  `laplace` is `refine=None`, as in Barber & Williams (1997); `default` is `GPClassifier()`; `ep` samples under
expectation propagation, of the multinomial probit where there are more than two classes.  Times are processor times of
fit, one worker, as ratios to that of `laplace` on the same split.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from hmcgp import GPClassifier, datasets
from hmcgp.errors import HmcgpWarning
from hmcgp.kernels import SquaredExponential

# rows to learn from (a number, or a share), and whether one length scale serves all inputs, as with 33 or 60 of them
TABLES: dict[str, tuple[Any, float, bool]] = {
    "crabs": (datasets.load_crabs, 80, False),
    "pima": (datasets.load_pima, 200, False),
    "sonar": (datasets.load_sonar, 120, True),
    "ionosphere": (datasets.load_ionosphere, 120, True),
    "breast cancer": (datasets.load_breast_cancer, 200, False),
    "iris": (load_iris, 0.5, False),
    "wine": (load_wine, 0.5, False),
    "thyroid": (datasets.load_thyroid, 0.5, False),
    "glass": (datasets.load_glass, 0.5, False),
}
SPLITS = {"crabs": 10}
DEFAULT_SPLITS = 2
FITS: dict[str, dict[str, Any]] = {"laplace": {"refine": None}, "default": {}, "ep": {"evidence": "ep"}}


def table(name: str, seed: int) -> tuple[Any, ...]:
    """Split a table: inputs to learn from and to predict, and their labels."""
    loader, size, _ = TABLES[name]
    X, y = loader(return_X_y=True)
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    X = X[:, X.std(axis=0) > 0.0]
    return tuple(train_test_split(X, y, train_size=int(size) if size > 1 else size, stratify=y, random_state=seed))


def fit(name: str, seed: int, settings: dict[str, Any]) -> tuple[float, float, Any]:
    """Log loss on the rows that were held out, processor seconds of the fit, and the estimator."""
    X, X_test, y, y_test = table(name, seed)
    kernel = SquaredExponential() if TABLES[name][2] else None
    several = len(np.unique(y)) > 2
    likelihood: dict[str, Any] = {"likelihood": "probit"} if several and settings.get("evidence") == "ep" else {}
    gp = GPClassifier(kernel, random_state=seed, n_jobs=1, progressbar=False, **settings, **likelihood)
    begin = time.process_time()
    gp.fit(X, y)
    seconds = time.process_time() - begin
    return log_loss(y_test, gp.predict_proba(X_test), labels=gp.classes_), seconds, gp


def study(name: str, n_splits: int) -> dict[str, float]:
    """Mean log losses and ratios of times of one table, printed split by split."""
    rows = []
    for seed in range(n_splits):
        found = {label: fit(name, seed, settings) for label, settings in FITS.items()}
        gp = found["default"][2]
        loss = {label: value[0] for label, value in found.items()}
        cost = {label: value[1] / found["laplace"][1] for label, value in found.items()}
        print(
            f"{name} {seed}: laplace {loss['laplace']:.4f}, default {loss['default']:.4f}, ep {loss['ep']:.4f}; "
            f"time default {cost['default']:.2f}, ep {cost['ep']:.2f}; {gp.refinement_}",
            flush=True,
        )
        rows.append([*loss.values(), cost["default"], cost["ep"]])
    values = np.array(rows)
    gain = values[:, 1] - values[:, 0]
    return dict(
        zip(["laplace", "default", "ep", "time", "time of ep"], values.mean(axis=0).tolist(), strict=True),
        gain=float(gain.mean()),
        se=float(gain.std(ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.nan,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--splits", type=int, help=f"default {DEFAULT_SPLITS}; crabs {SPLITS['crabs']}")
    options = parser.parse_args()
    results = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", HmcgpWarning)
        fit("crabs", 0, {"draws": 20, "tune": 20})  # compiles
        fit("iris", 0, {"draws": 20, "tune": 20})
        for name in options.tables:
            results[name] = study(name, options.splits or SPLITS.get(name, DEFAULT_SPLITS))
    print("\n| table | Laplace | default | EP + HMC | default against EP | time, default | time, EP + HMC |")
    print("|---|---|---|---|---|---|---|")
    for name, r in results.items():
        print(
            f"| {name} | {r['laplace']:.3f} | {r['default']:.3f} | {r['ep']:.3f} | {r['default'] / r['ep'] - 1.0:+.1%} "
            f"| {r['time']:.2f} | {r['time of ep']:.2f} |"
        )


if __name__ == "__main__":
    main()
