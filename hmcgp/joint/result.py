"""Joint draws of hyperparameters and latent values, and predictions from them.

    p(y* | y) = (1/S) Σ_s ∫ p(y* | f*) N(f*; k*'K_s⁻¹f_s, k** - k*'K_s⁻¹k*) df*

with K_s = LL' that of draw s: K⁻¹ is applied as L'⁻¹L⁻¹, and L is the factor with which the draw was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from hmcgp.errors import InvalidInput
from hmcgp.joint.whitening import factor_prior
from hmcgp.kernels import contract
from hmcgp.model import Model
from hmcgp.numerics import chain_statistics
from hmcgp.posterior.over_draws import GROUP_SIZE, slices
from hmcgp.posterior.row_blocks import BLOCK_BYTES
from hmcgp.reporting import arviz_export
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace


@dataclass(frozen=True, eq=False)
class JointSample:
    """Draws of hyperparameters and latent values from their exact posterior.

    Attributes
    ----------
    model : Model
    trace : Trace
        Hyperparameters; `hmcgp.diagnostics.summary(trace)` has their R-hat and effective numbers of draws.
    latent : ndarray of shape (chains, draws, n)
        Latent value of every training row, draw by draw.
    """

    model: Model
    trace: Trace
    latent: Array

    def __repr__(self) -> str:
        return f"<JointSample: {self.trace!r}, with {self.latent.shape[2]} latent values>"

    def predict_proba(self, X: ArrayLike, *, n_jobs: int | None = None) -> Array:
        """Probabilities of the classes at new inputs, averaged over all draws.

        Parameters
        ----------
        X : array-like of shape (m, d)
            New inputs, scaled as the model's.
        n_jobs : int, optional
            Workers; the result does not depend on it.

        Returns
        -------
        ndarray of shape (m, 2)
            Of the labels -1 and +1.
        """
        rows = np.asarray(X, dtype=float)
        if rows.ndim != 2 or rows.shape[1] != self.model.X.shape[1] or not np.isfinite(rows).all():
            raise InvalidInput(
                f"'X' must be finite numbers of shape (m, {self.model.X.shape[1]}), with the columns of the model's "
                f"inputs; got shape {rows.shape}."
            )
        theta, f = self.trace.flat, self.latent.reshape(len(self.trace), -1)
        groups = slices(len(theta), GROUP_SIZE)
        calls = [(sum_probabilities, (self.model, theta[group], f[group], rows)) for group in groups]
        sums = np.sum(run_tasks(calls, resolve_n_jobs(n_jobs, len(calls))), axis=0)
        return self.model.likelihood.normalised(sums.T)

    def to_arviz(self) -> Any:
        """Draws as the installed arviz's container; the latent values are the variable `f` of the posterior.

        Returns
        -------
        arviz.InferenceData (arviz 0.2x) or xarray.DataTree (arviz 1.x)
        """
        return arviz_export.build_tree(
            self.trace,
            self.model.parameters,
            observed_data={"y": self.model.y},
            constant_data={"X": self.model.X},
            features=self.model.input_names,
            latent=self.latent,
        )

    def latent_ess(self) -> Array:
        """Effective number of draws (bulk) of every latent value, of shape (n,)."""
        return np.array([chain_statistics.ess_bulk(values) for values in np.moveaxis(self.latent, 2, 0)])


def sum_probabilities(model: Model, draws: Array, latent: Array, X: Array) -> Array:
    """Sum over draws of the class probabilities at new inputs.

    Parameters
    ----------
    model : Model
    draws : ndarray of shape (S, p)
        Natural hyperparameters.
    latent : ndarray of shape (S, n)
    X : ndarray of shape (m, d)

    Returns
    -------
    ndarray of shape (2, m)
    """
    out = np.zeros((2, len(X)))
    blocks = slices(len(X), max(BLOCK_BYTES // (16 * len(model.X)), 1))
    for theta, f in zip(draws, latent, strict=True):
        kernel, likelihood = model.kernel_at(theta), model.likelihood_at(theta)
        L = factor_prior(contract.covariance(kernel, model.X))
        assert L is not None  # it was found when the draw was made
        white = solve_triangular(L, f, lower=True)
        for rows in blocks:
            V = solve_triangular(L, contract.cross_covariance(kernel, model.X, X[rows]), lower=True)
            variance = contract.variances(kernel, X[rows]) - np.einsum("nm,nm->m", V, V)
            out[:, rows] += likelihood.class_probabilities(V.T @ white, np.maximum(variance, 0.0))
    return out
