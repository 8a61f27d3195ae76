"""
A sum of kernels, term by term
==============================

A function that is a straight line in one input plus something curved in another.  The kernel says so, and each term can
be looked at alone: what it adds to the function, with its own band.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from hmcgp import GPRegressor, plots
from hmcgp.kernels import Linear, SquaredExponential

rng = np.random.default_rng(3)
X = pd.DataFrame({"dose": rng.uniform(0, 10, 70), "hour": rng.uniform(0, 24, 70)})
y = 0.4 * X["dose"] + 2.0 * np.sin(2 * np.pi * X["hour"] / 24) + rng.normal(0, 0.4, 70)

kernel = Linear().on("dose") + SquaredExponential().on("hour")
gp = GPRegressor(kernel, draws=500, tune=500, chains=2, random_state=1).fit(X, y)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
plots.effect(gp, "dose", term="linear", axes=axes[:1])
plots.effect(gp, "hour", term="squared_exponential", axes=axes[1:])

# %%
# What a single new case is predicted to be, and how sure that is:

new = pd.DataFrame({"dose": [2.0, 8.0], "hour": [6.0, 18.0]})
mean, sd = gp.predict(new, return_std=True)
new.assign(mean=mean, sd=sd).round(2)
