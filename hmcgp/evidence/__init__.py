"""The evidence, exact or approximate, and the contract of those who compute it."""

from hmcgp.evidence.base import Evidence, EvidenceProvider, Posterior
from hmcgp.evidence.bounds import LowerBound, UpperBound
from hmcgp.evidence.ep import EP, TAP, MultinomialEP, NaiveMeanField
from hmcgp.evidence.exact import Exact
from hmcgp.evidence.laplace import Laplace, SoftmaxLaplace

__all__ = [
    "EP",
    "TAP",
    "Evidence",
    "EvidenceProvider",
    "Exact",
    "Laplace",
    "LowerBound",
    "MultinomialEP",
    "NaiveMeanField",
    "Posterior",
    "SoftmaxLaplace",
    "UpperBound",
]
