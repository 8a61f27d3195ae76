"""Evidence of a model with its hyperparameters integrated out, by bridge sampling.

    Z = ∫ Z(θ) p(θ) dθ = ∫ p(u) du,     p(u) = Z(θ(u)) p(θ(u)) |dθ/du|,

in the coordinates u in which the hyperparameters are sampled.  With draws u_i of p/Z, of weights w_i that sum to 1, and
N points v_j of a density g near it, Meng & Wong (1996, Statistica Sinica 6) find Z as the
one solution of

    Z = mean_j [p(v_j)/(s p(v_j) + t Z g(v_j))] / Σ_i w_i g(u_i)/(s p(u_i) + t Z g(u_i)),

s and t = 1 - s being the shares of effective draws and of points.  Unlike the mean of p/g or of g/p alone, it stays put
where either has the longer tail.  g is a Student t with the weighted mean and covariance of half of the draws; the
other half is bridged.  Then the halves change places, and the two values are averaged.

The standard error is that of the logarithm, by the first derivatives of both means (Frühwirth-Schnatter 2004,
Econometrics Journal 7): draws follow each other in chains, and count for fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from hmcgp.errors import InvalidInput, NotConverged
from hmcgp.model import Model
from hmcgp.numerics import chain_statistics
from hmcgp.posterior.over_draws import GROUP_SIZE, slices
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array

DEGREES_OF_FREEDOM = 8.0  # of the Student t: tails that outlast those of most posteriors
LEAST_DRAWS = 40  # in all: ten from each half of two chains
BEYOND = 20.0  # of the least and the largest log ratio of densities: there lies the solution


class MarginalEvidence(NamedTuple):
    """Log evidence with the hyperparameters integrated out."""

    log_z: float
    se: float  # standard error of log_z

    def __str__(self) -> str:
        return f"{self.log_z:.2f} ± {self.se:.2f}"


def log_marginal_evidence(
    model: Model,
    draws: Draws,
    *,
    log_density: Array | None = None,
    n_chains: int = 1,
    n_points: int = 1000,
    random_state: RandomStateLike = 0,
    n_jobs: int | None = None,
) -> MarginalEvidence:
    """Log evidence of a model, its hyperparameters integrated out, from draws of them.

    Parameters
    ----------
    model : Model
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters, drawn given the data, one chain after another.
    log_density : ndarray of shape (S,), optional
        The model's log density at the draws, in unconstrained coordinates, as `Trace.stats["lp"]` has it; evaluated
        when None.
    n_chains : int, default=1
        Chains that the draws come from, of equal length.
    n_points : int, default=1000
        Other hyperparameters at which the model is evaluated, one solve each: the price of the result.
    random_state : None, int, SeedSequence, Generator or RandomState, default=0
    n_jobs : int, optional
        Workers.  The result does not depend on it.

    Returns
    -------
    MarginalEvidence
        `log_z` and its standard error `se`, which holds as long as chains have found all of the posterior.

    Raises
    ------
    InvalidInput
        For fewer than 40 draws.
    """
    draws = WeightedDraws.of(draws)
    if len(draws) < LEAST_DRAWS:
        raise InvalidInput(
            f"the marginal evidence is an integral over hyperparameters, for which {len(draws)} "
            f"draw{'s are' if len(draws) > 1 else ' is'} too few: sample at least {LEAST_DRAWS} (sampler='hmc')."
        )
    U = np.array([model.unconstrain(theta) for theta in draws.theta])
    if log_density is None:
        log_density = log_densities(model, U, n_jobs=n_jobs)
    if len(draws) % n_chains:
        raise InvalidInput(f"'n_chains' must divide the number of draws, {len(draws)}; got {n_chains}.")
    halves = _halves(len(draws), n_chains)
    rng = as_generator(random_state)
    proposals = [_StudentT.fitted(U[half].reshape(-1, U.shape[1]), draws.weight[half].ravel()) for half in halves]
    points = [g.sample(rng, max(n_points // 2, 2)) for g in proposals]
    at_points = np.split(log_densities(model, np.concatenate(points), n_jobs=n_jobs), 2)
    found = [
        _bridge(log_density[half], g.logpdf(U[half]), draws.weight[half], log_p, g.logpdf(V))
        for half, g, V, log_p in zip(halves[::-1], proposals, points, at_points, strict=True)
    ]
    log_z, of_points, of_draws = np.mean(found, axis=0)
    # points are independent; what the halves say of each other, one as g and one as draws, they say twice
    return MarginalEvidence(float(log_z), float(np.hypot(of_points / np.sqrt(2.0), of_draws)))


def log_densities(model: Model, U: Array, *, n_jobs: int | None = None) -> Array:
    """Log posterior density, not normalised, at unconstrained hyperparameters of shape (S, p); -inf where it fails."""
    calls = [(_of_group, (model, U[rows])) for rows in slices(len(U), GROUP_SIZE)]
    return np.concatenate(run_tasks(calls, resolve_n_jobs(n_jobs, len(calls))))


def _of_group(model: Model, U: Array) -> Array:
    return np.array([model.evaluate(u, gradient=False).logdensity for u in U])


def _halves(n_draws: int, n_chains: int) -> list[NDArray[np.intp]]:
    """Positions of the first and of the second half of every chain, each of shape (n_chains, m)."""
    m = n_draws // n_chains // 2
    places = np.arange(n_draws).reshape(n_chains, -1)
    return [places[:, :m], places[:, -m:]]


@dataclass(frozen=True)
class _StudentT:
    """Multivariate Student t around a mean, with a Cholesky factor of its scale."""

    mean: Array  # (p,)
    L: Array  # (p, p)

    @staticmethod
    def fitted(U: Array, weight: Array) -> _StudentT:
        """With mean and covariance of weighted draws; few say little about correlations, which are drawn in."""
        p = U.shape[1]
        mean = np.average(U, axis=0, weights=weight)
        covariance = np.cov(U.T, aweights=weight).reshape(p, p)
        effective = weight.sum() ** 2 / np.sum(weight**2)
        share = effective / (effective + 2.0 * p)
        spread = np.diag(covariance) + 1e-12
        scale = share * covariance + (1.0 - share) * np.diag(spread)
        return _StudentT(mean, np.linalg.cholesky(scale))

    def sample(self, rng: np.random.Generator, size: int) -> Array:
        """Points, of shape (size, p)."""
        z = rng.standard_normal((size, len(self.mean)))
        return self.mean + (z / np.sqrt(rng.chisquare(DEGREES_OF_FREEDOM, (size, 1)) / DEGREES_OF_FREEDOM)) @ self.L.T

    def logpdf(self, U: Array) -> Array:
        """Log densities at U, of shape (..., p)."""
        p, nu = len(self.mean), DEGREES_OF_FREEDOM
        z = solve_triangular(self.L, (U.reshape(-1, p) - self.mean).T, lower=True)
        constant = gammaln((nu + p) / 2.0) - gammaln(nu / 2.0) - 0.5 * p * np.log(nu * np.pi)
        log_p = constant - np.log(np.diag(self.L)).sum() - 0.5 * (nu + p) * np.log1p(np.sum(z * z, axis=0) / nu)
        return log_p.reshape(U.shape[:-1])


class _Bridged(NamedTuple):
    log_z: float
    of_points: float  # standard error
    of_draws: float


def _bridge(log_p: Array, log_g: Array, weight: Array, log_p_points: Array, log_g_points: Array) -> _Bridged:
    """Bridge between draws in chains, (chains, m), and points of g, (N,), given both log densities at either."""
    weight = weight / weight.mean()
    ratio, at_points = log_p - log_g, log_p_points - log_g_points
    ratio = np.where(weight > 0.0, ratio, np.median(ratio))  # whatever it is, it does not count
    if not np.isfinite(at_points).any():
        raise NotConverged(
            "the evidence could be computed at none of the points around the draws, so it cannot be integrated: sample "
            "more draws, or give narrower priors."
        )
    n_draws = weight.sum() ** 2 / np.sum(weight**2)
    n_draws *= _efficiency(weight * (ratio - np.average(ratio, weights=weight)))
    log_s = np.log(n_draws / (n_draws + len(at_points)))
    log_t = np.log(len(at_points) / (n_draws + len(at_points)))

    def log_terms(log_z: float) -> tuple[Array, Array]:
        """Logarithms of p/(s p + t Z g) at the points, and of Z g/(s p + t Z g) at the draws."""
        return -np.logaddexp(log_s, log_t + log_z - at_points), -np.logaddexp(log_s + ratio - log_z, log_t)

    def excess(log_z: float) -> float:
        """Logarithm of the ratio of their means, which falls as Z grows, through 0 at the solution."""
        log_f, log_h = log_terms(log_z)
        return float(logsumexp(log_f) - np.log(len(log_f)) - logsumexp(log_h, b=weight) + np.log(log_h.size))

    everywhere = np.concatenate([ratio.ravel(), at_points])
    everywhere = everywhere[np.isfinite(everywhere)]
    log_z = brentq(excess, everywhere.min() - BEYOND, everywhere.max() + BEYOND, xtol=1e-10)
    f, h = map(np.exp, log_terms(log_z))
    mean = np.average(h, weights=weight)
    of_points = np.std(f) / np.mean(f) / np.sqrt(len(f))
    return _Bridged(log_z, float(of_points), chain_statistics.mcse_mean(weight * (h - mean)) / mean)


def _efficiency(x: Array) -> float:
    """Effective draws per draw of x, of shape (chains, m), from 0.01 to 1."""
    error = chain_statistics.mcse_mean(x)
    share = np.var(x) / (x.size * error**2) if error > 0.0 else 1.0
    return float(np.clip(share, 0.01, 1.0))
