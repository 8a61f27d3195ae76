"""Relevance of the inputs of a fitted estimator, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.effects import UserTable, spaced, thinned
from hmcgp.posterior import relevance
from hmcgp.posterior.relevance import Moves
from hmcgp.reporting.intervals import central_interval, median
from hmcgp.runtime.checks import check_between, check_count, check_flag
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array


@dataclass(frozen=True, eq=False)
class Relevance:
    """Relevance of each input by what it does to predictions; `plots.relevance` draws it.

    Attributes
    ----------
    inputs : list of str
    change : ndarray of shape (S, d)
        Change of the response when the input moves by its standard deviation (a category to another level), root mean
        square over rows, for each draw of the hyperparameters.
    weight : ndarray of shape (S,)
        Of the draws.
    unit : str
        Of the change: "probability", "rate", "y", or "standard deviations of y" (several outputs).
    loss, loss_error : ndarrays of shape (d,), or None
        Mean loss of leave-one-out log predictive density when the input is that of another row, in nats, and its
        standard error over rows.
    """

    inputs: list[str]
    change: Array
    weight: Array
    unit: str
    loss: Array | None = None
    loss_error: Array | None = None

    def interval(self, level: float = 0.9) -> tuple[Array, Array, Array]:
        """Median, and lower and upper end of the central interval over draws, of the change of each input."""
        check_between("level", level, 0.0, 1.0)
        return median(self.change, self.weight), *central_interval(self.change, level, self.weight)

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Table with a row for each input, the most relevant first."""
        change, low, high = self.interval(level)
        columns = {"change": change, "low": low, "high": high}
        if self.loss is not None and self.loss_error is not None:
            columns |= {"loss": self.loss, "loss_error": self.loss_error}
        order = np.argsort(-change, kind="stable")
        return pd.DataFrame(columns, index=pd.Index(self.inputs, name="input")).iloc[order]


def relevance_of(gp: Any, *, rows: int, permutation: bool, repeats: int, random_state: RandomStateLike) -> Relevance:
    """Relevance of all inputs; arguments as of `GPClassifier.relevance`."""
    check_is_fitted(gp)
    check_count("rows", rows, 1)
    check_count("repeats", repeats, 1)
    check_flag("permutation", permutation)
    table, draws = UserTable(gp), thinned(gp._averaged_draws())
    model, layout = gp.model_, gp._targets.layout
    some = spaced(len(table.X), rows)
    moves = [_moves(table, some, j, layout.prediction_inputs) for j in range(len(table.names))]
    change = relevance.changes(model, draws, moves, n_jobs=gp.n_jobs)
    unit = "rate" if model.likelihood.targets == "counts" else "probability"
    if model.likelihood.targets == "numbers":
        unit = "standard deviations of y" if layout.names else "y"
        change = change if layout.names else change * gp._targets.unit
    loss, error = None, None
    if permutation:
        if layout.row_groups is not None:
            raise InvalidInput(
                "permutation=True is for one output or outputs='independent': the outputs of a row of a coregional "
                "fit are left out together. Take permutation=False."
            )
        loss, error = _losses(gp, table, draws, some, repeats, as_generator(random_state))
    return Relevance(list(table.names), change, draws.weight, unit, loss, error)


def _moves(table: UserTable, some: Any, j: int, prediction_inputs: Any) -> Moves:
    """Moves of input j: by half of its standard deviation down and up, or from a level to each other."""
    X = table.X[some]
    if table.names[j] not in table.levels:
        half = 0.5 * table.X[:, j].std()
        before, after, weight = X.copy(), X.copy(), np.ones(len(X))
        before[:, j] -= half
        after[:, j] += half
    else:
        share = np.bincount(table.X[:, j].astype(int), minlength=len(table.levels[table.names[j]])) / len(table.X)
        codes = np.arange(len(share), dtype=float)
        before, after = np.repeat(X, len(codes), axis=0), np.repeat(X, len(codes), axis=0)
        after[:, j] = np.tile(codes, len(X))
        own = before[:, j].astype(int)
        weight = np.where(after[:, j] == own, 0.0, share[after[:, j].astype(int)] / np.maximum(1.0 - share[own], 1e-12))
        before, after, weight = before[weight > 0.0], after[weight > 0.0], weight[weight > 0.0]
    inputs = [prediction_inputs(table.scale(rows)) for rows in (before, after)]
    weight = np.repeat(weight, len(inputs[0]) // max(len(weight), 1))
    return Moves(inputs[0], inputs[1], weight / max(weight.sum(), 1e-300))


def _losses(
    gp: Any, table: UserTable, draws: Any, some: Any, repeats: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Mean loss of log predictive density for each input, and its standard error over rows."""
    permuted = []
    for j in range(len(table.names)):
        for _ in range(repeats):
            X = table.X[some].copy()
            X[:, j] = rng.permutation(table.X[:, j])[: len(X)]
            permuted.append(table.scale(X))
    found = relevance.losses(gp.model_, draws, some, permuted, n_jobs=gp.n_jobs)
    by_row = found.reshape(len(table.names), repeats, -1).mean(axis=1)  # (d, M)
    return by_row.mean(axis=1), by_row.std(axis=1, ddof=min(1, by_row.shape[1] - 1)) / np.sqrt(by_row.shape[1])
