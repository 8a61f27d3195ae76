"""
An output that learns from another
==================================

Two outputs vary together, and the second has no data in a stretch where the first does.  With `outputs="coregional"`
their covariance is inferred, and the second follows the first through the gap.
"""

import matplotlib.pyplot as plt
import numpy as np

from hmcgp import GPRegressor
from hmcgp.samplers import HMC

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 45))[:, None]
common = np.sin(x[:, 0]) + 0.3 * x[:, 0]
Y = np.column_stack([common, 0.8 * common - 1.0]) + rng.normal(0, 0.15, (45, 2))
gap = (x[:, 0] > 4.0) & (x[:, 0] < 7.5)
Y[gap, 1] = np.nan

settings = {"sampler": HMC(target_accept=0.9), "draws": 400, "tune": 400, "chains": 2, "random_state": 1}
alone = GPRegressor(**settings).fit(x[~gap], Y[~gap, 1])
both = GPRegressor(outputs="coregional", **settings).fit(x, Y)

grid = np.linspace(0, 10, 120)[:, None]
truth = 0.8 * (np.sin(grid[:, 0]) + 0.3 * grid[:, 0]) - 1.0
bands = {"alone": alone.predict_interval(grid, of="f"), "with the first": both.predict_interval(grid, of="f")[:, 1]}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (name, band) in zip(axes, bands.items(), strict=True):
    ax.fill_between(grid[:, 0], *band.T, alpha=0.3, label="90 % of the function")
    ax.plot(grid[:, 0], truth, "k--", lw=1, label="truth")
    ax.plot(x[:, 0], Y[:, 1], "o", ms=4, label="second output")
    ax.set(title=name, xlabel="x")
axes[0].legend(loc="upper left")

# %%
# The correlation that was inferred, and its 90 % interval (the truth is 1):

correlation = both.output_covariance(correlation=True)[:, 0, 1]
print(f"{correlation.mean():.2f}, {np.quantile(correlation, 0.05):.2f} to {np.quantile(correlation, 0.95):.2f}")
