"""
Ordered levels: thyroid function
================================

Too low, normal or too high, from five laboratory tests.  One latent function with two cut points (`GPOrdinal`) knows
that normal lies between the other two, and has fewer hyperparameters than three functions, one for each class.
"""

import matplotlib.pyplot as plt
import numpy as np

from hmcgp import GPClassifier, GPOrdinal, datasets

LEVELS = ["Hypo", "Normal", "Hyper"]
COLOURS = ["#3b6fb6", "#8a8a8a", "#c8553d"]

X, y = datasets.load_thyroid(return_X_y=True)
gp = GPOrdinal(levels=LEVELS, draws=400, tune=500, chains=3, random_state=1).fit(X, y)
f, _ = gp.latent_mean_and_variance(X)
effect = gp.effect("T4")

figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")
rng = np.random.default_rng(0)
for c, level in enumerate(LEVELS):
    rows = (y == level).to_numpy()
    left.plot(f[rows], c + 0.25 * rng.uniform(-1.0, 1.0, rows.sum()), "o", ms=4, alpha=0.7, color=COLOURS[c])
    right.plot(effect.values[0], effect.mean[:, c], color=COLOURS[c], lw=2, label=level)
    right.fill_between(effect.values[0], effect.low[:, c], effect.high[:, c], color=COLOURS[c], alpha=0.2, lw=0)
for cut in gp.cut_points().mean(axis=0):
    left.axvline(cut, color="black", lw=1.0, ls="--")
left.set(yticks=range(3), yticklabels=LEVELS, xlabel="latent function, and cut points", title="rows of the table")
right.set(xlabel="T4", ylabel="probability, averaged over rows", ylim=(0.0, 1.0))
right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=3, frameon=False)

# %%
# Beside classes without an order, also by Laplace's approximation:

classes = GPClassifier(likelihood="softmax", refine=None, sampler="map", random_state=1).fit(X, y)
for name, fitted in (("ordered", gp), ("unordered", classes)):
    print(f"{name}: {len(fitted.model_.names)} hyperparameters; {fitted.loo()}")
