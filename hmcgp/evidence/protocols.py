"""The contract of an evidence provider, and what posteriors can do.

A provider turns a prior covariance K of the latent values and the targets y into

    log Z = log ∫ p(y | f) N(f; 0, K) df      and      G = ∂ log Z/∂K,

approximately or exactly, and knows nothing of inputs, hyperparameters or priors.  G is symmetric, with
d log Z = Σ_ij G_ij dK_ij; a kernel pulls it back to its own parameters.  Where the likelihood has parameters, with
numbers in their place, their derivatives come too.  Where it has weights, p(y | f) = Π p(y_i | f_i)^ω_i, and log Z and
G are those of rows repeated ω_i times.

Value and gradient come from the same iterate, and every solver stops on its residual.

K is a matrix, or a structure (`LowRank`) of which a provider asks products, determinants and diagonals; the gradient is
then that of the arrays it was made of.  A provider that knows dense matrices only refuses a structure.

All posteriors predict.  What only some of them can do has a protocol here (`SupportsLeaveOneOut`, …), which callers ask
for by isinstance.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence.low_rank import LowRank, LowRankAdjoint, LowRankClasses
from hmcgp.likelihoods import Likelihood
from hmcgp.runtime.typing import Array

Structure: TypeAlias = LowRank | LowRankClasses


@runtime_checkable
class Posterior(Protocol):
    """A Gaussian approximation q(f) = N(Kα, (K⁻¹ + diag w)⁻¹) to the posterior of the latent values."""

    @property
    def start(self) -> Array:
        """A vector from which the next solution can start; it may be interpolated between points."""

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent mean and variance at new inputs.

        Parameters
        ----------
        K_cross : ndarray of shape (n, m)
            Prior covariance between the n training and m new inputs.
        k_diag : ndarray of shape (m,)
            Prior variance at the new inputs.

        Returns
        -------
        mean, variance : ndarrays of shape (m,)
        """


@runtime_checkable
class SupportsLatentMixture(Posterior, Protocol):
    """A posterior that is not Gaussian: its latent predictions are mixtures of Gaussians."""

    @property
    def n_points(self) -> int:
        """Number J of components."""
        ...

    def predict_mixture(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array, Array]:
        """Latent mixture at new inputs (see `Posterior.predict`), whose components differ in their means only.

        Returns
        -------
        weights : ndarray of shape (J,)
            Of the components, with sum 1.
        means : ndarray of shape (J, m)
        variance : ndarray of shape (m,)
            Of every component.
        """
        ...


@runtime_checkable
class SupportsStandardError(Protocol):
    """A posterior whose log evidence is an estimate from random samples."""

    @property
    def standard_error(self) -> float:
        """Standard error of log Z."""
        ...

    @property
    def pareto_k(self) -> float:
        """Shape of the tail of the samples' weights; above 0.7, the standard error is not reliable either."""
        ...

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        ...


@runtime_checkable
class SupportsLeaveOneOut(Protocol):
    """A posterior from which one row can be left out."""

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and variance of every latent value: those without its own target.

        Returns
        -------
        mean : ndarray of shape (n,), (n, k) for k columns of targets, or (n, C) for C classes
        variance : ndarray of shape (n,), or (n, C, C), a covariance, for C classes
        """


@runtime_checkable
class SupportsLeaveGroupsOut(Protocol):
    """A posterior from which groups of rows can be left out."""

    def log_density_without(self, groups: Sequence[NDArray[np.intp]]) -> Array:
        """Log density of the targets of each group of rows given all others, of shape (len(groups),)."""


@runtime_checkable
class SupportsJointPrediction(Posterior, Protocol):
    """A posterior that predicts covariances between new inputs."""

    def predict_jointly(self, K_cross: Array, K_new: Array) -> tuple[Array, Array]:
        """Latent mean, of shape (m,) or (m, k), and covariance, (m, m), at new inputs.

        As `predict`, with the prior covariance of the new inputs, of shape (m, m), in the place of its diagonal.  With
        C classes, of shapes (m, C) and (m, C, m, C).
        """


@runtime_checkable
class SupportsMoreRows(Protocol):
    """A posterior that takes more rows without being solved anew."""

    def extended(self, K_cross: Array, K_new: Array, y: Array, noise: Array) -> tuple[Self, float]:
        """The posterior with more rows, and the log density of their targets given the rows so far.

        Parameters
        ----------
        K_cross : ndarray of shape (n, m)
            Prior covariance between the n rows so far and the m new ones.
        K_new : ndarray of shape (m, m)
            Prior covariance of the new rows.
        y : ndarray of shape (m,) or (m, k)
            Their targets.
        noise : ndarray of shape (m,)
            Variances of their noise.
        """


@runtime_checkable
class SupportsWarmStart(Posterior, Protocol):
    """A posterior from which a solution with more rows can start."""

    def start_with(self, mean: Array, variance: Array) -> Array:
        """Where to start when rows with these latent predictions (`predict`) join."""


class Evidence(NamedTuple):
    """Log evidence, its derivatives, and the posterior it belongs to."""

    log_z: float
    dK: Array | LowRankAdjoint | None  # of the shape of K, symmetric; None where no gradient was asked for
    dlik: Array  # (q,), derivatives in the likelihood's own parameters, all of them, in natural scale
    posterior: Posterior
    n_iter: int
    residual: float


@runtime_checkable
class EvidenceProvider(Protocol):
    """Log evidence of targets under a Gaussian-process prior: what a `Model` asks of a provider (see `Provider`)."""

    supports: ClassVar[tuple[type[Likelihood], ...]]

    def __call__(
        self,
        K: Array | Structure,
        y: Array,
        likelihood: Likelihood,
        start: Array | None = None,
        *,
        gradient: bool = True,
    ) -> Evidence:
        """Evidence of targets y under f ~ N(0, K)."""


@runtime_checkable
class SupportsWorkSpace(Protocol):
    """A provider that says how much memory it needs; two n x n arrays, K and G, are assumed of others."""

    def matrices(self, n_latents: int) -> int:
        """How many n x n arrays an evaluation with its gradient holds at its peak, at least, K and G among them."""
