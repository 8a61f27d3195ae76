"""Comparison of evidence providers on one model and one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import log_loss

from hmcgp.errors import InvalidInput
from hmcgp.estimators import GPClassifier
from hmcgp.estimators.weights import drop_zero_weight_rows
from hmcgp.evidence import EvidenceProvider
from hmcgp.runtime.checks import lowered


@dataclass(frozen=True, repr=False, eq=False)
class EvidenceComparison:
    """Fits of one model under several evidence providers.

    Attributes
    ----------
    table : DataFrame
        One row per provider: `log_evidence` at the MAP hyperparameters, `log_loss`, `seconds` of the fit, and for each
        hyperparameter its posterior `mean` and `sd`, as in "variance mean", "variance sd".
    probability : DataFrame of shape (m, n_providers)
        P(second class) of each test row; without test rows, of each training row given all others.
    y : ndarray of shape (m,)
        The labels of those rows.
    classes : ndarray of shape (2,)
    left_out : bool
        Whether `log_loss` and `probability` come from leaving training rows out.
    estimators : dict of str to GPClassifier
        The fits.
    """

    table: pd.DataFrame
    probability: pd.DataFrame
    y: NDArray[Any]
    classes: NDArray[Any]
    left_out: bool
    estimators: dict[str, GPClassifier]

    def __repr__(self) -> str:
        rows = f"{len(self.y)} {'training rows, each left out in turn' if self.left_out else 'test rows'}"
        return f"<EvidenceComparison, log loss on {rows}>\n{self.table.T.to_string(float_format='{:.4g}'.format)}"


def compare_evidence(
    gp: GPClassifier,
    X: Any,
    y: Any,
    providers: Iterable[str | EvidenceProvider] | Mapping[str, str | EvidenceProvider] = ("laplace", "ep"),
    *,
    X_test: Any = None,
    y_test: Any = None,
    sample_weight: Any = None,
) -> EvidenceComparison:
    """Fit the same model under each evidence provider.

    Parameters
    ----------
    gp : GPClassifier
        Its settings are used for all fits, but for `evidence` and `refine` (None); it is not fitted itself.
    X : array-like or DataFrame of shape (n, d)
    y : array-like of shape (n,)
    providers : iterable or mapping of str to str or EvidenceProvider, default=("laplace", "ep")
        Names or instances; a mapping's keys label the rows of the table.
    X_test, y_test : array-like, optional
        Rows on which probabilities are compared.  Without them, training rows are left out in turn (see
        `GPClassifier.loo`).
    sample_weight : array-like of shape (n,), optional
        Of the rows of X, as of `GPClassifier.fit`; the log losses are not weighted.

    Returns
    -------
    EvidenceComparison
        Its `table` has a row per provider; `plots.compare_evidence` draws its probabilities.

    Raises
    ------
    InvalidInput
        For a provider that does not fit the likelihood or cannot be sampled, before any sampling starts.

    Examples
    --------
    >>> from hmcgp import GPClassifier, compare_evidence, datasets
    >>> X, y = datasets.load_crabs(return_X_y=True)
    >>> found = compare_evidence(GPClassifier(sampler="map"), X[::8], y[::8], ["laplace", "ep"])
    >>> sorted(found.estimators)
    ['ep', 'laplace']
    """
    chosen = _labelled(providers)
    if gp.checkpoint is not None:
        raise InvalidInput("'checkpoint' holds one run, and this makes several: set gp.checkpoint to None.")
    if (X_test is None) != (y_test is None):
        raise InvalidInput("'X_test' and 'y_test' go together: give both, or neither to leave training rows out.")
    X, y, w, _ = drop_zero_weight_rows(X, y, sample_weight)
    # the optima first: they are quick, refuse what does not fit, and compile what is timed below
    optima = {
        name: clone(gp).set_params(evidence=p, refine=None, sampler="map").fit(X, y, w) for name, p in chosen.items()
    }
    first = next(iter(optima.values()))
    classes = first.classes_
    if len(classes) > 2:
        raise InvalidInput(
            f"'y' holds {len(classes)} classes, for which each evidence provider has a likelihood of its own: fit "
            "both, and compare their loo()."
        )
    fits = optima
    if lowered(gp.sampler) != "map":
        fits = {name: clone(gp).set_params(evidence=p, refine=None).fit(X, y, w) for name, p in chosen.items()}
    # the labels that the fits kept: rows of weight 0 are not there
    labels = np.asarray(first._targets.observed(first.model_) if y_test is None else y_test)
    probability = {name: _probability(fit, X_test) for name, fit in fits.items()}
    rows = {name: _row(fit, optima[name], labels, probability[name]) for name, fit in fits.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return EvidenceComparison(table, pd.DataFrame(probability), labels, classes, X_test is None, fits)


def _labelled(providers: Any) -> dict[str, str | EvidenceProvider]:
    if isinstance(providers, str):
        raise InvalidInput(f"'providers' must be several, as in ['laplace', 'ep']; got the string {providers!r}.")
    if isinstance(providers, Mapping):
        chosen = dict(providers)
    else:
        listed = list(providers)
        chosen = {p if isinstance(p, str) else repr(p): p for p in listed}
        if len(chosen) < len(listed):
            raise InvalidInput(f"'providers' names one twice: {', '.join(map(str, listed))}.")
    if not chosen:
        raise InvalidInput("'providers' is empty: name at least one, such as 'laplace' or 'ep'.")
    return chosen


def _probability(fit: GPClassifier, X_test: Any) -> NDArray[np.float64]:
    """P(second class) of each test row, or of each training row given the others."""
    if X_test is not None:
        return fit.predict_proba(X_test)[:, 1]
    p = fit.loo().probability
    return np.where(fit.model_.y > 0.0, p, 1.0 - p)


def _row(fit: GPClassifier, optimum: GPClassifier, labels: NDArray[Any], p: NDArray[np.float64]) -> dict[str, float]:
    row = {
        "log_evidence": float(optimum.log_marginal_likelihood()),
        "log_loss": float(log_loss(labels, np.column_stack([1.0 - p, p]), labels=fit.classes_)),
        "seconds": fit.trace_.sampling_time,
    }
    for name, draws in zip(fit.model_.names, fit.trace_.flat.T, strict=True):
        row |= {f"{name} mean": float(draws.mean()), f"{name} sd": float(draws.std())}
    return row
