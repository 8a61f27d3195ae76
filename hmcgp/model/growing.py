"""Rows that arrive after the fit: posteriors of the latent function updated, draws of the hyperparameters reweighted.

    p(θ | y, y_new) ∝ p(θ | y) p(y_new | y, θ),     p(y_new | y, θ) = Z(y, y_new | θ)/Z(y | θ),

so draws made given y serve on with the weights p(y_new | y, θ), while enough of them matter.  Exact posteriors grow by
the new rows at n² operations each (`evidence.exact`); elsewhere the solution is found anew, warm from the old one.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from hmcgp.evidence import Evidence, EvidenceProvider, SupportsMoreRows, SupportsWarmStart
from hmcgp.kernels import Kernel, contract
from hmcgp.likelihoods import Likelihood, NoisyNumbers
from hmcgp.model.covariance import prior_covariance
from hmcgp.model.model import Model
from hmcgp.priors.joint import Theta
from hmcgp.runtime.interrupts import defer_interrupts
from hmcgp.runtime.memory import array_bytes
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
            if array_bytes(new.posterior) * len(self.draws) <= KEPT_BYTES:
                larger._kept[theta.tobytes()] = new
        return larger, log_weight

    def _extended(self, kernel: Kernel, theta: Array, old: Evidence, X: Array, y: Array) -> Evidence:
        """Evidence of all rows at theta, updated from that of the rows before."""
        n = len(self.y) - len(y)
        support = self.X[:n] if self.inducing is None else self.inducing
        K_cross = contract.cross_covariance(kernel, support, X)
        likelihood, start = self.likelihood_at(theta), None
        unweighted = likelihood.weights is None
        if unweighted and isinstance(old.posterior, SupportsMoreRows) and isinstance(likelihood, NoisyNumbers):
            noise = likelihood.row_noise(len(self.y))[n:]
            new, log_density = old.posterior.extended(K_cross, contract.covariance(kernel, X), y, noise)
            return Evidence(old.log_z + log_density, None, np.empty(0), new, 0, 0.0)
        if isinstance(old.posterior, SupportsWarmStart):
            start = old.posterior.start_with(*old.posterior.predict(K_cross, contract.variances(kernel, X)))
        K = prior_covariance(kernel, self.X, self.inducing, foreign=False)
        return self.evidence(K, self.y, likelihood, start, gradient=False)
