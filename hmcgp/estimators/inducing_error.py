"""Cost of inducing inputs: log evidence and predictions with m of them against those with 2m, at a few draws.

The 2m are the m and as many more, chosen by pivoted Cholesky at the first of these draws.  An error of log Z that is
equal at all draws leaves the posterior of the hyperparameters as it is; its spread over draws does not.  The error of m
is told from the change to 2m, and how it falls with m from the changes m/2 → m → 2m, as a geometric series.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

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
        Inducing inputs that would do, extrapolated; at most the number of rows.
    """

    n_inducing: int
    n_more: int
    log_z: Array
    prediction: float
    tolerated: float
    n_enough: int

    @property
    def spread(self) -> float:
        """Standard deviation over draws of the error of log Z, in nats: by it draws are weighted wrongly."""
        return float(np.std(self.log_z))

    @property
    def excess(self) -> float:
        """Larger of the two errors, of log Z and of predictions, as a multiple of what is tolerated."""
        return max(self.spread / LOG_Z_LIMIT, self.prediction / self.tolerated)

    @property
    def small(self) -> bool:
        """Whether neither the hyperparameters nor the predictions would change much."""
        return self.excess <= 1.0

    def __str__(self) -> str:
        return (
            f"{self.n_inducing} inducing inputs against {self.n_more}: log Z off by {np.mean(self.log_z):+.2f} nats "
            f"({self.spread:.2f} over {len(self.log_z)} draws), predictions by {self.prediction:.4f}"
        )


def inducing_error(model: Model, draws: Draws, *, n_jobs: int | None = None) -> InducingError:
    """Compare a model with inducing inputs with one that has twice as many, at a few of the draws.

    Parameters
    ----------
    model : Model
        With inducing inputs.
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters.
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
    found = InducingError(m, len(more), there - here, prediction, tolerated, m)
    before, after = float(np.abs(here - fewer).mean()), float(np.abs(there - here).mean())
    rate = min(max(after / before if before > 0.0 else 0.0, _LEAST_RATE), _MOST_RATE)
    doublings = math.ceil(math.log(found.excess) / -math.log(rate)) if not found.small else 0
    return replace(found, n_enough=min(m * 2**doublings, len(model.X)))


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
