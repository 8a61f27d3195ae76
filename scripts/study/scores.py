"""Scores of class probabilities; smaller is better.

Probabilities are first kept above `FLOOR`, for forests and neighbours say 0 where they have seen nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmcgp.runtime.typing import Array

FLOOR = 1e-4
BINS = 10
REPLICATES = 200


class Scores(NamedTuple):
    """Means over the rows of a test set."""

    log_loss: float  # nats
    brier: float  # ½ Σ_c (p_c - [y = c])²: (p - y)² for two classes
    error: float
    ece: float  # expected calibration error of the most probable class
    ece_noise: float  # what it would be, on average, were these probabilities right


def scores(probability: Array, code: NDArray[np.intp]) -> Scores:
    """Score probabilities of shape (m, C) by the positions of the true classes, of shape (m,)."""
    p = np.maximum(probability, FLOOR)
    p = p / p.sum(axis=1, keepdims=True)
    rows = np.arange(len(code))
    hit = p.argmax(axis=1) == code
    confidence = p.max(axis=1)
    rng = np.random.default_rng(0)
    replicated = rng.random((REPLICATES, len(code))) < confidence
    return Scores(
        log_loss=float(-np.log(p[rows, code]).mean()),
        brier=float(0.5 * ((p - np.eye(p.shape[1])[code]) ** 2).sum(axis=1).mean()),
        error=float(1.0 - hit.mean()),
        ece=float(calibration_error(confidence, hit[None])[0]),
        ece_noise=float(calibration_error(confidence, replicated).mean()),
    )


def calibration_error(confidence: Array, hits: NDArray[np.bool_]) -> Array:
    """Expected calibration error in `BINS` groups of as many rows, for each of R sets of hits, of shape (R, m)."""
    groups = np.array_split(np.argsort(confidence, kind="stable"), BINS)
    gaps = [np.abs((hits[:, group] - confidence[group]).sum(axis=1)) for group in groups]
    return np.asarray(np.sum(gaps, axis=0) / len(confidence))
