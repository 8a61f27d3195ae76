"""Covariance functions of fits that name none.

Behind numbers, counts and ordered levels a curve: a squared exponential of the quantities, times a categorical kernel
of the categories.  Behind classes a curve, a line, effects of categories and an offset are added,

    squared exponential × categorical + v x·x' + e Σ_k [x_k = x'_k] + 9,

and the latent functions of all of several classes share its hyperparameters.

Without an offset the latent function returns to zero, and probabilities to a half, far from all rows; without a line
and effects, curves have to make up what logistic regression starts with.  The variance of the offset is a fact: one
number would not tell it, and 9 leaves probabilities of 0.003 to 0.997 open.  With a line there, length scales need not
reach to where a curve is straight: their prior is half as wide, and the posterior has no long tails.  Kernels were
compared on the tables of `scripts/study`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hmcgp.kernels import Categorical, CategoryEffects, Constant, Kernel, Linear, SquaredExponential
from hmcgp.priors import LogNormal

OFFSET = 9.0


def curve(categories: NDArray[np.bool_]) -> Kernel:
    """Squared exponential of the quantities, times a categorical kernel of the categories that the mask marks."""
    return _times_categorical(SquaredExponential(ard=True), *_split(categories))


def curve_line_and_offset(categories: NDArray[np.bool_]) -> Kernel:
    """Sum of a curve, a line in the quantities, effects of the categories that the mask marks, and an offset."""
    quantities, names = _split(categories)
    log_d, log_c = (math.log(max(len(columns), 1)) for columns in (quantities, names))
    smooth = SquaredExponential(length_scale=LogNormal(0.5 + 0.5 * log_d, 0.5), ard=True, standardized=True)
    kernel = _times_categorical(smooth, quantities, names)
    if quantities:
        line = Linear(LogNormal(-log_d, 2.0), standardized=True)
        kernel = kernel + (line.on(quantities) if names else line)
    if names:
        kernel = kernel + CategoryEffects(LogNormal(-log_c, 2.0)).on(names)
    return kernel + Constant(OFFSET)


def _times_categorical(kernel: Kernel, quantities: list[int], names: list[int]) -> Kernel:
    """Kernel of the quantities, if there are any, times one of the categories, if there are any."""
    if not names:
        return kernel
    return (kernel.on(quantities) if quantities else Constant()) * Categorical(ard=True).on(names)


def _split(categories: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """Columns of quantities, and of categories."""
    return np.flatnonzero(~categories).tolist(), np.flatnonzero(categories).tolist()
