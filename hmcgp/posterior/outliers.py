"""Posterior probability that a training row is an outlier.

Under `StudentT` a row is an outlier if it is farther from the function than k scales (Chaloner & Brant 1988).  Given
the cavity N(μ_i, v_i), which is what all other rows say about row i,

    P(|y_i - f_i| > k s | y, θ) = ∫_{|y_i - f| > k s} p(y_i | f) N(f; μ_i, v_i) df / ∫ p(y_i | f) N(f; μ_i, v_i) df.

All targets, y_i among them, are given, as they are for the draws of θ: the average needs no other weights than those of
the draws.
"""

from __future__ import annotations

from hmcgp.errors import InvalidInput
from hmcgp.likelihoods import StudentT
from hmcgp.model import Model
from hmcgp.posterior.leave_one_out import averaged_over_cavities
from hmcgp.posterior.weights import Draws
from hmcgp.runtime.typing import Array


def outlier_probability(model: Model, draws: Draws, threshold: float, *, n_jobs: int | None = None) -> Array:
    """Posterior probability that each training row is farther off than `threshold` scales, averaged over draws.

    Parameters
    ----------
    model : Model
        With the likelihood "student_t".
    draws : ndarray of shape (S, p), or WeightedDraws
        Natural hyperparameters.
    threshold : float
    n_jobs : int, optional
        Workers.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (n,)
    """
    if not isinstance(model.likelihood, StudentT):
        raise InvalidInput(
            f"under the likelihood {type(model.likelihood).__name__} no row is an outlier, only improbable. Fit with "
            "likelihood='student_t'; or rank rows by gp.loo().pointwise."
        )

    def of_rows(likelihood: StudentT, mean: Array, variance: Array) -> Array:
        return likelihood.outlying(model.y, mean, variance, threshold)

    return averaged_over_cavities(model, draws, of_rows, n_jobs=n_jobs)
