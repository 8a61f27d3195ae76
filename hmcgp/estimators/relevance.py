"""Relevance of the inputs of a fitted estimator, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.estimators.effects import UserTable, mean_responses, spaced, thinned
from hmcgp.posterior import effects, relevance
from hmcgp.posterior.effects import AverageSamples
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.reporting.intervals import central_interval, median
from hmcgp.runtime.checks import check_between, check_count, check_flag
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array


@dataclass(frozen=True, eq=False)
class Relevance:
    """Relevance of each input: what it does to predictions; `plots.relevance` draws it.

    A quantity has one move, up by its standard deviation; a category one for each level, from the most frequent one.

    Attributes
    ----------
    inputs : list of str
        Input of each of the R moves.
    moves : list of str
        What moves: "+ 31.6", or "B instead of A".
    change : ndarray of shape (N, R), or (N, R, C) for several classes or outputs
        Posterior samples, over the latent function and the hyperparameters, of the change of the response by a move,
        averaged over rows.  It has a sign, and is 0 for an input that has no effect.
    weight : ndarray of shape (N,)
        Weights of the samples.
    size : ndarray of shape (R,) or (R, C)
        Root mean square over rows of the posterior mean change: larger than the size of the average where an input
        acts in opposite directions on different rows.  Without an interval.
    unit : str
        Unit of the change: "probability" (of two classes, that of the second), "rate" or "y".
    targets : list
        Classes or outputs of the last axis of `change`; empty for one response.
    ranking : list of str
        All inputs, from the largest `size` of their moves to the smallest.
    loss, loss_error : ndarrays of shape (R,), or None
        Mean loss of leave-one-out log predictive density when the input is that of another row, in nats, and its
        standard error over rows.
    """

    inputs: list[str]
    moves: list[str]
    change: Array
    weight: Array
    size: Array
    unit: str
    targets: list[Any]
    ranking: list[str]
    loss: Array | None = None
    loss_error: Array | None = None

    def interval(self, level: float = 0.9) -> tuple[Array, Array, Array]:
        """Posterior median of the change by each move, and lower and upper end of its central interval."""
        check_between("level", level, 0.0, 1.0)
        return median(self.change, self.weight), *central_interval(self.change, level, self.weight)

    @property
    def order(self) -> list[int]:
        """Positions of the moves, those of the most relevant input first."""
        rank = {name: i for i, name in enumerate(self.ranking)}
        return sorted(range(len(self.inputs)), key=lambda r: rank[self.inputs[r]])

    def to_frame(self, level: float = 0.9) -> pd.DataFrame:
        """Table with a row for each move (and each class or output), the most relevant input first."""
        n, order = max(len(self.targets), 1), self.order
        change, low, high = (part[order].ravel() for part in self.interval(level))
        columns: dict[str, Any] = {"move": np.repeat([self.moves[r] for r in order], n)}
        if self.targets:
            columns["target"] = self.targets * len(order)
        columns |= {"change": change, "low": low, "high": high, "size": self.size[order].ravel()}
        if self.loss is not None and self.loss_error is not None:
            columns |= {"loss": np.repeat(self.loss[order], n), "loss_error": np.repeat(self.loss_error[order], n)}
        return pd.DataFrame(columns, index=pd.Index(np.repeat([self.inputs[r] for r in order], n), name="input"))


class _Moves(NamedTuple):
    """Rows before and after each move, in the user's units with categories as codes."""

    inputs: list[str]
    texts: list[str]
    before: Array  # (R, M, d)
    after: Array  # (R, M, d)


def relevance_of(gp: Any, *, rows: int, permutation: bool, repeats: int, random_state: RandomStateLike) -> Relevance:
    """Relevance of all inputs; arguments as for `GPClassifier.relevance`."""
    check_is_fitted(gp)
    check_count("rows", rows, 1)
    check_count("repeats", repeats, 1)
    check_flag("permutation", permutation)
    if permutation and gp._targets.layout.row_groups is not None:
        raise InvalidInput(
            "permutation=True is for one output or outputs='independent': the outputs of a row of a coregional "
            "fit are left out together. Take permutation=False."
        )
    rng = as_generator(random_state)
    table, draws = UserTable(gp), thinned(gp._averaged_draws())
    some = spaced(len(table.X), rows)
    moves = _moves(table, table.X[some])
    averages = _average_changes(gp, table, draws, moves, rng)
    size = _sizes(gp, table, moves)
    loss, error = _losses(gp, table, draws, some, repeats, rng) if permutation else (None, None)
    change, targets, unit = averages.samples, table.targets, 1.0
    if gp.model_.likelihood.targets == "numbers":
        unit = gp._targets.unit
        change = change * unit
    elif len(targets) == 2:  # the second class stands for both
        change, size, targets = change[..., 1:], size[..., 1:], targets[1:]
    largest = (size / unit).max(axis=1)
    ranking = sorted(table.names, key=lambda name: -max(largest[r] for r, n in enumerate(moves.inputs) if n == name))
    if change.shape[-1] == 1:
        change, size, targets = change[..., 0], size[..., 0], []
    kinds = {"numbers": "y", "counts": "rate"}
    position = [table.names.index(name) for name in moves.inputs]
    return Relevance(
        moves.inputs, moves.texts, change, averages.weight, size,
        unit=kinds.get(gp.model_.likelihood.targets, "probability"), targets=list(targets), ranking=ranking,
        loss=None if loss is None else loss[position], loss_error=None if error is None else error[position],
    )  # fmt: skip


def _average_changes(
    gp: Any, table: UserTable, draws: WeightedDraws, moves: _Moves, rng: np.random.Generator
) -> AverageSamples:
    """Posterior samples of the change by each move, averaged over rows: after, with weights +1/M, and before, -1/M."""
    model, layout, n_rows = gp.model_, gp._targets.layout, moves.before.shape[1]
    both = np.concatenate([moves.after, moves.before], axis=1)  # (R, 2 M, d)
    X = np.array([layout.prediction_inputs(table.scale(part)) for part in both])
    weight = np.repeat([1.0 / n_rows, -1.0 / n_rows], n_rows)
    if model.likelihood.targets != "numbers":
        return effects.average_responses(model, draws, X, weight, rng, n_jobs=gp.n_jobs)
    n_outputs = len(layout.names) if X.shape[1] > both.shape[1] else None
    return effects.average_latents(model, draws, X, weight, n_outputs=n_outputs, n_jobs=gp.n_jobs).samples()


def _sizes(gp: Any, table: UserTable, moves: _Moves) -> Array:
    """Root mean square over rows of the posterior mean change by each move, of shape (R, C)."""
    shape, d = moves.before.shape[:2], moves.before.shape[2]
    after, before = (
        mean_responses(gp, table, part.reshape(-1, d)).reshape(*shape, -1) for part in (moves.after, moves.before)
    )
    return np.asarray(np.sqrt(np.mean((after - before) ** 2, axis=1)))


def _moves(table: UserTable, X: Array) -> _Moves:
    """Moves of all inputs, of some rows: by half a standard deviation down and up, or from a level to another."""
    moves = _Moves([], [], np.empty(0), np.empty(0))
    pairs: list[tuple[Array, Array]] = []
    for j, name in enumerate(table.names):
        column = table.X[:, j]
        if name in table.levels:
            counts = np.bincount(column.astype(int), minlength=len(table.levels[name]))
            usual = int(counts.argmax())
            others = [k for k in range(len(counts)) if k != usual and counts[k] > 0]
            steps = [(np.full(len(X), float(usual)), np.full(len(X), float(k))) for k in others]
            labels = table.levels[name]
            texts = [f"{labels[k]} instead of {labels[usual]}" for k in others]
        else:
            half = 0.5 * column.std()
            steps, texts = [(X[:, j] - half, X[:, j] + half)], [f"+ {2.0 * half:.3g}"]
        for (low, high), text in zip(steps, texts, strict=True):
            pair = X.copy(), X.copy()
            pair[0][:, j], pair[1][:, j] = low, high
            moves.inputs.append(name)
            moves.texts.append(text)
            pairs.append(pair)
    return moves._replace(before=np.array([b for b, _ in pairs]), after=np.array([a for _, a in pairs]))


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
    by_row = relevance.losses(gp.model_, draws, some, permuted, n_jobs=gp.n_jobs)
    by_row = by_row.reshape(len(table.names), repeats, -1).mean(axis=1)  # (d, M)
    return by_row.mean(axis=1), by_row.std(axis=1, ddof=min(1, by_row.shape[1] - 1)) / np.sqrt(by_row.shape[1])
