"""Both tables of Barber & Williams (1997), row by row: the published errors, and ours of the same methods.

    python -m scripts.papers.barber_williams_tables                  half a minute of one core

Errors of 332 (Pima) and of 120 (crabs; their split is lost: means of ten stratified splits), and the error in per cent
by 10-fold cross-validation (forensic glass).  Rows of Gaussian processes are by `barber_williams.py` and `glass.py`.
The others are scikit-learn's: the neural network has four hidden units, as theirs for glass, and weight decay by
cross-validation (they averaged over networks and priors of three kinds); the mixture has two Gaussians for each class;
the tree is pruned by cross-validation.  scikit-learn has no MARS and no projection pursuit, and no row of ours.  What
form their mixtures had is not known; ours have a full covariance for each Gaussian.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from hmcgp import datasets
from scripts.papers.barber_williams import crabs_splits, pima


class Mixtures(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classes by Bayes' rule from a mixture of Gaussians for each."""

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def fit(self, X: Any, y: Any) -> Mixtures:
        self.classes_, counts = np.unique(y, return_counts=True)
        self.log_prior_ = np.log(counts / len(y))
        self.mixtures_ = [
            GaussianMixture(self.n_components, reg_covar=1e-2, n_init=3, random_state=0).fit(X[y == c])
            for c in self.classes_
        ]
        return self

    def predict(self, X: Any) -> Any:
        scores = [m.score_samples(X) + p for m, p in zip(self.mixtures_, self.log_prior_, strict=True)]
        return self.classes_[np.argmax(scores, axis=0)]


def network() -> Any:
    grid = {"mlpclassifier__alpha": [0.1, 1.0, 10.0]}
    one = MLPClassifier((4,), solver="lbfgs", max_iter=500, random_state=0)
    return GridSearchCV(make_pipeline(StandardScaler(), one), grid, cv=5)


def tree() -> Any:
    return GridSearchCV(DecisionTreeClassifier(random_state=0), {"ccp_alpha": [0.0, 0.003, 0.01, 0.02, 0.03]}, cv=5)


PIMA_ROWS, CRAB_ROWS, GLASS_ROWS = 332, 120, 214  # tested
# published errors on Pima ("75+" of neural networks) and crabs; ours
TWO_CLASSES: dict[str, tuple[float, float | None, Callable[[], Any] | None]] = {
    "neural networks": (75.0, 3.0, network),
    "linear discriminant": (67.0, 8.0, LinearDiscriminantAnalysis),
    "logistic regression": (66.0, 4.0, lambda: LogisticRegression(C=1e6, max_iter=10_000)),
    "two-Gaussian mixture": (64.0, None, Mixtures),
    "MARS": (75.0, 4.0, None),
    "projection pursuit": (75.0, 6.0, None),
}
# in per cent
GLASS: dict[str, tuple[float, Callable[[], Any] | None]] = {
    "neural network, 4 hidden units": (23.8, network),
    "linear discriminant": (36.0, LinearDiscriminantAnalysis),
    "Gaussian mixture": (30.8, Mixtures),
    "tree": (32.2, tree),
    "MARS": (32.2, None),
    "projection pursuit": (35.0, None),
}


def errors_of(make: Callable[[], Any], X: Any, y: Any, X_test: Any, y_test: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a network at its last iteration
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer rows than folds
        return int(np.sum(make().fit(np.asarray(X), y).predict(X_test) != y_test))


def glass_error(make: Callable[[], Any], seed: int = 0) -> float:
    """Error in per cent over ten stratified folds."""
    bunch = datasets.load_glass()
    X, y = bunch.data.to_numpy(dtype=float), np.asarray(bunch.target)
    wrong = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the rarest class has nine rows
        folds = list(StratifiedKFold(10, shuffle=True, random_state=seed).split(X, y))
    for train, test in folds:
        scaler = StandardScaler().fit(X[train])
        wrong += errors_of(make, scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test])
    return 100.0 * wrong / len(y)


def verdict(theirs: float | None, ours: float | None, rows: int) -> str:
    """Difference of two counts of errors, in binomial standard errors √(n p (1 - p)) of the published one."""
    if theirs is None or ours is None:
        return ""
    off = (ours - theirs) / np.sqrt(theirs * (1.0 - theirs / rows))
    return f"{off:+.1f} s.e., {'agrees' if abs(off) <= 2.0 else 'DIFFERS'}"


def shown(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10, help="splits of the crabs (default 10)")
    options = parser.parse_args()
    print(f"{'errors':<32}{'Pima: paper':>12}{'ours':>6}  {'verdict':<18}{'crabs: paper':>13}{'ours':>6}  verdict")
    whole, splits = pima(), crabs_splits(options.splits)
    for name, (theirs_pima, theirs_crabs, make) in TWO_CLASSES.items():
        ours_pima = None if make is None else errors_of(make, *whole)
        ours_crabs = None if make is None else float(np.mean([errors_of(make, *split) for split in splits]))
        print(
            f"{name:<32}{theirs_pima:>12.0f}{shown(ours_pima):>6}  {verdict(theirs_pima, ours_pima, PIMA_ROWS):<18}"
            f"{shown(theirs_crabs):>13}{shown(ours_crabs, 1):>6}  {verdict(theirs_crabs, ours_crabs, CRAB_ROWS)}",
            flush=True,
        )
    print(f"\n{'error in %':<32}{'glass: paper':>12}{'ours':>6}  verdict")
    for name, (theirs, make_one) in GLASS.items():
        ours = None if make_one is None else glass_error(make_one)
        count = None if ours is None else ours * GLASS_ROWS / 100.0
        print(
            f"{name:<32}{theirs:>12.1f}{shown(ours, 1):>6}  {verdict(theirs * GLASS_ROWS / 100.0, count, GLASS_ROWS)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
