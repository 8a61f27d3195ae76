"""Adaptation of step size and metric in warm-up.

Step size, by dual averaging towards an acceptance rate a* (Hoffman & Gelman 2014, eq. 6 and Algorithm 5):
    h_t = (1 - 1/(t + t0)) h_{t-1} + (a* - a_t)/(t + t0)
    log e_t = m - sqrt(t)/g h_t,   log ebar_t = t^-k log e_t + (1 - t^-k) log ebar_{t-1}

Metric, from the draws, and their gradients, of windows that double in length (Stan reference manual, "Automatic
parameter tuning"): a fast interval to find the typical set, slow windows each of which replaces the metric, a fast
interval for the last step size.  `adapt` takes one `Tuning` and returns the next; nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.integrators import State, leapfrog
from hmcgp.samplers.metric import Metric, as_metric, end_energy, kinetic_energy, sample_momentum

# g, t0 and k.  With the g = 0.05 of Hoffman & Gelman one rejection at t = 50 makes the next step six times shorter; as
# acceptance is concave in log e, the average of such steps is too short (61-dimensional Gaussian: 0.87 for a* = 0.8)
SHRINKAGE, STABILISATION, DECAY = 0.2, 10.0, 0.75


class DualAverage(NamedTuple):
    """State of the stochastic approximation of the step size."""

    centre: float  # m
    log_step: float  # log e_t, used for the next draw
    log_average: float = 0.0  # log ebar_t, used after warm-up
    error: float = 0.0  # h_t
    t: int = 0


def init_dual_average(step_size: float, *, stretch: float = 2.0) -> DualAverage:
    """Return the state at a first step size; iterates shrink towards `stretch` times it."""
    return DualAverage(log(stretch * step_size), log(step_size))


def update_dual_average(
    state: DualAverage, acceptance: float, target_accept: float, *, longest: float = inf
) -> DualAverage:
    """Return the state after one more draw of given acceptance rate; steps are at most `longest`."""
    t = state.t + 1
    weight = 1.0 / (t + STABILISATION)
    error = (1.0 - weight) * state.error + weight * (target_accept - acceptance)
    log_step = min(state.centre - sqrt(t) / SHRINKAGE * error, log(longest))
    eta = t**-DECAY
    return DualAverage(state.centre, log_step, eta * log_step + (1.0 - eta) * state.log_average, error, t)


class Welford(NamedTuple):
    """Running mean and sum of squared deviations; m2 is (d,) for variances or (d, d) for a covariance."""

    n: int
    mean: Array
    m2: Array


def init_welford(n_dim: int, *, dense: bool) -> Welford:
    """Return the state before any draw."""
    return Welford(0, np.zeros(n_dim), np.zeros((n_dim, n_dim) if dense else n_dim))


def update_welford(state: Welford, x: Array) -> Welford:
    """Return the state after one more draw."""
    n = state.n + 1
    before = x - state.mean
    mean = state.mean + before / n
    after = x - mean
    return Welford(n, mean, state.m2 + (np.outer(before, after) if state.m2.ndim == 2 else before * after))


def regularised_covariance(state: Welford, *, correlation_time: float = 1.0) -> Array:
    """Return variances (d,) or a covariance (d, d), shrunk according to the number of draws.

    Variances are shrunk towards 1e-3 with the weight of five draws, as in Stan.  Correlations are shrunk towards zero
    with the weight of d + 5 draws, so that a window shorter than d still gives a well-conditioned matrix.
    The number of independent draws is that of draws divided by `correlation_time`.
    """
    n, d = state.n / correlation_time, len(state.mean)
    S = state.m2 / max(state.n - 1, 1)
    keep = n / (n + 5.0)
    variances = keep * (np.diag(S) if S.ndim == 2 else S) + (1.0 - keep) * 1e-3
    if S.ndim == 1:
        return variances
    S = S * (keep * n / (n + d + 5.0))
    S = 0.5 * (S + S.T)
    np.fill_diagonal(S, variances)
    return S


def balanced_covariance(draws: Welford, scores: Welford) -> Array:
    """Return variances (d,) or a covariance (d, d), from draws and their scores.

    With A the covariance of the draws and B that of the scores grad log p, the metric S with S B S = A is the
    geometric mean of A and B^-1.  For a Gaussian it is the covariance, exactly and from any d + 1 draws, as scores
    contain the curvature.  Only its correlations are used: along a skewed direction (an input that may or may not
    matter) scores are dominated by the steep side and would make the metric too short for the other, so variances are
    those of the draws.  As in `regularised_covariance`, off-diagonals of A and B are shrunk towards zero with the
    weight of d + 5 draws, and variances, with the weight of five, towards the diagonal of S.

    Seyboldt, Carlson & Carpenter (2026), Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence,
    arXiv:2603.18845, whose dense metric is the geometric mean.
    """
    n, d = draws.n, len(draws.mean)
    A, B = draws.m2 / max(n - 1, 1), scores.m2 / max(n - 1, 1)
    a, b = (np.diag(A), np.diag(B)) if A.ndim == 2 else (A, B)
    if not (a.min() > 0.0 and b.min() > 0.0):  # a chain that did not move, or a flat density
        return regularised_covariance(draws)
    balanced = np.sqrt(a) / np.sqrt(b)
    variances: Array = (n * a + 5.0 * balanced) / (n + 5.0)
    if A.ndim == 1:
        return variances
    shrink = np.full((d, d), n / (n + d + 5.0))
    np.fill_diagonal(shrink, 1.0)
    unit = np.sqrt(np.outer(balanced, balanced))  # in these units A and B have the same diagonal
    L = np.linalg.cholesky(B * shrink * unit)
    w, V = np.linalg.eigh(L.T @ (A * shrink / unit) @ L)
    w = np.maximum(w, 1e-12 * w[-1])  # positive but for rounding
    F = solve_triangular(L, V * w**0.25, lower=True, trans="T")
    S = F @ F.T  # L^-T (L' A L)^(1/2) L^-1
    scale = np.sqrt(variances / np.diag(S))
    return np.asarray(S * np.outer(scale, scale))


class Schedule(NamedTuple):
    """Windows of warm-up draws from which the metric is learnt."""

    tune: int  # draws of warm-up
    first: int  # draw at which the first window begins
    ends: tuple[int, ...]  # one past the last draw of each window


def build_schedule(tune: int, *, first: int = 75, window: int = 25, last: int = 50) -> Schedule:
    """Return the schedule of warm-up: a fast interval, slow windows that double in length, a fast interval.

    Shorter warm-ups keep the proportions 15 %, 75 %, 10 %, with at least 15 draws for the step size to converge under
    the last metric (it begins up to twice too long); below 60 draws the metric is not adapted.
    """
    if tune < 60:
        return Schedule(tune, tune, ())
    if first + window + last > tune:
        first, last = int(0.15 * tune), max(int(0.1 * tune), 15)
        window = tune - first - last
    ends: list[int] = []
    end = first
    while end < tune - last:
        end += window
        window *= 2
        if end + window > tune - last:  # the next window would not fit: this one takes the rest
            end = tune - last
        ends.append(end)
    return Schedule(tune, first, tuple(ends))


class Tuning(NamedTuple):
    """Settings of the next step, with the state of their adaptation."""

    step_size: float
    metric: Metric
    schedule: Schedule
    draw: int = 0  # warm-up draws so far
    dual: DualAverage | None = None  # None: the step size is fixed
    welford: Welford | None = None  # of the draws; None: the metric is fixed
    scores: Welford | None = None  # of their gradients; None: the metric is learnt from the draws alone


def adapt(
    tuning: Tuning,
    state: State,
    acceptance: float,
    *,
    target_accept: float,
    restart_step: Callable[[Metric, float], float],
    longest: float = inf,
    stretch: float = 2.0,
    correlation_time: float = 1.0,
) -> Tuning:
    """Return the settings of the next draw, or of the run, after one more draw of warm-up and its acceptance rate.

    `restart_step` takes a new metric and the last step size to the first step size under that metric.  `longest` is as
    in `update_dual_average`, `stretch` as in `init_dual_average`, `correlation_time` as in `regularised_covariance`.
    """
    draw, schedule, metric = tuning.draw + 1, tuning.schedule, tuning.metric
    welford, scores = tuning.welford, tuning.scores
    if tuning.dual is None:
        return tuning._replace(draw=draw)
    dual = update_dual_average(tuning.dual, acceptance, target_accept, longest=longest)
    if welford is not None and schedule.ends and schedule.first < draw <= schedule.ends[-1]:
        welford = update_welford(welford, state.position)
        if scores is not None:
            scores = update_welford(scores, state.grad)
        if draw in schedule.ends:
            metric = learnt_metric(welford, scores, correlation_time=correlation_time)
            welford = init_welford(len(state.position), dense=welford.m2.ndim == 2)
            scores = None if scores is None else welford
            dual = init_dual_average(restart_step(metric, exp(dual.log_average)), stretch=stretch)
    settled = draw >= schedule.tune and dual.t > 0
    step_size = exp(dual.log_average if settled else dual.log_step)
    return Tuning(step_size, metric, schedule, draw, dual, welford, scores)


def learnt_metric(draws: Welford, scores: Welford | None, *, correlation_time: float = 1.0) -> Metric:
    """Return the metric learnt from a window of draws, with their scores if there are any."""
    if scores is None:
        S = regularised_covariance(draws, correlation_time=correlation_time)
    else:
        S = balanced_covariance(draws, scores)
    return as_metric(S, len(draws.mean))


def find_step_size(
    density: LogDensity, rng: np.random.Generator, state: State, metric: Metric, step_size: float = 1.0
) -> float:
    """Double or halve a step size until the acceptance rate of one leapfrog step crosses 0.8.

    Hoffman & Gelman, Algorithm 4, with Stan's threshold, from a state of finite log density.
    """
    direction = 0
    for _ in range(60):  # 2^60 either way, for a flat density
        momentum = sample_momentum(rng, metric)
        end, momentum_end, _ = leapfrog(density, state, momentum, step_size, metric.inv_mass)
        energy = kinetic_energy(metric.inv_mass, momentum) - state.logdensity
        error = end_energy(metric.inv_mass, momentum_end, end.logdensity) - energy
        wanted = 1 if -error > log(0.8) else -1
        if direction not in (0, wanted):
            break
        direction = wanted
        step_size *= 2.0**direction
    return step_size
