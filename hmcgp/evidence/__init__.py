"""The evidence, exact or approximate, and the contract of those who compute it."""

from hmcgp.evidence.base import Evidence, EvidenceProvider, Posterior
from hmcgp.evidence.bounds import LowerBound, UpperBound
from hmcgp.evidence.ep import EP
from hmcgp.evidence.exact import Exact
from hmcgp.evidence.laplace import Laplace
from hmcgp.evidence.meanfield import TAP, NaiveMeanField
from hmcgp.evidence.multinomial import MultinomialEP
from hmcgp.evidence.softmax import SoftmaxLaplace

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
