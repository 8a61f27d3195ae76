"""Expectation propagation for several classes: sites, log evidence and gradient, compiled in parts.

Symbols as in `hmcgp.evidence.ep.multinomial` and `hmcgp.evidence.ep.class_contrasts`.  The sweeps are those of two
classes (`hmcgp.evidence.ep.parallel_sweeps`).  With x_c = (B'x)_c and the factors of `hmcgp.evidence.laplace.softmax`,

    G_c = ½(x_c x_c' - E_c + V_c'V_c),   E_c = √a_c B_c⁻¹ √a_c,   V_c = M⁻¹E_c.
"""

import numpy as np

from hmcgp.evidence.ep.class_contrasts import other_class, precisions_by_class, prior_of_contrasts
from hmcgp.evidence.ep.log_evidence import log_evidence
from hmcgp.evidence.ep.site_state import ALPHA, PRECISION, new_state
from hmcgp.evidence.ep.sweeps import sweep
from hmcgp.evidence.laplace.softmax_algebra import factor
from hmcgp.evidence.status import CONVERGED
from hmcgp.likelihoods.terms import PROBIT
from hmcgp.numerics.compiled import compiled
from hmcgp.numerics.lapack import add_gram, mirror_lower, symmetric_times, triangular_solve_inplace
from hmcgp.runtime.typing import Array

_FEW_CLASSES = 3  # up to which the covariance of all contrasts is factorised as a whole: faster, at n = 193


@compiled
def sums_by_class(x: Array, y: Array, n_classes: int) -> Array:
    """B'x, of shape (C, n): each site counts for the class of its row, and against the other."""
    n, others = y.shape[0], n_classes - 1
    out = np.zeros((n_classes, n))
    for i in range(n):
        own = int(y[i])
        for p in range(others):
            value = x[i * others + p]
            out[own, i] += value
            out[other_class(p, own), i] -= value
    return out


@compiled
def _gradient(A: Array, M: Array, root: Array, x: Array, dK: Array) -> None:
    """Add G_c to the matrix of class c in dK, or to the only one.  Overwrites A above its diagonals."""
    n_classes, n = x.shape
    V = np.empty((n, n))
    for c in range(n_classes):
        G = dK[c % dK.shape[0]]
        mirror_lower(A[c])
        for i in range(n):
            for j in range(n):
                V[i, j] = root[c, i] * A[c, i, j] * root[c, j]
            for j in range(i + 1):
                G[i, j] += 0.5 * (x[c, i] * x[c, j] - V[i, j])
        triangular_solve_inplace(M, V, False)
        add_gram(0.5, V, G)
    for k in range(dK.shape[0]):
        mirror_lower(dK[k])


def solve(
    K: Array, y: Array, n_classes: int, start: Array, warm: bool, tol: float, max_iter: int, with_gradient: bool
) -> tuple[int, int, float, float, Array, Array, Array, Array, Array, Array, Array]:
    """Sites by sweeps, from `start` if warm; posterior, log evidence and gradient.

    Returns status, factorisations, residual, log Z and `state`, of shape (ROWS, n (C - 1)); of shape (C, n), the mean
    f, x = K⁻¹f and the a of `class_contrasts`; B_c⁻¹, of shape (C, n, n), and M in lower triangles; and the gradient,
    empty where it was not asked for.
    """
    n = y.shape[0]
    n_sites = n * (n_classes - 1)
    H, labels = prior_of_contrasts(K, y, n_classes), np.ones(n_sites)
    state, order = new_state(labels), np.empty(n_sites, dtype=np.int64)  # the weights are ones, too
    few = n_classes <= _FEW_CLASSES
    work, S = np.empty((n_sites, n_sites) if few else ((n_classes + 1) * n, n)), np.empty((n_sites, n_sites))
    status, n_factor, residual, log_det = sweep(
        H,
        labels,
        PROBIT,
        0.0,
        start,
        warm,
        tol,
        max_iter,
        False,
        work,
        S,
        state,
        order,
        *((None, None) if few else (K, y)),
    )
    f, x = np.empty((n_classes, n)), sums_by_class(state[ALPHA], y, n_classes)
    for c in range(n_classes):
        symmetric_times(K[c % K.shape[0]], x[c], f[c])
    precision = precisions_by_class(K, y, state[PRECISION]).reshape((n_classes, n))
    if few:
        A, M = np.empty((n_classes, n, n)), np.empty((n, n))
        factor(K, precision.reshape(-1), np.empty(n_classes * n), A, M, False)
    else:
        A, M = work[: n_classes * n].reshape((n_classes, n, n)), work[n_classes * n :]
    dK = np.zeros_like(K) if with_gradient and status == CONVERGED else np.empty((0, 0, 0))
    if dK.size > 0:
        _gradient(A, M, np.sqrt(precision), x, dK)
    return status, n_factor, residual, log_evidence(state, log_det), state, f, x, precision, A, M, dK
