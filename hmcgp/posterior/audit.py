"""Audit of an approximate evidence: its log evidence, hyperparameters and probabilities against exact ones.

For some of the draws θ_s of the hyperparameters, the latent values are sampled (`evidence.LatentSampling`), which gives
log Z_exact(θ_s) with a standard error, and exact class probabilities at θ_s.  The draws were made with the density
Z_a(θ) p(θ) of the approximation a, so the weights

    log w_s = log Z_exact(θ_s) - log Z_a(θ_s)     (plus those that the draws carry), Pareto-smoothed,

make them draws of the exact posterior: means under w less means without are what the approximation moved.  Both means
are of the same draws, so that the standard error of a difference d = Σ_s w_s e_s - Σ_s b_s a_s is that of a paired one,

    se² = Σ_s [w_s (e_s - ē) - b_s (a_s - ā)]².

Three things can go wrong, and each is looked at: the exact evidence of a draw (its standard error and Pareto k), the
weights (their own k and effective number), and the number of draws (the standard error of what is reported).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.evidence import LatentSampling, SupportsStandardError
from hmcgp.model import Model
from hmcgp.numerics.weighted import pareto_smoothed
from hmcgp.posterior.audit_report import Audit, reliable_weights
from hmcgp.posterior.over_draws import SolvedDraw, Statistic, summarise
from hmcgp.posterior.row_blocks import class_probabilities
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

N_DRAWS = 50  # audited by default


def audit(
    model: Model,
    draws: Draws,
    X: Array | None = None,
    *,
    n_draws: int = N_DRAWS,
    exact: LatentSampling | None = None,
    n_jobs: int | None = None,
) -> Audit:
    """Compare the evidence of a model, and what follows from it, with the exact one at some of its draws.

    Parameters
    ----------
    model : Model
        Of labels: logistic, probit or label noise, with the evidence to be audited.
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters, drawn with that evidence, or weighted to it.
    X : ndarray of shape (m, d), optional
        Inputs whose class probabilities are compared, scaled as the model's.  Default: the training inputs.
    n_draws : int, default=50
        At most so many draws, evenly spaced, are audited.  Below 25, nothing is said about the hyperparameters.
    exact : LatentSampling, optional
        How the latent values are sampled; default: `LatentSampling()`.
    n_jobs : int, optional
        Workers.  The result does not depend on it.

    Returns
    -------
    Audit

    Raises
    ------
    InvalidInput
        For numbers, whose evidence is exact already; for a fit with refine="exact"; and for several classes, for which
        there is no exact evidence.

    Notes
    -----
    Processor time of a draw is that of `evidence.LatentSampling`, about 0.02, 0.04, 0.14 and 0.4 s for 80, 200, 500 and
    1000 rows, up to five times as much where the posterior is far from Gaussian, and 0.2 to 0.4 ms for each row of X.
    """
    exact = LatentSampling() if exact is None else exact
    _check(model, exact)
    given = WeightedDraws.of(draws)
    chosen = _evenly_spaced(len(given), n_draws)
    audited, base = given.theta[chosen], given.log_weight[chosen]
    statistic = _Audited(model.X if X is None else X)
    approximate, sampled = (
        summarise(statistic, m, audited, n_jobs=n_jobs) for m in (model, model.with_evidence(exact))
    )
    change = sampled[:, 0] - approximate[:, 0]
    before = np.exp(base - np.logaddexp.reduce(base))
    weights = pareto_smoothed(base + change)
    after, k = np.exp(weights.log_weight), weights.pareto_k if len(chosen) > 1 else np.nan
    for_rows = after if reliable_weights(k, weights.effective) else before
    shift, shift_error = _shift(np.array([model.unconstrain(theta) for theta in audited]), before, after)
    p, p_exact = approximate[:, 4:], sampled[:, 4:]  # (S, m)
    return Audit(
        evidence=type(model.evidence).__name__,
        draws=chosen,
        n_given=len(given),
        log_z_change=change,
        standard_error=sampled[:, 1],
        pareto_k=sampled[:, 2],
        n_samples=sampled[:, 3].astype(np.intp),
        log_weights=weights.log_weight,
        weights_k=k,
        n_effective=weights.effective,
        names=model.names,
        shift=shift,
        shift_error=shift_error,
        probability=before @ p,
        exact_probability=for_rows @ p_exact,
        change_error=_standard_error(_influences(for_rows, p_exact, before, p)),
        rows="training rows" if X is None else "given rows",
    )


@dataclass(frozen=True)
class _Audited(Statistic):
    """Log evidence, its standard error, Pareto k and samples, then P(y = +1) of each row, of shape (S, 4 + m)."""

    X: Array

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return n_draws, 4 + len(self.X)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        posterior, row = draw.evidence.posterior, out[draw.index]
        row[0] = draw.evidence.log_z
        if isinstance(posterior, SupportsStandardError):
            row[1:4] = posterior.standard_error, posterior.pareto_k, posterior.n_samples
        for rows, p in class_probabilities(draw, self.X):
            row[4:][rows] = p[1]


def _check(model: Model, exact: LatentSampling) -> None:
    """Refuse likelihoods that have no approximation, or no exact evidence to compare with."""
    likelihood = model.likelihood
    if isinstance(model.evidence, LatentSampling):
        raise InvalidInput("this evidence is made of samples of the latent values itself: there is nothing to audit.")
    if isinstance(likelihood, exact.supports):
        return
    name = type(likelihood).__name__
    if likelihood.targets == "numbers":
        raise InvalidInput(f"the evidence of {name} noise is exact already: there is nothing to audit.")
    raise InvalidInput(
        f"an audit compares with samples of the latent values, which there are for two classes only, not for {name}: "
        "audit one class against the rest, or compare 'softmax' with 'multinomial_probit' by gp.loo()."
    )


def _evenly_spaced(n: int, n_max: int) -> NDArray[np.intp]:
    if not (isinstance(n_max, Integral) and n_max >= 1):
        raise InvalidInput(f"'n_draws' must be an integer >= 1; got {n_max!r}.")
    return np.arange(n) if n <= n_max else np.linspace(0, n - 1, n_max).round().astype(np.intp)


def _influences(after: Array, exact: Array, before: Array, approximate: Array) -> Array:
    """Part of each draw in the differences after @ exact - before @ approximate of columns, of shape (S, m)."""
    return after[:, None] * (exact - after @ exact) - before[:, None] * (approximate - before @ approximate)


def _standard_error(influences: Array) -> Array:
    """Standard error of sums over draws; NaN for one draw."""
    S, m = influences.shape
    return np.full(m, np.nan) if S == 1 else np.sqrt(np.sum(influences**2, axis=0) * S / (S - 1.0))


def _shift(u: Array, before: Array, after: Array) -> tuple[Array, Array]:
    """Shift of the means of u, of shape (S, p), in standard deviations, and its standard error; NaN for one draw."""
    if len(u) == 1:
        return np.full(u.shape[1], np.nan), np.full(u.shape[1], np.nan)
    mean = before @ u
    sd = np.sqrt(before @ (u - mean) ** 2)
    sd = np.where(sd > 0.0, sd, 1.0)  # a hyperparameter that does not vary does not move
    z = (u - mean) / sd
    shift = after @ z
    of_sd = 0.5 * shift * before[:, None] * (z**2 - 1.0)  # the unit is estimated from the same draws
    return shift, _standard_error(_influences(after, z, before, z) - of_sd)
