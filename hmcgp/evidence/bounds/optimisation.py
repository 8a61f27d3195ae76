"""Compiled optimisation of the two bounds on the evidence, and their derivatives.

Symbols as in `hmcgp.evidence.bounds`.

Lower bound.  Newton's method in x = 1/w, in which log Z' is concave.  With R = (K + diag x)⁻¹, α = R(x d), c = d - α,
z = ν/2, T = tanh z and q = T²/4 = w²ν²,

    2 ∂ log Z'/∂x_i = w_i - R_ii + c_i² - q_i  =: r_i          (= w_i²(S_ii + m_i² - ν_i²))
    -2 ∂² log Z'/∂x_i∂x_j = A = diag(w² + q') - R∘R + 2 diag(c) R diag(c),   q' = dq/dx > 0.

R <= diag w, so R∘R <= diag w² (Schur): A is positive definite everywhere, whatever the start.  A step is A δx = r, and
Newton's decrement √(½ r'A⁻¹r), the norm of the gradient in the metric of the Hessian, is what the iteration stops on.
There log Z' is wrong by half its square.  An iteration factorises and inverts B = I + √w K √w, for R, and factorises A;
the last iteration is spared A: its decrement is measured with the one before.

x = 4 z coth z and ν are functions of each other (with a weight, ωx = 4 z coth z, w = 2ωλ, d = ωy/2, and q = w²ν² is
as much larger as w²); z coth z - 1 is computed without cancellation by Lambert's continued
fraction z²/(3 + z²/(5 + z²/(7 + ...))).
"""

import math

import numpy as np

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence import newton
from hmcgp.evidence.laplace import mode_search
from hmcgp.evidence.rounding import ROUNDED_AWAY
from hmcgp.evidence.status import CONVERGED, GOING_ON, NOT_CONVERGED, NOT_POSITIVE_DEFINITE
from hmcgp.likelihoods.terms import LOGISTIC
from hmcgp.numerics import lapack
from hmcgp.numerics.compiled import compiled, compiled_inside
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_SMALLEST = 1e-9  # of z: w and q no longer depend on it
_KEPT = 0.1  # of the distance to the boundary x = 4, by one step
_LOCAL = 0.1  # a decrement below which A hardly changes from one iterate to the next

# The state of the lower bound is one array of shape (ROWS, n); its rows are
NU, NOISE, CURVATURE, ROOT_CURVATURE = 0, 1, 2, 3  # the sites: ν, x = 1/w, w, √w,
SQUARE, SQUARE_SLOPE = 4, 5  # q = w²ν² and q' = dq/dx
ALPHA, MEAN, GAP = 6, 7, 8  # α, the mean f = Kα, and c = d - α
RESIDUAL, STEP = 9, 10  # r, twice the gradient, and Newton's step, in x
OLD_NOISE = 11  # x before the step
WEIGHT = 12
ROWS = 13


@compiled_inside
def _excess(z: float) -> float:
    """The excess of x over 4, divided by 4: z coth z - 1."""
    if z > 1.0:
        return z / math.tanh(z) - 1.0
    fraction = 0.0
    for k in range(23, 1, -2):  # converged to the last bit for z <= 1
        fraction = z * z / (k + fraction)
    return fraction


@compiled_inside
def nu_of_x(x: float) -> float:
    """The ν > 0 with x = 2ν/tanh(ν/2), by Newton's method on the convex z coth z."""
    e = 0.25 * x - 1.0
    z = max(math.sqrt(e * (e + 3.0)), _SMALLEST)  # right for small and for large z
    for _ in range(20):
        value = _excess(z)
        change = (value - e) * z / (z * z - value - value * value)  # (z coth z)' = (z² - e - e²)/z
        z = max(z - change, _SMALLEST)
        if abs(change) <= 4.0 * EPS * z:
            break
    return 2.0 * z


@compiled_inside
def _sites(state: Array) -> float:
    """Fill x, w, q and q' at ν; returns Σ ω[log σ(ν) - ν/2 + λν²] = Σ ω[½ zT - log 2cosh z]."""
    total = 0.0
    for i in range(state.shape[1]):
        z = 0.5 * state[NU, i]
        e = _excess(z)
        T = z / (1.0 + e)
        decay = math.exp(-2.0 * z)
        weight = state[WEIGHT, i]
        state[NOISE, i] = 4.0 * (1.0 + e) / weight
        state[CURVATURE, i] = 1.0 / state[NOISE, i]
        state[ROOT_CURVATURE, i] = math.sqrt(state[CURVATURE, i])
        state[SQUARE, i] = 0.25 * T * T * weight * weight
        sech2 = 4.0 * decay / (1.0 + decay) ** 2
        state[SQUARE_SLOPE, i] = 0.125 * T * sech2 * z / (z * z - e - e * e) * weight**3  # (dq/dz)/(dx/dz)
        total += weight * (0.5 * z * T - z - math.log1p(decay))
    return total


@compiled_inside
def _evaluate(K: Array, y: Array, state: Array, L: Array) -> tuple[bool, float]:
    """Log Z' at ν, leaving sites, α and mean in `state`, and the factor of B in L.

    ½ d'K α is taken as d'f - ½ α'f - ½ f'wf: the error of α = √w B⁻¹ d/√w then enters by its square only.
    """
    value = _sites(state)
    if not newton.factor_scaled(K, state[ROOT_CURVATURE], L):
        return False, value
    n = K.shape[0]
    for i in range(n):
        state[ALPHA, i] = 0.5 * state[WEIGHT, i] * y[i] / state[ROOT_CURVATURE, i]
    lapack.cholesky_solve_inplace(L, state[ALPHA])
    for i in range(n):
        state[ALPHA, i] *= state[ROOT_CURVATURE, i]
        state[GAP, i] = 0.5 * state[WEIGHT, i] * y[i] - state[ALPHA, i]
    lapack.symmetric_times(K, state[ALPHA], state[MEAN])
    for i in range(n):
        value += (
            0.5 * state[WEIGHT, i] * y[i] - 0.5 * state[ALPHA, i] - 0.5 * state[CURVATURE, i] * state[MEAN, i]
        ) * state[MEAN, i]
    return True, value - 0.5 * lapack.log_determinant(L)


@compiled_inside
def _gradient_in_x(state: Array, B_inverse: Array) -> None:
    """Fill r = w - diag R + c² - q."""
    for i in range(state.shape[1]):
        state[RESIDUAL, i] = (
            state[CURVATURE, i] * (1.0 - B_inverse[i, i]) + state[GAP, i] * state[GAP, i] - state[SQUARE, i]
        )


@compiled_inside
def _hessian(state: Array, B_inverse: Array, A: Array) -> bool:
    """Lower Cholesky factor of A = diag(w² + q') - R∘R + 2 diag(c) R diag(c)."""
    root_w, c = state[ROOT_CURVATURE], state[GAP]
    for i in range(state.shape[1]):
        for j in range(i):
            r_ij = root_w[i] * B_inverse[i, j] * root_w[j]
            A[i, j] = r_ij * (2.0 * c[i] * c[j] - r_ij)
        b, w = B_inverse[i, i], state[CURVATURE, i]
        A[i, i] = w * (w * (1.0 - b) * (1.0 + b) + 2.0 * c[i] * c[i] * b) + state[SQUARE_SLOPE, i]
    return lapack.cholesky_inplace(A)


@compiled_inside
def _newton(state: Array, A: Array) -> float:
    """Solve A δx = r by the factor at hand; returns the decrement √(½ r'δx)."""
    newton.copy(state[RESIDUAL], state[STEP])
    lapack.cholesky_solve_inplace(A, state[STEP])
    return math.sqrt(0.5 * newton.dot(state[RESIDUAL], state[STEP]))


@compiled_inside
def _move(state: Array, length: float) -> None:
    """ν at x + length δx, kept inside ωx > 4."""
    for i in range(state.shape[1]):
        x = max(state[WEIGHT, i] * state[OLD_NOISE, i], 4.0)
        state[NU, i] = nu_of_x(max(x + length * state[WEIGHT, i] * state[STEP, i], 4.0 + _KEPT * (x - 4.0)))


@compiled_inside
def _rounding(K: Array, state: Array) -> float:
    """The decrement that rounding makes: relative errors of B⁻¹ are eps |B|, and |B| <= 1 + Σ w_i K_ii."""
    total = 1.0
    for i in range(state.shape[1]):
        total += state[CURVATURE, i] * K[i, i]
    return EPS * total


@compiled_inside
def _slack(K: Array, state: Array, value: float) -> float:
    """Bound on how far rounding alone, of Σ ν, of α'Kα and of log|B|, may let log Z' fall."""
    size, scale, sites = 0.0, 0.0, 0.0
    for i in range(state.shape[1]):
        size += abs(state[ALPHA, i])
        scale = max(scale, K[i, i])
        sites += state[WEIGHT, i] * state[NU, i]
    return 1e-13 * abs(value) + 4.0 * (EPS * (scale * size * size + sites) + _rounding(K, state))


@compiled_inside
def _begin(K: Array, start: Array, warm: bool, state: Array) -> None:
    """ν from the start; or, cold, between that of a vanishing prior, √K_ii, and that of labels without neighbours."""
    for i in range(state.shape[1]):
        cold = math.sqrt(K[i, i])
        state[NU, i] = max(abs(start[i]) if warm else min(cold, math.sqrt(cold)), 2.0 * _SMALLEST)


@compiled_inside
def _ascend(
    K: Array, y: Array, state: Array, L: Array, value: float, n_factor: int, max_iter: int
) -> tuple[int, int, float]:
    """Take the step, halved while log Z' falls by more than rounding; returns the status, n_factor and log Z'."""
    newton.copy(state[NOISE], state[OLD_NOISE])
    enough, length = value - _slack(K, state, value), 1.0
    while n_factor < max_iter and length >= 0.5**newton.HALVINGS:
        _move(state, length)
        positive_definite, value = _evaluate(K, y, state, L)
        n_factor += 1
        if not positive_definite:
            return NOT_POSITIVE_DEFINITE, n_factor, value
        if value >= enough:
            return GOING_ON, n_factor, value
        length *= 0.5
    return NOT_CONVERGED, n_factor, value


@compiled_inside
def _maximise(
    K: Array, y: Array, weights: Array, start: Array, warm: bool, L: Array, tol: float, max_iter: int
) -> tuple[int, int, float, float, Array]:
    """Maximise log Z' over ν, leaving in L the lower triangle of B⁻¹ there.

    Returns the status, the number of factorisations of B, Newton's decrement, log Z' and the last iterate.
    """
    state, A = np.zeros((ROWS, y.shape[0])), np.empty_like(K)
    newton.copy(weights, state[WEIGHT])
    _begin(K, start, warm, state)
    positive_definite, value = _evaluate(K, y, state, L)
    n_factor, decrement = 1, np.inf
    if not positive_definite:
        return NOT_POSITIVE_DEFINITE, n_factor, decrement, value, state
    while True:
        lapack.inverse_from_cholesky_inplace(L)
        _gradient_in_x(state, L)
        target = max(tol, _rounding(K, state))
        if not target <= ROUNDED_AWAY:  # NaN fails too
            return NOT_CONVERGED, n_factor, target, value, state
        if decrement < _LOCAL:
            decrement = _newton(state, A)
        if not decrement <= target:
            if not _hessian(state, L, A):  # positive definite but for rounding
                return NOT_CONVERGED, n_factor, decrement, value, state
            decrement = _newton(state, A)
        if decrement <= target:
            return CONVERGED, n_factor, decrement, value, state
        status, n_factor, value = _ascend(K, y, state, L, value, n_factor, max_iter)
        if status != GOING_ON:
            return status, n_factor, decrement, value, state


@compiled
def solve_lower(
    K: Array, y: Array, weights: Array, start: Array, warm: bool, tol: float, max_iter: int, gradient: bool
) -> tuple[int, int, float, float, Array, Array]:
    """Greatest lower bound, as by `_maximise`, and G = ½(αα' - R) or, without the gradient, the factor of B."""
    n = K.shape[0]
    L = np.empty_like(K)
    status, n_factor, residual, log_z, state = _maximise(K, y, weights, start, warm, L, tol, max_iter)
    if status != CONVERGED:
        return status, n_factor, residual, log_z, state, L
    alpha, root_w = state[ALPHA], state[ROOT_CURVATURE]
    if gradient:
        for i in range(n):
            for j in range(i + 1):
                L[i, j] = 0.5 * (alpha[i] * alpha[j] - root_w[i] * L[i, j] * root_w[j])
        lapack.mirror_lower(L)
    elif not newton.factor_scaled(K, root_w, L):
        status = NOT_POSITIVE_DEFINITE
    return status, n_factor, residual, log_z, state, L


@compiled
def solve_upper(
    K: Array, y: Array, weights: Array, start: Array, warm: bool, tol: float, max_iter: int, gradient: bool
) -> tuple[int, int, float, float, Array, Array, Array]:
    """Least upper bound and, if asked for, its gradient.

    log Z'' = -Σ ω H₂(μ) + ½ b'Kb is an upper bound at any μ, and the least one at the mode, where α = ω σ(-yf) y = ωμy.
    Of α and of this g(f), where K is 1e10, rounding spoils one or the other; α after one more step is right in both.
    Returns the status, the number of factorisations, Newton's decrement at the mode, log Z'', b = ωμy, Kb, and
    G = ½ bb', work space where it was not asked for.
    """
    n = K.shape[0]
    status, n_factor, residual, _, state, work = mode_search.solve(
        K, y, np.zeros((2, n)), weights, LOGISTIC, start, warm, tol, max_iter, False
    )
    b, mean = np.empty(n), np.empty(n)
    r, step = np.empty(n), np.empty(n)
    for i in range(n):
        r[i] = state[row.SLOPE, i] - state[row.ALPHA, i]
    newton.newton_step(K, work, state[row.ROOT_CURVATURE], r, step, mean)
    log_z = 0.0
    for i in range(n):
        mu = min(max(y[i] * (state[row.ALPHA, i] + step[i]) / weights[i], 0.0), 1.0)  # rounding may leave it outside
        b[i] = weights[i] * mu * y[i]
        if 0.0 < mu < 1.0:
            log_z += weights[i] * (mu * math.log(mu) + (1.0 - mu) * math.log1p(-mu))
    lapack.symmetric_upper_times(K, b, mean)
    for i in range(n):
        log_z += 0.5 * b[i] * mean[i]
    if gradient:
        for i in range(n):
            for j in range(n):
                work[i, j] = 0.5 * b[i] * b[j]
    return status, n_factor, residual, log_z, b, mean, work
