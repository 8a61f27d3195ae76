"""The evidence of Gaussian noise without a factorisation: an estimate."""

from hmcgp.evidence.iterative.provider import Iterative

__all__ = ["Iterative"]
