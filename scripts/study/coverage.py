"""Coverage of 90 % intervals of p, on data whose p is known.

    python -m scripts.study.coverage --sets 6

Three truths, each of 80 training and 100 test rows with standard normal inputs:

    process    f drawn from the model: squared exponential, variance 5, length scale 2, two inputs; p = σ(f)
    line       f = 2 x₁ - x₂ + ½ among four inputs
    corners    p = 0.9 where x₁x₂ > 0 and 0.1 elsewhere, two inputs: a jump, which no smooth function has

Coverage is the share of test rows whose p lies in `predict_proba_interval`, averaged over data sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from hmcgp.kernels import SquaredExponential
from hmcgp.runtime.typing import Array
from scripts.study.analysis import markdown
from scripts.study.forecast import Chains
from scripts.study.gaussian_processes import fit_ep, fit_laplace_and_default
from scripts.study.tables import Fold, Table

N_TRAIN, N_TEST = 80, 100
RESULTS = Path(__file__).with_name("coverage.csv")
Truth = Callable[[np.random.Generator, Array], Array]  # probabilities at rows


def _process(rng: np.random.Generator, X: Array) -> Array:
    K = SquaredExponential(5.0, 2.0)(X) + 1e-8 * np.eye(len(X))
    return np.asarray(expit(np.linalg.cholesky(K) @ rng.normal(size=len(X))))


def _line(rng: np.random.Generator, X: Array) -> Array:
    return np.asarray(expit(2.0 * X[:, 0] - X[:, 1] + 0.5))


def _corners(rng: np.random.Generator, X: Array) -> Array:
    return np.where(X[:, 0] * X[:, 1] > 0.0, 0.9, 0.1)


TRUTHS: dict[str, tuple[int, Truth]] = {"process": (2, _process), "line": (4, _line), "corners": (2, _corners)}


def simulate(truth: str, seed: int) -> tuple[Table, Fold, Array]:
    """Table and fold of a truth, and the probabilities of "1" at the test rows."""
    d, probability = TRUTHS[truth]
    rng = np.random.default_rng([seed, list(TRUTHS).index(truth)])
    X = rng.normal(size=(N_TRAIN + N_TEST, d))
    p = probability(rng, X)
    y = (rng.random(len(p)) < p).astype(int).astype(str)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(d)])
    table = Table(truth, "numbers", "", frame, y, "simulated", "", "")
    train, test = np.split(np.arange(len(p)), [N_TRAIN])
    return table, Fold(1, 1, train, test), p[test]


def cover(truth: str, seed: int, kernel: str, chains: Chains, level: float = 0.9) -> list[dict[str, object]]:
    """Coverage and mean width of the intervals of each kind of inference, on one data set."""
    table, fold, p = simulate(truth, seed)
    laplace, default = fit_laplace_and_default(table, fold, kernel, chains)
    fitted = {"laplace": laplace, "default": default, "ep": fit_ep(table, fold, kernel, chains)}
    rows: list[dict[str, object]] = []
    for name, one in fitted.items():
        low, high = one.gp.predict_proba_interval(table.X.iloc[fold.test], level)[:, 1].T
        inside = (low <= p) & (p <= high)
        measures = {"coverage": float(inside.mean()), "width": float((high - low).mean())}
        rows.append({"truth": truth, "seed": seed, "contender": f"{name}/{kernel}", **measures})
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over data sets, with standard errors of the coverage."""
    grouped = rows.groupby(["truth", "contender"], sort=False)
    found = grouped[["coverage", "width"]].mean()
    found.insert(1, "± s.e.", grouped["coverage"].sem())
    found.index = [" ".join(key) for key in found.index]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=6, help="data sets of each truth")
    parser.add_argument("--kernels", nargs="+", default=["smooth"])
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = [
        row
        for kernel in given.kernels
        for truth in TRUTHS
        for seed in range(given.sets)
        for row in cover(truth, seed, kernel, Chains())
    ]
    frame = pd.DataFrame(rows)
    frame.to_csv(given.output, index=False, float_format="%.4g")
    print(markdown(summary(frame)))


if __name__ == "__main__":
    main()
