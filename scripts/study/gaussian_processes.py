"""hmcgp in the study: four kinds of inference, each with the kernels of `kernels.py`.

    map/K        expectation propagation, the most probable hyperparameters
    laplace/K    Laplace's approximation, hyperparameters by HMC (`refine=None`)
    default/K    the draws of laplace/K, weighted to expectation propagation: what `GPClassifier` does unasked
    ep/K         HMC under expectation propagation all along

Behind several classes, EP is that of the multinomial probit.  `laplace/K` and `default/K` share their draws through a
checkpoint; the time of the draws counts for both.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmcgp import GPClassifier
from hmcgp.errors import DataWarning
from scripts.study.forecast import Chains, Family, Forecast
from scripts.study.kernels import STUDIED, kernel_of
from scripts.study.tables import Fold, Table


class Fitted(NamedTuple):
    """A classifier, and the processor time of its fit."""

    gp: GPClassifier
    seconds: float


def families() -> dict[tuple[str, ...], Family]:
    """Names of contenders, and the function that fits them together."""
    found: dict[tuple[str, ...], Family] = {}
    for kernel in STUDIED:
        found[(f"map/{kernel}",)] = _alone(f"map/{kernel}", kernel, "map")
    for kernel in STUDIED:
        found[f"laplace/{kernel}", f"default/{kernel}"] = _laplace_and_default(kernel)
    for kernel in STUDIED:
        found[(f"ep/{kernel}",)] = _alone(f"ep/{kernel}", kernel, "hmc")
    return found


def classifier(table: Table, kernel: str, chains: Chains, **settings: Any) -> GPClassifier:
    """Classifier with a kernel of the study, on one core."""
    shared: dict[str, Any] = {"n_jobs": 1, "random_state": 0, "progressbar": False, "inducing": None}
    return GPClassifier(kernel_of(kernel, table), **chains._asdict(), **shared, **settings)


def by_ep(table: Table) -> dict[str, str]:
    """Settings that ask for expectation propagation from the start."""
    return {"evidence": "ep"} if table.n_classes == 2 else {"evidence": "ep", "likelihood": "probit"}


def fit_ep(table: Table, fold: Fold, kernel: str, chains: Chains, sampler: str = "hmc") -> Fitted:
    """Fit under expectation propagation."""
    return _fit(classifier(table, kernel, chains, sampler=sampler, **by_ep(table)), table, fold)


def fit_laplace_and_default(table: Table, fold: Fold, kernel: str, chains: Chains) -> tuple[Fitted, Fitted]:
    """Fit under Laplace's approximation, and refine the same draws."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {"sampler": "hmc", "checkpoint": Path(folder, "draws.nc")}
        laplace = _fit(classifier(table, kernel, chains, refine=None, **kept), table, fold)
        default = _fit(classifier(table, kernel, chains, **kept), table, fold)
    return laplace, default._replace(seconds=laplace.seconds + default.seconds)


def _fit(gp: GPClassifier, table: Table, fold: Fold) -> Fitted:
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains, duplicate rows and rare categories: r_hat is reported
        gp.fit(table.X.iloc[fold.train], table.y[fold.train])
    return Fitted(gp, time.process_time() - begin)


def _alone(name: str, kernel: str, sampler: str) -> Family:
    def forecast(table: Table, fold: Fold, chains: Chains) -> dict[str, Forecast]:
        return {name: _forecast(fit_ep(table, fold, kernel, chains, sampler), table, fold)}

    return forecast


def _laplace_and_default(kernel: str) -> Family:
    def forecast(table: Table, fold: Fold, chains: Chains) -> dict[str, Forecast]:
        fitted = fit_laplace_and_default(table, fold, kernel, chains)
        names = f"laplace/{kernel}", f"default/{kernel}"
        return {name: _forecast(one, table, fold) for name, one in zip(names, fitted, strict=True)}

    return forecast


def _forecast(fitted: Fitted, table: Table, fold: Fold) -> Forecast:
    gp, begin = fitted.gp, time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of categories that the training rows lack
        probability = gp.predict_proba(table.X.iloc[fold.test])
    seconds = fitted.seconds + time.process_time() - begin
    r_hat = np.nan if gp.trace_.sampler == "map" else float(gp.summary()["r_hat"].max())
    return Forecast(probability, seconds, r_hat)
