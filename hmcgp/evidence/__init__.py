"""Evidence providers, exact and approximate, and their contract."""

from hmcgp.evidence.base import Provider
from hmcgp.evidence.bounds import LowerBound, UpperBound
from hmcgp.evidence.ep import EP, TAP, MultinomialEP, NaiveMeanField
from hmcgp.evidence.exact import Exact
from hmcgp.evidence.iterative import Iterative
from hmcgp.evidence.laplace import Laplace, SoftmaxLaplace
from hmcgp.evidence.low_rank import LowRank, LowRankClasses
from hmcgp.evidence.protocols import (
    Evidence,
    EvidenceProvider,
    Posterior,
    SupportsJointPrediction,
    SupportsLatentMixture,
    SupportsLeaveGroupsOut,
    SupportsLeaveOneOut,
    SupportsMoreRows,
    SupportsStandardError,
    SupportsWarmStart,
    SupportsWorkSpace,
)
from hmcgp.evidence.sampled import LatentSampling

__all__ = [
    "EP",
    "TAP",
    "Evidence",
    "EvidenceProvider",
    "Exact",
    "Iterative",
    "Laplace",
    "LatentSampling",
    "LowRank",
    "LowRankClasses",
    "LowerBound",
    "MultinomialEP",
    "NaiveMeanField",
    "Posterior",
    "Provider",
    "SoftmaxLaplace",
    "SupportsJointPrediction",
    "SupportsLatentMixture",
    "SupportsLeaveGroupsOut",
    "SupportsLeaveOneOut",
    "SupportsMoreRows",
    "SupportsStandardError",
    "SupportsWarmStart",
    "SupportsWorkSpace",
    "UpperBound",
]
