"""Approximations to the evidence, and their contract."""

from hmcgp.evidence.base import Evidence, EvidenceProvider, Posterior
from hmcgp.evidence.laplace import Laplace

__all__ = ["Evidence", "EvidenceProvider", "Laplace", "Posterior"]
