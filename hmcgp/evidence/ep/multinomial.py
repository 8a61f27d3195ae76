"""Expectation propagation for several classes (Riihimäki, Jylänki & Vehtari 2013, JMLR 14; Girolami & Rogers 2006).

Behind a multinomial probit, y = argmax_c (f_c + e_c) with e_c ~ N(0, 1), C latent functions f_c ~ N(0, K_c).  With the
noise of a row's own class as one more latent value, u_i ~ N(0, 1),

    p(y_i | f_i) = E[Π_{j≠y_i} Φ(h_ij)],   h_ij = u_i + f_{y_i, i} - f_ji,   h = u + Bf,

each factor is a probit of one variable h_ij, Gaussian beforehand: h ~ N(0, H), H = cov u + B blockdiag(K_c) B'.  So
this is expectation propagation of n(C - 1) labels, all +1, with closed-form moments (`hmcgp.evidence.ep`): the "nested"
EP of the paper at its convergence, no integral by quadrature, and all posterior correlations between classes kept.  The
gradient is exact for the same reason as there:

    G_h = ½(xx' - R),   R = (H + diag(w)⁻¹)⁻¹,   G_c = ∂ log Z/∂K_c = (B'G_h B)_cc.

Two classes with covariances K_0, K_1 are the binary probit with (K_0 + K_1)/2, under this approximation too.  From
three classes on, the C - 1 factors of a row are approximated one by one, which has a price even where the prior
vanishes: log Z per row is then too low by 0.002 with three classes, by 0.007 with six and by 0.011 with ten.

As a function of f_i alone, the sites of row i are Gaussian with the precision

    Π_i = diag a - aa'/Σa,   a_j = w_ij for j ≠ y_i and a_{y_i} = 1,

that of a softmax with a in the place of the probabilities.  So latent predictions are those of `SoftmaxPosterior`, and
leaving out row i gives the latent values there the covariance (S_i⁻¹ - Π_i)⁻¹, S_i being that under q.

A sweep costs (C - 1)³n³ with up to three classes and (3C/2 + ½(C - 1)²)n³ with more (`class_contrasts`), and three to
six are usual.  Memory is needed for two matrices of order n(C - 1), with up to three classes for three.  Rows with
weights count as often as their weights say (`multinomial_copies`).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hmcgp.evidence.base import SiteProvider
from hmcgp.evidence.ep import multinomial_copies as rows
from hmcgp.evidence.ep import multinomial_sweeps as core
from hmcgp.evidence.ep.site_state import ALPHA, MEAN, PRECISION
from hmcgp.evidence.laplace.softmax import SoftmaxPosterior, covariance_stack
from hmcgp.evidence.protocols import Evidence
from hmcgp.evidence.status import NOT_POSITIVE_DEFINITE, raise_for_status
from hmcgp.likelihoods import Likelihood, MultinomialProbit
from hmcgp.runtime.typing import Array


@dataclass(frozen=True)
class MultinomialPosterior(SoftmaxPosterior):
    """N(f, (K⁻¹ + Π)⁻¹) with f the mean, over all classes together; `p` holds a."""

    sites: Array  # (2 n (C - 1),) η and w of the sites, stacked; of one copy of each row

    @property
    def start(self) -> Array:
        """The sites (η, w), stacked: likelihoods hardly change when the prior does."""
        return self.sites

    def start_with(self, mean: Array, variance: Array) -> Array:
        """The sites, those of the new rows 0: they say nothing yet."""
        n_new = mean.shape[0] * (mean.shape[1] - 1)
        return np.pad(self.sites.reshape(2, -1), ((0, 0), (0, n_new))).ravel()


@dataclass(frozen=True)
class MultinomialEP(SiteProvider):
    """Expectation propagation for several classes: a Gaussian site for every row and every class that it is not.

    Parameters
    ----------
    tol : float, default=1e-10
        Residual, in units of the standard deviations of q, at which the sites are found (see `EP`).
    max_iter : int, default=200
        Factorisations (sweeps) before `NotConverged` is raised; three to six are usual.
    """

    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (MultinomialProbit,)

    def matrices(self, n_latents: int) -> int:
        return n_latents**2

    def _solve(self, K: Array, y: Array, likelihood: Likelihood, start: Array | None, gradient: bool) -> Evidence:
        assert isinstance(likelihood, MultinomialProbit)
        n_classes, copies = likelihood.count(y), likelihood.copies(len(y))
        begin, warm = self.starting_point(start, y, 2 * len(y) * (n_classes - 1))
        if (copies == 1).all():
            return self._solve_rows(K, y, n_classes, begin, warm, gradient)
        begin = rows.repeat_sites(begin, copies) if warm else y
        found = self._solve_rows(rows.repeat_rows(K, copies), y.repeat(copies), n_classes, begin, warm, gradient)
        stack = covariance_stack(K, n_classes)
        posterior, positive = rows.fold_posterior(found.posterior, stack, copies, not gradient)
        if not positive:
            raise_for_status(self, NOT_POSITIVE_DEFINITE, found.n_iter + 1, found.residual, stack[0])
        dK = rows.fold_gradient(found.dK, copies) if isinstance(found.dK, np.ndarray) else None
        return found._replace(dK=dK, posterior=posterior)

    def _solve_rows(self, K: Array, y: Array, n_classes: int, start: Array, warm: bool, gradient: bool) -> Evidence:
        """Evidence of rows that count once."""
        stack = covariance_stack(K, n_classes)
        if not (np.einsum("kii->ki", stack) >= 0.0).all():  # NaN fails too
            raise_for_status(self, NOT_POSITIVE_DEFINITE, 0, np.inf, stack[0])
        status, n_factor, residual, log_z, state, f, x, precision, A, M, dK = core.solve(
            stack, y, n_classes, start, warm, self.tol, self.max_iter, gradient
        )
        raise_for_status(self, status, n_factor, residual, stack[np.argmax(np.einsum("kii->k", stack))])
        sites = np.concatenate([state[ALPHA] + state[PRECISION] * state[MEAN], state[PRECISION]])
        kept = (None, None, None) if gradient else (A, M, stack)
        posterior = MultinomialPosterior(f, x, precision, kept[0], kept[1], kept[2], sites)
        G = dK.reshape(K.shape) if gradient else None
        return Evidence(log_z, G, np.empty(0), posterior, n_factor - 1, residual)
