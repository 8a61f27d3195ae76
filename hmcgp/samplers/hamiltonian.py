"""Base of the Hamiltonian samplers: settings of the leapfrog, and their adaptation in warm-up."""

from __future__ import annotations

from math import inf

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_between, check_flag
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning, adapt, build_schedule, find_step_size, init_dual_average, init_welford
from hmcgp.samplers.integrators import State
from hmcgp.samplers.metric import Metric, as_metric
from hmcgp.samplers.trace import AnyInfo

DENSE_UP_TO = 30  # dimensions; there a dense metric is cheap compared with an evaluation


class Hamiltonian:
    """Base of a Hamiltonian sampler; settings that are None are learnt in warm-up."""

    step_size: float | None
    metric: Array | None
    dense: bool | None
    target_accept: float
    max_energy_error: float

    @property
    def longest_step(self) -> float:
        """Upper limit of the adapted step size."""
        return inf

    def first_metric(self, n_dim: int) -> Metric:
        """Return the metric of the first step: the user's, or the identity."""
        return as_metric(self.metric, n_dim)

    def within_mode(self, state: State) -> State:
        """Return the draw from which the metric is learnt: relative to its mode, in samplers that jump."""
        return state

    def check_settings(self) -> None:
        """Raise InvalidInput for settings that fit no log density."""
        check_positive("step_size", self.step_size)
        check_positive("max_energy_error", self.max_energy_error)
        check_between("target_accept", self.target_accept, 0.0, 1.0)
        check_flag("dense", self.dense, optional=True)

    def check(self, n_dim: int, tune: int) -> None:
        """Raise InvalidInput for settings that do not fit the number of parameters or the length of warm-up."""
        as_metric(self.metric, n_dim)
        if self.step_size is None and tune == 0:
            raise InvalidInput("'step_size' is None, which means learnt in warm-up, but tune=0. Give one of them.")

    def init_tuning(self, density: LogDensity, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        """Return the settings of the first step."""
        n_dim = density.n_dim
        metric = self.first_metric(n_dim)
        schedule = build_schedule(tune)
        if self.step_size is not None:
            return Tuning(self.step_size, metric, schedule)
        step_size = find_step_size(density, rng, state, metric)
        dense = n_dim <= DENSE_UP_TO if self.dense is None else self.dense
        welford = init_welford(n_dim, dense=dense) if self.metric is None else None
        return Tuning(step_size, metric, schedule, 0, init_dual_average(step_size), welford, welford)

    def adapt(
        self, density: LogDensity, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo
    ) -> Tuning:
        """Return the settings of the next step, learnt from one draw of warm-up."""
        return adapt(
            tuning,
            self.within_mode(state),
            info.acceptance_rate,
            target_accept=self.target_accept,
            restart_step=lambda metric, step_size: find_step_size(density, rng, state, metric, step_size),
            longest=self.longest_step,
        )


def check_positive(name: str, value: float | None) -> None:
    """Raise InvalidInput unless a setting is None, or positive and finite."""
    if value is not None:
        check_between(name, value, 0.0, inf)
