"""Work on a block of rows, where it lives: covariances with the inducing inputs, sums over its rows, pullbacks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence.low_rank import LowRank, spread
from hmcgp.kernels import contract
from hmcgp.likelihoods import Likelihood, NoisyNumbers
from hmcgp.model.arguments import weight_rows
from hmcgp.model.model import Model
from hmcgp.model.row_blocks import Rows, Source
from hmcgp.runtime.fingerprint import digest
from hmcgp.runtime.memory import array_bytes
from hmcgp.runtime.typing import Array

KEPT_BYTES = 2**31  # of covariances that a process keeps between the steps of an evaluation
KEPT_EACH = 4  # hyperparameters for which it keeps those of a block: one for each of some chains


class Block(NamedTuple):
    """Rows of a block, and the model that they are rows of."""

    key: tuple[int, int, int]  # of the process that made the model, of the model, of the block
    X: Array
    y: Array
    likelihood: Likelihood
    model: Model  # of a few rows: kernel, priors and inducing inputs

    @property
    def targets(self) -> Array:
        """Targets of the block, numbers with an axis of columns."""
        return self.y.reshape(len(self.y), -1) if self.likelihood.targets == "numbers" else self.y


class Prior(NamedTuple):
    """Covariance of a block at some hyperparameters, and the pullback of its cotangent."""

    C: LowRank
    pullback: Callable[[Array, Array], Array]
    likelihood: Likelihood


class _Kept:
    """Covariances that this process has made last, as many as fit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[Any, Prior] = OrderedDict()
        self._nbytes = 0

    def get(self, key: Any, make: Callable[[], Prior]) -> Prior:
        """Covariance of a key, made if it is not kept."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        found = make()
        with self._lock:
            if key not in self._entries:
                self._entries[key] = found
                self._nbytes += array_bytes(found.C)
            same = [other for other in self._entries if other[0] == key[0]]
            for other in same[:-KEPT_EACH]:
                self._nbytes -= array_bytes(self._entries.pop(other).C)
            while self._nbytes > KEPT_BYTES and len(self._entries) > 1:
                self._nbytes -= array_bytes(self._entries.popitem(last=False)[1].C)
        return found

    def drop(self, number: int) -> None:
        """Forget the blocks of a model."""
        with self._lock:
            for key in [key for key in self._entries if key[0][1] == number]:
                self._nbytes -= array_bytes(self._entries.pop(key).C)


kept = _Kept()


def load(source: Source, key: tuple[int, int, int], template: Model) -> Block:
    """Read a block and make the likelihood of its rows."""
    rows = read(source)
    likelihood = weight_rows(template.likelihood, rows.weights).for_rows(rows.X)
    return Block(key, rows.X, rows.y, likelihood, template)


def read(source: Source) -> Rows:
    """Rows of a source, checked."""
    X, y, weights = source.read()
    X, y = np.array(X, dtype=float, order="C"), np.array(y, dtype=float, order="C")
    if X.ndim != 2 or len(X) != len(y) or not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise InvalidInput(
            "a block of rows has missing or infinite numbers, or another number of rows than of targets."
        )
    return Rows(X, y, weights)


class Summary(NamedTuple):
    """What a model must know of a block."""

    n: int
    low: Array
    high: Array
    targets: Array  # different labels; of numbers, none
    some: Array  # rows, at random


def describe(source: Source, most: int, labels: bool) -> Summary:
    """Number of rows, range of inputs, different labels, and some rows, of a source."""
    X, y, _ = read(source)
    rows = np.random.default_rng(0).choice(len(X), min(most, len(X)), replace=False)
    return Summary(len(X), X.min(axis=0), X.max(axis=0), np.unique(y) if labels else np.empty(0), X[np.sort(rows)])


def block_digest(block: Block) -> str:
    """Digest of the rows of a block."""
    weights = block.likelihood.row_weights(len(block.y))
    return "".join(digest(part) for part in (block.X, block.y, weights))


def prior(block: Block, theta: Array) -> Prior:
    """Covariance of a block at hyperparameters theta, kept or made."""
    return kept.get((block.key, theta.tobytes()), lambda: _make_prior(block, theta))


def _make_prior(block: Block, theta: Array) -> Prior:
    model, Z = block.model, block.model.inducing
    assert Z is not None
    kernel = model.kernel_at(theta)
    own, own_variances, _ = contract.inducing_triple(kernel, Z, Z)
    K, k, pullback = contract.inducing_triple(kernel, block.X, Z)
    C = LowRank.of(np.vstack([own, K]), np.concatenate([own_variances, k]))
    return Prior(C, pullback, model._hyper.likelihood_at(block.likelihood, theta))


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function be silent about numbers that give out, which become -inf in the model, in whatever thread."""

    @wraps(function)
    def silent(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return silent


@_quiet
def label_sums(block: Block, theta: Array, zeta: Array) -> spread.Sums:
    """Sums over the labels of a block at ζ."""
    C, _, likelihood = prior(block, theta)
    return spread.label_sums(C, block.y, likelihood, zeta)


@_quiet
def label_response(block: Block, theta: Array, found: spread.Factor) -> Array:
    """V'(ec) of a block (`evidence.low_rank.spread`)."""
    C, _, likelihood = prior(block, theta)
    return spread.label_response(C, block.y, likelihood, found)


@_quiet
def number_sums(block: Block, theta: Array) -> spread.Sums:
    """Sums over the numbers of a block."""
    C, _, likelihood = prior(block, theta)
    assert isinstance(likelihood, NoisyNumbers)
    return spread.number_sums(C, block.targets, likelihood)


@_quiet
def pull_back(block: Block, theta: Array, found: spread.Factor, z: Array | None) -> tuple[Array, Array, Array]:
    """Derivatives of the kernel's parameters by way of the rows of a block, Σ d̄ v v', and those of the likelihood's."""
    C, pullback, likelihood = prior(block, theta)
    if z is None:
        assert isinstance(likelihood, NoisyNumbers)
        own = spread.number_cotangent(C, block.targets, likelihood, found)
    else:
        own = spread.label_cotangent(C, block.y, likelihood, found, z)
    return pullback(own.covariances, own.variances), own.gram, own.dlik
