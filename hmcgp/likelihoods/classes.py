"""The likelihood of several classes."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax

from hmcgp._typing import Array
from hmcgp.errors import InvalidInput
from hmcgp.likelihoods._softmax_average import log_power_average, softmax_average, summing_to_one
from hmcgp.likelihoods.base import Derivatives, Likelihood

_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Softmax(Likelihood):
    """p(y = c | f) = exp f_c/Σ_a exp f_a, with a latent value f_c for each class.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes C, counted in y by default.  A class without a row is allowed only where C is given: what is
        known of it is that it was not seen.
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

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log p(y | f) of each row.

        Parameters
        ----------
        y : ndarray of shape (n,)
            Classes.
        f : ndarray of shape (n, C)
            Latent values.

        Returns
        -------
        ndarray of shape (n,)
        """
        return np.asarray(log_softmax(f, axis=1)[np.arange(len(y)), np.asarray(y, dtype=int)])

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """Refused: derivatives in C latent values are no vectors of length n."""
        raise InvalidInput("Softmax has a latent value per class: SoftmaxLaplace knows its derivatives.")

    def average(self, mean: Array, variance: Array) -> Array:
        """Refused: a class has no opposite, and so there is no P(y = +1)."""
        raise InvalidInput("Softmax explains several classes: ask for class_probabilities.")

    def class_probabilities(self, mean: Array, variance: Array) -> Array:
        """Probability of each class at each row, for Gaussian latent values.

        Parameters
        ----------
        mean : ndarray of shape (m, C)
        variance : ndarray of shape (m, C, C)
            Covariance of the C latent values of each row.

        Returns
        -------
        ndarray of shape (C, m)
            Columns sum to 1; by quasi-Monte Carlo (see `hmcgp.likelihoods._softmax_average` for the accuracy).
        """
        return softmax_average(mean, variance).T

    def normalised(self, p: Array) -> Array:
        """Sums of class probabilities over draws, of shape (m, C), as probabilities whose rows sum to 1 exactly."""
        return summing_to_one(p)

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive probability of the class of each row (see `class_probabilities`), of shape (n,)."""
        p = self.class_probabilities(mean, variance)[np.asarray(y, dtype=int), np.arange(len(y))]
        return np.log(np.maximum(p, _TINY))

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), at the points of `class_probabilities`."""
        if self.weights is None:
            return self.log_average(y, mean, variance)
        return log_power_average(np.asarray(y, dtype=int), mean, variance, self.row_weights(len(y)))
