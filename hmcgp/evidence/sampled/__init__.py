"""The evidence without an approximation: an unbiased estimate from samples of the latent values."""

from __future__ import annotations

from hmcgp.evidence.sampled.provider import LatentSampling

__all__ = ["LatentSampling"]
