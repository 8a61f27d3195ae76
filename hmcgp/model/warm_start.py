"""Warm starts: the carry of an evaluation, from which the solver of the next one starts.

It is a tuple: the last solution (`Posterior.start`), of n numbers; the last points, of shape (m, d), the most recent
first; and the solutions there, of shape (m, n).  A start is interpolated between these.  Along a straight trajectory of
short steps that is ten times closer than the last solution alone; with adapted steps, which are long and turn at every
draw, up to twice as close.
"""

from __future__ import annotations

from typing import TypeAlias, TypeGuard

import numpy as np

from hmcgp.numerics.interpolation import interpolate, remember
from hmcgp.runtime.typing import Array

Carry: TypeAlias = tuple[Array, Array, Array]

MOST = 16  # solutions to interpolate between
FEW = 2  # where there may be several at one point: a path stays with its own


def start_at(u: Array, carry: object) -> Array | None:
    """Start of the solver at u; None where there is no carry."""
    return interpolate(carry[1], carry[2], u).reshape(carry[0].shape) if _is_carry(carry) else None


def carry_on(carry: object, u: Array, solution: Array, most: int) -> Carry:
    """Carry with one more solution, of at most so many."""
    flat = solution.reshape(-1)
    if _is_carry(carry):
        return (solution, *remember(carry[1], carry[2], u, flat, most))
    return solution, np.array(u, ndmin=2), np.array(flat, ndmin=2)


def _is_carry(carry: object) -> TypeGuard[Carry]:
    return isinstance(carry, tuple) and len(carry) == 3
