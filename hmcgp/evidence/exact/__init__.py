"""Exact evidence of Gaussian noise."""

from __future__ import annotations

from hmcgp.evidence.exact.provider import Exact

__all__ = ["Exact"]
