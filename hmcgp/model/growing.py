"""Rows that arrive after the fit: posteriors of the latent function updated, draws of the hyperparameters reweighted.

    p(θ | y, y_new) ∝ p(θ | y) p(y_new | y, θ),     p(y_new | y, θ) = Z(y, y_new | θ)/Z(y | θ),

so draws made given y serve on with the weights p(y_new | y, θ), while enough of them matter.  For numbers with Gaussian
noise the factor of C = K + diag noise grows by the new rows at n² operations each,

    C' = (C  B)       L' = (L   0)      M = L⁻¹B,   NN' = D - M'M,
         (B' D)            (M'  N)

and elsewhere the solution is found anew, warm from the old one.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.errors import NotPositiveDefinite
from hmcgp.evidence import Evidence, EvidenceProvider
from hmcgp.evidence.exact.provider import ExactPosterior
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import Likelihood, NoisyNumbers
from hmcgp.model.model import Model
from hmcgp.priors.joint import Theta
from hmcgp.runtime.interrupts import defer_interrupts
from hmcgp.runtime.typing import Array

KEPT_BYTES = 2**30  # of posteriors, mostly factors; beyond, they are computed whenever they are needed


class GrowingModel(Model):
    """Model that keeps the latent posteriors of some draws, and takes more rows.

    Parameters
    ----------
    model : Model
    draws : ndarray of shape (S, p)
        The draws whose posteriors are kept, where memory allows (`KEPT_BYTES`).
    """

    def __init__(self, model: Model, draws: Array) -> None:
        self.__dict__.update(model.__dict__)
        self.draws = draws
        self._kept: dict[bytes, Evidence] = {}

    @defer_interrupts
    def posterior(self, theta: Theta, start: Array | None = None) -> tuple[Kernel, Evidence]:
        """Kernel with values and latent posterior at theta: the kept one, if there is one."""
        vector = self.theta_vector(theta)
        kept = self._kept.get(vector.tobytes())
        return (self.kernel_at(vector), kept) if kept is not None else super().posterior(vector, start)

    def with_evidence(self, evidence: str | EvidenceProvider) -> Self:
        """Model with another evidence (see `Model.with_evidence`), and no posteriors kept."""
        other = super().with_evidence(evidence)
        other._kept = {}
        return other

    @defer_interrupts
    def grown(self, X: Array, y: Array, likelihood: Likelihood | None = None) -> tuple[GrowingModel, Array]:
        """Model with more rows, and the log weight that they give each draw.

        Parameters
        ----------
        X : ndarray of shape (m, d)
            New inputs, scaled as the model's.
        y : ndarray of shape (m,)
            Their targets.
        likelihood : Likelihood, optional
            See `Model.with_rows`.

        Returns
        -------
        model : GrowingModel
        log_weight : ndarray of shape (S,)
            log p(y_new | y, θ_s).
        """
        larger = GrowingModel(self.with_rows(X, y, likelihood), self.draws)
        log_weight = np.empty(len(self.draws))
        start = None
        for s, theta in enumerate(self.draws):
            kernel, old = self.posterior(theta, start)
            start = old.posterior.start
            new = larger._extended(kernel, theta, old, X, y)
            log_weight[s] = new.log_z - old.log_z
            if _bytes(new.posterior) * len(self.draws) <= KEPT_BYTES:
                larger._kept[theta.tobytes()] = new
        return larger, log_weight

    def _extended(self, kernel: Kernel, theta: Array, old: Evidence, X: Array, y: Array) -> Evidence:
        """Evidence of all rows at theta, updated from that of the rows before."""
        n = len(self.y) - len(y)
        K_cross = contract.cross_covariance(kernel, self.X[:n], X)
        likelihood, start = self.likelihood_at(theta), None
        unweighted = likelihood.weights is None
        if unweighted and isinstance(old.posterior, ExactPosterior) and isinstance(likelihood, NoisyNumbers):
            noise = likelihood.row_noise(len(self.y))[n:]
            return _extended_exactly(old, old.posterior, K_cross, contract.covariance(kernel, X), y, noise)
        if hasattr(old.posterior, "start_with"):
            start = old.posterior.start_with(*old.posterior.predict(K_cross, contract.variances(kernel, X)))
        return self.evidence(contract.covariance(kernel, self.X), self.y, likelihood, start, gradient=False)


def _bytes(posterior: object) -> int:
    """Memory that the arrays of a posterior take, those of one inside it included."""
    parts = vars(posterior).values()
    own = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    return own + sum(_bytes(part) for part in parts if hasattr(part, "predict"))


def _extended_exactly(
    old: Evidence, posterior: ExactPosterior, K_cross: Array, K_new: Array, y: Array, noise: Array
) -> Evidence:
    """Evidence of exact regression with more rows; symbols as in the header of this module."""
    assert posterior.L is not None
    L, n, m = posterior.L, len(posterior.alpha), len(y)
    columns = y.size // m
    M = solve_triangular(L, K_cross, lower=True, check_finite=False)
    try:
        N = np.linalg.cholesky(K_new + np.diag(noise) - M.T @ M)
    except np.linalg.LinAlgError as error:
        raise NotPositiveDefinite(
            "the new rows make K + diag noise singular: are they copies, without noise?"
        ) from error
    larger = np.zeros((n + m, n + m))
    larger[:n, :n], larger[n:, :n], larger[n:, n:] = L, M.T, N
    targets = np.concatenate([posterior.f + (posterior.noise * posterior.alpha.T).T, y])
    z = np.empty(targets.shape)  # L'⁻¹y
    z[:n] = solve_triangular(L, targets[:n], lower=True, check_finite=False)
    z[n:] = solve_triangular(N, y - M.T @ z[:n], lower=True, check_finite=False)
    alpha = solve_triangular(larger, z, lower=True, trans=1, check_finite=False)
    log_root = float(np.log(np.diag(N)).sum()) + 0.5 * m * math.log(2.0 * math.pi)
    log_density = -0.5 * float(np.vdot(z[n:], z[n:])) - columns * log_root
    all_noise = np.concatenate([posterior.noise, noise])
    new = ExactPosterior(targets - (all_noise * alpha.T).T, alpha, all_noise, larger)
    return Evidence(old.log_z + log_density, None, np.empty(0), new, 0, 0.0)


def effective_share(log_weight: Array) -> tuple[Array, float]:
    """Normalised weights, of shape (S,), and the effective share of the draws, (Σw)²/(S Σw²)."""
    w = np.exp(log_weight - log_weight.max())
    w /= w.sum()
    return w, float(1.0 / (len(w) * np.sum(w * w)))


def resampled(weights: Array) -> Array:
    """Systematic resampling: S positions, each draw as often as its weight says, up to rounding."""
    S = len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), (np.arange(S) + 0.5) / S), S - 1)
