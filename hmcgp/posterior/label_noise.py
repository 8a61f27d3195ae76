"""Posterior probability that a training label is wrong.

Under `LabelNoise` a true label t_i, with P(t_i | f) = Φ(t_i f) or a step, is observed as y_i = -t_i with probability ε.
Given the cavity N(μ_i, v_i), which is what all other rows say about row i,

    P(t_i = -y_i, y_i) = ε Φ(-z_i),   P(t_i = y_i, y_i) = (1 - ε) Φ(z_i),   z_i = y_i μ_i/sqrt(s² + v_i),
    P(flipped_i | y, θ) = ε Φ(-z_i)/(ε + (1 - 2ε) Φ(z_i)),

s being 1 behind a probit and 0 behind a step; the denominator is the Ẑ_i of expectation propagation.  All labels, y_i
among them, are given, as they are for the draws of θ: the average needs no other weights than those of the draws.  At
z = 0, where the others do not know, the value is ε.  The weight of row i, if it has one, is that of its say about the
others and θ.
"""

from __future__ import annotations

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import LabelNoise
from hmcgp.model import Model
from hmcgp.posterior.leave_one_out import averaged_over_cavities
from hmcgp.posterior.weights import Draws
from hmcgp.runtime.typing import Array


def flip_probability(model: Model, draws: Draws, *, n_jobs: int | None = None) -> Array:
    """Posterior probability that each training label was flipped, averaged over draws.

    Parameters
    ----------
    model : Model
        With the likelihood "label_noise".
    draws : ndarray of shape (S, p)
        Natural hyperparameters.
    n_jobs : int, optional
        Workers.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (n,)

    Raises
    ------
    InvalidInput
        For another likelihood, where no label is ever wrong.
    """
    if not isinstance(model.likelihood, LabelNoise):
        raise InvalidInput(
            f"under the likelihood {type(model.likelihood).__name__} no label is ever wrong, only improbable. "
            "Fit with likelihood='label_noise'; or rank rows by gp.loo().probability."
        )

    def of_rows(likelihood: LabelNoise, mean: Array, variance: Array) -> Array:
        return likelihood.flipped(model.y, mean, variance)

    return averaged_over_cavities(model, draws, of_rows, n_jobs=n_jobs)
