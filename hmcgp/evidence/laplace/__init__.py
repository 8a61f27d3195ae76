"""Laplace's approximation: a Gaussian at the mode of the latent values."""

from hmcgp.evidence.laplace.binary import Laplace, LaplacePosterior
from hmcgp.evidence.laplace.softmax import SoftmaxLaplace

__all__ = ["Laplace", "LaplacePosterior", "SoftmaxLaplace"]
