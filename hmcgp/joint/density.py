"""Exact posterior density of hyperparameters and latent values.

    p(u, f | y) ∝ Π p(y_i | f_i)^ω_i N(f; 0, K(u)) p(u)

In the white coordinates of `hmcgp.joint.whitening`, with r(u, ν) the likelihoods over EP's sites, it is
p(u) Z(u) N(ν; 0, I) r(u, ν).  A move of u at one fixed ν is accepted as far as r varies little along it; the average of
r over N vectors varies less.  With vectors from Student's t,

    p(u, ν_1 … ν_N, k | y) ∝ p(u) Z(u) w(u, ν_k) Π t(ν_j),     w = r N(ν; 0, I)/t(ν),

has the exact posterior of (u, f(u, ν_k)) as a marginal, whatever N and whatever the sites (Andrieu & Roberts 2009;
Filippone & Girolami 2014).  Under t the weights are bounded, so that chains do not stick where one is vast; under a
normal they are not, since sites fall off faster than likelihoods.

Sites and guide must be functions of u alone.  Where the likelihood is log-concave, EP has one solution, found from any
start; where it is not (label noise), there may be several, and EP always starts cold.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.evidence import EP
from hmcgp.joint.whitening import Whitening, factor_prior, whiten
from hmcgp.kernels import contract
from hmcgp.likelihoods import LabelNoise, Likelihood
from hmcgp.model import Model
from hmcgp.numerics.density import NOT_POSITIVE_DEFINITE, Evaluation, failed_evaluation
from hmcgp.runtime.memory import WorkSpace
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State, init

DEGREES = 40.0  # of freedom of t


class Place(NamedTuple):
    """Hyperparameters, with the whitening of the latent values there."""

    guide: State  # u, the guide's log density and its gradient
    sites: object  # carry of EP
    white: Whitening
    likelihood: Likelihood  # with every parameter a number
    log_prior: float  # of u


class Cloud(NamedTuple):
    """Hyperparameters with N vectors of latent values."""

    place: Place
    nu: Array  # (N, n), white coordinates
    f: Array  # (N, n), latent values
    log_ratio: Array  # (N,), log r

    @property
    def log_weight(self) -> Array:
        """Log w, but for a constant, of shape (N,)."""
        square, n = np.einsum("ij,ij->i", self.nu, self.nu), self.nu.shape[1]
        return np.asarray(self.log_ratio - 0.5 * square + 0.5 * (DEGREES + n) * np.log1p(square / DEGREES))

    @property
    def log_density(self) -> float:
        """Log density of (u, ν_1 … ν_N), summed over k, over that of the vectors, but for a constant."""
        value = self.place.log_prior + self.place.white.log_z + float(np.logaddexp.reduce(self.log_weight))
        return value if isfinite(value) else -inf


class Point(NamedTuple):
    """Hyperparameters and latent values."""

    place: Place
    nu: Array  # (n,), white coordinates
    f: Array  # (n,), latent values
    log_ratio: float  # log r

    @property
    def log_joint(self) -> float:
        """Log density of (u, f), but for the constant of the normal density of f."""
        place, white = self.place, self.place.white
        return place.log_prior + white.log_z + self.log_ratio - 0.5 * float(self.nu @ self.nu) - white.log_jacobian

    @property
    def state(self) -> State:
        """State of a chain that stands here; its position is (u, f)."""
        position = np.concatenate([self.place.guide.position, self.f])
        return State(position, self.log_joint, np.zeros_like(position), self)


class Guide:
    """Approximate log density of the hyperparameters, a function of u alone.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.n_dim, self.names = model.n_dim, model.names
        self.constrain, self.initial = model.constrain, model.initial
        self._cold = isinstance(model.likelihood, LabelNoise)

    def evaluate(self, u: Array, carry: object = None, gradient: bool = True) -> Evaluation:
        """Log density and gradient at u."""
        return self.model.evaluate(u, None if self._cold else carry, gradient)


class JointDensity:
    """Exact log density of (u, f), of shape (p + n,).

    Parameters
    ----------
    model : Model
        Of labels.  Its own evidence guides the hyperparameters.
    """

    def __init__(self, model: Model) -> None:
        if model.inducing is not None:
            raise InvalidInput("joint sampling of latent values knows dense covariances only: take inducing=None.")
        self.model = model
        self.guide = Guide(model)
        self.ep = Guide(model.with_evidence(EP()))
        n = len(model.X)
        self.n_dim = model.n_dim + n
        self.names = [*model.names, *(f"f[{i}]" for i in range(n))]
        self._weights = model.likelihood.row_weights(n)

    @property
    def work_space(self) -> WorkSpace:
        """Memory of an evaluation by EP, at least."""
        return self.ep.model.work_space

    def constrain(self, position: Array) -> Array:
        """Natural parameters and latent values at (u, f)."""
        p = self.model.n_dim
        return np.concatenate([self.model.constrain(position[:p]), position[p:]])

    def initial(self, rng: np.random.Generator) -> Array:
        """Draw hyperparameters from the prior, and latent values from EP's Gaussian there."""
        u = self.model.initial(rng)
        nu = rng.standard_normal((1, len(self.model.X)))
        place = self.place(init(self.guide, u))
        return np.concatenate([u, nu[0] if place is None else self.at(place, nu).f[0]])

    def evaluate(self, position: Array, carry: object = None, gradient: bool = True) -> Evaluation:
        """Log density at (u, f), with the `Point` to carry; its gradient is not used, and zero."""
        p = self.model.n_dim
        before = carry.place if isinstance(carry, Point) else None
        place = self.place(init(self.guide, position[:p], before and before.guide.carry), before and before.sites)
        if place is None:
            return failed_evaluation(position, carry, NOT_POSITIVE_DEFINITE)
        f = position[p:]
        point = Point(place, place.white.invert(f), f, float(self.log_ratio(place, f[None])[0]))
        if not point.log_joint > -inf:
            return failed_evaluation(position, carry, NOT_POSITIVE_DEFINITE)
        return Evaluation(point.log_joint, np.zeros_like(position), point)

    def place(self, guide: State, sites: object = None) -> Place | None:
        """Whitening at the hyperparameters of the guide.

        Parameters
        ----------
        guide : State
        sites : object, optional
            `Place.sites` nearby, from which EP starts.

        Returns
        -------
        Place, or None
            Where a solver failed, or where there is no factor.
        """
        if guide.logdensity == -inf:
            return None
        u = guide.position
        if isinstance(self.model.evidence, EP):
            sites = guide.carry
        else:
            found = init(self.ep, u, sites)
            if found.logdensity == -inf:
                return None
            sites = found.carry
        theta = self.model.constrain(u)
        L = factor_prior(contract.covariance(self.model.kernel_at(theta), self.model.X))
        white = None if L is None else whiten(L, *_solution(sites))
        if white is None:
            return None
        return Place(guide, sites, white, self.model.likelihood_at(theta), self.model.log_prior(u)[0])

    def at(self, place: Place, nu: Array) -> Cloud:
        """Latent values of given white coordinates, of shape (N, n)."""
        f = place.white.mean + place.white.offset(nu)
        return Cloud(place, nu, f, self.log_ratio(place, f))

    def log_ratio(self, place: Place, f: Array) -> Array:
        """Log r, of shape (N,), at latent values of shape (N, n)."""
        y = np.broadcast_to(self.model.y, f.shape).ravel()
        log_p = place.likelihood.log_prob(y, f.ravel()).reshape(f.shape)
        value = np.asarray(log_p @ self._weights - place.white.log_sites(f))
        return np.where(np.isnan(value), -inf, value)


def student_draws(rng: np.random.Generator, size: int, n: int) -> Array:
    """White vectors from Student's t, of shape (size, n)."""
    scale = np.sqrt(DEGREES / rng.chisquare(DEGREES, size=(size, 1)))
    return np.asarray(scale * rng.standard_normal((size, n)))


def _solution(carry: Any) -> tuple[Array, Array]:
    """Sites (η, w) of EP, stacked in the first item of its carry."""
    eta, w = np.split(carry[0], 2)
    return eta, w
