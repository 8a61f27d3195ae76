"""The evidence of each draw of the hyperparameters, bracketed from below and above (Gibbs & MacKay 2000).

    log Z'(θ) <= log p(y | θ) <= log Z''(θ)     at every θ, whatever approximation the draws were made with

The width of the bracket says how far the evidence of any approximation can be off.  For predictions from either bound,
hand `model.with_evidence("lower")` or `"upper"` to the functions of `predict`.  Those are predictions from the
bounds, normalised; they do not bracket the predictions.
"""

from __future__ import annotations

from typing import NamedTuple

from hmcgp.model import Model
from hmcgp.posterior.over_draws import SolvedDraw, Statistic, summarise
from hmcgp.posterior.weights import Draws
from hmcgp.runtime.typing import Array


class EvidenceBounds(NamedTuple):
    """Bounds on the log evidence of each draw."""

    lower: Array  # (S,), log Z'
    upper: Array  # (S,), log Z''


def evidence_bounds(model: Model, draws: Draws, *, n_jobs: int | None = None) -> EvidenceBounds:
    """Lower and upper bound on the log evidence of each draw.

    Parameters
    ----------
    model : Model
        With a logistic likelihood, and any evidence.
    draws : ndarray of shape (S, p)
        Natural hyperparameters.
    n_jobs : int, optional
        Workers.  Draws are solved warm in groups of fixed size, so the result does not depend on it.

    Returns
    -------
    EvidenceBounds
        `lower` and `upper`, each of shape (S,).

    Raises
    ------
    InvalidInput
        For another likelihood: these are bounds on the logistic sigmoid.
    """
    models = [model.with_evidence(name) for name in ("lower", "upper")]  # both first: they refuse other likelihoods
    return EvidenceBounds(*(log_evidence_per_draw(bounding, draws, n_jobs=n_jobs) for bounding in models))


def log_evidence_per_draw(model: Model, draws: Draws, *, n_jobs: int | None = None) -> Array:
    """Log evidence of each draw under the model's own evidence, of shape (S,)."""
    return summarise(_LogEvidence(), model, draws, n_jobs=n_jobs)


class _LogEvidence(Statistic):
    """Log evidence of each draw, of shape (S,)."""

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return (n_draws,)

    def update(self, out: Array, draw: SolvedDraw) -> None:
        out[draw.index] = draw.evidence.log_z
