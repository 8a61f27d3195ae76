"""Likelihood of numbers with heavy-tailed noise, in which some rows are far off.

    p(y | f) = t_ν((y - f)/s)/s,     log p = const. - ½(ν + 1) log(1 + r²/q),   r = y - f,  q = ν s²

A row far from f pulls on it by (ν + 1) r/(q + r²), the less the farther it is.  log p is concave for r² < q only.

The t is a mixture of Gaussians, (1 + r²/q)^-a = ∫ λ^(a-1) e^(-λ(1 + r²/q)) dλ/Γ(a), and so are its averages over a
Gaussian latent value N(m, v): for p^ω, with a = ½ω(ν + 1), d = y - m,

    ∫ p^ω N(f; m, v) df = c^ω ∫ λ^(a-1) e^-λ/Γ(a) (1 + 2λv/q)^(-½) exp(-λd²/(q + 2λv)) dλ,

a smooth function of log λ, by the trapezoidal rule; likewise P(y* <= y), with Φ(d/√(v + q/2λ)) in the place of the
density.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, ndtr

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods.base import Derivatives
from hmcgp.likelihoods.heavy_terms import heavy_slopes, heavy_terms
from hmcgp.likelihoods.numbers import NoisyNumbers
from hmcgp.parameters import parameter
from hmcgp.parameters.declaration import Value, value_of
from hmcgp.runtime.typing import Array

_NODES = 256  # of log λ
_NEGLIGIBLE = 1e-10  # weight of a node of P(y* <= y)
_LEGENDRE, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(64)
_BLOCK = 2**12  # rows at once: their nodes take 8 MB an array


class HeavyTerms(NamedTuple):
    """Terms of p^ω at latent values, each of shape (n,)."""

    log_p: Array
    g: Array  # ∂ log p
    w: Array  # -∂² log p, of either sign
    third: Array  # ∂³ log p
    pull: Array  # g/r > 0, the precision of a Gaussian that touches p from below


@dataclass(frozen=True)
class StudentT(NoisyNumbers):
    """p(y | f) = t_ν((y - f)/s)/s: numbers, of which some are far off.

    Parameters
    ----------
    noise : float or prior, optional
        *Square* s² of the scale, in the units of y squared, as of `Gaussian`, whose variance it is for large ν.
        Default: the prior of `Gaussian`.
    degrees_of_freedom : float or prior, optional
        ν: 4 and less for gross outliers, 30 and more for hardly any.  Default: the prior LogNormal(1, 1.5, lower=2),
        with median 4.7 and 95 % within 2.1 to 53; above 2, the noise has a variance.
    """

    noise: Value = parameter("noise")
    degrees_of_freedom: Value = parameter("degrees_of_freedom")
    is_gaussian: ClassVar[bool] = False

    def values(self) -> tuple[float, float]:
        """Squared scale s² and degrees of freedom ν."""
        return float(value_of(self, "noise")), float(value_of(self, "degrees_of_freedom"))

    def check_targets(self, y: Array) -> None:
        """Raise InvalidInput unless y is one column of finite numbers."""
        if y.ndim > 1:
            raise InvalidInput(f"StudentT explains one output; 'y' has {y.shape[1]} columns: fit one at a time.")
        super().check_targets(y)

    def terms(self, y: Array, f: Array) -> HeavyTerms:
        """Log likelihood of the rows with their weights, and its derivatives."""
        (noise, nu), weights, parts = self.values(), self.row_weights(len(y)), np.empty((5, len(y)))
        heavy_terms(nu, noise, y, f, weights, *parts)
        parts[0] += weights * self.log_constant()
        return HeavyTerms(*parts)

    def log_constant(self) -> float:
        """Logarithm of the density at y = f."""
        noise, nu = self.values()
        return math.lgamma(0.5 * (nu + 1.0)) - math.lgamma(0.5 * nu) - 0.5 * math.log(math.pi * nu * noise)

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """Log likelihood and its first three derivatives with respect to f, elementwise."""
        y, f = np.broadcast_arrays(np.asarray(y, dtype=float), np.asarray(f, dtype=float))
        found = self._with({"weights": None}).terms(y.ravel(), f.ravel())  # compiled code does not look at lengths
        log_p, g, w, third = (part.reshape(f.shape) for part in found[:4])
        return Derivatives(log_p, g, -w, third)

    def laplace_gradient(self, y: Array, f: Array, variances: Array, shift: Array) -> Array:
        """Derivatives of Laplace's log evidence in the two parameters, from S_ii and (Sc)_i at the mode f."""
        (noise, nu), weights = self.values(), self.row_weights(len(y))
        of_noise, of_freedom = heavy_slopes(nu, noise, y, f, weights, variances, shift)
        total = float(weights.sum())
        of_constant = 0.5 * float(digamma(0.5 * (nu + 1.0)) - digamma(0.5 * nu) - 1.0 / nu)
        return np.array([of_noise - 0.5 * total / noise, of_freedom + total * of_constant])

    def expected_curvature(self, n: int) -> Array:
        """Expectation of -∂² log p over y (Fisher information) of n rows: ω(ν + 1)/((ν + 3)s²)."""
        noise, nu = self.values()
        return self.row_weights(n) * ((nu + 1.0) / ((nu + 3.0) * noise))

    def expected_laplace_gradient(self, y: Array, f: Array, variances: Array) -> Array:
        """Derivatives of Ψ - ½ log|I + KW| in the two parameters, W the expected curvature, from S_ii at the mode f."""
        (noise, nu), none = self.values(), np.zeros(len(y))
        of_curvature = -0.5 * float(variances @ self.expected_curvature(len(y)))
        of_log_curvature = np.array([-1.0 / noise, 2.0 / ((nu + 1.0) * (nu + 3.0))])  # ∂ log W
        return self.laplace_gradient(y, f, none, none) + of_curvature * of_log_curvature

    # -- the noise ---------------------------------------------------------------------------------------------------

    def _variance(self) -> float:
        noise, nu = self.values()
        return noise * nu / (nu - 2.0) if nu > 2.0 else math.inf

    def row_noise(self, n: int) -> Array:
        """Variances of the noise of n rows, s²ν/(ν - 2): infinite for ν <= 2."""
        return np.full(n, self._variance())

    def noise_at(self, X: Array) -> Array:
        return np.full(len(X), self._variance())

    def draw(self, rng: Any, f: Array) -> Array:
        """Numbers drawn given latent values."""
        noise, nu = self.values()
        return np.asarray(f + math.sqrt(noise) * rng.standard_t(nu, size=f.shape))

    # -- averages over a Gaussian latent value -----------------------------------------------------------------------

    def log_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log predictive density of the rows (see `Likelihood.log_average`), to 1e-9."""
        return self._log_average(y, mean, variance, np.ones(len(y)))

    def log_weighted_average(self, y: Array, mean: Array, variance: Array) -> Array:
        """Log ∫ p^ω N (see `Likelihood.log_weighted_average`), to 1e-9."""
        return self._log_average(y, mean, variance, self.row_weights(len(y)))

    def _log_average(self, y: Array, mean: Array, variance: Array, weights: Array) -> Array:
        noise, nu = self.values()
        q, out = nu * noise, np.empty(len(y))
        for some in _blocks(len(y)):
            a = 0.5 * weights[some] * (nu + 1.0)
            v, d = variance[some, None], (y[some] - mean[some])[:, None]
            push = d[:, 0] ** 2 / q
            lam, log_w = _mixing(a, push, 1.0 / (1.0 + push + v[:, 0] / q))
            log_p = log_w - 0.5 * np.log1p(2.0 * lam * v / q) - lam * d * d / (q + 2.0 * lam * v)
            most = log_p.max(axis=1)
            out[some] = most + np.log(np.exp(log_p - most[:, None]).sum(axis=1))
        return out + weights * self.log_constant()

    def distribution(self, y: Array, mean: Array, variance: Array) -> Array:
        """P(y* <= y) of a new observation for Gaussian latent values, of shape (m,)."""
        noise, nu = self.values()
        lam, weights = _scale_mixture(nu)
        added, out = 0.5 * nu * noise / lam, np.empty(len(y))
        for some in _blocks(len(y)):
            z = (y[some] - mean[some])[:, None] / np.sqrt(variance[some, None] + added)
            out[some] = ndtr(z, out=z) @ weights
        return out

    def predictive_distribution(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        p = self.distribution(y, mean, variance)
        return p, p

    def observed_moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of a new observation; of a finite variance that stands in where there is none."""
        noise, _ = self.values()
        return mean, variance + min(self._variance(), 1e4 * noise)

    def outlying(self, y: Array, mean: Array, variance: Array, threshold: float) -> Array:
        """P(|y - f| > threshold s | y), elementwise, for a latent value that is Gaussian given all other targets.

        One minus ∫ p(y | f) N(f; mean, variance) df over |y - f| <= threshold s, as a share of the whole integral.
        """
        noise, _ = self.values()
        sd, reach = np.sqrt(variance), threshold * math.sqrt(noise)
        low, high = np.maximum(y - reach, mean - 9.0 * sd), np.minimum(y + reach, mean + 9.0 * sd)
        half = 0.5 * np.maximum(high - low, 0.0)
        f = 0.5 * (low + high) + half * _LEGENDRE[:, None]  # (nodes, n)
        alone = self._with({"weights": None})
        log_p = np.array([alone.log_prob(y, row) for row in f]) - 0.5 * ((f - mean) / sd) ** 2
        whole = self.log_average(y, mean, variance) + 0.5 * np.log(2.0 * math.pi * variance)
        inside = half * (_LEGENDRE_WEIGHTS @ np.exp(log_p - whole))
        return np.clip(1.0 - inside, 0.0, 1.0)


def _mixing(
    a: Array, push: Array | float = 0.0, flat: Array | float = 1.0, n_nodes: int = _NODES
) -> tuple[Array, Array]:
    """Nodes λ of Gamma(a, 1) variables and logarithms of their weights, of shape (n, nodes), for a of shape (n,).

    The weights are of functions between 1 and e^(-λ push), and constant for λ far below `flat`: nodes reach from where
    λ^a e^(-λ(1 + push)) begins to where λ^a e^-λ ends.  The sum over all nodes below the first, where only λ^a changes,
    is a geometric series.
    """
    low, high = _mixing_range(a, push, flat)
    h = (high - low) / (n_nodes - 1)
    x = low[:, None] + h[:, None] * np.arange(n_nodes)
    log_w = a[:, None] * x - np.exp(x) + (np.log(h) - gammaln(a))[:, None]
    log_w[:, 0] -= np.log(-np.expm1(-a * h))
    return np.exp(x), log_w


def _mixing_range(a: Array, push: Array | float, flat: Array | float) -> tuple[Array, Array]:
    """Least and greatest log λ of the nodes of `_mixing`."""
    low = np.log(a) - np.log1p(push) - 9.0 / np.sqrt(a) - np.minimum(36.0 / a, 20.0 - np.log(np.minimum(flat, 1.0)))
    return low, np.log(a + 9.0 * np.sqrt(a) + 40.0)


@lru_cache(maxsize=1024)
def _scale_mixture(nu: float) -> tuple[Array, Array]:
    """Nodes λ and weights of the mixture that a t distribution is: a = ½ν and precisions 2λ/q, to 1e-8.

    The trapezoidal rule converges like exp(-π²/h) for an integrand analytic within ±½π, and like exp(-2π²/(ah²)) for
    the bell of width 1/√a that it is for large a.
    """
    a = np.array([0.5 * nu])
    low, high = (float(end[0]) for end in _mixing_range(a, 0.0, 1.0))
    n_nodes = math.ceil((high - low) / min(0.5, 0.9 / math.sqrt(0.5 * nu))) + 1
    lam, log_w = _mixing(a, n_nodes=n_nodes)
    weights = np.exp(log_w[0])
    some = weights > _NEGLIGIBLE
    return lam[0, some], weights[some] / weights[some].sum()


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
