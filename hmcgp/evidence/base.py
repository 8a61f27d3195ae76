"""The contract of an evidence provider.

A provider turns a prior covariance K of the latent values and the targets y into

    log Z = log ∫ p(y | f) N(f; 0, K) df      and      G = ∂ log Z/∂K,

approximately or exactly, and knows nothing of inputs, hyperparameters or priors.  G is symmetric, with
d log Z = Σ_ij G_ij dK_ij; a kernel pulls it back to its own parameters.  Where the likelihood has parameters, with
numbers in their place, their derivatives come too.  Where it has weights, p(y | f) = Π p(y_i | f_i)^ω_i, and log Z and
G are those of rows repeated ω_i times.

Value and gradient come from the same iterate, and every solver stops on its residual.

A provider may say, by `matrices(n_latents)`, how many n x n arrays an evaluation with its gradient holds at its peak, K
and G among them: at least, for so many latent functions.  Two are assumed where it does not.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from hmcgp.likelihoods import Likelihood
from hmcgp.runtime.typing import Array


class Posterior(Protocol):
    """A Gaussian approximation q(f) = N(Kα, (K⁻¹ + diag w)⁻¹) to the posterior of the latent values.

    Those of all providers but the upper bound also have `cavity()`: mean and variance of every latent value without its
    own target, each of shape (n,), which leaves one out.
    """

    @property
    def start(self) -> Array:
        """What the next solution can start from: a vector that may be extrapolated along a path."""
        ...

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
        ...


class Evidence(NamedTuple):
    """Log evidence, its derivatives, and the posterior it belongs to."""

    log_z: float
    dK: Array | None  # (n, n), symmetric; None where no gradient was asked for
    dlik: Array  # (q,), derivatives in the likelihood's own parameters, all of them, in natural scale
    posterior: Posterior
    n_iter: int
    residual: float


class EvidenceProvider(Protocol):
    """Log evidence of targets under a Gaussian-process prior."""

    supports: ClassVar[tuple[type[Likelihood], ...]]

    def __call__(
        self, K: Array, y: Array, likelihood: Likelihood, start: Array | None = None, *, gradient: bool = True
    ) -> Evidence:
        """Evidence of targets y under f ~ N(0, K).

        Raises
        ------
        NotPositiveDefinite, NotConverged
            The only two errors that come from the numbers; `hmcgp.model` catches them.
        """
        ...
