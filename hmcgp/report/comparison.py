"""How well a fit predicts rows that it has not seen, beside a linear model.

The fit's own numbers are leave-one-out (`gp.loo`); those of the linear model are cross-validated on the same rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from hmcgp.runtime.typing import Array

_FOLDS = 10


class Score(NamedTuple):
    """One measure of both models."""

    name: str
    ours: float
    linear: float | None  # None where the linear model has none
    better: str  # "lower" or "higher"


def scores(gp: Any, X: pd.DataFrame, y: Any, loo: Any) -> tuple[str, list[Score]]:
    """Name of the linear model, and measures of both."""
    return _of_labels(gp, X, y, loo) if hasattr(gp, "classes_") else _of_numbers(X, y, loo)


def _of_labels(gp: Any, X: pd.DataFrame, y: Any, loo: Any) -> tuple[str, list[Score]]:
    folds = min(_FOLDS, int(np.unique(y, return_counts=True)[1].min()))
    found = [Score("log loss", loo.log_loss, None, "lower")]
    wrong = float(np.mean(loo.probability < 0.5)) if len(gp.classes_) == 2 else None
    if folds < 2:
        return "", found + ([] if wrong is None else [Score("error", wrong, None, "lower")])
    split = StratifiedKFold(folds, shuffle=True, random_state=0)
    chosen = GridSearchCV(
        LogisticRegression(max_iter=2000), {"C": np.logspace(-3, 3, 10)}, scoring="neg_log_loss", cv=3
    )
    model = make_pipeline(_columns(X), chosen)
    p, classes = cross_val_predict(model, X, y, cv=split, method="predict_proba"), np.unique(y)
    found = [found[0]._replace(linear=float(log_loss(y, p, labels=classes)))]
    if wrong is not None:
        found.append(Score("error", wrong, float(np.mean(classes[p.argmax(axis=1)] != y)), "lower"))
    return f"logistic regression ({folds}-fold)", found


def _of_numbers(X: pd.DataFrame, y: Any, loo: Any) -> tuple[str, list[Score]]:
    found = [Score("mean log density", -loo.log_loss, None, "higher")]
    if np.ndim(y) != 1 or len(y) < 2 * _FOLDS:
        return "", found
    model = make_pipeline(_columns(X), RidgeCV(alphas=np.logspace(-4, 4, 17)))
    mean = cross_val_predict(model, X, y, cv=KFold(_FOLDS, shuffle=True, random_state=0))
    residual: Array = np.asarray(y, dtype=float) - mean
    density = float(np.mean(norm.logpdf(residual, scale=residual.std())))
    return f"ridge regression ({_FOLDS}-fold)", [found[0]._replace(linear=density)]


def _columns(X: pd.DataFrame) -> Any:
    """Numbers standardised, gaps filled, with indicators; categories one-hot."""
    text = [name for name in X.columns if X[name].dtype.kind not in "iufb"]
    numbers = [name for name in X.columns if name not in text]
    return make_column_transformer(
        (make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True)), numbers),
        (OneHotEncoder(handle_unknown="ignore"), text),
        verbose_feature_names_out=False,
    )
