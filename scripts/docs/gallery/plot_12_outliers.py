"""
Outliers: noise with heavy tails
================================

Every tenth point of a curve is far off.  Gaussian noise must explain these points too, and swallows the curve;
Student's t, whose scale and degrees of freedom are inferred, does not.  Hyperparameters are the most probable ones
here, to be quick.
"""

import matplotlib.pyplot as plt
import numpy as np

from hmcgp import GPRegressor, plots
from hmcgp.kernels import Constant, Linear

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3.0, 3.0, size=(80, 1)), axis=0)
curve = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 0]
y = curve + 0.15 * rng.normal(size=80)
off = rng.random(80) < 0.1
y[off] += 3.0 * rng.normal(size=off.sum())

figure, axes = plt.subplots(1, 2, figsize=(10.0, 3.8), sharey=True, layout="constrained")
for ax, name in zip(axes, ("gaussian", "student_t"), strict=True):
    gp = GPRegressor(likelihood=name, sampler="map", random_state=1).fit(X, y)
    error = np.sqrt(np.mean((gp.predict(X) - curve) ** 2))
    plots.regression_1d(gp, X, y, ax=ax)
    ax.plot(X[:, 0], curve, color="black", lw=1.0, ls="--", label="truth")
    ax.set(title=f'likelihood="{name}": error {error:.2f}', xlabel="x", ylabel="y", ylim=(-4.5, 5.5))
likely = gp.outlier_probability() > 0.5
axes[1].plot(X[likely, 0], y[likely], "o", ms=10, mfc="none", mec="crimson", label="outlier, P > ½")
for ax in axes:
    if ax.get_legend() is not None:
        ax.get_legend().remove()
axes[1].legend(loc="upper left", fontsize=8, frameon=False, ncol=2)

# %%
# The stack loss of a plant (Brownlee 1965: air flow, water temperature, acid concentration, and loss of 21 days), as a
# linear function.  The days that books on robust regression single out are 1, 3, 4 and 21:

days = np.array(
    [
        [80, 27, 89, 42], [80, 27, 88, 37], [75, 25, 90, 37], [62, 24, 87, 28], [62, 22, 87, 18], [62, 23, 87, 18],
        [62, 24, 93, 19], [62, 24, 93, 20], [58, 23, 87, 15], [58, 18, 80, 14], [58, 18, 89, 14], [58, 17, 88, 13],
        [58, 18, 82, 11], [58, 19, 93, 12], [50, 18, 89, 8], [50, 18, 86, 7], [50, 19, 72, 8], [50, 19, 79, 8],
        [50, 20, 80, 9], [56, 20, 82, 15], [70, 20, 91, 15],
    ],
    dtype=float,
)  # fmt: skip
plant = GPRegressor(
    Constant() + Linear(ard=True), likelihood="student_t", draws=500, tune=300, chains=2, random_state=1
)
plant.fit(days[:, :3], days[:, 3])
found = plant.outlier_probability()
print("days most probably off:", ", ".join(f"{i + 1} ({found[i]:.2f})" for i in np.argsort(-found)[:5]))
