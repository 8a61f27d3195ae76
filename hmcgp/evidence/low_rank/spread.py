"""Evidence under a low-rank covariance as sums over blocks of rows, which may live anywhere; symbols as in `structure`.

Given the m-vector ζ = V'α, a latent value has its own equation, f_i = v_i'ζ + d_i g_i(f_i), which has one root.  So the
mode of all n latent values is the maximum over ζ of the concave

    Ψ(ζ) = -½|ζ|² + Σ_i [log p(y_i | f_i) - ½ d_i g_i²],     ∇Ψ = Σ_i g_i v_i - ζ,     -∇∇Ψ = I + Σ_i s_i v_i v_i' = A,

and a Newton step is one map over the blocks, ζ down and (Ψ, Σ g v, Σ s v v') up, and one sum.  No vector of length n
travels.  Then log Z = Ψ - ½ Σ log(1 + w_i d_i) - ½ log|A|.  The gradient takes two more maps.  With
c_i = ½ S_ii ∂³log p and u = (I + WC)⁻¹c = ec - sVz, z = A⁻¹V'(ec) = V'u, the cotangents of a block's rows need ζ, z
and A only, and

    V̄'V = xζ' + ζx' - (I - A⁻¹) - 2 Σ d̄_i v_i v_i',     x = V'(u + ½g) = z + ½ζ.

Gaussian noise: α = s(y - Vz), z = A⁻¹V'(sy) = V'α, y'α = Σ s y² - z'V'(sy): one map, and one for the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hmcgp.errors import NotConverged, NotPositiveDefinite
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.exact.factorisation import is_known
from hmcgp.evidence.low_rank.mode_search import refuse_rounding
from hmcgp.evidence.low_rank.structure import LowRank, inverse
from hmcgp.evidence.newton import HALVINGS
from hmcgp.evidence.rounding import LEFT_NATS
from hmcgp.likelihoods import Likelihood, NoisyNumbers
from hmcgp.likelihoods.terms import LOGISTIC, logistic_terms, probit_terms
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.constants import EPS, LOG_2PI
from hmcgp.numerics.lapack import cholesky_inplace, log_determinant
from hmcgp.numerics.row_blocks import add_weighted_gram, solve_inplace, solve_rows_inplace, solved_squares
from hmcgp.runtime.typing import Array

_ROOT_STEPS = 200  # of Newton's method, safeguarded by bisection, for f_i


@compiled
def _row_terms(kind: int, y: Array, a: Array, d: Array, weights: Array) -> Array:
    """Roots f of f = a + d g(f), with log p, g, w and the third derivative over w there, as rows of shape (5, n)."""
    out = np.empty((5, y.shape[0]))
    for i in range(y.shape[0]):
        f, low, high, last = a[i], -np.inf, np.inf, np.inf
        for k in range(_ROOT_STEPS):
            log_p, g, w, ratio = logistic_terms(y[i], f) if kind == LOGISTIC else probit_terms(y[i], f)
            over = f - a[i] - d[i] * weights[i] * g  # grows with f, at a rate of 1 + dw
            if k == 0:
                low, high = min(f, f - over), max(f, f - over)  # g falls with f
            elif over > 0.0:
                high = f
            else:
                low = f
            there = f - over / (1.0 + d[i] * weights[i] * w)
            if not low <= there <= high or abs(there - f) > 0.5 * last:
                there = 0.5 * (low + high)
            last = abs(there - f)
            if last <= 4.0 * EPS * max(1.0, abs(f)):
                break
            f = there
        out[0, i], out[1, i], out[2, i] = f, weights[i] * log_p, weights[i] * g
        out[3, i], out[4, i] = weights[i] * w, ratio
    return out


class Sums(NamedTuple):
    """Sums over rows that a Newton step needs; they add up over blocks."""

    value: float  # Σ log p - ½ d g²; of numbers, the terms of log Z that are sums over rows
    slope: Array  # (m,) Σ g v; of numbers, V'(sy), (m, k)
    gram: Array  # (m, m) Σ s v v'
    log_stretch: float  # Σ log(1 + wd)
    sizes: Array  # Σ|g|, Σw, Σ wK_ii, Σω, and a bound on Σ |c| √S; of numbers, Σ s y²
    scale: float  # largest prior variance

    def joined(self, other: Sums) -> Sums:
        """Sums over the rows of both."""
        return Sums(
            self.value + other.value,
            self.slope + other.slope,
            self.gram + other.gram,
            self.log_stretch + other.log_stretch,
            self.sizes + other.sizes,
            max(self.scale, other.scale),
        )


class Factor(NamedTuple):
    """A of all blocks, and the solution that goes with it."""

    L: Array  # (m, m) lower Cholesky factor of A
    zeta: Array  # (m,) V'α; of numbers, (m, k)
    log_det: float  # log|A|


class Cotangent(NamedTuple):
    """Cotangents of the rows of a block, and what it adds to those of the inducing inputs."""

    covariances: Array  # (n_b, m)
    variances: Array  # (n_b,)
    gram: Array  # (m, m) Σ d̄ v v'
    dlik: Array  # (q,)


# -- in a block ------------------------------------------------------------------------------------------------------


def label_sums(C: LowRank, y: Array, likelihood: Likelihood, zeta: Array) -> Sums:
    """Sums over the labels of a block at ζ."""
    weights = likelihood.row_weights(len(y))
    _, log_p, g, w, ratio = _row_terms(likelihood.kind, y, C.V @ zeta, C.d, weights)
    stretch = 1.0 + w * C.d
    gram = np.zeros((C.rank, C.rank))
    add_weighted_gram(C.V, w / stretch, gram)
    bound = C.variances / (1.0 + C.variances * w)  # S_ii is no larger
    sizes = [np.abs(g).sum(), w.sum(), w @ C.variances, weights.sum(), (0.5 * np.abs(w * ratio) * bound**1.5).sum()]
    value = float(log_p.sum() - 0.5 * (C.d * g) @ g)
    return Sums(value, g @ C.V, gram, float(np.log(stretch).sum()), np.array(sizes), float(C.variances.max()))


def label_response(C: LowRank, y: Array, likelihood: Likelihood, found: Factor) -> Array:
    """V'(ec) of a block, of shape (m,)."""
    _, _, _, w, ratio = _row_terms(likelihood.kind, y, C.V @ found.zeta, C.d, likelihood.row_weights(len(y)))
    e = 1.0 / (1.0 + w * C.d)
    variances = e * (C.d + e * solved_squares(found.L, C.V))
    return np.asarray((0.5 * e * variances * w * ratio) @ C.V)


def label_cotangent(C: LowRank, y: Array, likelihood: Likelihood, found: Factor, z: Array) -> Cotangent:
    """Cotangents of a block, with z = A⁻¹ Σ V'(ec) of all."""
    _, _, g, w, ratio = _row_terms(likelihood.kind, y, C.V @ found.zeta, C.d, likelihood.row_weights(len(y)))
    e = 1.0 / (1.0 + w * C.d)
    s = w * e
    rows, q = _solved(C, found.L)
    c = 0.5 * e * (C.d + e * q) * w * ratio
    x = e * c - s * (C.V @ z) + 0.5 * g
    dd = x * g - 0.5 * s * (1.0 - s * q)
    return _cotangent(C, rows, s, dd, [(x, found.zeta), (g, z + 0.5 * found.zeta)], np.empty(0))


def number_sums(C: LowRank, y: Array, likelihood: NoisyNumbers) -> Sums:
    """Sums over the numbers of a block, y of shape (n_b, k)."""
    noise, weights = likelihood.row_noise(len(y)), likelihood.row_weights(len(y))
    w = weights / noise
    stretch = 1.0 + w * C.d
    s = w / stretch
    gram = np.zeros((C.rank, C.rank))
    add_weighted_gram(C.V, s, gram)
    square = float(s @ (y**2).sum(axis=1))
    k, log_stretch = y.shape[1], float(np.log(stretch).sum())
    value = -0.5 * square - 0.5 * k * (log_stretch + float(weights @ (np.log(noise) + LOG_2PI)))
    return Sums(value, C.V.T @ (s[:, None] * y), gram, log_stretch, np.array([square]), float(C.variances.max()))


def number_cotangent(C: LowRank, y: Array, likelihood: NoisyNumbers, found: Factor) -> Cotangent:
    """Cotangents of the rows of a block."""
    noise, weights = likelihood.row_noise(len(y)), likelihood.row_weights(len(y))
    w, k = weights / noise, y.shape[1]
    s = w / (1.0 + w * C.d)
    rows, q = _solved(C, found.L)
    alpha = s[:, None] * (y - C.V @ found.zeta)  # (n_b, k)
    dd = 0.5 * (alpha**2).sum(axis=1) - 0.5 * k * s * (1.0 - s * q)
    dlik = likelihood.pull_back(dd / weights + 0.5 * k * (1.0 - weights) / noise)
    return _cotangent(C, rows, k * s, dd, [(alpha, found.zeta)], dlik)


def _solved(C: LowRank, L: Array) -> tuple[Array, Array]:
    """A⁻¹v_i of every row, and v_i'A⁻¹v_i."""
    rows = C.V.copy()
    solve_rows_inplace(L, rows, False)
    q = np.einsum("nm,nm->n", rows, rows)
    solve_rows_inplace(L, rows, True)
    return rows, q


def _cotangent(
    C: LowRank, rows: Array, share: Array, dd: Array, products: list[tuple[Array, Array]], dlik: Array
) -> Cotangent:
    """V̄ = Σ x (V'z)' - share V A⁻¹ - 2 d̄ V, from A⁻¹v_i in `rows`, taken to K_nm."""
    rows *= -share[:, None]
    rows -= (2.0 * dd)[:, None] * C.V
    for x, z in products:
        rows += np.outer(x, z) if x.ndim == 1 else x @ z.T
    solve_rows_inplace(C.L, rows, True)
    gram = np.zeros((C.rank, C.rank))
    add_weighted_gram(C.V, dd, gram)
    return Cotangent(rows, dd, gram, dlik)


# -- of all blocks ---------------------------------------------------------------------------------------------------


def find_mode(
    provider: SolverProvider, sums: Callable[[Array], Sums], start: Array
) -> tuple[Factor, float, int, float]:
    """Mode, log Z, factorisations and Newton's decrement; `sums` are those of all blocks at some ζ."""
    zeta, here, last = start, sums(start), np.inf
    for n_factor in range(1, provider.max_iter + 1):
        found = _factor(here.gram, zeta)
        r = here.slope - zeta
        step = r.copy()
        solve_inplace(found.L, step)
        decrement = math.sqrt(max(float(r @ step), 0.0))
        length, total, trace, weight, spread = here.sizes
        if decrement <= max(provider.tol, EPS * here.scale * length * math.sqrt(total)) and (
            spread * decrement <= LEFT_NATS or decrement > 0.5 * last
        ):
            refuse_rounding(provider, n_factor, here.scale, length, trace, weight)
            log_z = here.value - 0.5 * (float(zeta @ zeta) + here.log_stretch + found.log_det)
            return found, log_z, n_factor, decrement
        moved = _ascend(sums, here, zeta, step)
        if moved is None:
            break
        (zeta, here), last = moved, decrement
    raise NotConverged(
        f"{type(provider).__name__}: decrement {decrement:.1e} > tol {provider.tol:.1e} after {n_factor} "
        f"factorisations; {provider.remedy}."
    )


def _ascend(sums: Callable[[Array], Sums], here: Sums, zeta: Array, step: Array) -> tuple[Array, Sums] | None:
    """Take the step, halved while Ψ falls by more than rounding."""
    before = here.value - 0.5 * float(zeta @ zeta)
    slack = 1e-13 * (abs(here.value) + float(zeta @ zeta)) + 4.0 * EPS * here.scale * here.sizes[0] ** 2
    for k in range(HALVINGS + 1):
        there = zeta + 0.5**k * step
        moved = sums(there)
        if moved.value - 0.5 * float(there @ there) >= before - slack:
            return there, moved
    return None


def evidence_of_numbers(sums: Sums) -> tuple[Factor, float]:
    """Solution and log Z of numbers, from the sums of all blocks."""
    found = _factor(sums.gram, sums.slope)
    zeta = np.stack([_solve(found.L, column) for column in sums.slope.T], axis=1)
    k = zeta.shape[1]
    log_z = sums.value + 0.5 * float(np.vdot(sums.slope, zeta)) - 0.5 * k * found.log_det
    if not is_known(log_z, EPS * (float(sums.sizes[0]) + k * float(np.diag(sums.gram).sum()))):
        raise NotPositiveDefinite("Exact: the noise is so small beside the prior variance that rounding eats log Z.")
    return found._replace(zeta=zeta), log_z


def response(found: Factor, sums: Array) -> Array:
    """Return z = A⁻¹ Σ V'(ec)."""
    return _solve(found.L, sums)


def inducing_product(found: Factor, z: Array | None, gram: Array) -> Array:
    """V̄'V of all blocks, from Σ d̄ v v'; `z` is that of `response`, None of numbers."""
    zeta = found.zeta
    if z is None:
        k = zeta.shape[1]
        return np.asarray(zeta @ zeta.T - k * (np.eye(len(zeta)) - inverse(found.L)) - 2.0 * gram)
    x = z + 0.5 * zeta
    return np.asarray(np.outer(x, zeta) + np.outer(zeta, x) - np.eye(len(zeta)) + inverse(found.L) - 2.0 * gram)


def _factor(gram: Array, zeta: Array) -> Factor:
    A = np.eye(len(gram)) + gram
    if not (cholesky_inplace(A) and np.isfinite(A[-1, -1])):
        raise NotPositiveDefinite("I + √W C √W has no Cholesky factor.")
    return Factor(np.tril(A), zeta, log_determinant(A))


def _solve(L: Array, right: Array) -> Array:
    out = np.array(right, order="C")
    solve_inplace(L, out)
    return out
