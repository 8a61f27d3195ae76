"""Intervals of the probabilities of classes, over the latent function and the hyperparameters.

A class has the probability p_c(f*) at a new input, which is unknown as f* is: for each draw of the hyperparameters,
f* ~ N(μ_s, σ²_s), and the draws have weights w_s.  The interval of level 1 - 2a has the quantiles a and 1 - a of

    P(p_c(f*) <= p) = Σ_s w_s P(p_c(f*) <= p | f* ~ N(μ_s, σ²_s)).

Two classes: p is an increasing function of f*, so that each term is Φ((f_s(p) - μ_s)/σ_s), where f_s(p) is the latent
value of probability p.  Where it is the same for all draws, quantiles are those of the mixture of Gaussians, to all
digits, and then mapped; behind label noise whose rate ε_s varies,

    f_s(p) = Φ⁻¹((p - ε_s)/(1 - 2ε_s)),

and the equation is solved for p, to 1e-10.

Several classes, or ordered levels, of which the middle ones are not monotone in f*: by quasi-Monte Carlo.  Draw s takes
the points sN, …, (s + 1)N - 1 of one scrambled Sobol sequence, N a power of 2 such that there are at least N_POINTS
over all draws; deviations of f* from their mean are A z (see `likelihoods.softmax_average`).  A histogram of the log
odds of each row and class, BINS wide between ±LOG_ODDS, collects them with their weights, so that memory does not grow
with the draws.  Largest error of the ends of a 90 % interval over random mixtures of 200 components, against random
samples of each: 12 mixtures and two million samples behind a softmax, and in brackets 8 others and 400,000 samples,
whose own noise counts, behind softmax and probit:

             variances of order 1        of order 10
    C = 3    3e-3 (3e-3, 6e-3)      4e-3 (1.4e-2, 1.5e-2)
    C = 6    4e-3 (5e-3, 9e-3)      1.4e-2 (1.2e-2, 1.6e-2)

In terms of the probability beyond the end, at most 2e-3 at order 1.  At order 10 ends can lie at the floor of the
histogram, 1.5e-8, where much probability may lie below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from hmcgp.likelihoods import LabelNoise, Likelihood
from hmcgp.likelihoods.softmax_average import contrast_root, gaussian_points
from hmcgp.model import Model
from hmcgp.numerics.constants import HALF_LOG_2PI
from hmcgp.posterior import over_draws, predict
from hmcgp.posterior.over_draws import Group, PredictingDraw, Prediction, slices, summarise
from hmcgp.posterior.row_blocks import latent_blocks
from hmcgp.posterior.weights import Draws, WeightedDraws
from hmcgp.runtime.typing import Array

N_POINTS = 2**14  # latent values over all draws, at least
_PER_DRAW = 8  # of them for each draw, at least
LOG_ODDS, BINS = 18.0, 512  # of probabilities from 1.5e-8 to 1 - 1.5e-8
_NUMBERS = 2**18  # in a temporary array: 2 MB


def probability_intervals(model: Model, draws: Draws, X: Array, level: float, *, n_jobs: int | None = None) -> Array:
    """Central intervals of the probability of each class, of shape (m, C, 2): lower and upper end.

    Parameters
    ----------
    model, draws, X, n_jobs
        As of `predict.latent_moments`.
    level : float
        Probability of the interval, strictly between 0 and 1.
    """
    q = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    draws = WeightedDraws.of(draws)
    if model.likelihood.targets in ("classes", "levels"):
        return _of_several_classes(model, draws, X, q, n_jobs)
    likelihoods = [model.likelihood_at(theta) for theta in draws.theta]
    sites = {likelihood.site() for likelihood in likelihoods}
    if len(sites) == 1:
        f = predict.quantiles(model, draws, X, q, observed=False, n_jobs=n_jobs)
        low, high = likelihoods[0].probabilities_given(f)  # (m, 2) each
        return np.stack([[high[:, 0], low[:, 0]], [low[:, 1], high[:, 1]]]).transpose(2, 0, 1)
    links = _NoisyLinks.of(likelihoods)
    low, high = predict.quantiles(model, draws, X, q, observed=False, links=links, n_jobs=n_jobs)
    return np.stack([[1.0 - high, 1.0 - low], [low, high]]).transpose(2, 0, 1)


@dataclass(frozen=True)
class _NoisyLinks:
    """p = ε_s + (1 - 2ε_s) Φ(f), or H(f), for each draw (see `mixture.Links`)."""

    flip: Array  # (S, 1)
    is_step: bool

    @staticmethod
    def of(likelihoods: list[Likelihood]) -> _NoisyLinks:
        flip = np.array([[likelihood.site()[1]] for likelihood in likelihoods])
        return _NoisyLinks(flip, isinstance(likelihoods[0], LabelNoise) and likelihoods[0].link == "step")

    def value(self, f: Array) -> Array:
        clean = np.heaviside(f, 1.0) if self.is_step else ndtr(f)
        return np.asarray(self.flip + (1.0 - 2.0 * self.flip) * clean)

    def inverse(self, p: Array) -> tuple[Array, Array]:
        clean = np.clip((p - self.flip) / (1.0 - 2.0 * self.flip), 0.0, 1.0)
        if self.is_step:
            f = np.where(clean <= 0.0, -np.inf, np.where(clean >= 1.0, np.inf, 0.0))
            return f, np.zeros(f.shape)
        f = ndtri(clean)
        slope = np.exp(0.5 * f * f + HALF_LOG_2PI) / (1.0 - 2.0 * self.flip)
        return f, np.where(np.isfinite(f), slope, 0.0)


# -- several classes -------------------------------------------------------------------------------------------------


def _of_several_classes(model: Model, draws: WeightedDraws, X: Array, q: Array, n_jobs: int | None) -> Array:
    n_classes = model.likelihood.count(model.y)
    n_latents = 1 if model.likelihood.targets == "levels" else n_classes - 1  # that matter
    per_draw = 2 ** ceil(log2(max(N_POINTS / len(draws), _PER_DRAW)))
    points = gaussian_points(n_latents, 2 ** ceil(log2(per_draw * len(draws))))
    points = points.transpose(1, 0, 2).reshape(n_latents, -1)[:, : per_draw * len(draws)]
    out = np.empty((len(X), n_classes, len(q)))
    # in the results of two groups, merged, and added up
    for rows in slices(len(X), max(over_draws.HELD_BYTES // (4 * 8 * n_classes * BINS), 1)):
        counts = summarise(
            _Histograms(X[rows], points.reshape(n_latents, len(draws), -1)),
            model,
            draws,
            n_jobs=n_jobs,
        )
        out[rows] = _histogram_quantiles(counts, q)
    return out


@dataclass(frozen=True)
class _Histograms(Prediction):
    """Weights of the latent values whose log odds fall into each bin, for each row and class, of shape (m, C, BINS)."""

    X: Array
    points: Array  # (C - 1, S, N), of ordered levels (1, S, N), standard normal

    def shape(self, model: Model, n_draws: int) -> tuple[int, ...]:
        return len(self.X), model.likelihood.count(model.y), BINS

    def update(self, out: Array, draw: PredictingDraw) -> None:
        z = self.points[:, draw.number]  # (C - 1, N) or (1, N)
        for rows, p in self._probabilities(draw, z, out.shape[1]):
            odds = logit(np.clip(p, expit(-LOG_ODDS), expit(LOG_ODDS)))  # (k, N, C)
            place = np.minimum(((odds + LOG_ODDS) * (0.5 * BINS / LOG_ODDS)).astype(np.intp), BINS - 1)
            first = BINS * np.arange(p.shape[0] * p.shape[2]).reshape(p.shape[0], 1, p.shape[2])
            np.add.at(out[rows].reshape(-1), (first + place).ravel(), draw.weight)

    def _probabilities(self, draw: PredictingDraw, z: Array, n_classes: int) -> Iterator[tuple[slice, Array]]:
        """Yield some rows, and the probabilities of their classes at each point, of shape (k, N, C)."""
        for block, mean, covariance in latent_blocks(draw, self.X):
            for some in slices(len(mean), max(_NUMBERS // (z.shape[1] * n_classes), 1)):
                if mean.ndim == 1:  # one latent function, of variance `covariance`
                    f = mean[some, None] + np.sqrt(covariance[some])[:, None] * z
                else:
                    deviation = contrast_root(covariance[some]) @ z  # (k, C, N)
                    f = mean[some, None, :] + deviation.transpose(0, 2, 1)
                yield (
                    slice(block.start + some.start, block.start + some.stop),
                    draw.predictor.likelihood.probabilities_given(f),
                )

    def merge(self, out: Array, group: Group, part: Array) -> None:
        out += part


def _histogram_quantiles(counts: Array, q: Array) -> Array:
    """Probabilities at the quantiles q of histograms of log odds, of shape (..., BINS), as (..., k)."""
    below = np.cumsum(counts, axis=-1)
    out = np.empty((*counts.shape[:-1], len(q)))
    for i, share in enumerate(q):
        wanted = share * below[..., -1:]
        k = np.argmax(below >= wanted, axis=-1, keepdims=True)  # the first
        inside = np.take_along_axis(counts, k, axis=-1)
        within = 1.0 - (np.take_along_axis(below, k, axis=-1) - wanted) / inside
        out[..., i] = expit(-LOG_ODDS + (k + within)[..., 0] * (2.0 * LOG_ODDS / BINS))
    return out
