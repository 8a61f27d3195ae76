"""Samplers: draws from a log density that is only known by its value and gradient."""

from __future__ import annotations

from hmcgp.numerics.density import Evaluation, LogDensity
from hmcgp.samplers.chains.chain import Sampler
from hmcgp.samplers.chains.run import sample
from hmcgp.samplers.hmc import HMC
from hmcgp.samplers.integrators import State, leapfrog
from hmcgp.samplers.jumps import JumpingHMC, Modes
from hmcgp.samplers.metropolis import Metropolis
from hmcgp.samplers.nuts import NUTS
from hmcgp.samplers.surrogate.sampler import SurrogateHMC
from hmcgp.samplers.trace import Info, JointInfo, JumpInfo, SurrogateInfo, Trace, TreeInfo

__all__ = [
    "HMC",
    "NUTS",
    "Evaluation",
    "Info",
    "JointInfo",
    "JumpInfo",
    "JumpingHMC",
    "LogDensity",
    "Metropolis",
    "Modes",
    "Sampler",
    "State",
    "SurrogateHMC",
    "SurrogateInfo",
    "Trace",
    "TreeInfo",
    "leapfrog",
    "sample",
]
