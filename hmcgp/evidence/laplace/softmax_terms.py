"""Compiled softmax: Ψ = log p(y | f) - ½ α'f of several classes, and its derivatives (symbols as in `softmax`)."""

import math

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence import mode_rows as row
from hmcgp.evidence.newton import dot
from hmcgp.numerics.compiled import compiled_inside
from hmcgp.numerics.exponential import exp_nonpositive
from hmcgp.runtime.typing import Array


@compiled_inside
def _slopes(pi: Array, weights: Array, norm: Array, g: Array, w: Array) -> None:
    """Divide π by its norms, and leave g, without the observed classes, and W's diagonal."""
    n = norm.shape[0]
    for c in range(0, pi.shape[0], n):
        for i in range(n):
            k = c + i
            pi[k] /= norm[i]
            g[k] = -weights[k] * pi[k]
            w[k] = weights[k] * pi[k] * (1.0 - pi[k])


@compiled_inside
def _exponentials(f: Array, n: int, pi: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """Leave exp x in pi, x = f less the largest of its row; returns x, Σ exp x, and the offset of the largest class."""
    end = f.shape[0]
    first = np.zeros(n, dtype=np.int64)
    top, norm, x = f[:n].copy(), np.zeros(n), np.empty(end)
    for c in range(n, end, n):
        for i in range(n):
            if f[c + i] > top[i]:
                top[i], first[i] = f[c + i], c
    for c in range(0, end, n):
        for i in range(n):
            x[c + i] = f[c + i] - top[i]
    exp_nonpositive(x, pi, 1.0)
    for c in range(0, end, n):
        for i in range(n):
            norm[i] += pi[c + i]
    return x, norm, first


@compiled_inside
def log_joint(y: Array, alpha: Array, f: Array, state: Array) -> float:
    """Ψ = Σ ω log π_yi - ½ α'f, leaving π, g and W's diagonal at f in `state`."""
    n, pi = y.shape[0], state[row.PROBABILITY]
    x, norm, first = _exponentials(f, n, pi)
    _slopes(pi, state[row.WEIGHT], norm, state[row.SLOPE], state[row.CURVATURE])
    total = 0.0
    for i in range(n):
        own, k = int(y[i]) * n + i, first[i] + i
        weight, log_p = state[row.WEIGHT, i], x[own] - math.log(norm[i])
        state[row.SLOPE, own] += weight
        if norm[i] < 2.0:  # π_k > ½: 1 - π_k by its own sum, not as a difference
            rest = 0.0
            for j in range(i, f.shape[0], n):
                rest += pi[j] if j != k else 0.0
            state[row.CURVATURE, k] = weight * pi[k] * rest
            if k == own:
                state[row.SLOPE, k] = weight * rest
                log_p = math.log1p(-rest)  # log π without its own rounding: steps that gain 1e-18 are compared
        total += weight * log_p
    return total - 0.5 * dot(alpha, f)
