"""Comparison of fits of the same rows: by leaving rows out, and by the evidence with hyperparameters integrated out.

Two measures that answer two questions.  The expected log predictive density (elpd) of rows left out says which fit
predicts best, whatever its priors, and its differences are taken row by row,

    d = Σ_i d_i,   d_i = log p_a(y_i | y_-i) - log p_b(y_i | y_-i),   se(d) = √(n var(d_i)),

so that what makes a row hard for all fits cancels.  The log evidence says how well each model, its priors included,
foresaw the table; its differences are log Bayes factors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.base import GaussianProcess
from hmcgp.posterior.leave_one_out import LeaveOneOut
from hmcgp.posterior.marginal_evidence import LEAST_DRAWS

NAMED_BY = ("kernel", "likelihood", "evidence", "refine", "sampler")  # settings that name a fit where they differ


@dataclass(frozen=True, repr=False, eq=False)
class ModelComparison:
    """Fits of the same rows, the best first.

    Attributes
    ----------
    table : DataFrame
        One row per fit, by falling `elpd`: `elpd` of the rows left out and its standard error `se`; `elpd_diff`, how
        far it lies below the best, and `diff_se`, the standard error of that difference; `log_loss`, mean of
        -log p(y_i | y_-i); `max_k`, the largest Pareto k of a row (above 0.7 the row's value is not reliable);
        `log_evidence`, with the hyperparameters integrated out, its Monte Carlo error `evidence_se`, and
        `evidence_diff` from the largest.
    loo : dict of str to LeaveOneOut
        Of each fit.
    estimators : dict of str to fitted estimator
    """

    table: pd.DataFrame
    loo: dict[str, LeaveOneOut]
    estimators: dict[str, GaussianProcess]

    def __repr__(self) -> str:
        n = len(next(iter(self.loo.values())).pointwise)
        shown = self.table.dropna(axis=1, how="all")
        return f"<ModelComparison, {n} rows, each left out in turn>\n{shown.to_string(float_format='{:.2f}'.format)}"


def compare(
    fits: Sequence[GaussianProcess] | Mapping[str, GaussianProcess], *, evidence: bool = True, n_points: int = 1000
) -> ModelComparison:
    """Rank fits of the same rows by leave-one-out, and by their evidence.

    For kernels, likelihoods, evidence providers, priors, or columns of X: whatever explains the same y.

    Parameters
    ----------
    fits : sequence of fitted estimators, or mapping of str to fitted estimator
        A mapping's keys name them; those of a sequence are named by the settings in which they differ.
    evidence : bool, default=True
        Whether to compute `log_evidence`, at `n_points` solves for each fit.  It stays empty (NaN) for fits of fewer
        than 40 draws, as by sampler="map".
    n_points : int, default=1000
        As of `log_marginal_evidence`.

    Returns
    -------
    ModelComparison
        Print it for the table; `plots.compare` draws it.

    Raises
    ------
    InvalidInput
        For fits of different rows or targets.

    Notes
    -----
    A difference `elpd_diff` of less than 4, or of less than two of its standard errors `diff_se`, does not tell two
    fits apart (Sivula, Magnusson, Matamoros & Vehtari 2020).  Log evidences of different providers (Laplace, EP) are
    different approximations of the same number: they compare models under one provider, not providers.

    Examples
    --------
    >>> from hmcgp import GPClassifier, compare, datasets, kernels
    >>> X, y = datasets.load_crabs(return_X_y=True)
    >>> fits = {name: GPClassifier(k, sampler="map").fit(X[::8], y[::8])
    ...         for name, k in {"smooth": kernels.SquaredExponential(), "rough": kernels.Matern(nu=0.5)}.items()}
    >>> found = compare(fits)
    >>> sorted(found.table.index)
    ['rough', 'smooth']
    """
    named = _named(fits)
    _check_same_rows(named)
    found = {name: gp.loo() for name, gp in named.items()}
    order = sorted(found, key=lambda name: -found[name].elpd)
    best = found[order[0]]
    rows = {name: _row(found[name], best) for name in order}
    for name in order:
        rows[name] |= _evidence(named[name], n_points if evidence else 0)
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["evidence_diff"] = table["log_evidence"].max() - table["log_evidence"]
    return ModelComparison(table, {name: found[name] for name in order}, {name: named[name] for name in order})


def _row(found: LeaveOneOut, best: LeaveOneOut) -> dict[str, float]:
    difference = best.pointwise - found.pointwise
    return {
        "elpd": found.elpd,
        "se": found.se,
        "elpd_diff": float(difference.sum()),
        "diff_se": float(np.sqrt(len(difference) * np.var(difference))),
        "log_loss": found.log_loss,
        "max_k": float(found.pareto_k.max()),
    }


def _evidence(gp: GaussianProcess, n_points: int) -> dict[str, float]:
    if not n_points or len(gp.trace_) < LEAST_DRAWS:
        return {"log_evidence": np.nan, "evidence_se": np.nan}
    found = gp.log_marginal_evidence(n_points=n_points)
    return {"log_evidence": found.log_z, "evidence_se": found.se}


# -- names -----------------------------------------------------------------------------------------------------------


def _named(fits: Any) -> dict[str, GaussianProcess]:
    """Fits by name, refused unless there are two or more, all fitted."""
    listed = list(fits.values()) if isinstance(fits, Mapping) else list(fits)
    for gp in listed:
        if not isinstance(gp, GaussianProcess):
            raise InvalidInput(
                "'fits' must hold fitted estimators (GPClassifier, GPRegressor, GPCounts or GPOrdinal); got "
                f"{type(gp).__name__}."
            )
        check_is_fitted(gp)
    if len(listed) < 2:
        raise InvalidInput(f"'fits' must hold two or more fits to compare; got {len(listed)}.")
    if isinstance(fits, Mapping):
        return {str(name): gp for name, gp in fits.items()}
    names = _settings_that_differ(listed)
    return {
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})": gp
        for i, (name, gp) in enumerate(zip(names, listed, strict=True))
    }


def _settings_that_differ(fits: list[GaussianProcess]) -> list[str]:
    """Words for each fit, such as "SquaredExponential(ard=True), laplace"; defaults go without saying."""
    told = [{key: _told(key, getattr(gp, key, None)) for key in NAMED_BY} for gp in fits]
    differing = [key for key in NAMED_BY if len({settings[key] for settings in told}) > 1]
    return [", ".join(filter(None, (settings[key] for key in differing))) or "default" for settings in told]


def _told(key: str, setting: Any) -> str:
    if key == "refine":
        return "" if setting == "auto" else f"refine={setting}"
    text = re.sub(r"\w+=(None|False)(, )?", "", "" if setting is None else str(setting))
    return text.replace(", )", ")").replace("()", "")


# -- the rows --------------------------------------------------------------------------------------------------------


def _check_same_rows(fits: dict[str, GaussianProcess]) -> None:
    (first, reference), *others = [(name, _Rows.of(gp)) for name, gp in fits.items()]
    for name, rows in others:
        difference = reference.difference(rows)
        if difference:
            raise InvalidInput(
                f"{first!r} and {name!r} were fitted to different data: {difference}. Only predictions of the same "
                "targets in the same rows can be compared: fit all models to one table."
            )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Table of a fit, in the units of the user."""

    y: Any  # (n,) or (n, k)
    columns: dict[str, Any]  # (n,) each
    weights: Any  # (n,)

    @staticmethod
    def of(gp: GaussianProcess) -> _Rows:
        layout, model = gp._targets.layout, gp.model_
        X = gp._inputs.scaling.undo(layout.inputs(model.X))
        weights = np.ones(len(model.y)) if model.likelihood.weights is None else np.array(model.likelihood.weights)
        return _Rows(gp._targets.observed(model), dict(zip(gp._inputs.names, X.T, strict=True)), weights)

    def difference(self, other: _Rows) -> str:
        """Words for the first difference between two tables, empty if there is none."""
        if self.y.shape != other.y.shape:
            return f"'y' has the shape {self.y.shape} in one and {other.y.shape} in the other"
        if not _equal(self.y, other.y):
            return "the targets 'y' differ, or their order does"
        for name in self.columns.keys() & other.columns.keys():
            if not _equal(self.columns[name], other.columns[name]):
                return f"the column {name!r} of 'X' differs, or the order of the rows does"
        return "" if _equal(self.weights, other.weights) else "the weights of the rows differ"


def _equal(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same values, numbers up to the rounding of scales taken away and put back."""
    if a.dtype.kind not in "iufb" or b.dtype.kind not in "iufb":
        return a.shape == b.shape and bool((a.astype(str) == b.astype(str)).all())
    a, b = a.astype(float), b.astype(float)
    size = max(float(np.nanmax(np.abs(a), initial=0.0)), 1e-300)
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-9 * size, equal_nan=True))
