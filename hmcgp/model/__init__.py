"""Models: data, kernel, likelihood, evidence and priors as one log density."""

from hmcgp.model.growing import GrowingModel
from hmcgp.model.model import Model
from hmcgp.model.row_blocks import RowBlocks
from hmcgp.model.spread import SpreadModel

__all__ = ["GrowingModel", "Model", "RowBlocks", "SpreadModel"]
