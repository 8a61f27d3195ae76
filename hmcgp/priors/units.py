"""Priors in the user's units, of parameters that the model measures in others.

    unit x ~ p:     log p_x(x) = log p(unit x) + log unit,     x = T(u)/unit

The coordinate u is that of p in the user's units, and so are its density and gradient: units only change what the
model makes of u.  On the whole line, where T is the identity and u has units, u = x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.parameters.transforms import Divided, Identity, Transform, along_rows
from hmcgp.priors.densities import Prior
from hmcgp.runtime.typing import Array


@dataclass(frozen=True, repr=False)
class InUnits(Prior):
    """x = y/unit, where y follows a prior.

    Parameters
    ----------
    prior : Prior
        In the user's units.
    unit : float or tuple of float
        One unit of the model in those of the user; one for each value of a vector.
    """

    prior: Prior
    unit: float | tuple[float, ...]

    def __post_init__(self) -> None:
        unit = np.asarray(self.unit, dtype=float)
        if unit.ndim > 1 or not ((unit > 0.0) & (unit < np.inf)).all() or not isinstance(self.prior, Prior):
            raise InvalidInput(f"'unit' of InUnits must be positive and finite; got {self.unit!r} for {self.prior!r}.")
        object.__setattr__(self, "unit", float(unit) if unit.ndim == 0 else tuple(unit.tolist()))

    def __repr__(self) -> str:
        return f"InUnits({self.prior!r}, unit={self.unit!r})"

    @property
    def support(self) -> tuple[float, float]:
        """Open interval on which the density is positive; arrays of ends, if each value has a unit."""
        lower, upper = (end / np.asarray(self.unit) for end in self.prior.support)
        return lower, upper  # type: ignore[return-value]

    @property
    def transform(self) -> Transform:
        return Identity() if self._on_line else Divided(self.prior.transform, self.unit)

    @property
    def _on_line(self) -> bool:
        return self.prior.transform == Identity()

    @property
    def normal(self) -> tuple[float, float] | None:
        """Mean and standard deviation of u where it is normal; arrays, if each value has a unit."""
        law = self.prior.normal
        if law is None or not self._on_line:
            return law
        mean, sd = (number / np.asarray(self.unit) for number in law)
        return mean, sd  # type: ignore[return-value]

    def logpdf(self, x: Array) -> Array:
        unit = along_rows(self.unit, np.ndim(x))
        return np.asarray(self.prior.logpdf(x * unit) + np.log(unit))

    def dlogpdf(self, x: Array) -> Array:
        unit = along_rows(self.unit, np.ndim(x))
        return np.asarray(self.prior.dlogpdf(x * unit) * unit)

    def logpdf_unconstrained(self, u: Array) -> tuple[Array, Array]:
        return (self.logpdf(u), self.dlogpdf(u)) if self._on_line else self.prior.logpdf_unconstrained(u)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array | float:
        x = np.asarray(self.prior.sample(rng, size) / np.asarray(self.unit))
        return float(x) if x.ndim == 0 else x

    _logpdf, _dlogpdf, _sample = logpdf, dlogpdf, sample
