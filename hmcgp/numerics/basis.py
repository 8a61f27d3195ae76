"""Functions of the inputs: bases of log-linear length scales, amplitudes and noise, and those that users write."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.runtime.typing import Array

Basis: TypeAlias = Callable[[Array], Array]  # (n, d) -> (n, m)


@dataclass(frozen=True)
class RadialBasis:
    """φ_m(x) = exp(-½ |x - c_m|²/width²), one bump for each centre c_m.

    Parameters
    ----------
    centres : sequence of float, or of sequences of float
        One per bump: a number for one input, else a point.
    width : float
        Standard deviation of the bumps.
    """

    centres: tuple[Any, ...]
    width: float

    def __post_init__(self) -> None:
        try:
            points = np.asarray(self.centres, dtype=float)
        except (TypeError, ValueError):
            points = np.empty(0)
        if points.ndim not in {1, 2} or points.size == 0 or not np.all(np.isfinite(points)):
            raise InvalidInput(f"'centres' of RadialBasis must be numbers, or points of one size; got {self.centres}.")
        if not 0.0 < self.width < np.inf:
            raise InvalidInput(f"'width' of RadialBasis must be positive and finite; got {self.width}.")
        values = points.tolist()  # as tuples: kernels compare and hash
        object.__setattr__(self, "centres", tuple(tuple(c) if points.ndim == 2 else c for c in values))

    @property
    def names(self) -> tuple[str, ...]:
        """One name per bump: its centre."""
        return tuple(" ".join(f"{v:g}" for v in np.atleast_1d(c)) for c in self.centres)

    def __call__(self, X: Array) -> Array:
        C = np.asarray(self.centres, dtype=float)
        C = C[:, None] if C.ndim == 1 else C
        if X.shape[1] != C.shape[1]:
            raise InvalidInput(f"the centres of RadialBasis have {C.shape[1]} coordinates for {X.shape[1]} inputs.")
        squares = sum((X[:, k, None] - C[:, k]) ** 2 for k in range(C.shape[1]))
        return np.asarray(np.exp(-0.5 * squares / self.width**2))


@dataclass(frozen=True)
class OnOriginalScale:
    """A user's function of inputs in his units, for inputs that are standardised.

    Parameters
    ----------
    function : callable
        Takes an array of shape (n, d).
    centre, spread : tuple of float
    """

    function: Callable[[Array], Array]
    centre: tuple[float, ...]
    spread: tuple[float, ...]

    def __call__(self, X: Array) -> Array:
        return self.function(X * np.array(self.spread) + np.array(self.centre))


def basis_values(basis: Basis | None, X: Array) -> Array:
    """Basis functions at the rows of X, of shape (n, m); the inputs themselves when there is none."""
    values = np.asarray(X if basis is None else basis(X), dtype=float)
    if values.ndim != 2 or len(values) != len(X):
        raise InvalidInput(
            f"'basis' must take inputs of shape (n, d) to an array of shape (n, m); {X.shape} gave {values.shape}."
        )
    return values


def basis_names(basis: Basis | None, inputs: Sequence[str]) -> tuple[str, ...]:
    """One name per basis function: its own, if it has names, else its number."""
    if basis is None:
        return tuple(inputs)
    named = getattr(basis, "function", basis)  # inside `OnOriginalScale`
    if hasattr(named, "names"):
        return tuple(named.names)
    return tuple(str(m) for m in range(basis_values(basis, np.zeros((1, len(inputs)))).shape[1]))
