"""Expectation propagation for several classes (Riihimäki, Jylänki & Vehtari 2013, JMLR 14; Girolami & Rogers 2006).

Behind a multinomial probit, y = argmax_c (f_c + e_c) with e_c ~ N(0, 1), C latent functions f_c ~ N(0, K_c).  With the
noise of a row's own class as one more latent value, u_i ~ N(0, 1),

    p(y_i | f_i) = E[Π_{j≠y_i} Φ(h_ij)],   h_ij = u_i + f_{y_i, i} - f_ji,   h = u + Bf,

each factor is a probit of one variable h_ij, Gaussian beforehand: h ~ N(0, H), H = cov u + B blockdiag(K_c) B'.  So
this is expectation propagation of n(C - 1) labels, all +1, with closed-form moments (`hmcgp.evidence.ep`): the "nested"
EP of the paper at its convergence, no integral by quadrature, and all posterior correlations between classes kept.  The
gradient is exact for the same reason as there:

    G_h = ½(xx' - R),   R = (H + diag(w)⁻¹)⁻¹,   G_c = ∂ log Z/∂K_c = (B'G_h B)_cc.

Latent predictions: means k_c'(B'x)_c, covariance between classes δ_ab k** - k_a'(B'RB)_ab k_b.

Two classes with covariances K_0, K_1 are the binary probit with (K_0 + K_1)/2, under this approximation too.  From
three classes on, the C - 1 factors of a row are approximated one by one, which has a price even where the prior
vanishes: log Z per row is then too low by 0.002 with three classes, by 0.007 with six and by 0.011 with ten.

Leaving out row i takes all its sites away.  As a function of f_i these are Gaussian with the precision

    Π_i = diag a - aa'/Σa,   a_j = w_ij for j ≠ y_i and a_{y_i} = 1,

whence the covariance (S_i⁻¹ - Π_i)⁻¹, S_i being that of the C latents at row i under q, and the means as everywhere.

Costs (C - 1)³ times as much as two classes do: where C - 1 times the rows exceed a few thousand, `SoftmaxLaplace`,
which costs C times as much, is the one to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from hmcgp._likelihood_core import PROBIT
from hmcgp._typing import Array
from hmcgp.evidence import _ep_core as ep
from hmcgp.evidence import _ep_state_core as state
from hmcgp.evidence._multinomial_core import covariance_of_differences, pull_back
from hmcgp.evidence._solver import (
    check_settings,
    leave_out_row,
    needs_factor,
    raise_for_sites,
    symmetric,
)
from hmcgp.evidence.base import Evidence
from hmcgp.likelihoods import Likelihood, MultinomialProbit


def differences(y: Array, n_classes: int) -> csr_array:
    """The matrix B of h = u + Bf, of shape (n (C - 1), C n), f class after class."""
    n, own = len(y), y.astype(int)
    row, other = np.nonzero(np.arange(n_classes) != own[:, None])
    site = np.arange(len(row))
    signs = np.concatenate([np.ones(len(row)), -np.ones(len(row))])
    columns = np.concatenate([own[row] * n + row, other * n + row])
    return csr_array((signs, (np.concatenate([site, site]), columns)), shape=(len(row), n_classes * n))


@dataclass(frozen=True)
class MultinomialPosterior:
    """N(f, (K⁻¹ + Π)⁻¹) over all classes together."""

    f: Array  # (C, n) mean
    alpha: Array  # (C, n) K⁻¹ f
    eta: Array  # (n (C - 1),) of the sites
    w: Array  # (n (C - 1),) their precisions
    y: Array  # (n,) the classes
    R: Array | None  # (C, n, C, n) (K + Π⁻¹)⁻¹; None where the gradient has used its memory
    K: Array | None  # (k, n, n), lower triangles: prior covariance, one for all classes or one for each

    @property
    def start(self) -> Array:
        """The sites (η, w), stacked, of shape (2 n (C - 1),)."""
        return np.concatenate([self.eta, self.w])

    def start_with(self, mean: Array, variance: Array) -> Array:
        """Where to start when rows with these latent predictions join: their sites say nothing yet."""
        return np.pad(self.start.reshape(2, -1), ((0, 0), (0, mean.shape[0] * (mean.shape[1] - 1)))).ravel()

    def site_precision(self) -> Array:
        """Π_i of each row, of shape (n, C, C)."""
        n_classes, n = self.f.shape
        a = np.ones((n, n_classes))
        a[np.arange(n_classes) != self.y[:, None]] = self.w
        return a[:, :, None] * np.eye(n_classes) - a[:, :, None] * a[:, None, :] / a.sum(axis=1)[:, None, None]

    def cavity(self) -> tuple[Array, Array]:
        """Leave-one-out mean and covariance of the latents of every row, of shapes (n, C) and (n, C, C)."""
        K = symmetric(needs_factor(self.K, "for cavities"))
        _, S = self.predict(K, np.diagonal(K, axis1=1, axis2=2))
        return leave_out_row(self.f, self.alpha, S, self.site_precision())

    def predict(self, K_cross: Array, k_diag: Array) -> tuple[Array, Array]:
        """Latent means (m, C) and covariances (m, C, C) at new inputs (see `SoftmaxPosterior.predict`)."""
        R = needs_factor(self.R, "to predict")
        n_classes, n = self.f.shape
        crosses = np.broadcast_to(K_cross, (n_classes, n, K_cross.shape[-1]))
        mean = np.einsum("cnm,cn->mc", crosses, self.alpha)
        covariance = np.zeros((mean.shape[0], n_classes, n_classes))
        diagonal = np.arange(n_classes)
        covariance[:, diagonal, diagonal] = np.broadcast_to(k_diag, (n_classes, mean.shape[0])).T
        for b in range(n_classes):
            solved = (R[:, :, b].reshape(-1, n) @ crosses[b]).reshape(n_classes, n, -1)
            covariance[:, :, b] -= np.einsum("anm,anm->ma", crosses, solved)
        # rounding can leave a variance of -1e-16 where it is 0
        covariance[:, diagonal, diagonal] = np.maximum(covariance[:, diagonal, diagonal], 0.0)
        return mean, 0.5 * (covariance + covariance.transpose(0, 2, 1))


@dataclass(frozen=True)
class MultinomialEP:
    """Expectation propagation for several classes: a Gaussian site for every row and every class that it is not.

    Parameters
    ----------
    tol : float, default=1e-10
        Residual, in units of the standard deviations of q, at which the sites are found (see `EP`).
    max_iter : int, default=200
        Factorisations (sweeps) before `NotConverged` is raised; three to seven are usual.
    """

    tol: float = 1e-10
    max_iter: int = 200
    supports: ClassVar[tuple[type[Likelihood], ...]] = (MultinomialProbit,)

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(
        self, K: Array, y: Array, likelihood: Likelihood, start: Array | None = None, *, gradient: bool = True
    ) -> Evidence:
        """Evidence of classes y under f_c ~ N(0, K_c).

        Parameters
        ----------
        K : ndarray of shape (n, n) or (C, n, n)
            Prior covariance that all classes share, or one for each; only lower triangles are read.
        y : ndarray of shape (n,)
            Classes 0.0, 1.0, …, C - 1.
        likelihood : MultinomialProbit
        start : ndarray of shape (2 n (C - 1),), optional
            Sites (η, w) at nearby hyperparameters, stacked.
        gradient : bool, default=True
            Without it, what `posterior.predict` needs is kept.

        Returns
        -------
        Evidence
            `dK` has the shape of K: one matrix per class, or their sum where K is shared.  `n_iter` is the number of
            sweeps, one factorisation less than were made.
        """
        assert isinstance(likelihood, MultinomialProbit)
        n_classes, n, warm = likelihood.count(y), len(y), start is not None
        stack = K.reshape((-1, n, n))
        H, labels = covariance_of_differences(stack, y, n_classes), np.ones(n * (n_classes - 1))
        status, n_factor, residual, log_z, _, a, R = ep.solve(
            H, labels, PROBIT, 0.0, start if warm else labels, warm, self.tol, self.max_iter, False, gradient
        )
        raise_for_sites(self, status, n_factor, residual, H)
        B = differences(y, n_classes)
        alpha = (B.T @ a[state.X]).reshape(n_classes, n)
        f = np.stack([symmetric(stack[c % len(stack)]) @ alpha[c] for c in range(n_classes)])
        dK, R_f = None, None
        if gradient:
            dK = np.zeros(K.shape)
            pull_back(R, y, dK.reshape(stack.shape))
        else:
            R_f = (B.T @ (B.T @ R).T).reshape(n_classes, n, n_classes, n)
        posterior = MultinomialPosterior(
            f, alpha, a[state.X] + a[state.W] * a[state.MEAN], a[state.W], y, R_f, None if gradient else stack
        )
        return Evidence(log_z, dK, np.empty(0), posterior, n_factor - 1, residual)
