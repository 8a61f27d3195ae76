"""Random-walk Metropolis, for comparison with the samplers that use gradients.

    u' = u + s L z,  z ~ N(0, I);  accept u' with probability min(1, p(u')/p(u))

With L L' the posterior covariance, s = 2.38/sqrt(d) is optimal, and accepts about a quarter of the proposals.
Metropolis et al. (1953); Roberts, Gelman & Gilks (1997).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, sqrt
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning, adapt, build_schedule, init_dual_average, init_welford
from hmcgp.samplers.integrators import State, Work, evaluate
from hmcgp.samplers.metric import Metric, apply, as_metric
from hmcgp.samplers.trace import AnyInfo, Info, Step


@dataclass(frozen=True, eq=False)
class Metropolis:
    """Random-walk Metropolis with a Gaussian proposal.

    Parameters
    ----------
    scale : float or ndarray of shape (n_dim,), optional
        Standard deviation of the proposal, one for all coordinates or one each.  None learns scale and covariance
        in warm-up, towards an acceptance rate of 0.4 in one dimension that falls to 0.234 in many.
    """

    scale: float | Array | None = None

    name: ClassVar[str] = "metropolis"
    info: ClassVar[type[Info]] = Info
    usual_steps: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if self.scale is not None:
            scale = np.asarray(self.scale)
            if scale.dtype.kind not in "fiu" or scale.ndim > 1 or not (np.all(scale > 0.0) and np.all(scale < inf)):
                raise InvalidInput(f"'scale' must be positive and finite, a number or a vector; got {self.scale}.")

    def check(self, n_dim: int, tune: int) -> None:
        if self.scale is None and tune == 0:
            raise InvalidInput("'scale' is None, which means learnt in warm-up, but tune=0. Give one of them.")
        self._metric(n_dim)

    def init_tuning(self, density: LogDensity, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        d = density.n_dim
        schedule = build_schedule(tune)
        if self.scale is not None:
            scale = float(self.scale) if np.ndim(self.scale) == 0 else 1.0
            return Tuning(scale, self._metric(d), schedule)
        scale = 2.38 / sqrt(d)
        dual, welford = init_dual_average(scale, stretch=1.0), init_welford(d, dense=True)
        return Tuning(scale, as_metric(np.eye(d), d), schedule, 0, dual, welford)

    def adapt(
        self, density: LogDensity, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo
    ) -> Tuning:
        d = density.n_dim
        return adapt(
            tuning,
            state,
            info.acceptance_rate,
            target_accept=0.234 + 0.166 / d,  # Roberts & Rosenthal (2001): the best falls from 0.44 to 0.234
            restart_step=lambda metric, scale: 2.38 / sqrt(d),
            stretch=1.0,
            correlation_time=3.0 * d,  # of a well-scaled random walk in d dimensions
        )

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        scale, factor = tuning.step_size, tuning.metric.factor

        def step(rng: np.random.Generator, state: State) -> tuple[State, Info]:
            position = state.position + scale * apply(factor, rng.standard_normal(len(factor)))
            proposal, evaluation = evaluate(density, position, state.carry)
            loss = state.logdensity - proposal.logdensity
            acceptance = exp(min(0.0, -loss))
            if rng.random() < acceptance:
                state = proposal
            return state, Info(
                lp=state.logdensity,
                acceptance_rate=acceptance,
                step_size=scale,
                energy=-state.logdensity,
                energy_error=loss,
                diverging=False,  # there is no trajectory to diverge
                **Work().plus(evaluation)._asdict(),
            )

        return step

    def _metric(self, n_dim: int) -> Metric:
        if self.scale is None or np.ndim(self.scale) == 0:
            return as_metric(None, n_dim)
        scale = np.asarray(self.scale, dtype=float)
        if scale.shape != (n_dim,):
            raise InvalidInput(f"'scale' must be a number or have shape ({n_dim},); got {scale.shape}.")
        return as_metric(scale**2, n_dim)
