"""The evidence, exact or approximate, and the contract of those who compute it."""

from hmcgp.evidence.base import Evidence, EvidenceProvider, Posterior
from hmcgp.evidence.bounds import LowerBound, UpperBound
from hmcgp.evidence.exact import Exact
from hmcgp.evidence.laplace import Laplace

__all__ = ["Evidence", "EvidenceProvider", "Exact", "Laplace", "LowerBound", "Posterior", "UpperBound"]
