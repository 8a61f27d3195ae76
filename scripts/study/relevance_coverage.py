"""Coverage of 90 % intervals of `gp.relevance()`, on data whose changes are known.

    python -m scripts.study.relevance_coverage --sets 200

Tables of 120 rows with three standard normal inputs and η = 1.2 x₁ + 0.6 x₂ + 0 x₃:

    classification   y = 1 with probability σ(η)
    regression       y = η + N(0, 1)
    counts           y ~ Poisson(exp(½ + η/2))

The true change is that of the package's definition: the response (probability, mean or rate) with an input half a
standard deviation up, minus that with it as much down, averaged over the same rows.  Fits have the default settings
but for shorter chains, of which relevance takes 50 draws anyway.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from hmcgp import GPClassifier, GPCounts, GPRegressor
from hmcgp.estimators.effects import spaced
from hmcgp.runtime.typing import Array
from scripts.study.analysis import markdown

N = 120
SLOPES = np.array([1.2, 0.6, 0.0])
ROWS = 100  # that relevance averages over
SETTINGS: dict[str, Any] = {"chains": 2, "tune": 200, "draws": 200, "n_jobs": 1, "progressbar": False}
KINDS: dict[str, Any] = {"classification": GPClassifier, "regression": GPRegressor, "counts": GPCounts}


def response(kind: str, X: Array) -> Array:
    """True response at rows."""
    eta = X @ SLOPES
    return {"classification": expit(eta), "regression": eta, "counts": np.exp(0.5 + 0.5 * eta)}[kind]


def simulate(kind: str, seed: int) -> tuple[Array, Array, Array]:
    """Inputs, targets, and the true change by each input."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    X = rng.normal(size=(N, 3))
    mean = response(kind, X)
    y = {
        "classification": (rng.random(N) < mean).astype(int),
        "regression": mean + rng.normal(size=N),
        "counts": rng.poisson(np.abs(mean)),  # a mean of regression may be negative
    }[kind]
    half, rows = 0.5 * X.std(axis=0), X[spaced(N, ROWS)]
    change = [np.mean(response(kind, rows + half * e) - response(kind, rows - half * e)) for e in np.eye(3)]
    return X, y, np.array(change)


def cover(kind: str, seed: int, level: float = 0.9, **settings: Any) -> dict[str, object]:
    """Whether the interval of each input contains its true change, and its width, on one table."""
    X, y, truth = simulate(kind, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp = KINDS[kind](**{**SETTINGS, **settings}, random_state=seed).fit(X, y)
        _, low, high = gp.relevance(rows=ROWS).interval(level)
    inside = {f"slope {b:g}": int(ok) for b, ok in zip(SLOPES, (low <= truth) & (truth <= high), strict=True)}
    widths = {f"width {b:g}": w for b, w in zip(SLOPES, high - low, strict=True)}
    return {"kind": kind, "seed": seed, **inside, **widths}


def main() -> None:
    """Run the study, print a row after each table, and the shares at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="tables of each kind")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    given = parser.parse_args()
    rows = []
    for seed in range(given.sets):  # kinds in turn, so that an interrupted run says something about each
        for kind in given.kinds:
            rows.append(cover(kind, seed))
        if (seed + 1) % 20 == 0:
            frame = pd.DataFrame(rows).drop(columns="seed")
            print(f"{seed + 1} tables of each kind\n{markdown(frame.groupby('kind', sort=False).mean())}", flush=True)


if __name__ == "__main__":
    main()
