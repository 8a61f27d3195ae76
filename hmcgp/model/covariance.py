"""Prior covariance of the rows of a model: dense, or of low rank through inducing inputs.

With inducing inputs Z the kernel gives [K_mm; K_nm], covariances of Z and of X with Z, and the variances of X.  Rows of
Z count as different from those of X and of Z itself, so that white noise has no part in K_mm: it belongs to the
diagonal, where the low-rank structure keeps it exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import check_array

from hmcgp.errors import InvalidInput, NotPositiveDefinite
from hmcgp.evidence import EvidenceProvider, Provider
from hmcgp.evidence.base import refuse_low_rank
from hmcgp.evidence.low_rank import LowRank, LowRankAdjoint, LowRankClasses
from hmcgp.evidence.low_rank.ep import refuse_steps
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import Likelihood
from hmcgp.runtime.typing import Array

Covariance: TypeAlias = Array | LowRank | LowRankClasses
Adjoint: TypeAlias = Array | LowRankAdjoint


def prior_covariance(kernel: Kernel, X: Array, inducing: Array | None, foreign: bool) -> Covariance:
    """Covariance of the rows of X; `foreign` kernels are checked for negative variances."""
    if inducing is None:
        return _without_negative(contract.checked_covariance(kernel, kernel(X), len(X)), foreign)
    rows = np.vstack([inducing, X])
    return _structure(contract.cross_covariance(kernel, rows, inducing), contract.variances(kernel, rows))


def prior_with_pullback(
    kernel: Kernel, X: Array, inducing: Array | None, foreign: bool
) -> tuple[Covariance, Callable[[Any], Array]]:
    """Covariance of the rows of X, and the pullback of its adjoint to the parameters of the kernel."""
    if inducing is None:
        K, pullback = contract.checked_pair(kernel, kernel.vjp(X), len(X))
        return _without_negative(K, foreign), pullback
    K, k, pull = contract.inducing_triple(kernel, np.vstack([inducing, X]), inducing)
    return _structure(K, k), lambda adjoint: pull(adjoint.covariances, adjoint.variances)


def _structure(K: Array, k: Array) -> LowRank | LowRankClasses:
    """Low-rank covariance, or one for each class where the kernel has one for each."""
    return LowRank.of(K, k) if K.ndim == 2 else LowRankClasses.of(K, k)


def _without_negative(K: Array, foreign: bool) -> Array:
    """Refuse negative variances of a user's kernel, of which some providers make finite numbers."""
    if foreign and contract.has_negative_variance(K):
        raise NotPositiveDefinite("the kernel gives a negative variance at these hyperparameters.")
    return K


def check_inducing(inducing: Any, X: Array, likelihood: Likelihood, evidence: EvidenceProvider) -> Array | None:
    """Inducing inputs as an array of shape (m, d), or None; refused where they do not fit the rows or the model.

    Raises
    ------
    InvalidInput
        For other shapes, more inputs than rows, equal ones, and inputs beyond the range of those of the rows.
    """
    if inducing is None:
        check_structure(None, likelihood, evidence)
        return None
    Z = check_inducing_inputs(inducing, *X.shape)
    refuse_outside(Z, X.min(axis=0), X.max(axis=0))
    check_structure(Z, likelihood, evidence)
    return Z


def check_inducing_inputs(inducing: Any, n: int, d: int) -> Array:
    """Inducing inputs for n rows of d inputs, as an array of shape (m, d) of different rows."""
    Z = np.array(check_array(inducing, dtype=np.float64, input_name="inducing"), order="C")
    if Z.shape[1] != d:
        raise InvalidInput(f"'inducing' must have the {d} inputs of the rows; got {Z.shape[1]} columns.")
    if len(Z) > n:
        raise InvalidInput(
            f"there are {len(Z)} inducing inputs for {n} rows: more than rows cost more than no approximation. Take "
            "fewer, or inducing=None."
        )
    _, first, counts = np.unique(Z, axis=0, return_index=True, return_counts=True)
    if len(first) < len(Z):
        twice = Z[first[np.argmax(counts)]]
        raise InvalidInput(f"'inducing' has equal rows, which say nothing twice: {twice.tolist()}. Keep one of each.")
    return Z


def refuse_outside(Z: Array, low: Array, high: Array) -> None:
    """Refuse inducing inputs beyond the range of the inputs of the rows."""
    beyond = (high - low) * 0.5 + 1e-9 * np.maximum(np.abs(low), np.abs(high))
    outside = ((low - beyond > Z) | (high + beyond < Z)).any(axis=1)
    if outside.any():
        raise InvalidInput(
            f"{outside.sum()} of {len(Z)} inducing inputs lie farther outside the range of the rows than half of it, "
            f"where they explain nothing: {Z[outside][0].tolist()}. Are they in the units of the rows?"
        )


def check_structure(inducing: Array | None, likelihood: Likelihood, evidence: EvidenceProvider) -> None:
    """Refuse inducing inputs where likelihood or evidence know dense covariances only, by their settings or at all."""
    if isinstance(evidence, Provider):
        evidence.check_use(likelihood, dense=inducing is None)
    elif inducing is not None:
        refuse_low_rank(evidence)
    if inducing is not None:
        refuse_steps(likelihood)
