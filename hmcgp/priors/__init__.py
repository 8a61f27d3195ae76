"""Prior densities of hyperparameters, and the defaults."""

from hmcgp.priors.defaults import default_prior
from hmcgp.priors.densities import (
    Beta,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
    Normal,
    Prior,
)

__all__ = [
    "Beta",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "LogNormal",
    "Normal",
    "Prior",
    "default_prior",
]
