"""The picture of two outputs: the second has a gap, across which it borrows strength from the first."""

from __future__ import annotations

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from hmcgp import GPRegressor, plots
from hmcgp.plots import style

GAP = (3.0, 7.0)
CORRELATION = 0.97


class TwoOutputs(NamedTuple):
    """A table, what was held out of it, and fits with and without the first output."""

    X: pd.DataFrame  # (n, 1)
    Y: pd.DataFrame  # (n, 2), NaN where the second is missing
    held_out: pd.Series  # (n,), the second output in the gap
    together: GPRegressor
    alone: GPRegressor


def two_outputs(seed: int = 0, n: int = 50, **settings: Any) -> TwoOutputs:
    """Draw both outputs at x from a process with B = [[1, ρ], [ρ, 1]], and fit what is outside the gap."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 10.0, n))
    C = np.exp(-0.5 * (x[:, None] - x) ** 2)
    B = np.array([[1.0, CORRELATION], [CORRELATION, 1.0]])
    f = rng.multivariate_normal(np.zeros(2 * n), np.kron(B, C), check_valid="ignore").reshape(2, n)
    X = pd.DataFrame({"x": x})
    whole = pd.DataFrame((f + np.array([[0.1], [0.2]]) * rng.normal(size=(2, n))).T, columns=["first", "second"])
    in_gap = (x > GAP[0]) & (x < GAP[1])
    Y = whole.assign(second=whole["second"].mask(in_gap))
    together = GPRegressor(outputs="coregional", progressbar=False, random_state=seed, **settings).fit(X, Y)
    alone = GPRegressor(progressbar=False, random_state=seed, **settings).fit(X[~in_gap], Y["second"][~in_gap])
    return TwoOutputs(X, Y, whole["second"].where(in_gap), together, alone)


def draw(ours: TwoOutputs) -> Any:
    """Return a figure of the first output, of the second alone, and of the second with the first."""
    figure, axes = plt.subplots(1, 3, figsize=(14.0, 4.2), layout="constrained")
    plots.regression_1d(ours.together, ours.X, ours.Y, output="first", ax=axes[0])
    plots.regression_1d(ours.alone, ours.X, ours.Y["second"], ax=axes[1])
    plots.regression_1d(ours.together, ours.X, ours.Y, output="second", ax=axes[2])
    low, median, high = np.quantile(ours.together.output_covariance(correlation=True)[:, 0, 1], [0.05, 0.5, 0.95])
    found = f"correlation {median:.2f}, 90 % within {low:.2f} to {high:.2f}"
    titles = ("The first output", "The second, alone", f"The second, with the first: {found}")
    for ax, title in zip(axes, titles, strict=True):
        ax.get_legend().remove()
        ax.set_title(title, loc="left", fontsize=style.TEXT, color=style.INK)
    for ax in axes[1:]:
        ax.axvspan(*GAP, color=style.PALE, zorder=0)
        ax.plot(
            ours.X["x"], ours.held_out, "o", ms=4.2, mfc="white", mec=style.INK, mew=0.9, label="held out", zorder=3
        )
    limits = [side(ax.get_ylim()[i] for ax in axes[1:]) for i, side in enumerate((min, max))]
    for ax in axes[1:]:
        ax.set_ylim(*limits)
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=style.SMALL)
    return figure
