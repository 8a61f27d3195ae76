"""Hybrid Monte Carlo with jumps between modes found beforehand.

A trajectory seldom crosses a valley of ten nats, so a chain stays in its first mode.  Every draw here is a step of
HMC, which explores a mode, followed by a proposal independent of the current position (an independence Metropolis
step, Tierney 1994), from a mixture of t distributions, one at each known mode:

    q(u) = sum_k w_k t_5(u; m_k, S_k),     accept u' with probability min(1, p(u') q(u) / (p(u) q(u')))

with m_k the mode, S_k the inverse of the negative Hessian there and w_k close to its share of the probability, by
Laplace's approximation.  Both steps leave p invariant for any modes: one that is missing is only hard to reach, and a
bad S_k only makes jumps rare.  The metric of the trajectories begins as the average of the S_k and is then learnt from
the deviations of draws from their modes.  For up to about fifteen dimensions, where p/q varies little enough for jumps
to be accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, lgamma, log, pi
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import softmax

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.integrators import State, Work, evaluate
from hmcgp.samplers.metric import Metric, as_metric
from hmcgp.samplers.trace import JumpInfo, Step

DEGREES = 5.0  # of freedom: tails heavier than those of p
EVENLY = 0.05  # share of the proposals spread evenly over the modes, in case Laplace's shares are wrong


class Modes(NamedTuple):
    """Modes of a density, highest first, with Laplace's approximation of each."""

    positions: Array  # (k, d), unconstrained
    parameters: Array  # (k, d), natural
    logdensity: Array  # (k,)
    covariances: Array  # (k, d, d), inverse of the negative Hessian
    found: Array  # (k,), how many searches ended there
    names: list[str]  # (d,)

    def __repr__(self) -> str:
        """Summarise to few digits, so that checkpoints of searches that differ by rounding are recognised."""
        tops = ", ".join(f"{value:.2f}" for value in self.logdensity)
        where = zip(self.positions[0], np.sqrt(np.diag(self.covariances[0])), strict=True)
        highest = ", ".join(f"{value:.3g} ± {width:.2g}" for value, width in where)
        return f"Modes({len(self.found)}: log densities {tops}; the highest at {highest})"

    @property
    def log_mass(self) -> Array:
        """Logarithm of the integral over each mode, by Laplace's approximation, of shape (k,)."""
        d = self.positions.shape[1]
        return np.asarray(self.logdensity + 0.5 * (d * log(2.0 * pi) + np.linalg.slogdet(self.covariances)[1]))

    @property
    def share(self) -> Array:
        """Each mode's share of the probability, by Laplace's approximation, of shape (k,)."""
        return np.asarray(softmax(self.log_mass))


class Mixture:
    """The mixture q of t distributions at modes."""

    def __init__(self, modes: Modes) -> None:
        k, d = modes.positions.shape
        self.centres = modes.positions
        self.weights = (1.0 - EVENLY) * modes.share + EVENLY / k
        self._cumulative = np.cumsum(self.weights)
        self.factors = np.linalg.cholesky(modes.covariances)  # (k, d, d)
        self._whiten = np.linalg.inv(self.factors)  # applied twice per draw, and d is small
        log_scale = np.log(np.diagonal(self.factors, axis1=1, axis2=2)).sum(axis=1)
        constant = lgamma(0.5 * (DEGREES + d)) - lgamma(0.5 * DEGREES) - 0.5 * d * log(DEGREES * pi)
        self._log_height = np.log(self.weights) + constant - log_scale

    def draw(self, rng: np.random.Generator) -> Array:
        """Return one draw, of shape (d,)."""
        k = min(int(np.searchsorted(self._cumulative, rng.random())), len(self.weights) - 1)
        z = rng.standard_normal(self.centres.shape[1])
        return np.asarray(self.centres[k] + self.factors[k] @ z * np.sqrt(DEGREES / rng.chisquare(DEGREES)))

    def log_density(self, u: Array) -> float:
        """Return log q(u)."""
        return float(np.logaddexp.reduce(self._log_terms(u)))

    def nearest(self, u: Array) -> Array:
        """Return the centre of the component that u most likely comes from, of shape (d,)."""
        return np.asarray(self.centres[np.argmax(self._log_terms(u))])

    def _log_terms(self, u: Array) -> Array:
        """Return the logarithm of each term of q(u), of shape (k,)."""
        z = (self._whiten @ (u - self.centres)[:, :, None])[:, :, 0]  # (k, d)
        square = np.einsum("kd,kd->k", z, z)
        return np.asarray(self._log_height - 0.5 * (DEGREES + len(u)) * np.log1p(square / DEGREES))


def with_jump(step: Step, density: LogDensity, mixture: Mixture) -> Step:
    """Build the transition that makes a step, which leaves the density invariant, and then proposes a jump."""

    def both(rng: np.random.Generator, state: State) -> tuple[State, JumpInfo]:
        state, info = step(rng, state)
        position = mixture.draw(rng)
        proposal, evaluation = evaluate(density, position)  # too far away for the carry to help
        gain = proposal.logdensity - mixture.log_density(position)
        loss = state.logdensity - mixture.log_density(state.position)
        jumped = proposal.logdensity > -inf and rng.random() < exp(min(0.0, gain - loss))
        if jumped:
            state = proposal
        work = Work(*(getattr(info, name) for name in Work._fields)).plus(evaluation)
        if evaluation.failure:  # a proposal may fail far out: that says nothing of the accuracy of the draw
            work = work._replace(solver_residual=info.solver_residual)
        return state, JumpInfo(**info._asdict() | work._asdict() | {"lp": state.logdensity, "jumped": jumped})

    return both


@dataclass(frozen=True, eq=False, kw_only=True)
class JumpingHMC(HMC):
    """Hamiltonian Monte Carlo with a jump between known modes after every trajectory.

    Parameters
    ----------
    modes : Modes
        From `hmcgp.find_modes`.
    metric : ndarray, optional
        As of `HMC`, but None begins with the average of the modes' covariances instead of the identity.
    step_size, n_steps, jitter, dense, trajectory, max_steps, target_accept, max_energy_error
        As of `HMC`.
    """

    modes: Modes

    name: ClassVar[str] = "jumps"
    info: ClassVar[type[JumpInfo]] = JumpInfo  # type: ignore[assignment]

    @property
    def usual_steps(self) -> float:
        return super().usual_steps + 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.modes, Modes):
            raise InvalidInput(f"'modes' must come from hmcgp.find_modes; got a {type(self.modes).__name__}.")

    def check(self, n_dim: int, tune: int) -> None:
        if self.modes.positions.shape[1] != n_dim:
            raise InvalidInput(f"'modes' are of {self.modes.positions.shape[1]} parameters; the density has {n_dim}.")
        super().check(n_dim, tune)

    def first_metric(self, n_dim: int) -> Metric:
        if self.metric is not None:
            return super().first_metric(n_dim)
        return as_metric(np.einsum("k,kij->ij", self.modes.share, self.modes.covariances), n_dim)

    def within_mode(self, state: State) -> State:
        return state._replace(position=state.position - Mixture(self.modes).nearest(state.position))

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        return with_jump(super().build_step(density, tuning), density, Mixture(self.modes))
