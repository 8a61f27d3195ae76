"""Test of the derivatives of a custom kernel at one point, before a model is built on it.

For each free parameter θ_k, with unconstrained coordinate u_k, the covariances move by ΔK between u_k - h and u_k + h.
The pullback g of the adjoint G ∘ sign(ΔK), with random positive G, must give

    g · Δθ = Σ_ij G_ij |ΔK_ij|,

a sum without cancellation, so that round-off and the curvature of K (order h²) stay far below the tolerance.  A
mismatch counts only if it appears with every step h, and again at a second draw from the prior: kinks and jumps of a
correct kernel lie at isolated points.  Parameters on which K does not depend at a draw are tested at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.kernels.base import Kernel
from hmcgp.kernels.contract import checked_pair, custom_classes, inducing_triple
from hmcgp.runtime.typing import Array

_ROWS = 20
_DRAWS = 10  # from the prior, until every parameter has been tested
_STEPS = (1e-4, 1e-3, 1e-2)  # of unconstrained coordinates; the larger ones for kernels in single precision
_TOLERANCE = 0.02  # relative; custom derivatives may be approximate
_SIGNAL = 1e-7  # of the covariances: a smaller change is round-off


_Parts: TypeAlias = tuple[tuple[Array, ...], Callable[..., Array]]  # covariances, and the pullback of their adjoints


class Coordinates(NamedTuple):
    """Free hyperparameters of a model, as functions of unconstrained coordinates u."""

    names: Sequence[str]
    draw: Callable[[], Array]  # u of a draw from the prior
    constrain: Callable[[Array], Array]  # θ(u)
    kernel_at: Callable[[Array], Kernel]  # kernel with the values θ
    gradient: Callable[[Array], Array]  # from derivatives in all parameters of the kernel to those in θ


class _Mismatch(NamedTuple):
    method: str
    by_pullback: float
    by_differences: float


def check_derivatives(coordinates: Coordinates, X: Array, seed: int = 0) -> None:
    """Raise `InvalidInput` if a pullback of a kernel disagrees with central differences at some rows of X."""
    rng = np.random.default_rng(seed)
    X = _some_rows(X, rng)
    untested = set(range(len(coordinates.names)))
    suspected: dict[int, _Mismatch] = {}
    for _ in range(_DRAWS):
        u = coordinates.draw()
        for k in sorted(untested):
            compared, mismatch = _compare(coordinates, u, k, X, rng)
            if mismatch is not None and k in suspected:
                _refuse(coordinates.kernel_at(coordinates.constrain(u)), coordinates.names[k], mismatch)
            if mismatch is not None:
                suspected[k] = mismatch
            elif compared:
                untested.discard(k)
        if not untested:
            return


def _some_rows(X: Array, rng: np.random.Generator) -> Array:
    """Different rows where there are, so that covariances of distinct inputs are tested."""
    if len(X) > 50 * _ROWS:
        X = X[rng.choice(len(X), 50 * _ROWS, replace=False)]
    rows = np.unique(X, axis=0)
    return np.ascontiguousarray(rng.permutation(rows)[:_ROWS])


def _compare(
    coordinates: Coordinates, u: Array, k: int, X: Array, rng: np.random.Generator
) -> tuple[bool, _Mismatch | None]:
    """Return whether the k-th parameter could be tested at u, and what disagrees with every step, if anything does."""
    compared = True
    for method, covariances in (("vjp", _dense), ("inducing_vjp", _inducing)):
        pairs = []
        for h in _STEPS:
            pair = _one_step(coordinates, u, k, h, partial(covariances, X=X), rng)
            pairs.append(pair)
            if pair is not None and abs(pair[0] - pair[1]) <= _TOLERANCE * pair[1]:  # not so for NaN
                break
        else:
            differing = [pair for pair in pairs if pair is not None]
            if len(differing) == len(_STEPS):
                return True, _Mismatch(method, *differing[0])
            compared = False
    return compared, None


def _dense(kernel: Kernel, X: Array) -> _Parts:
    K, pullback = checked_pair(kernel, kernel.vjp(X), len(X))
    return (0.5 * (K + np.swapaxes(K, -2, -1)),), pullback  # symmetric to the last bit, as adjoints are


def _inducing(kernel: Kernel, X: Array) -> _Parts:
    """Covariances of half of the rows with the other half, and their variances."""
    half = len(X) // 2
    K, k, pullback = inducing_triple(kernel, X[half:], X[: max(half, 1)])
    return (K, k), pullback


def _one_step(
    coordinates: Coordinates,
    u: Array,
    k: int,
    h: float,
    covariances: Callable[[Kernel], _Parts],
    rng: np.random.Generator,
) -> tuple[float, float] | None:
    """Return g · Δθ and Σ G |ΔK| for a step of the k-th coordinate; None without a change of K, or with NaN in K."""
    e = h * (np.arange(len(u)) == k)
    theta, low, high = (coordinates.constrain(v) for v in (u, u - e, u + e))
    with np.errstate(all="ignore"):
        below, above = (covariances(coordinates.kernel_at(v))[0] for v in (low, high))
        changes = [up - down for up, down in zip(above, below, strict=True)]
        size = sum(float(np.abs(up).sum()) for up in above)
        change = sum(float(np.abs(part).sum()) for part in changes)
        if not (np.isfinite(size) and change > _SIGNAL * size):
            return None
        weights = [_positive(part.shape, rng) for part in changes]
        _, pullback = covariances(coordinates.kernel_at(theta))
        adjoints = [w * np.sign(part) for w, part in zip(weights, changes, strict=True)]
        slopes = coordinates.gradient(np.asarray(pullback(*adjoints), dtype=float))
        expected = sum(float(np.sum(w * np.abs(part))) for w, part in zip(weights, changes, strict=True))
        return float(slopes[k] * (high - low)[k]), expected


def _positive(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random weights between 1/2 and 3/2, symmetric for square matrices."""
    W = rng.uniform(0.5, 1.5, size=shape)
    return 0.5 * (W + np.swapaxes(W, -2, -1)) if len(shape) > 1 and shape[-1] == shape[-2] else W


def _refuse(kernel: Kernel, name: str, found: _Mismatch) -> NoReturn:
    classes = " or ".join(custom_classes(kernel))
    ratio = found.by_pullback / found.by_differences
    raise InvalidInput(
        f"the derivative of the covariances with respect to '{name}' is wrong in the custom kernel {classes}: the "
        f"pullback of {found.method} gives {ratio:.3g} times the value of central differences. Samplers and optimisers "
        f"would go astray. Correct the pullback of {found.method} (or input_vjp, if the parameter belongs to a warp of "
        "the inputs); hmcgp.kernels.check_gradient(kernel, X) compares all derivatives."
    )
