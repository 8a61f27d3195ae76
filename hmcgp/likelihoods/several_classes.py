"""Likelihoods of several classes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from numbers import Integral
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtr, softmax

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import probit_powers
from hmcgp.likelihoods.base import Derivatives, Likelihood
from hmcgp.likelihoods.probability_of_largest import probability_of_largest
from hmcgp.likelihoods.softmax_average import log_power_average, softmax_average, summing_to_one
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.runtime.typing import Array

_TINY = np.finfo(float).tiny
_NEWTON = 12
_LARGEST = np.arange(-5.5, 6.0 + 1e-9, 0.5)  # the largest value less the largest mean: beyond, 1e-8 at most


@dataclass(frozen=True)
class Classes(Likelihood):
    """Base class: p(y | f) of y = 0, 1, …, C - 1, with a latent value f_c for each class.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes C, counted in y by default.  A class without a row is allowed only where C is given.
    """

    n_classes: int | None = None
    targets: ClassVar[str] = "classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        n = self.n_classes
        if n is not None and not (isinstance(n, Integral) and not isinstance(n, bool) and n >= 2):
            raise InvalidInput(f"'n_classes' must be a whole number >= 2, or None to count them in y; got {n!r}.")

    def count(self, y: Array) -> int:
        """Number of classes, of which y holds the codes."""
        return int(np.max(y)) + 1 if self.n_classes is None else int(self.n_classes)

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless y holds the classes 0, 1, …, C - 1, each at least once where C was not given."""
        found = np.unique(y)
        whole = np.isfinite(found).all() and (found >= 0.0).all() and (found == np.round(found)).all()
        if not whole or len(found) < 2:
            raise InvalidInput(
                f"'y' must hold the classes 0, 1, 2, … of at least two kinds; got {found[:5].tolist()}. "
                "Encode classes with GPClassifier."
            )
        if self.n_classes is None and len(found) < self.count(y):
            missing = sorted(set(range(self.count(y))) - set(found.astype(int).tolist()))
            raise InvalidInput(f"'y' holds no row of the classes {missing[:5]}: number the classes without gaps.")
        if found[-1] >= self.count(y):
            raise InvalidInput(f"'y' holds the class {found[-1]:g}, and there are {self.n_classes}, counted from 0.")

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """Refused: derivatives in C latent values are no vectors of length n."""
        raise InvalidInput(f"{type(self).__name__} has a latent value per class: its evidence knows its derivatives.")

    def average(self, mean: Array, variance: Array) -> Array:
        """Refused: a class has no opposite, and so there is no P(y = +1)."""
        raise InvalidInput(f"{type(self).__name__} explains several classes: ask for class_probabilities.")

    @abstractmethod
    def class_probabilities(self, mean: Array, variance: Array) -> Array:
        """Probability of each class at each row, of shape (C, m), for Gaussian latent values; columns sum to 1.

        The mean is of shape (m, C), and the variance, of shape (m, C, C), the covariance of the C values of each row.
        """

    @abstractmethod
    def probabilities_given(self, f: Array) -> Array:
        """Probability of each class given latent values f, both of shape (..., C)."""

    def normalised(self, p: Array) -> Array:
        """Sums of class probabilities over draws, of shape (m, C), as probabilities whose rows sum to 1 exactly."""
        return summing_to_one(p)

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive probability of the class of each row (see `class_probabilities`), of shape (n,)."""
        p = self.class_probabilities(mean, variance)[np.asarray(y, dtype=int), np.arange(len(y))]
        return np.log(np.maximum(p, _TINY))


@dataclass(frozen=True)
class Softmax(Classes):
    """p(y = c | f) = exp f_c/Σ_a exp f_a, with a latent value f_c for each class.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes C, counted in y by default (see `Classes`).
    """

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log p(y | f) of each row, for latent values f of shape (n, C)."""
        return np.asarray(log_softmax(f, axis=1)[np.arange(len(y)), np.asarray(y, dtype=int)])

    def probabilities_given(self, f: Array) -> Array:
        """See `Classes.probabilities_given`."""
        return np.asarray(softmax(f, axis=-1))

    def class_probabilities(self, mean: Array, variance: Array) -> Array:
        """See `Classes.class_probabilities`; `hmcgp.likelihoods.softmax_average` states the accuracy."""
        return softmax_average(mean, variance).T

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), at the points of `class_probabilities`."""
        if self.weights is None:
            return self.log_average(y, mean, variance)
        return log_power_average(np.asarray(y, dtype=int), mean, variance, self.row_weights(len(y)))


@dataclass(frozen=True)
class MultinomialProbit(Classes):
    """y = argmax_c (f_c + e_c) with e_c ~ N(0, 1), a latent value f_c for each class: the class of the largest.

    p(y | f) = E[Π_{c≠y} Φ(u + f_y - f_c)], u ~ N(0, 1).  Two classes are a probit of (f_1 - f_0)/√2.  Weights are whole
    numbers: a row of weight 2 is that row twice, each with noise e of its own.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes C, counted in y by default (see `Classes`).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is None:
            return
        weights = self.__dict__["_weights"]
        bad = np.flatnonzero(weights != np.round(weights))
        if len(bad):
            raise InvalidInput(
                "rows behind a multinomial probit have whole numbers as weights, which count copies of a row, each "
                f"with noise of its own; got {weights[bad[0]]} in row {bad[0]}. Round the weights, or take the "
                "softmax, likelihood='logistic' with evidence='laplace' and refine=None, which takes any."
            )

    def copies(self, n: int) -> NDArray[np.intp]:
        """Copies of each of n rows: their weights, as integers."""
        return self.row_weights(n).astype(np.intp)

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log p(y | f) of each row (see `Softmax.log_prob`), by the trapezoidal rule in u.

        The integrand is log-concave with a curvature between 1 and C: it has 1e-15 of its peak or less beyond ±8.5
        from its mode, which is found by Newton's method from the left.
        """
        others = np.arange(f.shape[1]) != np.asarray(y)[:, None]
        gap = (f[~others][:, None] - f)[others].reshape(len(f), -1)  # (n, C - 1)
        u = np.zeros((len(f), 1))
        for _ in range(_NEWTON):  # the slope is convex and falls: no step goes too far
            z = u + gap
            r = np.exp(-0.5 * z**2 - HALF_LOG_2PI - log_ndtr(z))
            u = u + (r.sum(axis=1, keepdims=True) - u) / (1.0 + (r * (z + r)).sum(axis=1, keepdims=True))
        step = 0.7 / np.sqrt(f.shape[1])
        grid = u + step * np.arange(-np.ceil(8.5 / step), np.ceil(8.5 / step) + 1.0)  # (n, P)
        log_terms = -0.5 * grid**2 + log_ndtr(grid[:, :, None] + gap[:, None, :]).sum(axis=2)
        return np.asarray(logsumexp(log_terms, axis=1) + np.log(step) - HALF_LOG_2PI)

    def probabilities_given(self, f: Array) -> Array:
        """See `Classes.probabilities_given`; to 1e-8.

        By the trapezoidal rule over the largest value t: p_c = ∫ φ(t - f_c) Π_{j≠c} Φ(t - f_j) dt.
        """
        gap = np.ascontiguousarray(np.moveaxis(f - f.max(axis=-1, keepdims=True), -1, 0))  # products by class are fast
        out = np.zeros(gap.shape)
        for t in _LARGEST:
            z = t - gap
            cdf = ndtr(z)
            z *= z
            z *= -0.5
            np.exp(z, out=z)
            z /= cdf  # above Φ(-6): nothing to underflow
            z *= reduce(np.multiply, cdf)
            out += z
        return np.moveaxis(out / out.sum(axis=0), 0, -1)

    def class_probabilities(self, mean: Array, variance: Array) -> Array:
        """See `Classes.class_probabilities`; `hmcgp.likelihoods.probability_of_largest` states the accuracy."""
        return summing_to_one(probability_of_largest(mean, variance + np.eye(mean.shape[1]))).T

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), by `hmcgp.likelihoods.probit_powers` where ω > 1."""
        out = self.log_average(y, mean, variance)
        often = np.flatnonzero(self.row_weights(len(y)) > 1.0)
        out[often] = probit_powers.log_power_average(
            np.asarray(y, dtype=int)[often], mean[often], variance[often], self.row_weights(len(y))[often]
        )
        return out
