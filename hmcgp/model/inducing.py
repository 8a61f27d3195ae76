"""Choice of inducing inputs among the rows.

Without a kernel, rows are spread over the inputs by k-means++ (Arthur & Vassilvitskii 2007).  With one, each next row
is the one whose latent value the inducing variables so far explain least: the pivot of a Cholesky factorisation of K
(Foster et al. 2009; Burt, Rasmussen & van der Wilk 2020), column by column,

    l_k = (k(X, x_p) - Σ_{j<k} l_j l_pj)/√v_p,   v ← v - l_k²,   p = argmax v,

at O(nm²) operations and O(nm) memory.  Choices are nested: the first half of them is the choice of half as many.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.low_rank import LowRank
from hmcgp.kernels import Kernel, contract
from hmcgp.kernels.per_class import PerClass
from hmcgp.model.covariance import check_inducing
from hmcgp.model.model import Model
from hmcgp.runtime.typing import Array

CANDIDATES = 20_000  # rows among which inducing inputs are chosen, at random where there are more
_EXPLAINED = 1e-10  # share of a variance below which a pivot is made of rounding

M = TypeVar("M", bound=Model)


def with_inducing(model: M, inducing: Array | None) -> M:
    """Model whose rows see each other through inducing inputs, of shape (m, d); dense for None."""
    other = copy.copy(model)
    other.inducing = check_inducing(inducing, model.X, model.likelihood, model.evidence)
    return other


def candidate_rows(X: Array) -> Array:
    """Different rows among which inducing inputs are chosen, at most CANDIDATES."""
    if len(X) > CANDIDATES:
        X = X[np.random.default_rng(0).choice(len(X), CANDIDATES, replace=False)]
    return np.unique(X, axis=0)


def spread_inputs(X: Array, m: int) -> Array:
    """Choose m different rows of X that are spread over the inputs, by k-means++; all of them where there are fewer."""
    from sklearn.cluster import kmeans_plusplus  # imports a quarter of scikit-learn

    rows = candidate_rows(X)
    if m >= len(rows):
        return rows
    found, _ = kmeans_plusplus(rows, m, random_state=0)
    return np.unique(found, axis=0)


def pivoted_inputs(kernel: Kernel, X: Array, m: int, first: Array | None = None) -> Array:
    """Choose m rows of X that a kernel with values wants most, by pivoted Cholesky.

    Parameters
    ----------
    kernel : Kernel
        With a number for each parameter.
    X : ndarray of shape (n, d)
    m : int
    first : ndarray of shape (k, d), optional
        Inducing inputs that are there already, and come first in the result.

    Returns
    -------
    ndarray of shape (m, d)
        Fewer where these explain all variance to rounding; those of k-means++ follow then, up to the number of
        different rows.
    """
    rows = candidate_rows(X)
    chosen, taken = (
        _of_classes(kernel, rows, m, first) if isinstance(kernel, PerClass) else _pivots(kernel, rows, m, first)
    )
    if len(chosen) < m:  # the kernel asks for no more, but it is that of one draw only
        others = [row for row in spread_inputs(rows[~taken], m - len(chosen)) if not _among(row, chosen)]
        chosen = np.vstack([chosen, *others]) if others else chosen
    return chosen[:m]


def _of_classes(kernel: PerClass, rows: Array, m: int, first: Array | None) -> tuple[Array, NDArray[np.bool_]]:
    """Pivots that the kernels of the classes choose, in turns; each shares those of the others."""
    choices = [_pivots(own, rows, m, first)[0] for own in kernel.kernels]
    before = [] if first is None else list(first)
    turns = [choice[k] for k in range(len(before), m) for choice in choices if k < len(choice)]
    _, order = np.unique(np.array([*before, *turns]), axis=0, return_index=True)
    chosen = np.array([*before, *turns])[np.sort(order)][:m]
    return chosen, np.array([_among(row, chosen) for row in rows])


def _pivots(kernel: Kernel, rows: Array, m: int, first: Array | None) -> tuple[Array, NDArray[np.bool_]]:
    """Inducing inputs in the order of their choice, and which rows are among them."""
    k = 0 if first is None else len(first)
    left, taken = contract.variances(kernel, rows).copy(), np.zeros(len(rows), dtype=bool)
    L, chosen = np.empty((len(rows), m)), [] if first is None else list(first)
    if first is not None:
        both = np.vstack([first, rows])
        L[:, :k] = LowRank.of(contract.cross_covariance(kernel, both, first), contract.variances(kernel, both)).V
        left -= np.einsum("nk,nk->n", L[:, :k], L[:, :k])
        taken = np.array([_among(row, first) for row in rows])
    while k < m and not taken.all():
        p = int(np.argmax(np.where(taken, -np.inf, left)))
        column = contract.cross_covariance(kernel, rows, rows[p : p + 1])[:, 0]
        own = column[p] - L[p, :k] @ L[p, :k]  # without white noise, which no inducing input explains
        if not own > _EXPLAINED * column[p]:
            break
        L[:, k] = (column - L[:, :k] @ L[p, :k]) / np.sqrt(own)
        left -= L[:, k] ** 2
        taken[p] = True
        chosen.append(rows[p])
        k += 1
    if not chosen:
        raise NotPositiveDefinite("the kernel gives no row a variance.")
    return np.array(chosen), taken


def _among(row: Array, rows: Array) -> bool:
    return bool((rows == row).all(axis=1).any())
