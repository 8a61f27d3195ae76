"""Alternating moves of hyperparameters and latent values, exact for any guide and any sites.

1. Surround the latent vector of the chain by N - 1 others, drawn around EP's Gaussian.
2. Move u with all white vectors fixed: a leapfrog whose force is the gradient of the guide's log density, accepted by
   the exact density of `hmcgp.joint.density`.  A leapfrog is reversible and preserves volume whatever function of u its
   force is.  Its step size is tuned by the energy of the guide, which it follows: the rest of the energy error does
   not fall with the step.
3. Choose one of the vectors, with probabilities proportional to their weights.
4. Turn it by elliptical slices around EP's Gaussian (`hmcgp.joint.elliptical`).

Each leaves p(u, f | y) invariant.  In the first third of warm-up, moves are accepted by the guide's density instead:
far from the posterior, where chains start, the two differ by so much that nothing would be accepted.

Moves of u at fixed white vectors are those of Murray & Adams (2010) and Filippone & Girolami (2014); slices around an
approximation those of Nishihara, Murray & Adams (2014).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, inf
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy.special import softmax

from hmcgp.joint.density import Cloud, JointDensity, Point, student_draws
from hmcgp.joint.elliptical import turn
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.hmc import HMC, divide, integrate
from hmcgp.samplers.integrators import State
from hmcgp.samplers.metric import end_energy, kinetic_energy, sample_momentum
from hmcgp.samplers.trace import AnyInfo, JointInfo

Step: TypeAlias = Callable[[np.random.Generator, State], tuple[State, JointInfo]]


def surround(rng: np.random.Generator, density: JointDensity, point: Point, size: int) -> Cloud:
    """Return a cloud of `size` vectors, the first of which is the point's.

    Parameters
    ----------
    rng : Generator
    density : JointDensity
    point : Point
    size : int
        N.
    """
    others = density.at(point.place, student_draws(rng, size - 1, len(point.nu)))
    return Cloud(
        point.place,
        np.vstack([point.nu, others.nu]),
        np.vstack([point.f, others.f]),
        np.concatenate([[point.log_ratio], others.log_ratio]),
    )


def choose(rng: np.random.Generator, cloud: Cloud) -> Point:
    """Draw one vector of a cloud, with probabilities proportional to their weights."""
    k = rng.choice(len(cloud.nu), p=softmax(cloud.log_weight))
    return Point(cloud.place, cloud.nu[k], cloud.f[k], float(cloud.log_ratio[k]))


def turn_latent(rng: np.random.Generator, density: JointDensity, point: Point, n_turns: int) -> Point:
    """Draw latent values given the hyperparameters, by elliptical slices.

    Parameters
    ----------
    rng : Generator
    density : JointDensity
    point : Point
        Where the chain stands.
    n_turns : int
        Number of slices.
    """
    place, mean = point.place, point.place.white.mean
    others = rng.standard_normal((n_turns, len(point.nu)))
    for nu, there in zip(others, place.white.offset(others), strict=True):
        here = point.f - mean

        def log_ratio(c: float, s: float, here: Array = here, there: Array = there) -> float:
            return float(density.log_ratio(place, (mean + c * here + s * there)[None])[0])

        c, s, value = turn(rng, point.log_ratio, log_ratio)
        point = Point(place, c * point.nu + s * nu, mean + c * here + s * there, value)
    return point


def move_hyperparameters(
    rng: np.random.Generator, density: JointDensity, cloud: Cloud, tuning: Tuning, hmc: HMC, *, exact: bool = True
) -> tuple[Cloud, dict[str, Any]]:
    """Move u with the white vectors of a cloud fixed.

    Parameters
    ----------
    rng : Generator
    density : JointDensity
    cloud : Cloud
    tuning : Tuning
        Metric and step size.
    hmc : HMC
        Length of the trajectory and its jitter.
    exact : bool, default=True
        Accept by the exact density; else by the guide's.

    Returns
    -------
    cloud : Cloud
    statistics : dict
        Fields of `JointInfo`, but for `lp`.
    """
    guide, inv_mass = cloud.place.guide, tuning.metric.inv_mass
    momentum = sample_momentum(rng, tuning.metric)
    stretch = 1.0 + hmc.jitter * (2.0 * rng.random() - 1.0)
    size, n = divide(hmc.trajectory * stretch, tuning.step_size, hmc.max_steps)
    kinetic = kinetic_energy(inv_mass, momentum)
    end, momentum, work = integrate(density.guide, guide, momentum, size, n, inv_mass)
    guide_error = end_energy(inv_mass, momentum, end.logdensity) - (kinetic - guide.logdensity)
    place = density.place(end, cloud.place.sites)
    proposal = None if place is None else density.at(place, cloud.nu)
    energy = kinetic - cloud.log_density
    energy_end = end_energy(inv_mass, momentum, -inf if proposal is None else proposal.log_density)
    error = energy_end - energy
    acceptance = exp(min(0.0, -error))
    level = rng.random()
    if proposal is not None and level < (acceptance if exact else exp(min(0.0, -guide_error))):
        cloud, energy = proposal, energy_end
    return cloud, {
        "acceptance_rate": acceptance,
        "step_size": size,
        "energy": energy,
        "energy_error": error,
        "diverging": guide_error > hmc.max_energy_error,
        "guide_acceptance_rate": exp(min(0.0, -guide_error)),
        **work._asdict(),
    }


@dataclass(frozen=True, eq=False)
class JointHMC:
    """Sampler of a `JointDensity`.

    Parameters
    ----------
    n_vectors : int, default=16
        Latent vectors with which a move of the hyperparameters is weighed, N.  Each takes n² operations, a trajectory
        several times n³.
    n_turns : int, default=3
        Elliptical slices after each move.
    hmc : HMC
        Settings of the trajectories.
    """

    n_vectors: int = 16
    n_turns: int = 3
    hmc: HMC = field(default_factory=HMC)

    name: ClassVar[str] = "joint"
    info: ClassVar[type[JointInfo]] = JointInfo

    @property
    def usual_steps(self) -> float:
        """Typical number of evaluations per draw, for forecasts of the running time."""
        return 2.0  # one by EP, and some by a guide that costs less

    def check(self, n_dim: int, tune: int) -> None:
        """Raise InvalidInput for settings that do not fit; those of the trajectories are learnt in warm-up."""

    def init_tuning(self, density: Any, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        """Return the settings of the first step."""
        return self.hmc.init_tuning(density.guide, rng, _point(state).place.guide, tune)

    def adapt(self, density: Any, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo) -> Tuning:
        """Return the settings of the next step, learnt from one draw of warm-up."""
        assert isinstance(info, JointInfo)
        followed = info._replace(acceptance_rate=info.guide_acceptance_rate)
        return self.hmc.adapt(density.guide, rng, tuning, _point(state).place.guide, followed)

    def build_step(self, density: Any, tuning: Tuning) -> Step:
        """Return the transition of one draw."""
        exact = tuning.draw >= tuning.schedule.tune // 3

        def step(rng: np.random.Generator, state: State) -> tuple[State, JointInfo]:
            cloud = surround(rng, density, _point(state), self.n_vectors)
            cloud, statistics = move_hyperparameters(rng, density, cloud, tuning, self.hmc, exact=exact)
            point = turn_latent(rng, density, choose(rng, cloud), self.n_turns)
            return point.state, JointInfo(lp=point.log_joint, **statistics)

        return step


def _point(state: State) -> Point:
    assert isinstance(state.carry, Point)
    return state.carry
