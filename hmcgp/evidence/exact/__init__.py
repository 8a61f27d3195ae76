"""Exact evidence of Gaussian noise."""

from hmcgp.evidence.exact.provider import Exact

__all__ = ["Exact"]
