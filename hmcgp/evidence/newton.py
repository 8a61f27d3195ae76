"""Compiled parts that Newton iterations to a mode share: an iterate with its work space, steps, plain loops."""

from __future__ import annotations

import numpy as np

from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import cholesky_solve_inplace, symmetric_times
from hmcgp.runtime.typing import Array

HALVINGS = 40
_SAFE_ROOT_W = 1e-4

# An iterate, with its work space, is one array `a` of shape (ROWS, n); its rows are
ALPHA, F = 0, 1  # α and f = Kα
LOG_P, G, W, RATIO = 2, 3, 4, 5  # the likelihood's terms at f (RATIO: third derivative divided by W)
ROOT_W = 6  # √W of the factor at hand
R, D_ALPHA, D_F = 7, 8, 9  # gradient of Ψ, and the step
TRY_ALPHA, TRY_F = 10, 11
LAST_D_ALPHA, LAST_D_F = 12, 13  # direction of the chord step before,
MOVED_ALPHA, MOVED_F = 14, 15  # and where it led
WEIGHT = 16  # by which a row's log likelihood is multiplied, so that LOG_P, G and W are of p^weight
C = 17  # -½ ∂ log|B|/∂f
ROWS = 18
# (a tuple of arrays would read better, and takes three times as long to compile)


# Plain loops where numpy has an expression: its slices and reductions take long to compile.


@compiled
def fill(x: Array, value: float) -> None:
    """Set every entry of x."""
    for i in range(x.shape[0]):
        x[i] = value


@compiled
def copy(x: Array, out: Array) -> None:
    """Copy x into out."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@compiled
def size(x: Array) -> float:
    """Σ |x_i|."""
    total = 0.0
    for i in range(x.shape[0]):
        total += abs(x[i])
    return total


@compiled
def dot(x: Array, y: Array) -> float:
    """Σ x_i y_i."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@compiled
def newton_step(K: Array, L: Array, root_w: Array, r: Array, dalpha: Array, df: Array) -> None:
    """δα = r - √W x and δf = K δα, with x = B⁻¹ √W K r by the factor at hand.

    Also δf = W^-½ x, which saves a product with K, but magnifies the rounding of x where W is tiny.
    """
    symmetric_times(K, r, df)
    smallest = np.inf
    for i in range(r.shape[0]):
        dalpha[i] = root_w[i] * df[i]
        smallest = min(smallest, root_w[i])
    cholesky_solve_inplace(L, dalpha)
    if smallest > _SAFE_ROOT_W:
        for i in range(r.shape[0]):
            df[i] = dalpha[i] / root_w[i]
            dalpha[i] = r[i] - root_w[i] * dalpha[i]
    else:
        for i in range(r.shape[0]):
            dalpha[i] = r[i] - root_w[i] * dalpha[i]
        symmetric_times(K, dalpha, df)


@compiled
def slack(a: Array, psi: float, scale: float) -> float:
    """By how much rounding, of α'Kα above all, may make Ψ fall."""
    total = size(a[ALPHA])
    return 1e-13 * abs(psi) + 4.0 * EPS * scale * total * total


@compiled
def attempt(a: Array, step: float) -> None:
    """Where the direction leads, as (TRY_ALPHA, TRY_F)."""
    for start, direction, end in ((ALPHA, D_ALPHA, TRY_ALPHA), (F, D_F, TRY_F)):
        x, d, out = a[start], a[direction], a[end]
        for i in range(a.shape[1]):
            out[i] = x[i] + step * d[i]


@compiled
def accept(a: Array) -> None:
    """Go where was tried."""
    copy(a[TRY_ALPHA], a[ALPHA])
    copy(a[TRY_F], a[F])
