"""Standardised inputs, computed so that neither 1e300 nor 1e-300 nor a large offset spoils them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmcgp._typing import Array


@dataclass(frozen=True)
class Scaling:
    """x -> (x/size - mean)/sd for each input.

    The division by the largest absolute value comes first: squares of 1e160 would overflow, those of 1e-160 vanish.
    """

    size: Array  # (d,)
    mean: Array  # (d,)
    sd: Array  # (d,)
    constant: NDArray[np.bool_]  # (d,), inputs that never change

    @classmethod
    def learn(
        cls, X: Array, *, standardize: bool, keep: NDArray[np.bool_] | None = None, weights: Array | None = None
    ) -> Scaling:
        """Location and spread of the columns of X, rows weighted; or the identity, for all or for those to `keep`."""
        constant = X.max(axis=0) == X.min(axis=0)
        d = X.shape[1]
        if not standardize:
            return cls(np.ones(d), np.zeros(d), np.ones(d), constant)
        keep = np.zeros(d, dtype=bool) if keep is None else keep
        size = np.abs(X).max(axis=0)
        size = np.where((size > 0.0) & ~keep, size, 1.0)
        unit = X / size
        if weights is None:
            mean, sd = unit.mean(axis=0), unit.std(axis=0)
        else:
            mean = np.average(unit, axis=0, weights=weights)
            sd = np.sqrt(np.average((unit - mean) ** 2, axis=0, weights=weights))
        sd = np.where(constant | (sd == 0.0), 1.0, sd)
        return cls(size, np.where(keep, 0.0, mean), np.where(keep, 1.0, sd), constant)

    def apply(self, X: Array) -> Array:
        """Scaled inputs."""
        return np.asarray((X / self.size - self.mean) / self.sd)

    @property
    def spread(self) -> Array:
        """One unit of the scaled columns, in their own units, of shape (d,)."""
        return self.sd * self.size

    def undo(self, Z: Array) -> Array:
        """The inputs before scaling."""
        return np.asarray((Z * self.sd + self.mean) * self.size)
