"""Newton's method to the mode of p(f | y) under a low-rank covariance C, of one or several latent functions.

    Ψ = log p(y | f) - ½ α'f,   f = Cα;     Newton's step with r = g - α: δα = (I + WC)⁻¹ r, δf = Cδα

A factorisation costs far more than a step with one at hand: a factor is used again (chord steps) while it converges
quickly enough.  The decrement √(r'δf), the norm of the gradient in the metric of the Hessian, is what it stops on.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, TypeVar

import numpy as np

from hmcgp.errors import NotConverged
from hmcgp.evidence.base import SolverProvider
from hmcgp.evidence.newton import HALVINGS
from hmcgp.evidence.rounding import LEFT_NATS, LOST_NATS, ROUNDED_AWAY
from hmcgp.numerics.constants import EPS
from hmcgp.runtime.typing import Array

_SURE = 0.1  # relative change of W over a step that must raise Ψ
_PATIENCE = 0.25  # chord steps, in units of the rank, that cost as much as a factorisation


class Iterate(Protocol):
    """A pair (α, f = Cα) with the terms of the likelihood there; vectors are flat, class after class."""

    @property
    def alpha(self) -> Array: ...
    @property
    def f(self) -> Array: ...
    @property
    def psi(self) -> float: ...
    @property
    def g(self) -> Array:
        """∇ log p."""
        ...

    @property
    def w(self) -> Array:
        """Diagonal of -∇∇ log p."""
        ...


class Factor(Protocol):
    """A covariance with the curvature of an iterate."""

    def respond(self, r: Array) -> tuple[Array, Array]:
        """Return x = (I + WC)⁻¹ r and Cx."""
        ...


I = TypeVar("I", bound=Iterate)  # noqa: E741


class Problem(Protocol[I]):
    """Labels, their likelihood and the prior covariance of the latent values."""

    @property
    def tol(self) -> float: ...
    @property
    def rank(self) -> int:
        """Order of the matrix that is factorised."""
        ...

    @property
    def variances(self) -> Array:
        """Prior variances, one per latent value."""
        ...

    @property
    def total_weight(self) -> float: ...
    @property
    def zero(self) -> Array:
        """A vector of zeros, as long as f."""
        ...

    def at(self, alpha: Array, f: Array) -> I: ...
    def factor(self, here: I) -> Any:
        """Factor of the covariance with the curvature here."""
        ...

    def pushed(self, there: I) -> Array:
        """W f + g."""
        ...

    def left(self, sites: Any, here: I, df: Array) -> float:
        """Nats by which log|I + WC| would change with a further step δf."""
        ...


def size(here: Iterate) -> float:
    """Σ|α|; at the start, where α = 0, that of the mode if it is there already."""
    return max(float(np.abs(here.alpha).sum()), float(np.abs(here.g).sum()))


def _target(problem: Problem[I], here: I) -> float:
    """Decrement to reach: rounding in f = Cα alone makes one of eps |C||α| √ΣW."""
    return max(problem.tol, EPS * float(problem.variances.max()) * size(here) * math.sqrt(float(here.w.sum())))


def find_mode(provider: SolverProvider, problem: Problem[I], start: Array | None) -> tuple[I, Any, int, float]:
    """Mode, the factor there, factorisations made, and Newton's decrement."""
    here, decrement, first = problem.at(problem.zero, problem.zero), np.inf, 1
    if start is not None:
        here, first = _warm_step(problem, start, here), 2
    for n_factor in range(first, provider.max_iter + 1):
        sites = problem.factor(here)
        last, (direction, decrement) = decrement, _direction(sites, here)
        if decrement <= _target(problem, here):
            left = problem.left(sites, here, direction[1])
            if left <= LEFT_NATS or decrement > 0.5 * last:
                _check_rounding(provider, problem, here, n_factor)
                return here, sites, n_factor, decrement
        moved = _ascend(problem, here, direction, HALVINGS)
        if moved is None:
            break
        here = _chords(problem, sites, moved, decrement)
    raise NotConverged(
        f"{type(provider).__name__}: decrement {decrement:.1e} > tol {provider.tol:.1e} after {provider.max_iter} "
        f"factorisations; {provider.remedy}."
    )


def _warm_step(problem: Problem[I], start: Array, zero: I) -> I:
    """One Newton step from f alone, α = (I + WC)⁻¹(W f + g), and chords; zero where it lands below Ψ(0)."""
    there = problem.at(zero.alpha, start)
    sites = problem.factor(there)
    here = problem.at(*sites.respond(problem.pushed(there)))
    return _chords(problem, sites, here, np.inf) if here.psi >= zero.psi else zero


def _direction(sites: Factor, here: Iterate) -> tuple[tuple[Array, Array], float]:
    """Newton's step (δα, δf) by the factor at hand, and the decrement √(r'δf)."""
    r = here.g - here.alpha
    step = sites.respond(r)
    return step, math.sqrt(max(float(r @ step[1]), 0.0))


def _ascend(problem: Problem[I], here: I, step: tuple[Array, Array], halvings: int) -> I | None:
    """Take the step, halved while Ψ falls by more than rounding; None where it cannot be taken.

    A step by a factor of this iterate, over which W (of several classes, its diagonal) hardly changes, is taken as it
    is, as in `laplace.mode_search`.
    """
    fresh = halvings > 0
    least = here.psi - 1e-13 * abs(here.psi) - 4.0 * EPS * float(problem.variances.max()) * size(here) ** 2
    for k in range(halvings + 1):
        there = problem.at(here.alpha + 0.5**k * step[0], here.f + 0.5**k * step[1])
        if there.psi >= least or (fresh and k == 0 and np.all(np.abs(there.w - here.w) <= _SURE * here.w)):
            return there
    return None


def _chords(problem: Problem[I], sites: Factor, here: I, decrement: float) -> I:
    """Steps with an old factor, until converged or a new factor would pay."""
    patience = 2.0 + _PATIENCE * problem.rank
    while True:
        last, (direction, decrement) = decrement, _direction(sites, here)
        target = _target(problem, here)
        if decrement <= 0.1 * target:
            return here
        there = _ascend(problem, here, direction, 0)
        if there is None:
            return here
        here = there
        if last < np.inf:
            rate = decrement / last  # convergence is linear
            if rate >= 1.0 or math.log(target / decrement) < patience * math.log(rate):
                return here


def _check_rounding(provider: SolverProvider, problem: Problem[I], here: I, n_factor: int) -> None:
    scale, trace = float(problem.variances.max()), float(here.w @ problem.variances)
    weight = max(problem.total_weight, float(here.w.sum()))  # of labels, W <= ω
    refuse_rounding(provider, n_factor, scale, size(here), trace, weight)


def refuse_rounding(
    provider: SolverProvider, n_factor: int, scale: float, length: float, trace: float, weight: float
) -> None:
    """Refuse an answer that rounding eats: the two bounds of `evidence.rounding`, for a bounded third derivative.

    From the largest prior variance, Σ|α|, Σ w_i K_ii, and the sum of the weights.
    """
    error = EPS * scale * length
    nats = 0.5 * (error * length + EPS * trace)
    lost = max(nats / LOST_NATS, error * math.sqrt(weight) / ROUNDED_AWAY)
    if not lost <= 1.0:
        raise NotConverged(
            f"{type(provider).__name__}: rounding alone makes a decrement of {ROUNDED_AWAY * lost:.1e} (largest prior "
            f"variance {scale:.1e}, after {n_factor} factorisations); {provider.remedy}."
        )
