"""Cost of inducing inputs: log evidence and predictions with m of them against those with 2m, at a few draws.

The 2m are the m and as many more, chosen by pivoted Cholesky at the first of these draws.  An error of log Z that is
equal at all draws leaves the posterior of the hyperparameters as it is; its spread over draws does not.  The error of m
is estimated by the change to 2m, and how it falls with m from the changes m/2 → m → 2m, as a geometric series.

Where a fit with m explains all variation by noise, 2m change nothing.  So rows are held out, too: a fit with inducing
inputs must not explain them worse, given all other rows, than a dense fit of a small subset does
(`estimators.dense_subset`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from hmcgp.estimators.dense_subset import NATS, DenseSubset
from hmcgp.likelihoods import Counts, NoisyNumbers
from hmcgp.model import Model
from hmcgp.model.inducing import pivoted_inputs, with_inducing
from hmcgp.posterior import predict, responses
from hmcgp.posterior.evidence_bounds import log_evidence_per_draw
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

N_DRAWS = 5
N_ROWS = 500  # whose predictions are compared
LOG_Z_LIMIT = 1.0  # nats: spread over draws of the error of log Z
PROBABILITY_LIMIT, MEAN_LIMIT = 0.01, 0.05  # root mean square changes; of means, in standard deviations of y
_LEAST_RATE, _MOST_RATE = 0.3, 0.9  # by which a doubling of m is believed to multiply the error


@dataclass(frozen=True, eq=False)
class InducingError:
    """How far a fit with inducing inputs is from one with twice as many.

    Attributes
    ----------
    n_inducing, n_more : int
        m, and the larger number that it is compared with.
    log_z : ndarray of shape (S,)
        Change of the log evidence from m to more, at some draws.
    prediction : float
        Root mean square change of probabilities; of numbers, of means in standard deviations of an observation; of
        counts, of their rates in parts of these.
    tolerated : float
        Largest change of predictions that counts as small.
    n_enough : int
        Inducing inputs that would be sufficient, extrapolated; at most the number of rows.
    n_held_out, n_subset : int
        Rows held out, and rows of the dense fit of a subset that does without them too; 0 if there is none.
    held_out, held_out_dense : float
        Log predictive density of the rows held out, in nats per row: under the fit with inducing inputs, given all
        other rows, and under the dense fit of the subset, given the rows of that.
    """

    n_inducing: int
    n_more: int
    log_z: Array
    prediction: float
    tolerated: float
    n_enough: int
    n_held_out: int = 0
    n_subset: int = 0
    held_out: float = 0.0
    held_out_dense: float = 0.0

    @property
    def spread(self) -> float:
        """Standard deviation over draws of the error of log Z, in nats: by it draws are weighted wrongly."""
        return float(np.std(self.log_z))

    @property
    def excess(self) -> float:
        """Largest error as a multiple of what is tolerated: of log Z, of predictions, or of rows held out."""
        lost = self.n_held_out * (self.held_out_dense - self.held_out)
        return max(self.spread / LOG_Z_LIMIT, self.prediction / self.tolerated, lost / NATS)

    @property
    def small(self) -> bool:
        """Whether more would change the hyperparameters and predictions little, and rows held out are explained."""
        return self.excess <= 1.0

    def __str__(self) -> str:
        doubled = (
            f"{self.n_inducing} inducing inputs against {self.n_more}: log Z off by {np.mean(self.log_z):+.2f} nats "
            f"({self.spread:.2f} over {len(self.log_z)} draws), predictions by {self.prediction:.4f}"
        )
        if not self.n_held_out:
            return doubled
        return (
            f"{doubled}; {self.n_held_out} rows held out have a log predictive density of {self.held_out:.3f} per row, "
            f"and {self.held_out_dense:.3f} in a dense fit of {self.n_subset} rows"
        )


def inducing_error(
    model: Model, draws: Draws, *, subset: DenseSubset | None = None, n_jobs: int | None = None
) -> InducingError:
    """Compare a model with inducing inputs with one that has twice as many, at a few of the draws.

    Parameters
    ----------
    model : Model
        With inducing inputs.
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters.
    subset : DenseSubset, optional
        Dense fit of some rows of the model, which explains rows held out.
    n_jobs : int, optional
        Workers.
    """
    assert model.inducing is not None
    theta = _some(WeightedDraws.of(draws).theta, N_DRAWS)
    m = len(model.inducing)
    more = pivoted_inputs(model.kernel_at(theta[0]), model.X, min(2 * m, len(model.X)), first=model.inducing)
    models = [with_inducing(model, Z) for Z in (model.inducing[: max(m // 2, 1)], model.inducing, more)]
    fewer, here, there = (log_evidence_per_draw(each, theta, n_jobs=n_jobs) for each in models)
    X = _some(model.X, N_ROWS)
    prediction = _change(models[1], models[2], theta, X, n_jobs)
    tolerated = MEAN_LIMIT if isinstance(model.likelihood, NoisyNumbers | Counts) else PROBABILITY_LIMIT
    found = InducingError(
        m, len(more), there - here, prediction, tolerated, m, *_held_out(model, here, theta, subset, n_jobs)
    )
    before, after = float(np.abs(here - fewer).mean()), float(np.abs(there - here).mean())
    rate = min(max(after / before if before > 0.0 else 0.0, _LEAST_RATE), _MOST_RATE)
    doublings = math.ceil(math.log(found.excess) / -math.log(rate)) if not found.small else 0
    return replace(found, n_enough=min(m * 2**doublings, len(model.X)))


def _held_out(
    model: Model, log_z: Array, theta: Array, subset: DenseSubset | None, n_jobs: int | None
) -> tuple[int, int, float, float]:
    """Rows held out, rows of the subset, and the log density of the former by the model and by the subset, per row."""
    if subset is None or not len(subset.held_out):
        return 0, 0, 0.0, 0.0
    n = len(subset.held_out)
    log_p = log_z - log_evidence_per_draw(subset.without_held_out(model), theta, n_jobs=n_jobs)
    total = float(logsumexp(log_p) - math.log(len(log_p)))
    return n, len(subset.rows), total / n, subset.log_density(model) / n


def _change(one: Model, other: Model, theta: Array, X: Array, n_jobs: int | None) -> float:
    """Root mean square difference of the predictions of two models at X."""
    if isinstance(one.likelihood, NoisyNumbers):
        (mean, variance), (better, _) = (
            predict.mixture_moments(model, theta, X, observed=True, n_jobs=n_jobs) for model in (one, other)
        )
        return float(np.sqrt(np.mean((mean - better) ** 2 / variance)))
    if isinstance(one.likelihood, Counts):
        rate, better = (responses.mean_rates(model, theta, X, n_jobs=n_jobs) for model in (one, other))
        return float(np.sqrt(np.mean((rate / better - 1.0) ** 2)))
    p, q = (predict.probabilities(model, theta, X, n_jobs=n_jobs) for model in (one, other))
    return float(np.sqrt(np.mean((p - q) ** 2)))


def _some(rows: Array, most: int) -> Array:
    """At most so many rows, evenly spaced."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))]
