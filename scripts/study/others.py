"""Contenders from scikit-learn, LightGBM and CatBoost, as they are and tuned.

"Tuned", and logistic regression, the support-vector machine and k-NN, means the smallest log loss on a small grid by
stratified 3-fold cross-validation within the training rows.  Categories are one-hot encoded, numbers standardised;
CatBoost takes both as they are.  All on one core.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from scripts.study.forecast import Chains, Family, Forecast
from scripts.study.tables import Fold, Table

Maker = Callable[[Table, NDArray[np.str_]], BaseEstimator]  # of a table and the labels of its training rows

_FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)
_TREES = {"min_samples_leaf": (1, 3, 10)}
_HISTOGRAM = {"max_iter": (30, 100), "max_leaf_nodes": (4, 31), "min_samples_leaf": (5, 20)}
_LIGHT = {"n_estimators": (30, 100), "num_leaves": (4, 31), "min_child_samples": (5, 20)}
_CAT = [{"learning_rate": (0.03,), "iterations": (300,), "depth": (3, 6)}, {"iterations": (1000,)}]


def families() -> dict[tuple[str, ...], Family]:
    """Contenders by name, each with its own fit."""
    return {(name,): _family(name, maker) for name, maker in MAKERS.items()}


def _family(name: str, maker: Maker) -> Family:
    def forecast(table: Table, fold: Fold, chains: Chains) -> dict[str, Forecast]:
        X, y = table.X.iloc[fold.train], table.y[fold.train]
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # of solvers at the bounds of their searches
            begin = time.process_time()
            probability = maker(table, y).fit(X, y).predict_proba(table.X.iloc[fold.test])
            return {name: Forecast(probability, time.process_time() - begin)}

    return forecast


# -- preparation and tuning ------------------------------------------------------------------------------------------


def _encoded(table: Table, estimator: BaseEstimator) -> Pipeline:
    """Behind standardised numbers and one-hot categories."""
    levels = [list(table.X[name].cat.categories) for name in table.categories]
    one_hot = OneHotEncoder(categories=levels, sparse_output=False)
    columns = make_column_transformer((one_hot, table.categories), remainder=StandardScaler())
    return make_pipeline(columns.set_output(transform="default"), estimator)


def _tuned(estimator: BaseEstimator, grid: Any) -> GridSearchCV:
    """Smallest log loss on a grid; those of forests and boosting hold the defaults."""
    return GridSearchCV(estimator, grid, scoring="neg_log_loss", cv=_FOLDS, error_score="raise")


def _of_step(name: str, grid: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    return {f"{name}__{key}": values for key, values in grid.items()}


def _plain(build: Callable[[], BaseEstimator]) -> Maker:
    return lambda table, y: _encoded(table, build())


def _searched(build: Callable[[], BaseEstimator], grid: Mapping[str, Sequence[Any]]) -> Maker:
    def make(table: Table, y: NDArray[np.str_]) -> BaseEstimator:
        pipeline = _encoded(table, build())
        return _tuned(pipeline, _of_step(pipeline.steps[-1][0], grid))

    return make


# -- contenders ------------------------------------------------------------------------------------------------------


def _calibrated(table: Table, y: NDArray[np.str_]) -> BaseEstimator:
    """Support-vector machine behind a sigmoid; the smallest class must have a row in each part of a part."""
    _, sizes = np.unique(y, return_counts=True)
    parts = 2 if sizes.min() < 9 else 3
    machine = CalibratedClassifierCV(SVC(), ensemble=False, cv=parts)
    grid = {"C": (0.1, 1.0, 10.0, 100.0), "gamma": ("scale", 0.003, 0.03)}
    pipeline = _encoded(table, machine)
    return _tuned(pipeline, _of_step("calibratedclassifiercv__estimator", grid))


def _gpc(ard: bool) -> Maker:
    """scikit-learn's own Gaussian process: Laplace's approximation at the greatest evidence.

    The variance is bounded by 10³ in place of 10⁵, where its predictive variances lose all digits: on one fold of the
    crabs, it then gave all test rows to one class with probability 1.
    """

    def make(table: Table, y: NDArray[np.str_]) -> BaseEstimator:
        width = (
            sum(table.X[name].cat.categories.size for name in table.categories)
            + table.X.shape[1]
            - len(table.categories)
        )
        encoder = _encoded(table, GaussianProcessClassifier())
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(np.ones(width) if ard else 1.0)
        return encoder.set_params(gaussianprocessclassifier__kernel=kernel)

    return make


def _histogram() -> BaseEstimator:
    return HistGradientBoostingClassifier(random_state=0)


def _light() -> BaseEstimator:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, random_state=0, verbose=-1)


def _cat(table: Table, y: NDArray[np.str_]) -> BaseEstimator:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(
        cat_features=tuple(table.categories), thread_count=1, random_seed=0, verbose=False, allow_writing_files=False
    )


def _forest() -> BaseEstimator:
    return RandomForestClassifier(500, random_state=0)


def _small_forest() -> BaseEstimator:
    return RandomForestClassifier(200, random_state=0)


MAKERS: dict[str, Maker] = {
    "logistic": _searched(lambda: LogisticRegression(max_iter=5000), {"C": tuple(np.logspace(-3, 3, 10))}),
    "svm": _calibrated,
    "knn": _searched(KNeighborsClassifier, {"n_neighbors": (1, 3, 5, 10, 20), "weights": ("uniform", "distance")}),
    "forest": _plain(_forest),
    "forest tuned": _searched(_small_forest, _TREES),
    "histogram": _plain(_histogram),
    "histogram tuned": _searched(_histogram, _HISTOGRAM),
    "lightgbm": _plain(_light),
    "lightgbm tuned": _searched(_light, _LIGHT),
    "catboost": _cat,
    "catboost tuned": lambda table, y: _tuned(_cat(table, y), _CAT),
    "gpc": _gpc(ard=False),
    "gpc ard": _gpc(ard=True),
}
