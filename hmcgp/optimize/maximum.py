"""The maximum of the posterior density (MAP), from several starts, by L-BFGS or by EM-EP.

The density is that of the unconstrained parameters u, Jacobian included, from which the samplers draw.  Its maximum is
not that of the density of the natural parameters θ; for log-normal priors it treats log θ as the parameter, as Barber &
Williams (1997) do.

EM-EP (Kim & Ghahramani 2006) maximises the same density.  Its E-step evaluates it by EP at the hyperparameters u₀; its
M-step maximises a surrogate with the posterior of the latent values held fixed:

    F(u | u₀) = E[log p(latent values, y | u)] + log p(u) + const.,      equal to log p(u | y) at u₀ in value and slope

A few L-BFGS iterations raise F and never lower it (a generalised M-step), and u₀ moves to where they end.  Fixed points
are the stationary points of the density.  With an exact posterior every step would raise the density too; EP gives no
bound, so here it usually does.  Convergence is linear.

L-BFGS compares values, and their rounding limits its accuracy where the covariance is badly conditioned (numbers almost
without noise): with curvature h and values wrong by e, slopes below sqrt(2 h e) cannot be seen, nor which of several
searches that reach one optimum is the highest.  Newton's method sets gradients to zero instead and has no such limit,
so it finishes the best search, with the Hessian by differences of gradients.

A search that starts where the density is nearly flat stays there.  The first searches therefore start at the highest of
the candidates of `samplers.start`, each well apart from those before.  No search may end below the highest of them; if
the best does, another starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import ExpectationDensity, LogDensity
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.checks import check_count, name_among
from hmcgp.runtime.memory import check_memory
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from hmcgp.runtime.random import RandomStateLike, spawn_generators
from hmcgp.runtime.typing import Array
from hmcgp.samplers.ascent import Objective, Optimum, climb, descend, hessian
from hmcgp.samplers.integrators import State, Work, init
from hmcgp.samplers.scouting import highest_apart, scout
from hmcgp.samplers.single_draw import single_draw
from hmcgp.samplers.start import first_start
from hmcgp.samplers.trace import Trace

GRADIENT_TOLERANCE = 1e-4  # largest component of the gradient at what is called an optimum
_SLOPE_LEFT = 0.1 * GRADIENT_TOLERANCE  # at which searches stop
M_STEP_ITERATIONS = 2  # of L-BFGS; the next E-step moves the maximum, so more would be wasted
SCOUTED = 5  # searches that start at the highest candidates; the others start at draws by `density.initial`
_HALVINGS = 10  # of a step to a position where the E-step fails
_NEWTON_STEPS = 5  # at most, with one Hessian; the first reduces the gradient a thousandfold
_SHOWN = 8  # hyperparameters in the text of a result
_ROUNDING = 1e-6  # a smaller decrease of the log density is rounding


class MapResult(NamedTuple):
    """The highest optimum of several searches."""

    position: Array  # (n_dim,), unconstrained
    parameters: Array  # (n_dim,), natural
    logdensity: float  # of u
    names: list[str]
    evaluations: int  # of all searches and candidates; for EM-EP, of the density and of its surrogates
    converged: bool  # whether the gradient vanishes at the optimum, and no position that was seen is higher
    restarts: Array  # (n_restarts,), log density at the end of each search
    carry: object  # speeds up evaluations near the optimum

    def __repr__(self) -> str:
        shown = [f"{name}={value:.4g}" for name, value in zip(self.names, self.parameters, strict=True)]
        more = f", … {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        state = "converged" if self.converged else "not converged"
        return (
            f"MapResult({', '.join(shown[:_SHOWN])}{more}; logdensity={self.logdensity:.6g}, {state}, best of "
            f"{len(self.restarts)} searches, {self.evaluations} evaluations)"
        )


@single_blas_thread()  # also for the Newton steps at the end
def find_map(
    density: LogDensity,
    *,
    method: str = "lbfgs",
    n_restarts: int = 5,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
    start: Array | None = None,
    maxiter: int | None = None,
) -> MapResult:
    """Return the maximum of the density of the unconstrained parameters, from several starts.

    Parameters
    ----------
    density : LogDensity
        The log density, with its gradient.
    method : {"lbfgs", "em-ep"}, default="lbfgs"
        "em-ep" is the algorithm of Kim & Ghahramani (2006), for a `Model` with evidence "ep" or "tap": it reaches the
        same optima as "lbfgs", with five to twenty-five times as many evaluations.  Their model has the step of
        `LabelNoise` and a `White` term in the kernel; without `White`, a step makes its matrices singular.
    n_restarts : int
        Number of starts.  The first five are the highest of 128 positions drawn at random, well apart from each other;
        more are drawn by `density.initial`.
    random_state : None, int, SeedSequence, Generator or RandomState
        Seed of the starts; start i is the same whatever their number.
    n_jobs : int, optional
        Workers, as in `hmcgp.samplers.sample`.
    start : ndarray of shape (n_dim,), optional
        Unconstrained position of the first start.  With ``n_restarts=1`` the search is of the maximum nearby.
    maxiter : int, optional
        Largest number of iterations per start; default: 200 of L-BFGS, or 2000 pairs of E- and M-steps.

    Returns
    -------
    MapResult
        The highest over all starts.

    Raises
    ------
    InvalidInput
        For wrong arguments, for "em-ep" without EP or where its first E-step fails.
    """
    method = name_among("method", method, _METHODS)
    if method == "em-ep" and not isinstance(density, ExpectationDensity):
        raise InvalidInput(
            f"EM-EP needs a log density with an E-step, a Model with evidence 'ep' or 'tap'; got a "
            f"{type(density).__name__}. Use method='lbfgs'."
        )
    optima, seen = climb_from_starts(density, method, n_restarts, random_state, n_jobs, start, maxiter)
    return _best(density, optima, seen)


def climb_from_starts(
    density: LogDensity,
    method: str,
    n_restarts: int,
    random_state: RandomStateLike,
    n_jobs: int | None,
    start: Array | None = None,
    maxiter: int | None = None,
) -> tuple[list[Optimum], list[State]]:
    """Return the end of a search from each start, and the candidates for these (arguments as of `find_map`)."""
    search, default = _METHODS[method]
    maxiter = default if maxiter is None else maxiter
    check_count("maxiter", maxiter, 1)
    if start is not None and np.shape(start) != (density.n_dim,):
        raise InvalidInput(f"'start' must have shape ({density.n_dim},); got {np.shape(start)}.")
    check_count("n_restarts", n_restarts, 1)
    if density.n_dim == 0:  # there is one position
        n_restarts, start = 1, np.empty(0)
    n_workers = resolve_n_jobs(n_jobs, n_restarts)
    check_memory(density, n_workers)
    first, *rngs = spawn_generators(random_state, 1 + n_restarts)
    starts = [] if start is None else [first_start(density, first, np.asarray(start, dtype=float))]
    candidates: list[State] = []
    if len(starts) < n_restarts:
        candidates = scout(density, first, n_workers)
        starts += highest_apart(density, candidates, min(n_restarts, SCOUTED) - len(starts))
    given = [*starts, *[None] * (n_restarts - len(starts))]
    calls = [(search, (density, rng, state, maxiter)) for rng, state in zip(rngs, given, strict=True)]
    return run_tasks(calls, n_workers), candidates


def _climb_by_lbfgs(density: LogDensity, rng: np.random.Generator, start: State | None, maxiter: int) -> Optimum:
    return climb(density, start or first_start(density, rng), maxiter, gtol=_SLOPE_LEFT)


def _polish(density: LogDensity, optimum: Optimum) -> Optimum:
    """Return an optimum refined by Newton's method, or unchanged where that fails."""
    state, evaluations = optimum.state, optimum.evaluations + 2 * density.n_dim
    best, slope = state, np.max(np.abs(state.grad))
    H = hessian(density, state)
    if not (np.isfinite(H).all() and np.linalg.eigvalsh(H).max() < 0.0):
        return optimum._replace(evaluations=evaluations)
    for _ in range(_NEWTON_STEPS):
        state = init(density, state.position - np.linalg.solve(H, state.grad), state.carry)
        evaluations += 1
        last, left = slope, np.max(np.abs(state.grad))
        if not (state.logdensity > optimum.state.logdensity - _ROUNDING and left < slope):
            break
        best, slope = state, left
        if left > 0.5 * last:
            break
    return Optimum(best if slope <= GRADIENT_TOLERANCE else optimum.state, evaluations)


def _climb_by_em(density: ExpectationDensity, rng: np.random.Generator, start: State | None, maxiter: int) -> Optimum:
    first = start or first_start(density, rng)
    state, surrogate = _e_step(density, first.position, first.carry)
    evaluations = 2
    if surrogate is None:
        raise InvalidInput(
            f"EM-EP cannot start at u = {first.position}: the covariance of the latent values is singular to working "
            "precision. Add a White term to the kernel, or use LabelNoise(link='probit') or method='lbfgs'."
        )
    for _ in range(maxiter):
        if np.max(np.abs(state.grad), initial=0.0) <= _SLOPE_LEFT:
            break
        m_step = Objective(surrogate, state)
        descend(m_step, M_STEP_ITERATIONS, gtol=_SLOPE_LEFT)
        surrogate = None
        for position in _candidates(m_step, state):
            moved, surrogate = _e_step(density, position, state.carry)
            evaluations += 1
            if surrogate is not None:
                break
        evaluations += m_step.evaluations - 1  # its first evaluation is that of the E-step
        if surrogate is None:
            break
        state = moved
    return Optimum(state, evaluations)


def _e_step(density: ExpectationDensity, position: Array, carry: object) -> tuple[State, LogDensity | None]:
    evaluation, surrogate = density.expectation(position, carry)
    return State(position, evaluation.logdensity, evaluation.grad, evaluation.carry), surrogate


def _candidates(m_step: Objective, state: State) -> Iterator[Array]:
    """Yield positions for the next E-step: the end of the M-step, then points on the way there with F not below."""
    if m_step.best is state:
        return  # what is left of the slope is below rounding
    end = m_step.best.position
    yield end
    for k in range(1, _HALVINGS):
        position = state.position + 0.5**k * (end - state.position)
        if -m_step(position)[0] >= state.logdensity:
            yield position


_METHODS: dict[str, tuple[Callable[..., Optimum], int]] = {
    "lbfgs": (_climb_by_lbfgs, 200),
    "em-ep": (_climb_by_em, 2000),
}  # with the default number of iterations


def _best(density: LogDensity, optima: list[Optimum], candidates: list[State]) -> MapResult:
    """Return the highest optimum, refined where its search ended before its last iteration."""
    optima = list(optima)
    top = max(candidates, key=lambda candidate: candidate.logdensity, default=None)
    floor = -inf if top is None else top.logdensity - _ROUNDING
    if top is not None and all(optimum.state.logdensity < floor for optimum in optima):  # steps of EM-EP may lead down
        again = init(density, top.position, top.carry)
        optima.append(_climb_by_lbfgs(density, np.random.default_rng(0), again, _METHODS["lbfgs"][1]))
    highest = max(optima, key=lambda optimum: optimum.state.logdensity)
    evaluations = len(candidates) + sum(optimum.evaluations for optimum in optima) - highest.evaluations
    if highest.stalled:
        highest = _polish(density, highest)
    best = highest.state
    return MapResult(
        position=best.position,
        parameters=density.constrain(best.position),
        logdensity=best.logdensity,
        names=list(density.names),
        evaluations=evaluations + highest.evaluations,
        converged=bool(np.max(np.abs(best.grad), initial=0.0) <= GRADIENT_TOLERANCE and best.logdensity >= floor),
        restarts=np.array([optimum.state.logdensity for optimum in optima]),
        carry=best.carry,
    )


def point_trace(result: MapResult, seconds: float = 0.0) -> Trace:
    """Return the optimum of a search of some seconds as a trace of one draw, for functions of draws."""
    work = Work(n_steps=result.evaluations)
    return single_draw(result.position, result.parameters, result.logdensity, result.names, "map", work, seconds)
