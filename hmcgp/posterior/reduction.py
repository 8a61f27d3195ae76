"""Latent variances from a few training rows, where there are too many new inputs for n² operations each.

The mean k'α takes n operations for a new input; what takes n² is the explained variance k'Rk.  M training rows z are
chosen as the first pivots of the Cholesky factorisation of K, each the row whose prior variance the others explain the
least, and the covariances to all rows are predicted linearly from those to z,

    k ≈ C'k_z,     k'Rk ≈ k_z'(C R C')k_z = |k_z'F|²,     C = (K_z K_z')⁻¹ K_z K,

C by least squares over the training inputs (K_z: M rows of K).  So a new input takes n covariances and M² operations.
Far from the training inputs k_z vanishes and the variance is that of the prior.  The mean is the exact one, and M = n
gives the exact variance.

With prior interpolation, C = K_zz⁻¹K_z, which is FITC's, in the place of least squares, the errors of probabilities at
n = 1000, M = 200 are five times as large; with the mean from k_z as well they are twenty times as large.

Whether M rows are enough is decided by comparison with the full computation, at SAMPLE rows of the batch
(`sufficient_size`): sizes are tried in turn until the results there are close enough, and if none is, nothing is
reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from hmcgp.evidence.products import LatentProducts, Product, Reduced
from hmcgp.kernels import contract
from hmcgp.model import Model
from hmcgp.numerics.lapack import cholesky_inplace
from hmcgp.posterior.predictors import AnyPredictor, Predictor
from hmcgp.runtime.typing import Array

LEAST_ROWS = 4096  # of a batch: for fewer, finding out what is enough takes as long
LEAST_TRAINING_ROWS = 400  # for fewer, covariances take as long as all else
SIZES = (128, 192, 256, 384, 512)  # M, up to half of the training rows
SAMPLE = 256  # rows of the batch that are compared
_FITTED = 1000  # training inputs that C is fitted at, at most
_RIDGE = 1e-10  # of the mean of the diagonal


def sample_rows(model: Model, X: Array) -> Array | None:
    """Rows of a batch, evenly spaced, at which reduced predictors are compared; None where there is no need of them."""
    small = len(X) < LEAST_ROWS or len(model.support) < LEAST_TRAINING_ROWS
    if small or model.inducing is not None or model.likelihood.targets == "classes":
        return None
    return np.asarray(X[np.linspace(0, len(X) - 1, SAMPLE).round().astype(np.intp)])


def sufficient_size(model: Model, error: Callable[[int], float], tolerance: float) -> int | None:
    """Smallest size M whose results have an error below a tolerance, or None: then nothing is reduced."""
    return next((size for size in SIZES if 2 * size <= len(model.X) and error(size) <= tolerance), None)


def reduced(found: AnyPredictor, size: int) -> AnyPredictor:
    """Predictor whose variances come from so many training rows; the same one where that is not possible."""
    if not isinstance(found, Predictor) or found.products.explained is None:
        return found
    n, products, explained = len(found.X), found.products, found.products.explained
    K = contract.covariance(found.kernel, found.X)
    z = pivots(K, size)
    K = K[np.linspace(0, n - 1, min(n, _FITTED)).round().astype(np.intp)]  # (N, n), one row for each fitted input
    K = K if products.scale is None else K * products.scale
    gram = K[:, z].T @ K[:, z]
    gram.flat[:: size + 1] += _RIDGE * float(np.trace(gram)) / size
    C = cho_solve(cho_factor(gram, lower=True), K[:, z].T @ K)  # (M, n)
    F = explained.between(C)
    F.flat[:: size + 1] += _RIDGE * float(np.trace(F)) / size
    if not cholesky_inplace(F):  # sites of negative precision
        return found
    order = np.concatenate([z, np.delete(np.arange(n), z)])  # the rows z first
    few = LatentProducts(
        products.alpha[order],
        Reduced(Product(np.tril(F), lower=True).in_single()),  # what float32 rounds is part of the comparison
        None if products.scale is None else products.scale[order],
    )
    return replace(found, X=found.X[order], products=few)


def pivots(K: Array, size: int) -> NDArray[np.intp]:
    """First pivots of the Cholesky factorisation of a covariance matrix, in their order."""
    left = np.diagonal(K).copy()
    V, chosen = np.empty((size, len(K))), np.empty(size, dtype=np.intp)
    for j in range(size):
        chosen[j] = i = int(np.argmax(left))
        V[j] = (K[i] - V[:j, i] @ V[:j]) / np.sqrt(max(left[i], 1e-12 * K[i, i]))
        left -= V[j] ** 2
        left[chosen[: j + 1]] = -np.inf
    return chosen
