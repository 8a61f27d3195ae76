"""Hybrid (Hamiltonian) Monte Carlo with trajectories of given length.

    p ~ N(0, S^-1);  (u', p') = n leapfrog steps of size e;  accept u' with probability min(1, exp(H - H'))

Either n is given, or a time T: then e is the longest step, n = ceil(T/e) and each step takes T/n.

Duane, Kennedy, Pendleton & Roweth (1987); as used for Gaussian processes by Barber & Williams (1997), who took
e = 0.1, n = 20 and no jitter: `HMC(step_size=0.1, n_steps=20, jitter=0)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf, pi
from typing import ClassVar

import numpy as np

from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_between, check_count
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.hamiltonian import Hamiltonian, check_positive
from hmcgp.samplers.integrators import State, Work, leapfrog
from hmcgp.samplers.metric import end_energy, kinetic_energy, sample_momentum
from hmcgp.samplers.trace import Info, Step


def divide(time: float, longest: float, max_steps: int) -> tuple[float, int]:
    """Return size and number of the fewest equal steps, none above `longest`, that make up a time.

    At most max_steps are taken, in less than that time if need be.
    """
    n = min(ceil(time / longest), max_steps)
    return min(time / n, longest), n


def integrate(
    density: LogDensity, state: State, momentum: Array, step_size: float, n_steps: int, inv_mass: Array | None
) -> tuple[State, Array, Work]:
    """Follow a trajectory for n_steps, or until the log density is -inf.

    A path through -inf is rejected from either end, so stopping there preserves detailed balance.
    """
    work = Work()
    for _ in range(n_steps):
        state, momentum, evaluation = leapfrog(density, state, momentum, step_size, inv_mass)
        work = work.plus(evaluation)
        if state.logdensity == -inf:
            break
    return state, momentum, work


@dataclass(frozen=True, eq=False)
class HMC(Hamiltonian):
    """Hamiltonian Monte Carlo with trajectories of given length.

    Settings that are None are learnt in warm-up.

    Parameters
    ----------
    step_size : float, optional
        Leapfrog step e.  None adapts it to `target_accept`.  When given, warm-up merely discards draws.
    n_steps : int, optional
        Leapfrog steps per trajectory.  None divides `trajectory` into the fewest equal steps of at most `step_size`.
    jitter : float
        Each trajectory lasts (1 + jitter * U(-1, 1)) times as long, against periodic orbits; when `n_steps` is given,
        by steps of other size.  0 is plain HMC.
    metric : ndarray of shape (n_dim,) or (n_dim, n_dim), optional
        Inverse mass, ideally the posterior covariance of the unconstrained parameters.  None adapts it when the
        step size is adapted too, and is the identity when the step size is given.
    dense : bool, optional
        Whether an adapted metric is a full covariance rather than variances.  None: up to 30 dimensions it is.
    trajectory : float
        Integration time when `n_steps` is None.  With the metric at the posterior covariance, pi/2 takes a Gaussian
        from any point to an independent one; up to 2 helps directions that a diagonal metric makes too short, and
        near pi trajectories end at the mirror image of their start.
    max_steps : int
        Largest number of leapfrog steps in a trajectory of given time.
    target_accept : float
        Acceptance rate that the adapted step size aims at.
    max_energy_error : float
        A trajectory with a larger energy error is called divergent.
    """

    step_size: float | None = None
    n_steps: int | None = None
    jitter: float = 0.2
    metric: Array | None = None
    dense: bool | None = None
    trajectory: float = pi / 2
    max_steps: int = 64
    target_accept: float = 0.8
    max_energy_error: float = 1000.0

    name: ClassVar[str] = "hmc"
    info: ClassVar[type[Info]] = Info

    def __post_init__(self) -> None:
        self.check_settings()
        if self.n_steps is not None:
            check_count("n_steps", self.n_steps, 1)
        check_positive("trajectory", self.trajectory)
        check_count("max_steps", self.max_steps, 1)
        check_between("jitter", self.jitter, 0.0, 1.0, closed=True)

    @property
    def usual_steps(self) -> float:
        """Typical number of evaluations per draw, for forecasts of the running time."""
        return self.n_steps or 6.0

    @property
    def longest_step(self) -> float:
        """Longest step that matters: that of the longest trajectory, as longer ones are cut to fit."""
        return self.trajectory * (1.0 + self.jitter) if self.n_steps is None else inf

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        step_size, metric, inv_mass = tuning.step_size, tuning.metric, tuning.metric.inv_mass

        def step(rng: np.random.Generator, state: State) -> tuple[State, Info]:
            momentum = sample_momentum(rng, metric)
            # whatever the state: reversible
            stretch = 1.0 + self.jitter * (2.0 * rng.random() - 1.0) if self.jitter else 1.0
            if self.n_steps is None:
                size, n = divide(self.trajectory * stretch, step_size, self.max_steps)
            else:
                size, n = step_size * stretch, self.n_steps
            energy = kinetic_energy(inv_mass, momentum) - state.logdensity
            end, momentum, work = integrate(density, state, momentum, size, n, inv_mass)
            energy_end = end_energy(inv_mass, momentum, end.logdensity)
            error = energy_end - energy
            acceptance, diverging = exp(min(0.0, -error)), error > self.max_energy_error
            if rng.random() < acceptance:
                state, energy = end, energy_end
            return state, Info(state.logdensity, acceptance, size, work[0], energy, error, diverging, *work[1:])

        return step
