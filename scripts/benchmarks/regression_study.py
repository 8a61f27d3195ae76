"""Regression on three tables: hyperparameters integrated (HMC), most probable (MAP), or of greatest likelihood (ML-II).

Ten-fold cross-validation; the score is the mean log predictive density of held-out rows, in the units of y (nats, more
is better), with the root mean squared error beside it.  All have the same model, a squared exponential with one length
scale per input and constant noise, on inputs and targets standardised within each fold.  ML-II is scikit-learn's
GaussianProcessRegressor, two restarts, without priors.  The motorcycle's noise changes with time: there HMC and MAP
are run with `VaryingNoise` over six bumps, too.

The posterior of yacht has four or five modes (the shapes of 22 hulls can be told apart by one input or by another), up
to 40 nats high, two of which share the probability in some folds.  Chains of plain HMC leave the low ones in warm-up,
but may then all sit in the lesser of the two with an R-hat of 1.00; so there HMC is run with jumps, too.

    python -m scripts.benchmarks.regression_study --data motorcycle yacht
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hmcgp import GPRegressor, datasets
from hmcgp.kernels import RadialBasis
from hmcgp.likelihoods import VaryingNoise

LOADERS = {"motorcycle": datasets.load_motorcycle, "yacht": datasets.load_yacht, "concrete": datasets.load_concrete}
BUMPS = RadialBasis(tuple(np.linspace(-1.7, 2.2, 6)), 0.75)  # the standardised times lie between -1.7 and 2.5


class Held(NamedTuple):
    """What a method says about held-out rows."""

    log_density: Any  # (m,), in the units of y
    error: Any  # (m,), mean - y
    seconds: float
    r_hat: float  # the largest, NaN without chains


Method = Callable[[Any, Any, Any, Any], Held]  # of X, y, X_test, y_test


def ours(**settings: Any) -> Method:
    """`GPRegressor` with these settings."""

    def fit(X: Any, y: Any, X_test: Any, y_test: Any) -> Held:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # r_hat is reported instead
            gp = GPRegressor(progressbar=False, **settings).fit(X, y)
        log_density, error = gp.log_predictive_density(X_test, y_test), gp.predict(X_test) - y_test
        r_hat = np.nan if gp.trace_.sampler == "map" else float(gp.summary()["r_hat"].max())
        return Held(log_density, np.asarray(error), time.perf_counter() - begin, r_hat)

    return fit


def maximum_likelihood(n_restarts: int = 2, seed: int = 0) -> Method:
    """scikit-learn's regressor, of the same kernel."""

    def fit(X: Any, y: Any, X_test: Any, y_test: Any) -> Held:
        begin = time.perf_counter()
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
        gp = make_pipeline(
            StandardScaler(),
            GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=n_restarts, random_state=seed),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length scale at its bound: an input switched off
            gp.fit(X, y)
        mean, sd = gp.predict(X_test, return_std=True)
        log_density = norm.logpdf(y_test, mean, sd)
        return Held(log_density, np.asarray(mean - y_test), time.perf_counter() - begin, np.nan)

    return fit


def methods(name: str, options: argparse.Namespace) -> dict[str, Method]:
    chains = {
        "draws": options.draws,
        "tune": options.tune,
        "chains": options.chains,
        "max_time": options.max_time,
        "random_state": options.seed,
        "n_jobs": options.jobs,
    }
    point = {"sampler": "map", "random_state": options.seed, "n_jobs": options.jobs}
    found = {"HMC": ours(**chains), "MAP": ours(**point), "ML-II (scikit-learn)": maximum_likelihood(seed=options.seed)}
    if name == "yacht":
        found = {"HMC with jumps": ours(sampler="jumps", **chains), **found}
    if name == "motorcycle":
        found["HMC, varying noise"] = ours(likelihood=VaryingNoise(basis=BUMPS, standardized=True), **chains)
        found["MAP, varying noise"] = ours(likelihood=VaryingNoise(basis=BUMPS, standardized=True), **point)
    return found


class Notebook:
    """Results of folds in a file of JSON lines, written as they come, so that a run that was stopped can go on.

    Parameters
    ----------
    path : Path, optional
        None: nothing is read or written.
    about : str, default=""
        What else than data, method and fold the results depend on.
    """

    def __init__(self, path: Path | None = None, about: str = "") -> None:
        self.path, self.about = path, about
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        entries = [json.loads(line) for line in lines]
        self.known = {tuple(entry["key"]): entry["held"] for entry in entries if entry["about"] == about}

    def recall(self, key: tuple[Any, ...], compute: Callable[[], Held]) -> Held:
        """Read a result, or compute it and write it down."""
        if key not in self.known:
            held = compute()
            if self.path is None:
                return held
            self.known[key] = [held.log_density.tolist(), held.error.tolist(), held.seconds, held.r_hat]
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"about": self.about, "key": key, "held": self.known[key]}) + "\n")
        log_density, error, seconds, r_hat = self.known[key]
        return Held(np.array(log_density), np.array(error), seconds, r_hat)


def held_out(
    method: Method,
    X: Any,
    y: Any,
    *,
    folds: int = 10,
    run: int | None = None,
    seed: int = 0,
    notebook: Notebook | None = None,
    key: tuple[str, ...] = (),
) -> Held:
    """Put the first `run` of so many folds together: every row of theirs predicted by a fit without its fold.

    Parameters
    ----------
    method : Method
    X, y : DataFrame of shape (n, d), Series of shape (n,)
    folds : int, default=10
    run : int, optional
        Default: all of them.
    seed : int, default=0
        Of the shuffle that makes the folds.
    notebook : Notebook, optional
        Keeps the results of each fold.
    key : tuple of str
        Names the data and the method there.
    """
    splits = list(KFold(folds, shuffle=True, random_state=seed).split(X))[:run]
    book = Notebook() if notebook is None else notebook
    parts = [
        book.recall((*key, fold), partial(method, X.iloc[train], y.iloc[train], X.iloc[test], y.iloc[test]))
        for fold, (train, test) in enumerate(splits)
    ]
    log_density, error, seconds, r_hat = zip(*parts, strict=True)
    return Held(np.concatenate(log_density), np.concatenate(error), sum(seconds), max(r_hat))


class Difference(NamedTuple):
    """Mean over the same rows of one log density minus another, and its standard error."""

    mean: float
    error: float


def difference(one: Held, other: Held) -> Difference:
    gap = one.log_density - other.log_density
    return Difference(float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap))))


# -- report ----------------------------------------------------------------------------------------------------------


def report(name: str, options: argparse.Namespace) -> dict[str, Held]:
    X, y = LOADERS[name](return_X_y=True)
    run = min(options.run or options.folds, options.folds)
    print(f"\n{name}: {X.shape[0]} rows, {X.shape[1]} inputs, {run} of {options.folds} folds")
    print(f"{'':24} {'log density':>12} {'RMSE':>9} {'R-hat':>7} {'seconds':>8}   first minus this")
    results: dict[str, Held] = {}
    about = f"{options.folds} folds, seed {options.seed}, {chains_of(options)}, max_time {options.max_time}"
    notebook = Notebook(options.notebook, about)
    chosen = {method: fit for method, fit in methods(name, options).items() if method in (options.methods or [method])}
    for method, fit in chosen.items():
        held = results[method] = held_out(
            fit, X, y, folds=options.folds, run=run, seed=options.seed, notebook=notebook, key=(name, method)
        )
        first = next(iter(results))
        gap = difference(results[first], held)
        beside = "" if method == first else f"{gap.mean:+.3f} ± {gap.error:.3f}"
        print(
            f"{method:<24} {held.log_density.mean():12.3f} {np.sqrt(np.mean(held.error**2)):9.3f} {held.r_hat:7.3f} "
            f"{held.seconds:8.0f}   {beside}",
            flush=True,
        )
    return results


def chains_of(options: argparse.Namespace) -> str:
    return f"{options.chains} chains of {options.tune} + {options.draws} draws"


def main() -> None:
    options = parse_options()
    print(f"HMC: {chains_of(options)}")
    for name in options.data:
        report(name, options)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=LOADERS, default=["motorcycle", "yacht"])
    parser.add_argument("--methods", nargs="+", default=None, help="as named in the table (default: all)")
    parser.add_argument("--folds", type=int, default=10, help="default 10")
    parser.add_argument("--run", type=int, default=None, help="how many of the folds to run (default: all)")
    parser.add_argument("--draws", type=int, default=250, help="per chain (default 250)")
    parser.add_argument("--tune", type=int, default=250, help="warm-up draws per chain (default 250)")
    parser.add_argument("--chains", type=int, default=2, help="default 2")
    parser.add_argument("--max-time", type=float, default=None, help="seconds per fit (default: no limit)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=None, help="threads (default: all cores)")
    parser.add_argument("--notebook", type=Path, default=None, help="file that keeps the results of each fold")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
