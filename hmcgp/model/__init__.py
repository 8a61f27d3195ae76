"""Models: data, kernel, likelihood, evidence and priors as one log density."""

from hmcgp.model.growing import GrowingModel
from hmcgp.model.model import Model

__all__ = ["GrowingModel", "Model"]
