"""Leaving one row out, without refitting.

For one draw θ of the hyperparameters, with (μ_i, v_i) the cavity: the latent value of row i given all other targets,

    p(y_i | y_-i, θ) = ∫ p(y_i | f) N(f; μ_i, v_i) df.

The cavity is exact for Gaussian noise, part of the solution for EP and TAP, and linear response for Laplace, the naive
mean field and the lower bound (whose ν stay as they are).  The draws were made with y_i among the data, and
p(θ | y_-i) ∝ p(θ | y)/p(y_i | y_-i, θ), so for each row they are weighted anew:

    p(y_i | y_-i) ≈ Σ_s w_is p(y_i | y_-i, θ_s),     w_is ∝ 1/p(y_i | y_-i, θ_s),

(a row of weight ω is left out with all of it, w_is ∝ 1/∫ p(y_i | f)^ω N(f; μ_i, v_i) df, and predicted as one row) with
the largest weights smoothed by a Pareto distribution (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25).  Its shape
k says whether the weights can be trusted: up to 0.7 they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hmcgp import _arviz
from hmcgp._typing import Array
from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user
from hmcgp.model import Model
from hmcgp.predict import each_posterior, per_group

K_LIMIT = 0.7


@dataclass(frozen=True, repr=False, eq=False)
class LeaveOneOut:
    """How well each row is predicted by all others.

    Attributes
    ----------
    elpd : float
        Expected log predictive density: the sum of `pointwise`.
    se : float
        Standard error of `elpd` as an estimate for new rows.
    pointwise : ndarray of shape (n,)
        log p(y_i | y_-i).
    pareto_k : ndarray of shape (n,)
        Shape of the tail of each row's weights; above 0.7 its value is not reliable.  NaN where there is one draw only.
    n_draws : int
        Draws of the hyperparameters that were averaged.
    """

    elpd: float
    se: float
    pointwise: Array
    pareto_k: Array
    n_draws: int

    @property
    def probability(self) -> Array:
        """Probability (density, for numbers) of each observed target given all others, of shape (n,)."""
        return np.exp(self.pointwise)

    @property
    def log_loss(self) -> float:
        """Mean of -log p(y_i | y_-i): what cross-validation with one row per fold estimates."""
        return float(-np.mean(self.pointwise))

    def in_units(self, unit: float) -> LeaveOneOut:
        """The same for targets that are measured in other units: y times `unit`, whose density is that much lower."""
        pointwise = self.pointwise - np.log(unit)
        return replace(self, elpd=float(pointwise.sum()), pointwise=pointwise)

    def __repr__(self) -> str:
        n = len(self.pointwise)
        if self.n_draws == 1:
            weights = "one draw, so its own dependence on each row is not undone"
        else:
            weights = f"{self.n_draws} draws, Pareto k up to {self.pareto_k.max():.2f}"
            n_bad = int(np.sum(self.pareto_k > K_LIMIT))
            weights += f", {n_bad} above {K_LIMIT}" if n_bad else ""
        return f"<LeaveOneOut: elpd {self.elpd:.2f} ± {self.se:.2f}, {n} rows, log loss {self.log_loss:.4f}; {weights}>"


def loo(model: Model, draws: Array, *, r_eff: float = 1.0, n_jobs: int | None = None) -> LeaveOneOut:
    """Leave-one-out predictive densities, averaged over draws of the hyperparameters.

    Parameters
    ----------
    model : Model
        With any evidence whose posterior has a cavity: all but "upper".
    draws : ndarray of shape (S, p)
        Natural hyperparameters, drawn given all rows.
    r_eff : float, default=1.0
        Effective draws per draw, at most 1: decides how many weights count as the tail.
    n_jobs : int, optional
        Workers.  The result does not depend on it.

    Returns
    -------
    LeaveOneOut

    Raises
    ------
    InvalidInput
        For an evidence that has no cavity.

    Warns
    -----
    ApproximationWarning
        When some k exceeds 0.7: the hyperparameters change too much when that row is left out.
    """
    log_p, removed = log_predictive_per_draw(model, draws, n_jobs=n_jobs), None
    if model.likelihood.weights is not None:
        removed = np.concatenate(per_group(_log_removed, model, draws, n_jobs=n_jobs))
    return combine(log_p, removed, r_eff=r_eff)


def log_predictive_per_draw(model: Model, draws: Array, *, n_jobs: int | None = None) -> Array:
    """Log p(y_i | y_-i, θ_s) for each draw and row, of shape (S, n) (see `loo`)."""
    return np.concatenate(per_group(_log_predictive, model, draws, n_jobs=n_jobs))


def cavities(model: Model, draws: Array, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of each latent value given all other targets, for each draw: two arrays of shape (S, n)."""
    mean, variance = np.concatenate(per_group(_cavities, model, draws, n_jobs=n_jobs), axis=1)
    return mean, variance


def _log_predictive(model: Model, draws: Array) -> Array:
    out = np.empty((len(draws), len(model.y)))
    for s, moments in _each_cavity(model, draws):
        out[s] = model.bound_likelihood(draws[s]).log_average(model.y, *moments)
    return out


def _log_removed(model: Model, draws: Array) -> Array:
    """How much each row, with its weight, adds to the log evidence, of shape (S, n)."""
    out = np.empty((len(draws), len(model.y)))
    for s, moments in _each_cavity(model, draws):
        out[s] = model.bound_likelihood(draws[s]).log_weighted_average(model.y, *moments)
    return out


def _cavities(model: Model, draws: Array) -> Array:
    found = dict(_each_cavity(model, draws))
    return np.stack([found[s] for s in range(len(draws))], axis=1)


def _each_cavity(model: Model, draws: Array) -> Iterator[tuple[int, tuple[Array, Array]]]:
    """Yield s, and mean and variance of the latent values of every row without its own target.

    Of shape (n,); with C classes (n, C) and, a covariance, (n, C, C).
    """
    for s, _, evidence in each_posterior(model, draws):
        if not hasattr(evidence.posterior, "cavity"):
            raise InvalidInput(
                f"{type(model.evidence).__name__} cannot take one row out of its posterior. Fit with another evidence, "
                "or take model.with_evidence(...)."
            )
        yield s, evidence.posterior.cavity()


def combine(log_p: Array, removed: Array | None = None, *, r_eff: float = 1.0) -> LeaveOneOut:
    """Average log p(y_i | y_-i, θ_s), of shape (S, n), over draws with Pareto-smoothed weights (see `loo`).

    The draws lose what each row adds to their log evidence: `removed`, or log_p itself.
    """
    n_draws, n = log_p.shape
    if n_draws == 1:
        pointwise, k = log_p[0], np.full(n, np.nan)
    else:
        log_w, k = _arviz.psis(
            -(log_p if removed is None else removed).T, r_eff
        )  # (n, S): each row has weights of its own
        pointwise = np.logaddexp.reduce(log_w + log_p.T, axis=1)
    result = LeaveOneOut(float(pointwise.sum()), float(np.sqrt(n * np.var(pointwise))), pointwise, k, n_draws)
    bad = np.flatnonzero(k > K_LIMIT)
    if len(bad):
        warn_user(
            f"leave-one-out is not reliable for {len(bad)} of {n} rows (Pareto k > {K_LIMIT}, up to {k.max():.2f}; "
            f"rows {', '.join(map(str, bad[:5]))}{', …' if len(bad) > 5 else ''}): the hyperparameters depend on them, "
            "or there are few draws. Draw more, or fit again without these rows.",
            ApproximationWarning,
        )
    return result
