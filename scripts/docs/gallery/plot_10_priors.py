"""
What does this prior believe?
=============================

Probabilities drawn from the prior along one input, before any data, for three priors.  The default (left) spreads over
gentle and steep functions.  A variance that is too large (right) believes that every probability is 0 or 1.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

from hmcgp import Model
from hmcgp.kernels import SquaredExponential
from hmcgp.priors import LogNormal

x = np.linspace(-2.5, 2.5, 80)[:, None]  # standard deviations of the input
beliefs = {
    "default priors": SquaredExponential(),
    "short length scales": SquaredExponential(length_scale=LogNormal(-1.2, 0.3)),
    "vast variance": SquaredExponential(variance=LogNormal(7, 0.5)),
}
rng = np.random.default_rng(1)
figure, axes = plt.subplots(2, 3, figsize=(11, 5.6), layout="constrained", height_ratios=[2, 1])
for (above, below), (name, kernel) in zip(axes.T, beliefs.items(), strict=True):
    model = Model(x, np.where(x[:, 0] > 0, 1.0, -1.0), kernel=kernel)
    everything = []
    for i in range(300):
        drawn = model.kernel_at(model.constrain(model.initial(rng)))
        K = drawn(x) + 1e-6 * drawn.diag(x).mean() * np.eye(len(x))
        p = expit(np.linalg.cholesky(K) @ rng.normal(size=len(x)))
        everything.append(p)
        if i < 12:
            above.plot(x[:, 0], p, lw=1)
    above.set(title=name, ylim=(0, 1), xlabel="input", ylabel="probability")
    below.hist(np.ravel(everything), bins=25, density=True, color="0.6")
    below.set(xlabel="probability", yticks=[])

# %%
# `priors.default_prior` documents what the defaults imply.
