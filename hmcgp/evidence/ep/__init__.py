"""Expectation propagation and its relatives: sweeps, the double loop, mean field, several classes."""

from hmcgp.evidence.ep.binary import EP
from hmcgp.evidence.ep.mean_field import TAP, NaiveMeanField
from hmcgp.evidence.ep.multinomial import MultinomialEP

__all__ = ["EP", "TAP", "MultinomialEP", "NaiveMeanField"]
