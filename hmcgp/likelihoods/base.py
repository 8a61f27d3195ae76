"""Base class of likelihoods.

Rows may have weights ω_i > 0, which multiply their log likelihoods: an evidence provider integrates Π p(y_i | f_i)^ω_i.
A row of weight 2 counts as that row twice, since copies share their latent value.  Weights concern training rows only:
everything else here, and every prediction, is of one observation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.terms import likelihood_terms, log_constants
from hmcgp.parameters.declaration import Parametric
from hmcgp.runtime.typing import Array

_TINY = np.finfo(float).tiny
_REACH, _NODES = 9.0, 721  # of an integral over a Gaussian: standard deviations, and points


class Derivatives(NamedTuple):
    """Log likelihoods of n labels and their derivatives with respect to f, each of shape (n,)."""

    log_prob: Array
    first: Array
    second: Array
    third: Array


@dataclass(frozen=True)
class Likelihood(Parametric, ABC):
    """Base class: p(y | f), labels -1 and +1 unless `targets` says otherwise.

    Parameters
    ----------
    weights : sequence of float, optional
        One positive number per row, by which its log likelihood is multiplied in the evidence.  They are not
        normalised: twice the weights are twice the data.  Default: 1 each.
    """

    weights: tuple[float, ...] | None = field(default=None, kw_only=True, repr=False)
    kind: ClassVar[int]  # code in compiled solvers, where y is a label
    targets: ClassVar[str] = "labels"  # or "classes", "numbers", "counts", "levels"; decides the default priors

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is None:
            return
        weights = np.array(self.weights, dtype=float)
        bad = np.flatnonzero(~((weights > 0.0) & (weights < math.inf)))
        if weights.ndim != 1 or len(bad):
            row = (
                f"a weight of {weights[bad[0]]} in row {bad[0]}" if weights.ndim == 1 else f"the shape {weights.shape}"
            )
            raise InvalidInput(
                f"'weights' must be positive and finite, one per row; got {row}. Leave rows of weight 0 out, or give "
                "'sample_weight' to an estimator, which does that."
            )
        object.__setattr__(self, "weights", tuple(weights.tolist()))  # likelihoods compare and hash
        object.__setattr__(self, "_weights", weights)

    def weighted(self, weights: Any) -> Self:
        """Likelihood of rows with these weights, of shape (n,); None stands for 1 each."""
        checked = replace(self, weights=weights)
        return self._with({name: checked.__dict__.get(name) for name in ("weights", "_weights")})

    def row_weights(self, n: int) -> Array:
        """Weights of the n rows that the likelihood explains, of shape (n,)."""
        if self.weights is None:
            return np.ones(n)
        if len(self.weights) != n:
            raise InvalidInput(f"there are {len(self.weights)} weights for {n} rows.")
        return np.asarray(self.__dict__["_weights"])

    def for_rows(self, X: Array) -> Self:
        """Likelihood of the rows of X: one row per weight."""
        self.row_weights(len(X))
        return self

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless y holds the labels -1 and +1, each at least once."""
        found = np.unique(y)
        if not np.array_equal(found, [-1.0, 1.0]):
            raise InvalidInput(
                f"'y' must hold the labels -1 and +1; got {found[:5].tolist()}. "
                "Encode classes with GPClassifier, or map 0/1 by 2*y - 1."
            )

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log p(y | f) of targets y and latent values f, elementwise."""
        return self.derivatives(y, f).log_prob

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """Log likelihood and its first three derivatives with respect to f, elementwise."""
        f = np.ascontiguousarray(f, dtype=float)
        log_prob, g, w, ratio = (np.empty_like(f) for _ in range(4))
        y = np.ascontiguousarray(y, dtype=float)
        first, second = self.row_numbers(y)
        likelihood_terms(self.kind, y, first, second, f, np.ones_like(f), log_prob, g, w, ratio)
        return Derivatives(log_prob + log_constants(self.kind, y, second), g, -w, w * ratio)

    def row_numbers(self, y: Array) -> Array:
        """Two numbers for each row, of shape (2, n), that compiled code reads beside its target; 0 for labels."""
        return np.zeros((2, len(y)))

    def parameter_gradient(self, y: Array, slopes: Array) -> Array:
        """Derivatives of a log evidence in the parameters, of shape (q,).

        `slopes`, of shape (2, n), are its derivatives in the numbers of the rows (`row_numbers`), constants of log p
        aside.
        """
        return np.empty(0)

    def site(self) -> tuple[int, float]:
        """Code of the link in compiled solvers, and the rate at which labels are flipped."""
        return self.kind, 0.0

    @abstractmethod
    def average(self, mean: Array, variance: Array) -> Array:
        """P(y = +1) for a Gaussian latent value of this mean and variance, elementwise."""

    def count(self, y: Array) -> int:
        """Number of classes behind y: 2, unless the likelihood says otherwise."""
        return 2

    def normalised(self, p: Array) -> Array:
        """Sums of class probabilities over draws, of shape (m, C), as probabilities."""
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def class_probabilities(self, mean: Array, variance: Array) -> Array:
        """Probabilities of the classes for Gaussian latent values, of shape (2, m): P(y = -1) and P(y = +1).

        The smaller one is computed and the larger its complement: no tail is lost in 1 - p.
        """
        small = self.average(-np.abs(mean), variance)
        return np.where([mean > 0.0, mean <= 0.0], small, 1.0 - small)

    def probabilities_given(self, f: Array) -> Array:
        """Probabilities of the classes given latent values, of shape (..., 2): P(y = -1 | f) and P(y = +1 | f)."""
        flat = np.ravel(f)
        log_p = np.stack([self.log_prob(np.full(flat.shape, y), flat) for y in (-1.0, 1.0)], axis=1)
        return np.asarray(np.exp(log_p).reshape(*np.shape(f), 2))

    def mean_response(self, mean: Array, variance: Array) -> Array:
        """Expected response for Gaussian latent values, of shape (C, m): the probabilities of the classes."""
        return self.class_probabilities(mean, variance)

    def response_given(self, f: Array) -> Array:
        """Response given latent values, of shape (..., C): the probabilities of the classes."""
        return self.probabilities_given(f)

    def predictive_distribution(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        """P(y* < y) and P(y* <= y) of a new target y* for Gaussian latent values, of shape (n,); classes by code."""
        return distribution_of_classes(self.class_probabilities(mean, variance), self.class_codes(y))

    def class_codes(self, y: Array) -> NDArray[np.intp]:
        """Positions of the classes of targets: 0 and 1 for the labels -1 and +1."""
        return (np.asarray(y) > 0.0).astype(np.intp) if self.targets == "labels" else np.asarray(y).astype(np.intp)

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log of the predictive probability (or density) ∫ p(y | f) N(f; mean, variance) df, elementwise."""
        m = np.asarray(y * mean, dtype=float)
        small = np.maximum(self.average(-np.abs(m), variance), _TINY)  # the smaller class: no tail is lost in 1 - p
        return np.where(m > 0.0, np.log1p(-small), np.log(small))

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p(y | f)^ω N(f; mean, variance) df of the rows with their weights, of shape (n,).

        By the trapezoidal rule; good to 1e-6 for variances up to 1000 and small weights, to 3e-5 there at a weight of
        10 and to 1e-3 at 200.
        """
        if self.weights is None:
            return self.log_average(y, mean, variance)
        m, sd = (y * mean)[:, None], np.sqrt(variance)[:, None]  # p^ω moves the mass towards a latent 0, or not at all
        left, right = m - _REACH * sd, np.maximum(m, 0.0) + _REACH * sd
        f = left + (right - left) * np.linspace(0.0, 1.0, _NODES)
        log_p = self.log_prob(np.ones(f.size), f.ravel()).reshape(f.shape)
        exponent = self.row_weights(len(y))[:, None] * log_p - 0.5 * (f - m) ** 2 / variance[:, None]
        spacing = (right - left)[:, 0] / (_NODES - 1)
        return logsumexp(exponent, axis=1) + np.log(spacing) - 0.5 * np.log(2.0 * math.pi * variance)


def distribution_of_classes(p: Array, codes: NDArray[np.intp]) -> tuple[Array, Array]:
    """Probability of classes before, and up to, the class of each row, from the probabilities of all, (C, m)."""
    rows = np.arange(len(codes))
    high = np.minimum(np.cumsum(p, axis=0)[codes, rows], 1.0)
    return np.maximum(high - p[codes, rows], 0.0), high
