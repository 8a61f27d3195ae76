"""The no-U-turn sampler: Hamiltonian Monte Carlo with trajectories of adaptive length.

    p ~ N(0, S^-1);  the trajectory through (u, p) doubles, forwards or backwards at random, until it turns back;
    the next draw is one of its states z, with probability proportional to exp(-H(z))

A stretch of trajectory with ends (p_a, p_b) turns back when, with the sum of its momenta rho = sum p,
    rho' S p_a <= 0   or   rho' S p_b <= 0
Two stretches that are joined are tested three times: as a whole, and each with the nearest state of the other, which
detects a turn between them.  Within a doubling the draw is multinomial; between doublings it is biased towards the
newer half, min(1, w_new/w_old), which makes moves longer.

Hoffman & Gelman (2014), The no-U-turn sampler; Betancourt (2017), A conceptual introduction to Hamiltonian Monte
Carlo, appendix A; the checks across the join are those of Stan >= 2.21.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log1p
from typing import ClassVar, NamedTuple

import numpy as np

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_count
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.hamiltonian import Hamiltonian
from hmcgp.samplers.integrators import State, Work, leapfrog
from hmcgp.samplers.metric import kinetic_energy, sample_momentum, velocity
from hmcgp.samplers.trace import Step
from hmcgp.samplers.trace import TreeInfo as Info


class End(NamedTuple):
    """An end of a trajectory."""

    state: State
    momentum: Array  # (n_dim,)
    velocity: Array  # (n_dim,), S p


class Tree(NamedTuple):
    """A stretch of trajectory, and the state drawn from it."""

    near: End  # where it began to grow
    far: End  # where it goes on
    rho: Array  # (n_dim,), sum of the momenta
    log_weight: float  # log sum exp(-H), relative to the first state
    draw: State
    energy_error: float  # H at the draw, relative to the first state

    def reversed(self) -> Tree:
        """Return the tree with its ends exchanged, to grow at the other one."""
        return self._replace(near=self.far, far=self.near)


class Explorer:
    """Grows the trees of one draw, and counts their evaluations."""

    def __init__(
        self, density: LogDensity, rng: np.random.Generator, inv_mass: Array, step_size: float, max_energy_error: float
    ) -> None:
        self.density, self.rng, self.inv_mass = density, rng, inv_mass
        self.step_size, self.max_energy_error = step_size, max_energy_error
        self.energy = 0.0  # H of the first state
        self.diverging = False
        self.acceptance = 0.0  # summed over the steps
        self.work = Work()

    def root(self, state: State, momentum: Array) -> Tree:
        """Return the tree of the first state."""
        end = End(state, momentum, velocity(self.inv_mass, momentum))
        self.energy = kinetic_energy(self.inv_mass, momentum) - state.logdensity
        return Tree(end, end, momentum, 0.0, state, 0.0)

    def grow(self, end: End, depth: int, direction: int) -> Tree | None:
        """Return the tree of 2^depth steps from an end; None when they diverge or a part of them turns back."""
        if depth == 0:
            return self.leaf(end, direction)
        first = self.grow(end, depth - 1, direction)
        if first is None:
            return None
        second = self.grow(first.far, depth - 1, direction)
        if second is None:
            return None
        joined = join(self.rng, first, second)
        return None if turns(first, second, joined.rho) else joined

    def leaf(self, end: End, direction: int) -> Tree | None:
        """Return the tree of one leapfrog step; None when it diverges."""
        step_size = direction * self.step_size
        state, momentum, evaluation = leapfrog(self.density, end.state, end.momentum, step_size, self.inv_mass)
        self.work = self.work.plus(evaluation)
        v = velocity(self.inv_mass, momentum)
        error = 0.5 * float(momentum.dot(v)) - state.logdensity - self.energy
        if not error <= self.max_energy_error:  # NaN too
            self.diverging = True
            return None
        self.acceptance += exp(min(0.0, -error))
        new = End(state, momentum, v)
        return Tree(new, new, momentum, -error, state, error)


def turns(first: Tree, second: Tree, rho: Array) -> bool:
    """Return whether two adjoining trees, of total momentum rho, turn back, as a whole or where they meet."""
    a, b = first.near.velocity, second.far.velocity
    if _turns(rho, a, b):
        return True
    if first.near is first.far:  # two single states, tested as a whole
        return False
    return _turns(first.rho + second.near.momentum, a, second.near.velocity) or _turns(
        second.rho + first.far.momentum, first.far.velocity, b
    )


def _turns(rho: Array, a: Array, b: Array) -> bool:
    return float(rho.dot(a)) <= 0.0 or float(rho.dot(b)) <= 0.0  # Python's comparison is faster than NumPy's


def join(rng: np.random.Generator, first: Tree, second: Tree, *, biased: bool = False) -> Tree:
    """Join adjoining trees, and draw from one of them: by weight, or biased towards the second."""
    gain = second.log_weight - first.log_weight
    log_ratio = log1p(exp(-abs(gain)))
    log_weight = max(first.log_weight, second.log_weight) + log_ratio
    odds = gain if biased else second.log_weight - log_weight
    drawn = second if odds >= 0.0 or rng.random() < exp(odds) else first
    return Tree(first.near, second.far, first.rho + second.rho, log_weight, drawn.draw, drawn.energy_error)


def explore(explorer: Explorer, state: State, momentum: Array, max_depth: int) -> tuple[Tree, int, bool]:
    """Double a trajectory until it turns back; return it, the number of doublings, and whether it turned."""
    rng, tree, direction = explorer.rng, explorer.root(state, momentum), 1
    for depth in range(max_depth):
        if rng.random() < 0.5:
            direction, tree = -direction, tree.reversed()
        new = explorer.grow(tree.far, depth, direction)
        if new is None:  # the half that turned or diverged is left out
            return tree, depth, True
        old, tree = tree, join(rng, tree, new, biased=True)
        if turns(old, new, tree.rho):
            return tree, depth + 1, True
    return tree, max_depth, False


@dataclass(frozen=True, eq=False)
class NUTS(Hamiltonian):
    """The no-U-turn sampler: trajectories grow until they turn back towards their start.

    Settings that are None are learnt in warm-up.

    Parameters
    ----------
    step_size, metric, dense
        As of `HMC`.
    target_accept : float
        Acceptance rate, averaged over the trajectory, that the adapted step size aims at.
    max_depth : int
        Largest number of doublings of a trajectory, which then has 2^max_depth - 1 steps.
    max_energy_error : float
        A trajectory whose energy rises by more is called divergent and ends there.
    """

    step_size: float | None = None
    metric: Array | None = None
    dense: bool | None = None
    target_accept: float = 0.8
    max_depth: int = 10
    max_energy_error: float = 1000.0

    name: ClassVar[str] = "nuts"
    info: ClassVar[type[Info]] = Info
    usual_steps: ClassVar[float] = 7.0

    def __post_init__(self) -> None:
        self.check_settings()
        check_count("max_depth", self.max_depth, 1, most=20)

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        step_size, metric = tuning.step_size, tuning.metric

        def step(rng: np.random.Generator, state: State) -> tuple[State, Info]:
            explorer = Explorer(density, rng, metric.inv_mass, step_size, self.max_energy_error)
            with np.errstate(over="ignore", invalid="ignore"):  # a step that runs away is divergent, not a warning
                tree, depth, turned = explore(explorer, state, sample_momentum(rng, metric), self.max_depth)
            return tree.draw, Info(
                lp=tree.draw.logdensity,
                acceptance_rate=explorer.acceptance / explorer.work.n_steps,
                step_size=step_size,
                energy=explorer.energy + tree.energy_error,
                energy_error=tree.energy_error,
                diverging=explorer.diverging,
                **explorer.work._asdict(),
                tree_depth=depth,
                reached_max_treedepth=depth == self.max_depth and not turned,
            )

        return step
