"""
What does this prior believe?
=============================

Probabilities drawn from the prior along one input, before any data, for three priors.  The default (top) spreads over
gentle and steep functions.  A variance that is too large (bottom) believes that every probability is 0 or 1.
"""

import matplotlib.pyplot as plt

from hmcgp import plots
from hmcgp.kernels import SquaredExponential
from hmcgp.priors import LogNormal

beliefs = {
    "default priors": SquaredExponential(),
    "short length scales": SquaredExponential(length_scale=LogNormal(-1.2, 0.3)),
    "vast variance": SquaredExponential(variance=LogNormal(7, 0.5)),
}
figure, axes = plt.subplots(3, 2, figsize=(9, 9), layout="constrained", width_ratios=[2, 1])
for row, (name, kernel) in zip(axes, beliefs.items(), strict=True):
    plots.prior(kernel, axes=row)
    row[0].set_title(name)

# %%
# `priors.default_prior` documents what the defaults imply.
