"""Predictions for rows with missing values for which the model has no indicator (marginal imputation).

A column that was complete in the training rows has no indicator (`gaps`), and a missing value in a new row is averaged
over the values v_k that the training rows have there,

    p(y* | x_known) = 1/K Σ_k p(y* | x_known, x_missing = v_k),     K = N_VALUES.

The v_k are those of the training rows at the quantiles (k - 1/2)/K of the column, rows weighted: the same in every
call.  Several missing values of a row come together from one training row, in the order of the first of them.  The
average ignores what the known values of the row say about the missing one: the interval is rather too wide than too
narrow where inputs are correlated, and right if they are independent and values are missing at random.

Averages, moments, densities and quantiles are those of the mixture.  Intervals of probabilities are so for two classes
with one likelihood for all draws; otherwise (several or ordered classes, an inferred rate of label noise) they are the
union of the intervals of the K values, which holds the probability at least as often as `level` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from hmcgp.errors import DataWarning, warn_user
from hmcgp.estimators.text_columns import listed
from hmcgp.model import Model
from hmcgp.posterior import intervals, mixture, predict, responses
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.runtime.typing import Array

N_VALUES = 20  # training values that a missing one is averaged over
_MAX_COMPONENTS = 2**24  # rows times values times draws that are predicted at once
_ROUNDS = 200  # of bisection
_CLOSE = 1e-9  # of quantiles, relative to the first bracket

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class TrainingValues:
    """Inputs of the training rows on the scale of the model, (n, d), with their weights, (n,)."""

    X: Array
    weight: Array

    def copies(self, X: Array) -> Array:
        """Copies of incomplete rows (m, d), N_VALUES of each, with training values for NaN: (m N_VALUES, d)."""
        out = np.repeat(X, N_VALUES, axis=0)
        patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = np.flatnonzero(np.repeat(which.ravel() == number, N_VALUES))
            values = self._representative(np.flatnonzero(pattern))
            out[np.ix_(rows, np.flatnonzero(pattern))] = np.tile(values, (len(rows) // N_VALUES, 1))
        return out

    def _representative(self, columns: Rows) -> Array:
        """Values of some columns in N_VALUES training rows, of shape (N_VALUES, k)."""
        values = self.X[:, columns]
        order = np.lexsort(values.T[::-1])
        below = np.cumsum(self.weight[order])
        wanted = (np.arange(N_VALUES) + 0.5) / N_VALUES * below[-1]
        return np.asarray(values[order[np.minimum(np.searchsorted(below, wanted), len(order) - 1)]])


class Part(NamedTuple):
    """Inputs of the model for some rows, `copies` consecutive ones for each."""

    inputs: Array  # as `RowParts.inputs_of` returns them
    rows: Rows  # (k,)
    copies: int


@dataclass(frozen=True)
class RowParts:
    """New rows in parts: those without missing values (NaN), and copies of the others.

    A loop over the parts, instead of a function that is called for each, keeps tracebacks short.
    """

    X: Array  # (m, d)
    training: Callable[[], TrainingValues]  # called if values are missing
    inputs_of: Callable[[Array], Array]  # inputs of the model for rows without missing values
    draws: WeightedDraws

    def __iter__(self) -> Iterator[Part]:
        incomplete = np.isnan(self.X).any(axis=1)
        complete, rows = np.flatnonzero(~incomplete), np.flatnonzero(incomplete)
        if len(complete) or not len(rows):
            yield Part(self.inputs_of(self.X[complete] if len(rows) else self.X), complete, 1)
        if len(rows):
            values = self.training()
            size = max(_MAX_COMPONENTS // (N_VALUES * len(self.draws)), 1)
            for begin in range(0, len(rows), size):
                some = rows[begin : begin + size]
                yield Part(self.inputs_of(values.copies(self.X[some])), some, N_VALUES)

    def merged(self, found: Sequence[Array]) -> Array:
        """Results of all parts, one entry for each of their rows, in the order of the rows: of shape (m, ...)."""
        if len(found) == 1:
            return found[0]
        position = np.argsort(np.isnan(self.X).any(axis=1), kind="stable")  # rows in the order of the parts
        return np.asarray(np.concatenate(found)[np.argsort(position)])


def warn_about_missing(X: Array, names: list[str]) -> None:
    """Warn that some predictions are averages over training values."""
    missing = np.isnan(X)
    if not missing.any():
        return
    columns = [f"{name!r} ({n})" for name, n in zip(names, missing.sum(axis=0), strict=True) if n]
    warn_user(
        f"{int(missing.any(axis=1).sum())} of {len(X)} rows have missing values in columns that were complete in the "
        f"training rows: {listed(columns)}. The predictions of these rows are averages over {N_VALUES} training values "
        "of the column, and their intervals are wider. Fill the values in before if you know more about them.",
        DataWarning,
    )


# -- mixtures over the copies of a row -------------------------------------------------------------------------------


def _by_row(values: Array, copies: int, axis: int = 0) -> Array:
    """Give the copies of a row an axis behind that of the rows."""
    shape = values.shape
    return values.reshape(*shape[:axis], -1, copies, *shape[axis + 1 :])


def average(values: Array, copies: int) -> Array:
    """Means over the copies of each row, along the first axis."""
    return values if copies == 1 else np.asarray(_by_row(values, copies).mean(axis=1))


def average_log(values: Array, copies: int) -> Array:
    """Logarithms of the means of exp(values) over the copies of each row."""
    return values if copies == 1 else np.asarray(logsumexp(_by_row(values, copies), axis=1) - np.log(copies))


def average_moments(mean: Array, variance: Array, copies: int) -> Array:
    """Mean and variance of the mixture over the copies of each row, of shape (m, 2, ...)."""
    if copies > 1:
        means = _by_row(mean, copies)
        mean, variance = means.mean(axis=1), _by_row(variance, copies).mean(axis=1) + means.var(axis=1)
    return np.stack([mean, variance], axis=1)


def gaussian_quantiles(
    model: Model,
    draws: WeightedDraws,
    X: Array,
    q: Array,
    copies: int,
    *,
    observed: bool,
    unstack: Callable[[Array], Array] = np.asarray,
    n_jobs: int | None = None,
) -> Array:
    """Quantiles as of `predict.quantiles`, of the mixture over draws and copies; `unstack` as of `OneOutput`."""
    if copies == 1:
        return unstack(predict.quantiles(model, draws, X, q, observed=observed, n_jobs=n_jobs))
    moments = predict.observed_moments if observed else predict.latent_moments
    mean, variance = moments(model, draws, X, n_jobs=n_jobs)
    weight = np.repeat(draws.weight, copies)
    return mixture.quantiles(q, _components(unstack(mean), copies), _components(unstack(variance), copies), weight)


def _components(values: Array, copies: int) -> Array:
    """Values of draws at copies, (S, m copies, ...), as those of the components of each row, (S copies, m, ...)."""
    by_row = np.moveaxis(_by_row(values, copies, axis=1), 2, 1)
    return by_row.reshape(-1, *by_row.shape[2:])


def response_quantiles(
    model: Model,
    draws: WeightedDraws,
    X: Array,
    q: Array,
    copies: int,
    sizes: Array | None = None,
    *,
    n_jobs: int | None = None,
) -> Array:
    """Quantiles as of `responses.quantiles`, of the mixture over draws and copies, of shape (k, m).

    They lie between the smallest and the largest of the quantiles of the copies, and are found by bisection.
    """
    single = responses.quantiles(model, draws, X, q, sizes, n_jobs=n_jobs)
    if copies == 1:
        return single
    mean, variance = predict.latent_moments(model, draws, X, n_jobs=n_jobs)  # (S, m copies)
    likelihoods: list[Any] = [model.likelihood_at(theta) for theta in draws.theta]
    extra = () if sizes is None else (sizes,)

    def distribution(y: Array) -> Array:
        """P(y* <= y) for each row."""
        at, total = np.repeat(y, copies), np.zeros(len(X))
        for weight, likelihood, m, v in zip(draws.weight / draws.total, likelihoods, mean, variance, strict=True):
            total += weight * likelihood.distribution(at, m, v, *extra)
        return average(total, copies)

    ends = _by_row(single, copies, axis=1)
    whole = sizes is not None
    return np.array(
        [
            _bisected(distribution, float(p), low - 1.0 if whole else low, high, whole=whole)
            for p, low, high in zip(q, ends.min(axis=2), ends.max(axis=2), strict=True)
        ]
    )


def _bisected(distribution: Callable[[Array], Array], p: float, low: Array, high: Array, *, whole: bool) -> Array:
    """Return the y, in (low, high], where a distribution function reaches p; the smallest whole number if `whole`."""
    close = np.ones(len(low)) if whole else _CLOSE * (high - low)
    for _ in range(_ROUNDS):
        if (high - low <= close).all():
            break
        middle = 0.5 * (low + high)
        middle = np.floor(middle) if whole else middle
        above = distribution(middle) >= p
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return high if whole else 0.5 * (low + high)


def probability_intervals(
    model: Model, draws: WeightedDraws, X: Array, level: float, copies: int, *, n_jobs: int | None = None
) -> Array:
    """Intervals as of `intervals.probability_intervals`, for the mixture over copies (see the header), (m, C, 2)."""
    if copies == 1:
        return intervals.probability_intervals(model, draws, X, level, n_jobs=n_jobs)
    likelihoods = [model.likelihood_at(theta) for theta in draws.theta]
    two = model.likelihood.targets not in ("classes", "levels")
    if two and len({likelihood.site() for likelihood in likelihoods}) == 1:
        q = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        f = gaussian_quantiles(model, draws, X, q, copies, observed=False, n_jobs=n_jobs)
        low, high = likelihoods[0].probabilities_given(f)  # (m, 2) each
        return np.stack([[high[:, 0], low[:, 0]], [low[:, 1], high[:, 1]]]).transpose(2, 0, 1)
    ends = _by_row(intervals.probability_intervals(model, draws, X, level, n_jobs=n_jobs), copies)
    return np.stack([ends[..., 0].min(axis=1), ends[..., 1].max(axis=1)], axis=-1)
