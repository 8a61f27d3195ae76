"""Variational bounds on the evidence of the logistic likelihood."""

from hmcgp.evidence.bounds.providers import LowerBound, UpperBound

__all__ = ["LowerBound", "UpperBound"]
