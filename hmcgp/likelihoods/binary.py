"""Likelihoods of labels, -1 and +1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr, ndtr

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Derivatives, Likelihood
from hmcgp.likelihoods.terms import LOGISTIC, PROBIT, STEP
from hmcgp.numerics import quadrature
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import Value, value_of
from hmcgp.runtime.checks import name_among
from hmcgp.runtime.typing import Array

_LOGISTIC_AVERAGES = {
    "quadrature": quadrature.logistic_average,
    "erf": quadrature.logistic_average_erf,
    "mackay": quadrature.logistic_average_mackay,
}


@dataclass(frozen=True)
class Logistic(Likelihood):
    """p(y | f) = 1/(1 + exp(-y f)).

    Parameters
    ----------
    averaging : {"quadrature", "erf", "mackay"}, default="quadrature"
        How the sigmoid is averaged over a Gaussian latent value: accurately; by Barber & Williams' sum of five error
        functions (wrong by up to 4e-4, and several times too small in the tails); or by MacKay's formula (wrong by up
        to 1.6e-2).
    """

    averaging: str = "quadrature"
    kind: ClassVar[int] = LOGISTIC

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "averaging", name_among("averaging", self.averaging, _LOGISTIC_AVERAGES))

    def average(self, mean: Array, variance: Array) -> Array:
        return _LOGISTIC_AVERAGES[self.averaging](mean, variance)


@dataclass(frozen=True)
class Probit(Likelihood):
    """p(y | f) = Φ(y f), the standard normal distribution function."""

    kind: ClassVar[int] = PROBIT

    def average(self, mean: Array, variance: Array) -> Array:
        """P(y = +1) for a Gaussian latent value, exactly: Φ(mean / sqrt(1 + variance))."""
        return np.asarray(ndtr(mean / np.sqrt(1.0 + variance)))

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive probability of labels, exactly (see `Likelihood.log_average`)."""
        return np.asarray(log_ndtr(y * mean / np.sqrt(1.0 + variance)))


_LINKS = {"step": STEP, "probit": PROBIT}


@dataclass(frozen=True)
class LabelNoise(Likelihood):
    """p(y | f) = ε + (1 - 2ε) Φ(y f), or ε + (1 - 2ε) H(y f): labels that may be wrong (Kim & Ghahramani 2006).

    With probability ε a label is flipped, whatever f: no label, however far on the wrong side, counts more than
    log 1/ε.  Behind the step H, the sign of f decides all; a `White` term in the kernel makes the decision soft, and
    only the ratios of the kernel's variances to each other then matter: fix one of them.

    Parameters
    ----------
    flip : float or prior, optional
        Rate ε of flipped labels, between 0 and 1/2.  Default: the prior Beta(1, 4, upper=0.5), with mean 0.1 and 95 %
        below 0.26.
    link : {"probit", "step"}, default="probit"
    """

    flip: Value = parameter("flip", support=(0.0, 0.5), allowed=(0.0,))
    link: str = "probit"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "link", name_among("link", self.link, _LINKS))

    def site(self) -> tuple[int, float]:
        return _LINKS[self.link], float(value_of(self, "flip"))

    def log_prob(self, y: Array, f: Array) -> Array:
        """Log p(y | f), elementwise; half a step at f = 0 (see `Likelihood.log_prob`)."""
        z = np.asarray(y, dtype=float) * f
        _, flip = self.site()
        clean = log_ndtr(z) if self.link == "probit" else np.log(np.heaviside(z, 0.5), where=z >= 0.0, out=_never(z))
        return np.asarray(np.logaddexp(math.log(flip) if flip > 0.0 else -np.inf, math.log1p(-2.0 * flip) + clean))

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """Log likelihood and its first three derivatives with respect to f, elementwise; a step has none."""
        if self.link == "step":
            raise InvalidInput("a step has no derivatives: use LabelNoise(link='probit'), or evidence='ep' or 'tap'.")
        y = np.asarray(y, dtype=float)
        z, log_prob = y * f, self.log_prob(y, f)
        r = np.exp(math.log1p(-2.0 * self.site()[1]) - 0.5 * z**2 - HALF_LOG_2PI - log_prob)
        return Derivatives(log_prob, y * r, -r * (z + r), y * r * ((z + r) * (z + 2.0 * r) - 1.0))

    def average(self, mean: Array, variance: Array) -> Array:
        """P(y = +1) for a Gaussian latent value, exactly: ε + (1 - 2ε) Φ(mean / sqrt(s² + variance))."""
        _, flip = self.site()
        return np.asarray(flip + (1.0 - 2.0 * flip) * ndtr(self._z(mean, variance)))

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), behind a step exactly: ε^ω Φ(-z) + (1 - ε)^ω Φ(z)."""
        if self.link != "step":
            return super().log_weighted_average(y, mean, variance)
        weights, (_, flip), z = self.row_weights(len(y)), self.site(), self._z(y * mean, variance)
        wrong = weights * math.log(flip) + log_ndtr(-z) if flip > 0.0 else _never(z)
        return np.logaddexp(wrong, weights * math.log1p(-flip) + log_ndtr(z))

    def flipped(self, y: Array, mean: Array, variance: Array) -> Array:
        """P(the label y was flipped | y), elementwise, for a latent value that is Gaussian given all other labels.

        ε Φ(-z)/(ε + (1 - 2ε) Φ(z)), z = y mean / sqrt(s² + variance); the denominator is ε Φ(-z) + (1 - ε) Φ(z).
        """
        _, flip = self.site()
        if flip == 0.0:
            return np.zeros(np.shape(mean))
        z = self._z(y * mean, variance)
        return np.asarray(flip * ndtr(-z) / (flip + (1.0 - 2.0 * flip) * ndtr(z)))

    def _z(self, mean: Array, variance: Array) -> Array:
        slack = 1.0 if self.link == "probit" else 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.asarray(mean / np.sqrt(slack + variance))
        return np.where(np.isnan(z), 0.0, z)  # 0/0: a coin toss


def _never(z: Array) -> Array:
    return np.full(z.shape, -np.inf)
