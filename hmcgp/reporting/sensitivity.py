"""Sensitivity of the posterior to the prior and to the likelihood, by power scaling.

The posterior under p(θ)^α (or under p(y | θ)^α) has the weights w_s ∝ p(θ_s)^(α - 1), Pareto-smoothed.  How far the
distribution function Q of a hyperparameter is then from the original P is measured by the cumulative Jensen-Shannon
distance (Nguyen & Vreeken 2015),

    CJS² = [∫ P log2(2P/(P + Q)) dx + ∫ Q log2(2Q/(P + Q)) dx]/∫ (P + Q) dx,

the larger of those of x and of -x; the sensitivity is d CJS/d log2 α at α = 1, the mean of α = 0.99 and 1.01
(Kallioinen, Paananen, Bürkner & Vehtari 2024, Stat. Comput. 34:57).  Draws may carry weights, which both P and Q have.
With equal weights, these are the numbers of `arviz.psense_summary` (arviz 1.x) up to its smoothing of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from hmcgp.errors import InvalidInput
from hmcgp.numerics.chain_statistics import MIN_DRAWS, ess_tail
from hmcgp.numerics.weighted import pareto_smoothed
from hmcgp.runtime.typing import Array
from hmcgp.samplers.trace import Trace

if TYPE_CHECKING:
    from hmcgp.kernels.base import Parameter

ALPHAS = (0.99, 1.01)
THRESHOLD = 0.05
MIN_TOTAL = 40  # draws, of all chains
CONFLICT, STRONG, FINE = "potential prior-data conflict", "potential strong prior / weak likelihood", "✓"


def log_prior_terms(draws: Array, parameters: Sequence[Parameter]) -> Array:
    """Log prior densities of natural parameters without Jacobians, of the shape (..., n_dim) of the draws.

    Priors of several values together (`hmcgp.priors.SAAS`) return equal shares of their joint log density.
    """
    out = np.empty_like(draws)
    stops = np.cumsum([p.size for p in parameters], dtype=int)
    for p, stop in zip(parameters, stops, strict=True):
        for place in np.ndindex(draws.shape[:-1]):
            block = (*place, slice(stop - p.size, stop))
            out[block] = p.value.logpdf(draws[block])
    return out


def sensitivity(trace: Trace, log_prior: Array, log_likelihood: Array) -> pd.DataFrame:
    """Power-scaling sensitivity of every hyperparameter, in the table of `arviz.psense_summary`.

    Parameters
    ----------
    trace : Trace
    log_prior, log_likelihood : ndarray of shape (chains, draws)
        Of each draw, up to constants; the prior in natural parameters.

    Returns
    -------
    pandas.DataFrame
        One row per hyperparameter: `prior`, `likelihood` and `diagnosis`.
    """
    if len(trace) < MIN_TOTAL:
        raise InvalidInput(
            f"prior sensitivity needs at least {MIN_TOTAL} draws of the hyperparameters; there are {len(trace)}. Fit "
            "with a sampler (sampler='hmc'), not with sampler='map'."
        )
    table = pd.DataFrame(index=list(trace.names))
    for name, log_component in (("prior", log_prior), ("likelihood", log_likelihood)):
        scaled = [_scaled_weights(trace, log_component, alpha) for alpha in ALPHAS]
        table[name] = [_slope(x, trace.weight, scaled) for x in trace.flat.T]
    table["diagnosis"] = [_diagnosis(*row) for row in table[["prior", "likelihood"]].to_numpy()]
    return table


def _diagnosis(prior: float, likelihood: float) -> str:
    if prior >= THRESHOLD:
        return CONFLICT if likelihood >= THRESHOLD else STRONG
    return FINE


def _scaled_weights(trace: Trace, log_component: Array, alpha: float) -> Array:
    """Weights of the draws under the posterior with one component to the power of alpha, of shape (S,)."""
    tail = ess_tail(log_component) / log_component.size if log_component.shape[1] >= MIN_DRAWS else 1.0
    r_eff = float(np.clip(tail, 1.0 / log_component.size, 1.0)) if np.isfinite(tail) else 1.0
    smoothed = pareto_smoothed((alpha - 1.0) * log_component.ravel(), r_eff).log_weight
    return trace.weight * np.exp(smoothed - smoothed.max())


def _slope(x: Array, weight: Array, scaled: Sequence[Array]) -> float:
    """Slope of the distance in log2 α at α = 1, the mean of both sides."""
    far = [max(cjs_distance(x, weight, w), cjs_distance(-x, weight, w)) for w in scaled]
    return float(np.mean([d / abs(np.log2(alpha)) for d, alpha in zip(far, ALPHAS, strict=True)]))


def cjs_distance(x: Array, weight_p: Array, weight_q: Array) -> float:
    """Cumulative Jensen-Shannon distance of two weightings of the same values, between 0 and 1; 0 for equal values."""
    order = np.argsort(x, kind="stable")
    width = np.diff(x[order])
    P, Q = (np.cumsum(w[order] / w.sum())[:-1] for w in (weight_p, weight_q))
    P_total, Q_total = P @ width, Q @ width
    if not P_total + Q_total > 0.0:
        return 0.0
    # ∫ P log2(2P/(P + Q)) is >= 0 only with the term (Q - P)/(2 log 2), which cancels in the sum
    correction = 0.5 / np.log(2.0) * (Q_total - P_total)
    p_to_q = width @ _times_log2(P, P, Q) + correction
    q_to_p = width @ _times_log2(Q, P, Q) - correction
    return float(np.sqrt((max(p_to_q, 0.0) + max(q_to_p, 0.0)) / (P_total + Q_total)))


def _times_log2(values: Array, P: Array, Q: Array) -> Array:
    """Return values log2(2 values/(P + Q)), 0 where the values are 0."""
    there = values > 0.0
    out = np.zeros_like(values)
    out[there] = values[there] * np.log2(2.0 * values[there] / (P + Q)[there])
    return out
