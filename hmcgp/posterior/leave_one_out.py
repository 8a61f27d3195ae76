"""Leaving one row out, without refitting.

For one draw θ of the hyperparameters, with (μ_i, v_i) the cavity: the latent value of row i given all other targets,

    p(y_i | y_-i, θ) = ∫ p(y_i | f) N(f; μ_i, v_i) df.

The cavity is exact for Gaussian noise, part of the solution for EP and TAP, and linear response for Laplace, the naive
mean field and the lower bound (whose ν stay as they are).  With a Student-t likelihood, rows whose removal moves other
latent values too far for linear response are solved again without the row (`StudentPosterior.cavity`).  The draws were
made with y_i among the data, and p(θ | y_-i) ∝ p(θ | y)/p(y_i | y_-i, θ), so for each row they are weighted again:

    p(y_i | y_-i) ≈ Σ_s w_is p(y_i | y_-i, θ_s),     w_is ∝ 1/p(y_i | y_-i, θ_s),

(a row of weight ω is left out with all of it, w_is ∝ 1/∫ p(y_i | f)^ω N(f; μ_i, v_i) df, and predicted as one row) with
the largest weights smoothed by a Pareto distribution (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25).  Its shape
k says whether the weights can be trusted: up to 0.7 they can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import ApproximationWarning, InvalidInput, warn_user
from hmcgp.evidence import Iterative, SupportsLeaveGroupsOut, SupportsLeaveOneOut
from hmcgp.model import Model
from hmcgp.numerics import pareto
from hmcgp.numerics.weighted import K_LIMIT
from hmcgp.posterior.over_draws import Group, SolvedDraw, Statistic, summarise
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime import arviz_compat
from hmcgp.runtime.typing import Array


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
    p_loo : float
        Effective number of hyperparameters: how much higher the sum of log p(y_i | y_-i, θ) is where θ was drawn with
        y_i among the data.
    """

    elpd: float
    se: float
    pointwise: Array
    pareto_k: Array
    n_draws: int
    p_loo: float = np.nan

    @property
    def probability(self) -> Array:
        """Probability (density, for numbers) of each observed target given all others, of shape (n,)."""
        return np.exp(self.pointwise)

    @property
    def log_loss(self) -> float:
        """Mean of -log p(y_i | y_-i): what cross-validation with one row per fold estimates."""
        return float(-np.mean(self.pointwise))

    def to_arviz(self) -> Any:
        """Convert to arviz's own `ELPDData`, for `arviz.compare`, `arviz.plot_khat` and others.

        `arviz.compare({"a": a.loo().to_arviz(), "b": b.loo().to_arviz()})` ranks fits of the same rows, as
        `hmcgp.compare` does.
        """
        return arviz_compat.elpd_data(self.pointwise, self.pareto_k, self.p_loo, self.n_draws)

    def in_units(self, log_unit: float | Array) -> LeaveOneOut:
        """Convert to other units of the targets, in which log densities are lower by log_unit (one, or one per row)."""
        pointwise = self.pointwise - log_unit
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


def loo(
    model: Model,
    draws: Draws,
    *,
    row_groups: NDArray[np.intp] | None = None,
    r_eff: float = 1.0,
    n_jobs: int | None = None,
) -> LeaveOneOut:
    """Leave-one-out predictive densities, averaged over draws of the hyperparameters.

    Parameters
    ----------
    model : Model
        With any evidence whose posterior has a cavity: all but "upper".
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters, drawn given all rows.
    row_groups : ndarray of shape (n,), optional
        Group of each row, 0, 1, …: rows of a group are left out at once, as those that one row of the user's table
        becomes.  Default: each by itself.
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
    if row_groups is not None and model.likelihood.weights is not None:
        raise InvalidInput(
            "rows of coregional outputs cannot be left out where they have weights. Fit without 'sample_weight', or "
            "take outputs='independent'."
        )
    draws = WeightedDraws.of(draws)
    if model.likelihood.weights is None:
        log_p = log_predictive_per_draw(model, draws, row_groups=row_groups, n_jobs=n_jobs)
        return combine(log_p, log_weight=draws.log_weight, r_eff=r_eff)
    both = summarise(_LogAverages(("log_average", "log_weighted_average")), model, draws, n_jobs=n_jobs)
    return combine(both[:, 0], both[:, 1], log_weight=draws.log_weight, r_eff=r_eff)


def log_predictive_per_draw(
    model: Model, draws: Draws, *, row_groups: NDArray[np.intp] | None = None, n_jobs: int | None = None
) -> Array:
    """Log p(y_i | y_-i, θ_s) for each draw and row, of shape (S, n), of all columns of y jointly (see `loo`)."""
    if row_groups is not None:
        return summarise(_LogDensityOfGroups(row_groups), model, draws, n_jobs=n_jobs)
    return summarise(_LogAverages(("log_average",)), model, draws, n_jobs=n_jobs)[:, 0]


def cavities(model: Model, draws: Draws, *, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Mean and variance of each latent value given all other targets, for each draw: two arrays of shape (S, n)."""
    mean, variance = summarise(_Cavities(), model, draws, n_jobs=n_jobs)
    return mean, variance


def averaged_over_cavities(
    model: Model, draws: Draws, of_rows: Callable[[Any, Array, Array], Array], *, n_jobs: int | None = None
) -> Array:
    """Average over draws of a function of likelihood, cavity means and cavity variances, of shape (n,)."""
    draws, total = WeightedDraws.of(draws), np.zeros(len(model.y))
    moments = cavities(model, draws, n_jobs=n_jobs)
    for theta, weight, mean, variance in zip(draws.theta, draws.weight, *moments, strict=True):
        total += weight * of_rows(model.likelihood_at(theta), mean, variance)
    return total / draws.total


@dataclass(frozen=True)
class _Cavities(Statistic):
    """Mean and variance of every latent value without its own target, of shape (2, S, n)."""

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return 2, n_draws, len(model.y)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        out[:, draw.index] = cavity_of(draw)

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out[:, group.rows] = part


@dataclass(frozen=True)
class _LogAverages(Statistic):
    """Log averages over the cavities by these methods of the likelihood, columns of y jointly: (S, len(methods), n)."""

    methods: tuple[str, ...]

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, len(self.methods), len(model.y)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        moments, likelihood = cavity_of(draw), draw.likelihood
        for k, method in enumerate(self.methods):
            log_p = getattr(likelihood, method)(draw.model.y, *moments)
            out[draw.index, k] = log_p if log_p.ndim == 1 else log_p.sum(axis=1)


@dataclass(frozen=True)
class _LogDensityOfGroups(Statistic):
    """Log density of each group of rows given all others, of shape (S, number of groups)."""

    row_groups: NDArray[np.intp]

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, int(self.row_groups.max()) + 1

    def update(self, out: Array, draw: SolvedDraw) -> None:
        groups = np.split(np.argsort(self.row_groups, kind="stable"), np.cumsum(np.bincount(self.row_groups))[:-1])
        posterior = draw.evidence.posterior
        if not isinstance(posterior, SupportsLeaveGroupsOut):
            raise _refusal(draw.model)
        out[draw.index] = posterior.log_density_without(groups)


def cavity_of(draw: SolvedDraw) -> tuple[Array, Array]:
    """Mean and variance of the latent values of every row without its own target.

    Of shape (n,); with C classes (n, C) and, a covariance, (n, C, C).
    """
    posterior = draw.evidence.posterior
    if not isinstance(posterior, SupportsLeaveOneOut):
        raise _refusal(draw.model)
    return posterior.cavity()


def _refusal(model: Model) -> InvalidInput:
    """Error that names an evidence whose posterior can leave rows out."""
    name = type(model.evidence).__name__
    if isinstance(model.evidence, Iterative):
        return InvalidInput(
            f"{name} cannot leave rows out, which takes the diagonal of an inverse. Take model.with_evidence('exact') "
            "for that; draws of the hyperparameters serve both."
        )
    return InvalidInput(
        f"{name} cannot take one row out of its posterior. Fit with another evidence, or take model.with_evidence(...)."
    )


def combine(
    log_p: Array, removed: Array | None = None, *, log_weight: Array | float = 0.0, r_eff: float = 1.0
) -> LeaveOneOut:
    """Average log p(y_i | y_-i, θ_s), of shape (S, n), over draws with Pareto-smoothed weights (see `loo`).

    The draws, of log weights (S,), lose what each row adds to their log evidence: `removed`, or log_p itself.
    """
    n_draws, n = log_p.shape
    if n_draws == 1:
        pointwise, k = log_p[0], np.full(n, np.nan)
    else:
        removed = log_p if removed is None else removed
        with np.errstate(invalid="ignore"):  # NaN is reported by k
            log_w, k = pareto.smooth(log_weight - removed.T, r_eff)  # (n, S): each row has separate weights
            pointwise = np.logaddexp.reduce(log_w + log_p.T, axis=1)
        k = np.where(np.isnan(removed).any(axis=0), np.inf, k)
    log_weight = log_weight + np.zeros(n_draws)
    with np.errstate(invalid="ignore"):
        seen = np.logaddexp.reduce(log_p + log_weight[:, None], axis=0) - np.logaddexp.reduce(log_weight)
    elpd, se = float(pointwise.sum()), float(np.sqrt(n * np.var(pointwise)))
    result = LeaveOneOut(elpd, se, pointwise, k, n_draws, float(seen.sum()) - elpd)
    bad = np.flatnonzero(k > K_LIMIT)
    if len(bad):
        warn_user(
            f"leave-one-out is not reliable for {len(bad)} of {n} rows (Pareto k > {K_LIMIT}, up to {k.max():.2f}; "
            f"rows {', '.join(map(str, bad[:5]))}{', …' if len(bad) > 5 else ''}): the hyperparameters depend on them, "
            "or there are few draws. Draw more, or fit again without these rows.",
            ApproximationWarning,
        )
    return result
