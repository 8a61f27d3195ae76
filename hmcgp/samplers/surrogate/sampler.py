"""Settings of the surrogate, and of the HMC below it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.numerics.density import LogDensity
from hmcgp.runtime.checks import check_count
from hmcgp.runtime.typing import Array
from hmcgp.samplers.adaptation import Tuning
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.integrators import State
from hmcgp.samplers.metric import Metric, as_metric
from hmcgp.samplers.trace import AnyInfo, Step, SurrogateInfo

LEAST_EFFECTIVE = 150  # effective draws of each chain, if so many are asked for
HMC_SHARE = 0.32  # effective draws per draw that are aimed at: more than HMC usually has, for the tails
USUAL_SHARE = 0.7  # effective draws per draw of the surrogate that are planned with


@dataclass(frozen=True)
class SurrogateHMC:
    """HMC on a Gaussian-process surrogate of the log density, weighted to the density itself.

    For log densities that take long to evaluate and have up to about a dozen parameters.  Chains make a short, shared
    warm-up on the density; a Gaussian process is fitted to all its values and gradients; draws from that process, which
    cost next to nothing, are evaluated once each, without a gradient, and weighted.  Where the weights say that the
    surrogate is bad, it is fitted again with more points, and in the end given up: plain HMC goes on from there.

    Parameters
    ----------
    effective : int, optional
        Effective draws of each chain to aim at.  None: a third of `draws`, a little more than HMC usually has, but at
        least 150.  The run ends with `draws` draws in each chain, or fewer if these are effective enough.
    refits : int, default=4
        How often the surrogate is fitted again before it is given up.
    """

    effective: int | None = None
    refits: int = 4

    name: ClassVar[str] = "surrogate"
    info: ClassVar[type[SurrogateInfo]] = SurrogateInfo

    def __post_init__(self) -> None:
        if self.effective is not None:
            check_count("effective", self.effective, 1)
        check_count("refits", self.refits, 1)

    @property
    def usual_steps(self) -> float:
        """Evaluations per draw, of which most are of the value alone, warm-up included."""
        return 1.2

    def length(self, draws: int) -> int:
        """Return the draws that each chain makes, of those that are asked for."""
        effective = max(HMC_SHARE * draws, LEAST_EFFECTIVE) if self.effective is None else self.effective
        return min(draws, ceil(effective / USUAL_SHARE))

    # -- the HMC of warm-up, and in the place of a surrogate that was given up ---------------------------------------

    def check(self, n_dim: int, tune: int) -> None:
        """Raise InvalidInput if there could be no HMC in place of the surrogate."""
        if tune == 0:
            raise InvalidInput("tune=0, but HMC has to learn its step size if the surrogate is given up: give 'tune'.")

    def init_tuning(self, density: LogDensity, rng: np.random.Generator, state: State, tune: int) -> Tuning:
        """Return the settings of the first step of HMC."""
        return HMC().init_tuning(density, rng, state, tune)

    def adapt(
        self, density: LogDensity, rng: np.random.Generator, tuning: Tuning, state: State, info: AnyInfo
    ) -> Tuning:
        """Return the settings of the next step of HMC."""
        return HMC().adapt(density, rng, tuning, state, info)

    def build_step(self, density: LogDensity, tuning: Tuning) -> Step:
        """Return the transition of HMC."""
        return HMC().build_step(density, tuning)


@dataclass(frozen=True, eq=False, kw_only=True)
class ContinuedHMC(HMC):
    """HMC whose metric begins with a covariance found before, and is then learnt as usual."""

    begin: Array

    def first_metric(self, n_dim: int) -> Metric:
        return as_metric(self.begin, n_dim)
