"""Importance sampling of the latent values from the Gaussian of expectation propagation.

EP's Gaussian is the prior times its sites, q(f) = N(f; 0, K) Π t_i(f_i)/Z_sites, t_i(f) = exp(η_i f - ½w_i f²), so that
N(f; 0, K)/q(f) = Z_sites/Π t_i(f_i), and K is never inverted.  At f = m + Δ, with x = η - w m,

    p(y | f) N(f; 0, K)/q(f) = exp(c + h(Δ)),   h(Δ) = Σ_i [ω_i log p(y_i | m_i + Δ_i) - x_i Δ_i + ½w_i Δ_i²],
    c = -½ log|I + KW| - ½x'm,                  Z = E_q[exp(c + h)].

Samples are Δ = A z, with A A' = S the covariance of q, by a Cholesky factorisation with pivots: the first coordinates
of z, where quasi-random points are the most even, move the latent values most, and a K without full rank gives an A
with fewer columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.special import logsumexp

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence.ep.binary import SitePosterior
from hmcgp.evidence.ep.site_algebra import posterior_covariance
from hmcgp.evidence.sampled.points import BATCH, Points
from hmcgp.likelihoods import Likelihood
from hmcgp.numerics import pareto
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_LOG_NOTHING = -700.0  # logarithm of a weight, relative to the largest, that is as good as 0
PILOT = 8  # batches that choose between the Gaussian and the Student t


@dataclass(frozen=True)
class Root:
    """Factor A of a covariance, S = A A' up to rounding, with rows A[order] = L lower trapezoidal."""

    A: Array  # (n, r)
    order: NDArray[np.intp]  # (n,)

    def solve(self, C: Array) -> Array:
        """Coordinates g with A g = c for columns c of C in the range of S, of shape (r, m)."""
        r = self.A.shape[1]
        top = self.order[:r]
        return np.asarray(solve_triangular(self.A[top], C[top], lower=True, check_finite=False))


def pivoted_root(S: Array) -> Root:
    """Factor of a positive semidefinite matrix, as many columns as it has rank to working precision."""
    n = len(S)
    L, pivots, rank, _ = dpstrf(S, lower=1, tol=n * EPS * float(np.max(np.diag(S))))
    order = pivots.astype(np.intp) - 1
    A = np.empty((n, rank))
    A[order] = np.tril(L[:, :rank])
    return Root(A, order)


@dataclass(frozen=True)
class Integrand:
    """exp(c + h(A z)), whose mean over standard normal z is Z."""

    y: Array  # (n,)
    likelihood: Likelihood
    mean: Array  # (n,), m
    alpha: Array  # (n,), x
    w: Array  # (n,)
    constant: float  # c
    root: Root

    @classmethod
    def of(cls, K: Array, y: Array, likelihood: Likelihood, ep: SitePosterior) -> Integrand:
        """Integrand of the solution of EP."""
        S, work, order = np.empty_like(K), np.empty_like(K), np.empty(len(K), dtype=np.int64)
        proper, log_det = posterior_covariance(K, ep.w, order, work, S)
        if not proper:
            raise NotPositiveDefinite("LatentSampling: the covariance of EP's solution is not positive definite.")
        constant = -0.5 * log_det - 0.5 * float(ep.alpha @ ep.f)
        return cls(y, likelihood, ep.f, ep.alpha, ep.w, constant, pivoted_root(S))

    def log_values(self, z: Array) -> Array:
        """Logarithm of the integrand at points of shape (J, r); of shape (J,)."""
        step = z @ self.root.A.T  # (J, n)
        f = step + self.mean
        log_p = self.likelihood.log_prob(np.broadcast_to(self.y, f.shape).ravel(), f.ravel()).reshape(f.shape)
        log_p = log_p @ self.likelihood.row_weights(len(self.y)) if self.likelihood.weights else log_p.sum(axis=1)
        step2 = np.square(step, out=f)
        return np.asarray(self.constant + log_p - step @ self.alpha + 0.5 * (step2 @ self.w))


@dataclass(frozen=True)
class Estimate:
    """Mean of an integrand over batches of points."""

    points: Points
    log_weights: Array  # (J,), of the points of all batches: the integrand, over their density
    log_batches: Array  # (J/BATCH,), of the mean of each batch

    @property
    def log_z(self) -> float:
        """Logarithm of the mean; minus infinity where no point has a positive value."""
        return float(logsumexp(self.log_batches)) - math.log(len(self.log_batches))

    @property
    def standard_error(self) -> float:
        """Of log_z, from the scatter of the batches."""
        log_z = self.log_z
        if log_z == -np.inf:
            return np.inf
        ratios = np.exp(self.log_batches - log_z)
        return float(np.std(ratios, ddof=1) / math.sqrt(len(ratios)))

    @property
    def pareto_k(self) -> float:
        """Shape of the tail of the weights: their variance is finite below 1/2."""
        floor = float(np.max(self.log_weights)) + _LOG_NOTHING
        return float(pareto.smooth(np.maximum(self.log_weights, floor)[None], 1.0)[1][0])

    def extended(self, integrand: Integrand, n_batches: int) -> Estimate:
        """Mean over so many batches, the first of which are there already."""
        log_weights = [self.log_weights]
        for number in range(len(self.log_batches), n_batches):
            z = self.points.batch(number)
            log_weights.append(integrand.log_values(z) + self.points.log_normal_ratio(z))
        weights = np.concatenate(log_weights)
        return Estimate(self.points, weights, logsumexp(weights.reshape(-1, BATCH), axis=1) - math.log(BATCH))

    def kept(self, n_kept: int) -> tuple[Array, Array]:
        """Points, of shape (J', r), and their normalised weights: all of them, or n_kept of equal weight.

        Of more points than n_kept, each is taken as often as its weight says, up to rounding (systematic resampling),
        and batches are made again, so that never all of them are in memory.
        """
        weights = np.exp(self.log_weights - logsumexp(self.log_weights))
        if len(weights) <= n_kept:
            return np.concatenate([self.points.batch(b) for b in range(len(self.log_batches))]), weights
        places = (np.arange(n_kept) + 0.5) / n_kept
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
        batches, within = np.divmod(chosen, BATCH)
        z = [self.points.batch(b)[within[batches == b]] for b in np.unique(batches).tolist()]
        return np.concatenate(z), np.full(n_kept, 1.0 / n_kept)


def no_points(points: Points) -> Estimate:
    """Estimate to which batches can be added."""
    return Estimate(points, np.empty(0), np.empty(0))
