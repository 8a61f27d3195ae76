"""Exact posterior of hyperparameters and latent values: density, whitening, sampler, draws."""

from __future__ import annotations

from hmcgp.joint.result import JointSample
from hmcgp.joint.run import sample_jointly

__all__ = ["JointSample", "sample_jointly"]
