"""Missing numbers in the inputs: an indicator for each input with gaps, and the mean in the place of the gap.

    x_j missing:    x_j = mean of the rows that have it,    i_j = 1
    x_j known:      x_j,                                    i_j = 0

The indicators stand behind the inputs, named as by `sklearn.impute`, and have length scales, and so a relevance, of
their own: where gaps mean something, it is learnt, and where they do not, the length scale grows and the mean stands
for what is not known.  Indicators stay 0 and 1, as categories keep their codes: standardised, a rare gap would lie a
dozen standard deviations from all other rows.

Inputs without missing values in the training rows have no indicator: `imputation` has their missing values in new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.estimators.scaling import Scaling
from hmcgp.runtime.typing import Array

PREFIX = "missingindicator_"


@dataclass(frozen=True)
class Gaps:
    """Inputs that had gaps in the training rows."""

    columns: tuple[int, ...] = ()  # their positions, increasing
    fill: tuple[float, ...] = ()  # mean of each, in the user's units

    @classmethod
    def learn(cls, X: Array, names: Sequence[str], weights: Array | None) -> Self:
        """Find the gaps (NaN) in inputs of shape (n, d), and the means of the other rows."""
        missing = np.isnan(X)
        empty = [name for j, name in enumerate(names) if missing[:, j].all()]
        if empty:
            raise InvalidInput(f"the input {empty[0]!r} is missing in every row: drop the column.")
        columns = np.flatnonzero(missing.any(axis=0))
        taken = [name for name in cls._indicators(names, columns.tolist()) if name in names]
        if taken:
            raise InvalidInput(
                f"the input {taken[0]!r} has the name of the indicator that missing='indicator' makes: rename it."
            )
        w = np.ones(len(X)) if weights is None else weights
        fill = [np.average(X[here, j], weights=w[here]) for j in columns for here in [~missing[:, j]]]
        return cls(tuple(columns.tolist()), tuple(map(float, fill)))

    @staticmethod
    def _indicators(names: Sequence[str], columns: Sequence[int]) -> list[str]:
        return [PREFIX + names[j] for j in columns]

    def names(self, names: Sequence[str]) -> list[str]:
        """Names of all inputs of the model, from those of the user's."""
        return [*names, *self._indicators(names, self.columns)]

    def complete(self, X: Array) -> Array:
        """Inputs without gaps and their indicators, of shape (n, d + k), from the user's of shape (n, d)."""
        if not self.columns:
            return X
        columns = list(self.columns)
        missing = np.isnan(X[:, columns])
        whole = X.copy()
        whole[:, columns] = np.where(missing, self.fill, X[:, columns])
        return np.hstack([whole, missing])

    def restore(self, X: Array) -> Array:
        """The user's inputs with their gaps, of shape (n, d), from complete ones in the user's units."""
        d = X.shape[1] - len(self.columns)
        found = X[:, :d].copy()
        for j, indicator in zip(self.columns, X.T[d:], strict=True):
            found[np.round(indicator) == 1.0, j] = np.nan
        return found

    def learn_scaling(self, X: Array, *, standardize: bool, keep: NDArray[np.bool_], weights: Array | None) -> Scaling:
        """Scales of complete inputs: of one with gaps from the rows that have it; indicators are kept as they are."""
        k = len(self.columns)
        keep = np.append(keep, np.ones(k, dtype=bool))
        found = Scaling.learn(X, standardize=standardize, keep=keep, weights=weights)
        for j, indicator in zip(self.columns, X.T[len(X.T) - k :], strict=True):
            here = indicator == 0.0
            w = None if weights is None else weights[here]
            own = Scaling.learn(X[here, j : j + 1], standardize=standardize, weights=w)
            for part, value in zip(_parts(found), _parts(own), strict=True):
                part[j] = value[0]
        return found

    def known(self, X: Array, columns: Sequence[int]) -> None:
        """Take values that were set in complete inputs (of any shape, inputs last) as known, in place."""
        d = X.shape[-1] - len(self.columns)
        for i, j in enumerate(self.columns):
            if j in columns:
                X[..., d + i] = 0.0
            elif d + i in columns:  # the indicator itself was set
                X[..., j] = np.where(X[..., d + i] == 1.0, self.fill[i], X[..., j])


def _parts(scaling: Scaling) -> tuple[NDArray[np.generic], ...]:
    return scaling.size, scaling.mean, scaling.sd, scaling.constant
