"""
Regression, and noise that depends on the input
===============================================

The head of a crash-test dummy: next to no noise in the first milliseconds, a great deal later.  One noise for all makes
the band too wide at the left; `likelihoods.VaryingNoise` infers its course.
"""

import matplotlib.pyplot as plt

from hmcgp import GPRegressor, compare, datasets, likelihoods, plots
from hmcgp.kernels import RadialBasis

X, y = datasets.load_motorcycle(return_X_y=True)
settings = {"draws": 400, "tune": 300, "chains": 2, "random_state": 1}
fits = {
    "one noise": GPRegressor(**settings).fit(X, y),
    "varying noise": GPRegressor(
        likelihood=likelihoods.VaryingNoise(basis=RadialBasis([10, 22, 35, 48], 10)), **settings
    ).fit(X, y),
}

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
for ax, (name, gp) in zip(axes, fits.items(), strict=True):
    plots.predictive(gp, X, y, ax=ax)
    ax.set_title(name, y=1.09)  # above the legend

# %%
# Leave-one-out prefers the second by far:

print(compare(fits))
