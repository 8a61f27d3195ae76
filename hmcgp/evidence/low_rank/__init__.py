"""Evidence under covariances of low rank plus a diagonal: inducing inputs."""

from hmcgp.evidence.low_rank.classes import LowRankClasses
from hmcgp.evidence.low_rank.structure import LowRank, LowRankAdjoint

__all__ = ["LowRank", "LowRankAdjoint", "LowRankClasses"]
