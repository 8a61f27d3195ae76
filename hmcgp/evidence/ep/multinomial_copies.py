"""Whole weights of rows behind the multinomial probit: a row of weight k is k copies of it, each with its own noise.

Copies share their latent values f_i but not the noise, p(y_i | f_i)^k = Π E[Π_j Φ(h_ij)], so that sites are those of
the copies and not powers of one: the problem is solved with every row repeated.  Copies of a row end with the same
sites, and the posterior of the latent values is then that of the rows themselves, with k times the precision

    kΠ_i = diag ka - (ka)(ka)'/Σka,     α_i = Σ_copies α,     ∂ log Z/∂K = P'GP,   K_copies = PKP',

where P repeats rows.  Predictions and cavities, which leave out all copies of a row, follow as those of any rows.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence.laplace.softmax_algebra import factor
from hmcgp.runtime.typing import Array


def repeat_rows(K: Array, copies: NDArray[np.intp]) -> Array:
    """Lower triangles of PKP', for K of shape (n, n) or (C, n, n)."""
    rows = np.repeat(np.arange(len(copies)), copies)
    return np.ascontiguousarray(K[..., rows[:, None], rows])


def repeat_sites(sites: Array, copies: NDArray[np.intp]) -> Array:
    """Sites of all copies, flat, from those of one copy of each row (η and w, stacked)."""
    return sites.reshape(2, len(copies), -1).repeat(copies, axis=1).ravel()


def fold_gradient(G: Array, copies: NDArray[np.intp]) -> Array:
    """P'GP: the sum over copies, of rows and of columns."""
    first = np.cumsum(copies) - copies
    folded = np.add.reduceat(np.add.reduceat(G, first, axis=-2), first, axis=-1)
    return np.asarray(0.5 * (folded + np.swapaxes(folded, -1, -2)))  # sums in another order: symmetric but for rounding


def fold_posterior(posterior: Any, stack: Array, copies: NDArray[np.intp], with_factors: bool) -> tuple[Any, bool]:
    """Posterior of the rows from that of the copies, and whether it could be factorised.

    `sites` are those of one copy of each row.  The covariances of the rows, of shape (k, n, n), are needed for factors.
    """
    first = np.cumsum(copies) - copies
    alpha, p = (np.add.reduceat(part, first, axis=1) for part in (posterior.alpha, posterior.p))
    of_copies = posterior.sites.reshape(2, copies.sum(), -1)
    sites = np.add.reduceat(of_copies, first, axis=1) / copies[:, None]
    A, M, K, positive = None, None, None, True
    if with_factors:
        A, M, K = np.empty((len(p), *stack.shape[1:])), np.empty(stack.shape[1:]), stack
        positive, _ = factor(K, p.ravel(), np.empty(p.size), A, M, False)
    f = np.ascontiguousarray(posterior.f[:, first])
    return replace(posterior, f=f, alpha=alpha, p=p, B_inverse=A, M=M, K=K, sites=sites.ravel()), positive
