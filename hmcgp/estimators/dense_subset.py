"""Pilot of a fit with inducing inputs: dense fits of a subset of the rows, judged by rows that are held out.

With too few inducing inputs for the variation in the rows, the most probable hyperparameters explain everything by
noise, and more inducing inputs change nothing there.  A dense fit of a subset S cannot fail in this way.  A density has
such a maximum even so, and searches may end in it: they start from several length scales, and the explanation of
rows H that are not in S decides between their ends, by

    log p(y_H | y_S, θ) = log Z(y_S, y_H | θ) - log Z(y_S | θ),

from which priors are absent, which decide for 300 rows what they do not for all.  The same rows H judge the fit with
inducing inputs given all other rows, which should not explain them worse than the subset does.

Half of the subset is drawn from all rows, half are neighbours of a few of them, as close together as in the whole
table: variation over distances that are short compared with those in a random sample is seen in these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput, NotConverged, NotPositiveDefinite
from hmcgp.likelihoods import Classes
from hmcgp.model import Model
from hmcgp.model.inducing import spread_inputs, with_inducing
from hmcgp.model.subset import restricted
from hmcgp.optimize import find_map
from hmcgp.runtime.typing import Array

N_SUBSET, N_HELD_OUT = 300, 100  # rows
NATS = 5.0  # by which one explanation of the rows held out must exceed another to count as better
_CENTRES = 4  # rows whose neighbours are in the subset
_FACTORS = 0.5 ** np.arange(6)  # of the length scales from which searches start, times their prior medians
_FEW_ITERATIONS = 8  # of each of these searches: they tell which length scales explain the rows held out
PILOT_ITERATIONS = 30  # of the others


@dataclass(frozen=True, eq=False)
class DenseSubset:
    """Dense fit of a subset of the rows, with the rows that judge it and other fits.

    Attributes
    ----------
    rows, held_out : ndarray of int
        Positions of the rows of the subset, S, and of those held out, H.
    theta : ndarray of shape (p,)
        Hyperparameters that explain the rows held out best, among the maxima for the subset.
    """

    rows: NDArray[np.intp]
    held_out: NDArray[np.intp]
    theta: Array

    def log_density(self, model: Model, theta: Array | None = None) -> float:
        """Log p(y_H | y_S, θ) under dense covariances, in nats; θ of the subset by default."""
        return _held_out_log_density(model, self.rows, self.held_out, self.theta if theta is None else theta)

    def without_held_out(self, model: Model) -> Model:
        """Model of all rows that are not held out, with the inducing inputs that it has."""
        return restricted(model, np.setdiff1d(np.arange(len(model.X)), self.held_out), model.inducing)

    def refutes(self, model: Model, theta: Array) -> bool:
        """Whether the subset explains the rows held out clearly better than all other rows do in a model at θ."""
        others = self.without_held_out(model)
        try:
            found = model.posterior(theta)[1].log_z - others.posterior(theta)[1].log_z
        except (NotConverged, NotPositiveDefinite):
            return True
        return self.log_density(model) - found > NATS


def fit_subset(model: Model, n_jobs: int | None) -> DenseSubset:
    """Fit a subset of the rows densely, from several length scales; what explains the rows held out best is taken."""
    rows, held_out = choose_rows(model)
    part = restricted(model, rows)
    ends = [find_map(part, n_restarts=2, random_state=0, n_jobs=n_jobs, maxiter=PILOT_ITERATIONS)]
    for start in _starts(part) if model.n_dim else ():
        if _is_finite(part, start):
            ends.append(find_map(part, start=start, n_restarts=1, n_jobs=1, maxiter=_FEW_ITERATIONS))
    scores = [_held_out_log_density(model, rows, held_out, end.parameters) for end in ends]
    return DenseSubset(rows, held_out, ends[int(np.argmax(scores))].parameters)


def run_pilot(model: Model, subset: DenseSubset, m: int) -> Array:
    """Search for the most probable hyperparameters given all rows, with m inducing inputs, from those of a subset.

    Returns
    -------
    ndarray of shape (p,)
        Those of the subset, if they explain the rows held out better given the subset.
    """
    pilot = with_inducing(model, spread_inputs(model.X, m))
    start = model.unconstrain(subset.theta)
    if not _is_finite(pilot, start):
        return subset.theta
    found = find_map(pilot, start=start, n_restarts=1, n_jobs=1, maxiter=PILOT_ITERATIONS).parameters
    gain = subset.log_density(model) - subset.log_density(model, found)
    return subset.theta if gain > NATS else found


def _is_finite(model: Model, u: Array) -> bool:
    """Whether a search can start at u: the density is -inf where a solver fails."""
    return model.evaluate(u).logdensity > -inf


def choose_rows(model: Model) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the rows of the subset and of those held out: fewer where there are few rows, or many classes."""
    X, n = model.X, len(model.X)
    n_latents = model.likelihood.count(model.y) if isinstance(model.likelihood, Classes) else 1
    share = n_latents ** (-1.0 / 3.0)  # matrices of every class are factorised
    size = min(int(share * (N_SUBSET + N_HELD_OUT)), n)
    rng = np.random.default_rng(0)
    scale = np.maximum(X.std(axis=0), np.finfo(float).tiny)
    taken = np.zeros(n, dtype=bool)
    for centre in rng.choice(n, _CENTRES, replace=False) if size < n else ():
        distances = np.where(taken, inf, (((X - X[centre]) / scale) ** 2).sum(axis=1))
        taken[np.argpartition(distances, size // (2 * _CENTRES))[: size // (2 * _CENTRES)]] = True
    others = rng.permutation(np.flatnonzero(~taken))[: size - taken.sum()]
    rows = rng.permutation(np.concatenate([np.flatnonzero(taken), others]))
    n_held_out = size * N_HELD_OUT // (N_SUBSET + N_HELD_OUT)
    return np.sort(rows[n_held_out:]), np.sort(rows[:n_held_out])


def _starts(model: Model) -> Iterator[Array]:
    """Unconstrained medians of the prior, with the length scales as they are and shorter."""
    rng = np.random.default_rng(0)
    centre = model.constrain(np.median([model.initial(rng) for _ in range(101)], axis=0))
    roles = [p.role for p in model.parameters for _ in range(p.size)]
    for factor in _FACTORS if "length_scale" in roles else (1.0,):
        theta = np.where(np.array(roles) == "length_scale", factor * centre, centre)
        try:
            yield model.unconstrain(theta)
        except InvalidInput:  # outside the support of a prior
            return


def _held_out_log_density(
    model: Model, rows: NDArray[np.intp], held_out: NDArray[np.intp], theta: Array, inducing: Array | None = None
) -> float:
    """Log p(y_H | y_S, θ), in nats; -inf where a solver fails."""
    try:
        both, part = (
            restricted(model, each, inducing).posterior(theta)[1].log_z
            for each in (np.concatenate([rows, held_out]), rows)
        )
    except (NotConverged, NotPositiveDefinite):
        return -inf
    return both - part
