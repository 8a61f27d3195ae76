"""Standardised inputs, computed so that neither 1e300 nor 1e-300 nor a large offset spoils them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmcgp.runtime.typing import Array

# A range below this part of the largest absolute value is rounding: a column like 1 + 1e-14 noise takes at most a
# thousand different values, and what tells them apart are the last bits of some earlier computation.
_ROUNDING = 1000.0 * np.finfo(float).eps  # 2.2e-13


@dataclass(frozen=True)
class Scaling:
    """x -> (x/size - mean)/sd for each input.

    The division by the largest absolute value comes first: squares of 1e160 would overflow, those of 1e-160 vanish.
    """

    size: Array  # (d,)
    mean: Array  # (d,)
    sd: Array  # (d,)
    constant: NDArray[np.bool_]  # (d,), inputs that never change, or by rounding alone

    @classmethod
    def learn(
        cls, X: Array, *, standardize: bool, keep: NDArray[np.bool_] | None = None, weights: Array | None = None
    ) -> Scaling:
        """Location and spread of the columns of X, rows weighted; or the identity, for all or for those to `keep`."""
        size, d = np.abs(X).max(axis=0), X.shape[1]
        size = np.where(size > 0.0, size, 1.0)
        constant = X.max(axis=0) / size - X.min(axis=0) / size <= _ROUNDING
        if not standardize:
            return cls(np.ones(d), np.zeros(d), np.ones(d), constant)
        keep = np.zeros(d, dtype=bool) if keep is None else keep
        size = np.where(keep, 1.0, size)
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
