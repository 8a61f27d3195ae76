"""Forensic glass (six classes) and new thyroid (three): softmax Laplace by MAP and HMC, against the papers and others.

Barber & Williams (1997) and Williams & Barber (1998) report 23.3 % errors on the forensic glass data by ten-fold
cross-validation with MAP hyperparameters, after "about 24 hours" on one processor; the best other method there had
23.8 %.  Their folds are lost: ours are stratified, in several repeats, the same for every method.

    python scripts/reproduce_glass.py                          MAP, one-vs-rest and a forest in 3 repeats, HMC in 1
    python scripts/reproduce_glass.py --data thyroid --repeats 1
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hmcgp import GPClassifier, datasets
from hmcgp.errors import ApproximationWarning
from hmcgp.kernels import SquaredExponential
from hmcgp.priors import LogNormal

DATA: dict[str, Callable[..., Any]] = {"glass": datasets.load_glass, "thyroid": datasets.load_thyroid}
PER_CLASS = SquaredExponential(LogNormal(-3.0, 3.0), LogNormal(1.5, 1.5), ard=True)
PAPER = {"glass": "paper: 23.3 % by MAP in about 24 hours; best other 23.8 %", "thyroid": "no figure in the paper"}


class Score(NamedTuple):
    """Errors and log loss of one method over all rows of some repeats, each row predicted by a fit without it."""

    error: float  # mean over repeats, of all rows
    log_loss: float
    seconds: float  # of all fits and predictions
    per_repeat: list[float]  # errors


def methods(n_inputs: int, n_classes: int, seed: int, draws: int) -> dict[str, Any]:
    """What is compared: one kernel for all classes (our default), one for each under the paper's priors, and others.

    With w = 1/length_scale², their priors N(-3, 3²) on log v0 and log w are those of `PER_CLASS`.
    """
    each = [PER_CLASS] * n_classes
    kernel = ConstantKernel(10.0, (1e-3, 1e5)) * RBF(np.full(n_inputs, 2.0), (1e-2, 1e3))
    return {
        "MAP": GPClassifier(sampler="map", random_state=seed, progressbar=False),
        "MAP-per-class": GPClassifier(each, sampler="map", random_state=seed, progressbar=False),
        "one-vs-rest GPC (scikit-learn)": make_pipeline(
            StandardScaler(), GaussianProcessClassifier(kernel, random_state=seed, multi_class="one_vs_rest")
        ),
        "random forest, 500 trees": RandomForestClassifier(500, random_state=seed),
        "HMC": GPClassifier(draws=draws, tune=draws, chains=2, random_state=seed, progressbar=False),
        "HMC-per-class": GPClassifier(each, draws=draws, tune=draws, chains=2, random_state=seed, progressbar=False),
    }


def cross_validate(method: Any, X: Any, y: Any, repeats: int, folds: int, seed: int = 0) -> Score:
    """Stratified cross-validation, the same folds whatever the method."""
    wrong, losses, begin = [], [], time.perf_counter()
    for repeat in range(repeats):
        classes = np.unique(y)
        p = np.zeros((len(y), len(classes)))
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed + repeat)
        for train, test in splitter.split(X, y):
            fit = clone(method).fit(X.iloc[train], y[train])
            p[np.ix_(test, np.searchsorted(classes, fit.classes_))] = fit.predict_proba(X.iloc[test])
        wrong.append(float(np.mean(classes[p.argmax(axis=1)] != y)))
        losses.append(float(log_loss(y, p, labels=classes)))
    return Score(float(np.mean(wrong)), float(np.mean(losses)), time.perf_counter() - begin, wrong)


def report(name: str, options: argparse.Namespace) -> dict[str, Score]:
    X, y = DATA[name](return_X_y=True)
    y = np.asarray(y).astype(str)
    print(f"\n{name}: {len(X)} rows, {X.shape[1]} inputs, {len(np.unique(y))} classes; {PAPER[name]}", flush=True)
    scores: dict[str, Score] = {}
    for label, method in methods(X.shape[1], len(np.unique(y)), options.seed, options.draws).items():
        if options.methods and label.split()[0] not in options.methods:
            continue
        repeats = min(options.hmc_repeats, options.repeats) if label.startswith("HMC") else options.repeats
        if repeats == 0:
            continue
        score = scores[label] = cross_validate(method, X, y, repeats, options.folds, options.seed)
        each = ", ".join(f"{100 * e:.1f}" for e in score.per_repeat)
        print(
            f"  {label:<32} error {100 * score.error:5.1f} % ({each})   log loss {score.log_loss:.3f}   "
            f"{score.seconds / 60:.1f} min for {repeats} x {options.folds} fits",
            flush=True,
        )
    return scores


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--methods", nargs="+", help="first words of methods to run (default all), as in MAP HMC")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of the cross-validation (default 3)")
    parser.add_argument("--hmc-repeats", type=int, default=1, help="those of HMC, which takes longest (default 1)")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--draws", type=int, default=150, help="HMC: draws of each of 2 chains, and of warm-up")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    for category in (ConvergenceWarning, ApproximationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("ignore", message="The least populated class in y has only 9 members")
    for name in options.data:
        report(name, options)


if __name__ == "__main__":
    main()
