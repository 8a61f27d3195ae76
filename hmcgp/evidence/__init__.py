"""Evidence providers, exact and approximate, and their contract."""

from hmcgp.evidence.base import (
    Evidence,
    EvidenceProvider,
    Posterior,
    Provider,
    SupportsJointPrediction,
    SupportsLeaveGroupsOut,
    SupportsLeaveOneOut,
    SupportsMoreRows,
    SupportsWarmStart,
    SupportsWorkSpace,
)
from hmcgp.evidence.bounds import LowerBound, UpperBound
from hmcgp.evidence.ep import EP, TAP, MultinomialEP, NaiveMeanField
from hmcgp.evidence.exact import Exact
from hmcgp.evidence.iterative import Iterative
from hmcgp.evidence.laplace import Laplace, SoftmaxLaplace

__all__ = [
    "EP",
    "TAP",
    "Evidence",
    "EvidenceProvider",
    "Exact",
    "Iterative",
    "Laplace",
    "LowerBound",
    "MultinomialEP",
    "NaiveMeanField",
    "Posterior",
    "Provider",
    "SoftmaxLaplace",
    "SupportsJointPrediction",
    "SupportsLeaveGroupsOut",
    "SupportsLeaveOneOut",
    "SupportsMoreRows",
    "SupportsWarmStart",
    "SupportsWorkSpace",
    "UpperBound",
]
