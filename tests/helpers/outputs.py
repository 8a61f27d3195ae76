"""A table with two outputs, with and without missing numbers, and short fits of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hmcgp import GPRegressor

RNG = np.random.default_rng(4)
X = pd.DataFrame(RNG.uniform(-3.0, 3.0, size=(30, 2)), columns=["depth", "age"])
F = np.sin(X["depth"])
Y = pd.DataFrame(
    {
        "yield": 50.0 + 8.0 * F + RNG.normal(size=30),
        "price": -3.0 - 0.2 * F + 0.05 * X["age"] + 0.04 * RNG.normal(size=30),
    }
)
GAPS = Y.mask(
    pd.DataFrame({"yield": (X["age"] > 1.0) & (X["depth"] > 0.0), "price": X["depth"] < -1.5})
)  # some numbers are missing
X_NEW = pd.DataFrame(RNG.uniform(-3.0, 3.0, size=(9, 2)), columns=X.columns)
Y_NEW = pd.DataFrame({"yield": 45.0 + RNG.normal(size=9), "price": -3.0 + 0.1 * RNG.normal(size=9)})
UNIT = Y.std(ddof=0).to_numpy()
KINDS = ["independent", "coregional"]


def quick(**settings):
    short = {"draws": 30, "tune": 60, "chains": 2, "n_jobs": 1, "progressbar": False, "random_state": 3}
    return GPRegressor(**(short | settings))


def targets_of(kind):
    return GAPS if kind == "coregional" else Y
