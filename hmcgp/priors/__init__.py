"""Prior densities of hyperparameters, and the defaults."""

from hmcgp.priors.defaults import default_prior
from hmcgp.priors.densities import Beta, Gamma, HalfCauchy, HalfNormal, InverseGamma, LogNormal, Normal, Prior
from hmcgp.priors.pooled import PooledLogNormal
from hmcgp.priors.sparsity import SAAS, RegularizedHorseshoe

__all__ = [
    "SAAS",
    "Beta",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InverseGamma",
    "LogNormal",
    "Normal",
    "PooledLogNormal",
    "Prior",
    "RegularizedHorseshoe",
    "default_prior",
]
