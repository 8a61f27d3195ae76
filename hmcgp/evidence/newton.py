"""Compiled parts that Newton iterations to a mode share: steps, and plain loops."""

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.numerics.lapack import cholesky_inplace, cholesky_upper_solve_inplace, symmetric_upper_times
from hmcgp.runtime.typing import Array

HALVINGS = 40
_SAFE_ROOT_W = 1e-4


# Plain loops where numpy has an expression: its slices and reductions take long to compile.


@compiled_inside
def fill(x: Array, value: float) -> None:
    """Set every entry of x."""
    for i in range(x.shape[0]):
        x[i] = value


@compiled_inside
def copy(x: Array, out: Array) -> None:
    """Copy x into out."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@compiled_inside
def size(x: Array) -> float:
    """Σ |x_i|."""
    total = 0.0
    for i in range(x.shape[0]):
        total += abs(x[i])
    return total


@compiled_inside
def dot(x: Array, y: Array) -> float:
    """Σ x_i y_i."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@compiled_inside
def largest_variance(K: Array) -> float:
    """Largest K_ii."""
    scale = 0.0
    for i in range(K.shape[0]):
        scale = max(scale, K[i, i])
    return scale


@compiled_inside
def scale_row(a: float, row: Array, b: Array, out: Array) -> None:
    """Write a row_j b_j into out, all of one length: six times as fast by rows as by two subscripts in a loop."""
    for j in range(row.shape[0]):
        out[j] = a * row[j] * b[j]


@compiled_inside
def factor_scaled(K: Array, root_w: Array, L: Array) -> bool:
    """Leave the lower Cholesky factor of B = I + √W K √W in L; False where there is none."""
    for i in range(K.shape[0]):
        scale_row(root_w[i], K[i, : i + 1], root_w, L[i])
        L[i, i] += 1.0
    return cholesky_inplace(L)


@compiled_inside
def newton_step(K: Array, L: Array, root_w: Array, r: Array, dalpha: Array, df: Array) -> None:
    """δα = r - √W x and δf = K δα, with x = B⁻¹ √W K r by the factor at hand; of K and L', upper triangles.

    Also δf = W^-½ x, which saves a product with K, but magnifies the rounding of x where W is tiny.
    """
    symmetric_upper_times(K, r, df)
    smallest = np.inf
    for i in range(r.shape[0]):
        dalpha[i] = root_w[i] * df[i]
        smallest = min(smallest, root_w[i])
    cholesky_upper_solve_inplace(L, dalpha)
    if smallest > _SAFE_ROOT_W:
        for i in range(r.shape[0]):
            df[i] = dalpha[i] / root_w[i]
            dalpha[i] = r[i] - root_w[i] * dalpha[i]
    else:
        for i in range(r.shape[0]):
            dalpha[i] = r[i] - root_w[i] * dalpha[i]
        symmetric_upper_times(K, dalpha, df)


@compiled_inside
def slack(state: Array, psi: float, scale: float) -> float:
    """Bound on how far rounding, of α'Kα above all, may make Ψ fall."""
    total = size(state[row.ALPHA])
    return 1e-13 * abs(psi) + 4.0 * EPS * scale * total * total


@compiled_inside
def attempt(state: Array, step: float) -> None:
    """Leave in the trial rows where a step of this length leads."""
    alpha, latent = (row.ALPHA, row.STEP_ALPHA, row.TRIAL_ALPHA), (row.LATENT, row.STEP_LATENT, row.TRIAL_LATENT)
    for origin, direction, end in (alpha, latent):
        x, d, out = state[origin], state[direction], state[end]
        for i in range(state.shape[1]):
            out[i] = x[i] + step * d[i]


@compiled_inside
def accept(state: Array) -> None:
    """Move to the trial rows."""
    copy(state[row.TRIAL_ALPHA], state[row.ALPHA])
    copy(state[row.TRIAL_LATENT], state[row.LATENT])


@compiled_inside
def accelerate(state: Array, first: bool) -> None:
    """Turn a chord direction δ into s = δ - θ(moved + δ - δ_last), θ = <δ, δ - δ_last>/|δ - δ_last|².

    Chord steps shrink mostly along one eigenvector; the secant (Anderson's method with one step of memory) removes it.
    """
    product, square = 0.0, 0.0
    for i in range(state.shape[1]):
        change = state[row.STEP_LATENT, i] - state[row.LAST_STEP_LATENT, i]
        product += state[row.STEP_LATENT, i] * change
        square += change * change
    theta = 0.0 if first or square == 0.0 else product / square
    alpha = row.STEP_ALPHA, row.LAST_STEP_ALPHA, row.MOVED_ALPHA
    latent = row.STEP_LATENT, row.LAST_STEP_LATENT, row.MOVED_LATENT
    for step_row, last_row, moved_row in (alpha, latent):
        step, last, moved = state[step_row], state[last_row], state[moved_row]
        for i in range(state.shape[1]):
            better = step[i] - theta * (moved[i] + step[i] - last[i])
            last[i], step[i], moved[i] = step[i], better, better
