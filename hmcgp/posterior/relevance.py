"""Relevance of inputs: loss of predictive density when an input is replaced by that of another row.

How much worse the target of row i is predicted from all other rows when x_ij is that of another row:

    log p(y_i | x_i, y_-i) - log p(y_i | x_i', y_-i).

No fit is needed without row i: f' = f(x_i') given f_i = f(x_i) is Gaussian, and without y_i, f_i has its cavity
N(μ, v):

    E f' = m' + a(μ - m_i),   var f' = s' - a c + a² v,   a = c/s_i,   c = cov(f', f_i),

from the posterior means m', m_i and variances s', s_i.  (With C classes, a = c s_i⁻¹ and so on, of C x C.)  The
hyperparameters lose row i by the weights 1/p(y_i | y_-i, θ), as in `leave_one_out`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmcgp.model import Model
from hmcgp.posterior.joint import latent_jointly
from hmcgp.posterior.leave_one_out import cavity_of
from hmcgp.posterior.over_draws import SolvedDraw, Statistic, summarise
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array


def losses(
    model: Model, draws: Draws, rows: NDArray[np.intp], permuted: Sequence[Array], *, n_jobs: int | None = None
) -> Array:
    """Loss of log predictive density of training rows when their inputs are changed, of shape (len(permuted), M).

    Parameters
    ----------
    model : Model
        Whose evidence can leave rows out and predict jointly.
    draws : ndarray of shape (S, p), or WeightedDraws
    rows : ndarray of int of shape (M,)
        Rows of the model.
    permuted : sequence of ndarrays of shape (M, d)
        Other inputs for these rows.
    """
    draws = WeightedDraws.of(draws)
    log_p = summarise(_LogDensities(rows, tuple(permuted)), model, draws, n_jobs=n_jobs)  # (S, 2 + k, M)
    log_w = draws.log_weight[:, None, None] - log_p[:, :1]  # draws lose what the row adds to their evidence
    values = np.logaddexp.reduce(log_w + log_p[:, 1:], axis=0) - np.logaddexp.reduce(log_w, axis=0)  # (1 + k, M)
    return np.asarray(values[:1] - values[1:])


@dataclass(frozen=True)
class _LogDensities(Statistic):
    """Log evidence that each row adds to the others, and log density of its target at all inputs: (S, 2 + k, M)."""

    rows: NDArray[np.intp]
    permuted: tuple[Array, ...]

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, 2 + len(self.permuted), len(self.rows)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        cavity, y = cavity_of(draw), draw.model.y
        added = draw.likelihood.log_weighted_average(y, *cavity)  # log_average, where rows have no weights
        out[draw.index, 0] = _by_row(added)[self.rows]
        out[draw.index, 1] = _by_row(draw.likelihood.log_average(y, *cavity))[self.rows]
        for k, X in enumerate(self.permuted):
            moved = [part.copy() for part in cavity]  # of all rows: the noise of some is known
            for part, values in zip(moved, _without_target(draw, self.rows, X, *cavity), strict=True):
                part[self.rows] = values
            out[draw.index, 2 + k] = _by_row(draw.likelihood.log_average(y, *moved))[self.rows]


def _by_row(log_p: Array) -> Array:
    """Joint log density of the columns of y, of shape (n,)."""
    return log_p if log_p.ndim == 1 else log_p.sum(axis=1)


def _without_target(draw: SolvedDraw, rows: NDArray[np.intp], other: Array, mu: Array, v: Array) -> tuple[Array, Array]:
    """Mean and variance of f at other inputs of some rows, without their targets; (mu, v) are the cavities of all."""
    n, mu, v = len(rows), mu[rows], v[rows]
    both = np.concatenate([other, draw.model.X[rows]])
    mean, covariance = latent_jointly(draw.model, draw.kernel, draw.evidence, both)
    i = np.arange(n)
    if covariance.ndim == 2:  # one latent value, or columns that share its covariance
        s, s_own, c = covariance[i, i], covariance[n + i, n + i], covariance[i, n + i]
        a = c / s_own
        shift = (mu - mean[n:]) * (a if mu.ndim == 1 else a[:, None])
        return mean[:n] + shift, np.maximum(s - a * c + a * a * v, 0.0)
    s, s_own, c = covariance[i, :, i], covariance[n + i, :, n + i], covariance[i, :, n + i]  # (M, C, C) each
    a = np.asarray(np.linalg.solve(s_own, c.transpose(0, 2, 1)).transpose(0, 2, 1), dtype=float)
    shift = np.einsum("mab,mb->ma", a, mu - mean[n:])
    return mean[:n] + shift, s - a @ c.transpose(0, 2, 1) + a @ v @ a.transpose(0, 2, 1)
