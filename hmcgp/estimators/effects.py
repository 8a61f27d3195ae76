"""Effects of inputs on what a fitted estimator predicts, in the user's units.

values of the inputs ──┐
rows for the others  ──┴──► inputs of the model, (G, M, d) ──► `posterior.effects` ──► Effect
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import Counts
from hmcgp.posterior import effects, predict, responses
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.checks import check_between, check_count
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array

N_GRID = {1: 25, 2: 15}  # values of each input
N_DRAWS = 50  # of the hyperparameters


@dataclass(frozen=True, eq=False)
class Effect:
    """How the response changes with one or two inputs; `plots.effect` draws it.

    Attributes
    ----------
    inputs : tuple of str
        Names of the inputs.
    values : tuple of ndarrays
        Values at which the effect was computed, one array for each input; levels, if it is a category.
    mean, low, high : ndarrays of shape (G,) or (G1, G2), with one more axis for several classes or outputs
        Mean and central interval, over the latent function and the hyperparameters.  Of two classes, probabilities are
        those of the second.
    level : float
        Probability of the interval.
    response : str
        What it is: "probability", "mean" (of numbers) or "latent" (of a term of the kernel).
    targets : list
        Classes or outputs that the last axis of `mean` is about; of two classes the second, [] for one output.
    data : tuple of ndarrays of shape (n,)
        Values of the inputs in the training rows.
    categories : tuple of bool
        Whether each input is a category.
    held : dict
        Values of the other inputs; empty where the effect is averaged over rows.
    n_rows : int
        Rows over which it was averaged.
    curves : ndarray of shape (M, G) and further axes, or None
        Mean response of each of these rows, if asked for.
    """

    inputs: tuple[str, ...]
    values: tuple[NDArray[Any], ...]
    mean: Array
    low: Array
    high: Array
    level: float
    response: str
    targets: list[Any]
    data: tuple[NDArray[Any], ...]
    categories: tuple[bool, ...]
    held: dict[str, Any]
    n_rows: int
    curves: Array | None = None

    def to_frame(self) -> pd.DataFrame:
        """Table with a row for each value (and each class or output) and the columns mean, low and high."""
        grids: list[Any] = [*self.values, *([self.targets] if self.mean.ndim > len(self.values) else [])]
        names = [*self.inputs, "target"][: len(grids)]
        index: Any = pd.MultiIndex.from_product(grids, names=names)
        if len(grids) == 1:
            index = index.get_level_values(0)
        columns = {"mean": self.mean, "low": self.low, "high": self.high}
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()}, index=index)


def effect_of(
    gp: Any,
    inputs: Any,
    *,
    at: Any,
    values: Any,
    rows: int,
    level: float,
    curves: bool,
    term: int | str | None,
    random_state: RandomStateLike,
) -> Effect:
    """Effect of one or two inputs; arguments as of `GPClassifier.effect`."""
    check_is_fitted(gp)
    check_between("level", level, 0.0, 1.0)
    check_count("rows", rows, 1)
    table = UserTable(gp)
    columns = [table.position(name) for name in _as_list(inputs)]
    if len(columns) not in N_GRID or len(set(columns)) < len(columns):
        raise InvalidInput(f"'inputs' must be one input, or two different ones; got {inputs!r}.")
    others, held = table.rows(rows) if at is None else table.row_at(at, columns)
    n_grid, given = N_GRID[len(columns)], _as_values(values, len(columns))
    grids = [table.grid(c, v, n_grid) for c, v in zip(columns, given, strict=True)]
    X = table.crossed(others, columns, grids)  # (G, M, d)
    term = _term(gp, term)
    response, mean, ends = _evaluate(gp, table, X, level, term, as_generator(random_state))
    shape = tuple(len(g) for g in grids)
    names = tuple(table.names[c] for c in columns)
    found = [part.reshape(*shape, *part.shape[1:]) for part in (mean, *ends)]
    each = None
    if curves and term is None:
        each = mean_responses(gp, table, X.reshape(-1, X.shape[-1])).reshape(*shape, len(others), -1)
    targets: list[Any] = table.targets
    if response == "probability" and len(targets) == 2:
        found, targets = [part[..., 1] for part in found], targets[1:]
        each = None if each is None else each[..., 1:]
    if found[0].shape[-1] == 1 and found[0].ndim > len(shape):
        found = [part[..., 0] for part in found]
    if each is not None:
        each = np.moveaxis(each, len(shape), 0).reshape(len(others), *found[0].shape)
    return Effect(
        inputs=names,
        values=tuple(table.labels(c, g) for c, g in zip(columns, grids, strict=True)),
        mean=found[0], low=found[1], high=found[2], level=float(level), response=response, targets=targets,
        data=tuple(table.labels(c, x) for c, x in zip(columns, table.present(columns), strict=True)),
        categories=tuple(table.names[c] in table.levels for c in columns),
        held=held, n_rows=len(others), curves=each,
    )  # fmt: skip


def _evaluate(
    gp: Any, table: UserTable, X: Array, level: float, term: int | None, rng: np.random.Generator
) -> tuple[str, Array, Array]:
    """Kind of the response, its mean (G, C), and the two ends of its interval, (2, G, C), in the user's units."""
    q = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    model, draws = gp.model_, thinned(gp._averaged_draws())
    row_weight, n_jobs = np.full(X.shape[1], 1.0 / X.shape[1]), gp.n_jobs
    if term is None and model.likelihood.targets != "numbers":
        scaled = np.array([table.scale(part) for part in X])
        averages = effects.average_responses(model, draws, scaled, row_weight, rng, n_jobs=n_jobs)
        kind = "rate" if isinstance(model.likelihood, Counts) else "probability"
        return kind, averages.mean, averages.quantiles(q)
    layout = gp._targets.layout
    scaled = np.array([layout.prediction_inputs(table.scale(part)) for part in X])
    n_outputs = len(layout.names) if scaled.shape[1] > X.shape[1] else None
    latents = effects.average_latents(model, draws, scaled, row_weight, n_outputs=n_outputs, term=term, n_jobs=n_jobs)
    mean, ends = latents.mean, latents.quantiles(q)
    if model.likelihood.targets != "numbers":
        return "latent", mean, ends
    if term is not None:  # a part of the function has no level of its own
        return "latent", mean * gp._targets.unit, ends * gp._targets.unit
    return "mean", gp._targets.in_units(mean), gp._targets.in_units(ends)


def mean_responses(gp: Any, table: UserTable, rows: Array) -> Array:
    """Posterior mean of the response at each row, of shape (M, C), in the user's units."""
    draws, inputs = thinned(gp._averaged_draws()), gp._targets.layout.prediction_inputs(table.scale(rows))
    if isinstance(gp.model_.likelihood, Counts):
        return responses.mean_rates(gp.model_, draws, inputs, n_jobs=gp.n_jobs)[:, None]
    if gp.model_.likelihood.targets != "numbers":
        return predict.probabilities(gp.model_, draws, inputs, n_jobs=gp.n_jobs)
    mean, _ = predict.mixture_moments(gp.model_, draws, inputs, n_jobs=gp.n_jobs)
    in_units: Array = gp._targets.in_units(gp._targets.layout.unstack(mean))
    return in_units.reshape(len(rows), -1)


def thinned(draws: WeightedDraws) -> WeightedDraws:
    """At most N_DRAWS of the draws, evenly spaced."""
    if len(draws) <= N_DRAWS:
        return draws
    some = spaced(len(draws), N_DRAWS)
    kept = None if draws.kept is None else draws.kept.part("thinned")
    return WeightedDraws(draws.theta[some], draws.weight[some], kept, draws.progressbar)


def spaced(n: int, most: int) -> NDArray[np.intp]:
    """At most so many of the positions 0 … n - 1, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.intp)


def _term(gp: Any, term: int | str | None) -> int | None:
    """Position of a term of the kernel."""
    if term is None:
        return None
    names = [name for name, _ in gp.model_.kernel.summands(gp.model_.input_names)]
    if isinstance(term, str) and names.count(term) == 1:
        return names.index(term)
    if isinstance(term, int) and not isinstance(term, bool) and 0 <= term < len(names):
        return term
    listed = ", ".join(f"{i}: {name}" for i, name in enumerate(names))
    raise InvalidInput(f"'term' must be the number (or the name, if it is the only one) of {listed}; got {term!r}.")


def _as_list(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, list | tuple | np.ndarray) else [inputs]


def _as_values(values: Any, n: int) -> Sequence[Any]:
    """Values asked for, of each input; None where they are to be chosen."""
    if values is None:
        return [None] * n
    if n == 1:
        return [values]
    if not isinstance(values, list | tuple) or len(values) != n:
        raise InvalidInput(f"'values' must be a pair of arrays for two inputs; got {values!r}.")
    return values


class UserTable:
    """Training rows of a fitted estimator in the user's units, categories as codes."""

    def __init__(self, gp: Any) -> None:
        self._inputs = gp._inputs
        self.names: list[str] = gp._inputs.names
        self.levels: Mapping[str, NDArray[Any]] = gp._inputs.columns.categories
        self.X: Array = self._inputs.scaling.undo(gp._targets.layout.inputs(gp.model_.X))
        self._given = self._inputs.gaps.restore(self.X)  # (n, d), with its gaps
        for name in self.levels:  # codes, up to rounding
            c = self.names.index(name)
            self.X[:, c] = np.round(self.X[:, c])
        self.targets: list[Any] = list(getattr(gp, "classes_", getattr(gp, "output_names_", ())))

    def frame(self) -> pd.DataFrame:
        """The user's inputs, categories as levels, with their gaps."""
        return pd.DataFrame(
            {name: self.labels(c, x) for c, (name, x) in enumerate(zip(self.names, self._given.T, strict=False))}
        )

    def present(self, columns: Sequence[int]) -> list[Array]:
        """Values of some inputs, in the training rows that have them all."""
        d = self._given.shape[1]  # indicators, behind it, have no gaps
        here = ~np.isnan(self._given[:, [c for c in columns if c < d]]).any(axis=1)
        return [self.X[here, c] for c in columns]

    def scale(self, X: Array) -> Array:
        """Inputs of the model."""
        scaled: Array = self._inputs.scaling.apply(X)
        return scaled

    def position(self, name: Any) -> int:
        """Column of an input, given by name or number."""
        if isinstance(name, str) and name in self.names:
            return self.names.index(name)
        if isinstance(name, int | np.integer) and not isinstance(name, bool) and 0 <= name < len(self.names):
            return int(name)
        raise InvalidInput(f"there is no input {name!r}: the inputs are {', '.join(map(repr, self.names))}.")

    def code(self, column: int, value: Any) -> float:
        """Number of a level of a category; of a quantity, the number itself."""
        levels = self.levels.get(self.names[column])
        try:
            return float(value) if levels is None else float(list(levels).index(value))
        except (TypeError, ValueError):
            wanted = "a number" if levels is None else f"one of {levels.tolist()}"
            raise InvalidInput(f"a value of {self.names[column]!r} must be {wanted}; got {value!r}.") from None

    def labels(self, column: int, codes: Array) -> NDArray[Any]:
        """Values as the user knows them: levels instead of codes."""
        levels = self.levels.get(self.names[column])
        return codes if levels is None else np.asarray(levels)[codes.astype(int)]

    def grid(self, column: int, values: Any, n: int) -> Array:
        """Values given; or all levels, all values if there are n or fewer, or n evenly spaced ones."""
        if values is not None:
            given = np.array([self.code(column, v) for v in np.atleast_1d(np.asarray(values, dtype=object))])
            if not np.isfinite(given).all():
                raise InvalidInput(f"'values' of {self.names[column]!r} must be finite.")
            return given
        found = np.unique(self.present([column])[0])
        few = len(found) <= n or self.names[column] in self.levels
        return found if few else np.linspace(found[0], found[-1], n)

    def rows(self, n: int) -> tuple[Array, dict[str, Any]]:
        """At most n training rows, evenly spaced, and no values held."""
        return self.X[spaced(len(self.X), n)], {}

    def row_at(self, at: Any, columns: Sequence[int]) -> tuple[Array, dict[str, Any]]:
        """One row with the values given, medians (commonest levels) elsewhere, and these values by name."""
        if at != "median" and not isinstance(at, Mapping):
            raise InvalidInput(
                f"'at' must be None (average over rows), 'median', or a dict of values of inputs; got {at!r}."
            )
        row = np.median(self.X, axis=0)
        for name in self.levels:
            c = self.names.index(name)
            row[c] = np.bincount(self.X[:, c].astype(int)).argmax()
        for name, value in at.items() if isinstance(at, Mapping) else ():
            c = self.position(name)
            if c in columns:
                raise InvalidInput(f"'at' fixes {self.names[c]!r}, the effect of which is asked for: leave it out.")
            row[c] = self.code(c, value)
        held = {name: self.labels(c, row[c : c + 1])[0].item() for c, name in enumerate(self.names) if c not in columns}
        return row[None], held

    def crossed(self, rows: Array, columns: Sequence[int], grids: Sequence[Array]) -> Array:
        """All rows at all values, of shape (G, M, d); of two inputs the last varies fastest."""
        mesh = np.stack([axis.ravel() for axis in np.meshgrid(*grids, indexing="ij")], axis=1)  # (G, columns)
        X = np.repeat(rows[None], len(mesh), axis=0)
        X[:, :, list(columns)] = mesh[:, None, :]
        self._inputs.gaps.known(X, columns)
        return X
