"""The evidence without an approximation: an unbiased estimate from samples of the latent values."""

from hmcgp.evidence.sampled.provider import LatentSampling

__all__ = ["LatentSampling"]
