"""Ordered classes: thyroid function, too low, normal or too high, from five laboratory tests.

    python -m scripts.examples.ordered_levels [picture.png]

One latent function with two cut points (`GPOrdinal`) knows that normal lies between the two; three functions, one for
each class (`GPClassifier`), do not.  Both by Laplace's approximation.
"""

from __future__ import annotations

import sys

import numpy as np

from hmcgp import GPClassifier, GPOrdinal, datasets

LEVELS = ["Hypo", "Normal", "Hyper"]
COLOURS = ["#3b6fb6", "#8a8a8a", "#c8553d"]


def main(path: str = "ordered_levels.png") -> None:
    import matplotlib.pyplot as plt

    X, y = datasets.load_thyroid(return_X_y=True)
    ordinal = GPOrdinal(levels=LEVELS, draws=500, chains=2, random_state=1).fit(X, y)
    classes = GPClassifier(likelihood="softmax", refine=None, sampler="map", random_state=1).fit(X, y)
    for name, gp in (("ordered", ordinal), ("unordered", classes)):
        print(f"{name}: {len(gp.model_.names)} hyperparameters; {gp.loo()}")
    f, _ = ordinal.latent_mean_and_variance(X)
    cuts = ordinal.cut_points().mean(axis=0)
    effect = ordinal.effect("T4") if "T4" in X.columns else ordinal.effect(X.columns[1])

    fig, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.8), layout="constrained")
    rng = np.random.default_rng(0)
    for c, level in enumerate(LEVELS):
        rows = (y == level).to_numpy()
        left.plot(f[rows], c + 0.25 * rng.uniform(-1.0, 1.0, rows.sum()), "o", ms=4, alpha=0.7, color=COLOURS[c])
        right.plot(effect.values[0], effect.mean[:, c], color=COLOURS[c], lw=2, label=level)
        right.fill_between(effect.values[0], effect.low[:, c], effect.high[:, c], color=COLOURS[c], alpha=0.2, lw=0)
    for cut in cuts:
        left.axvline(cut, color="black", lw=1.0, ls="--")
    left.set(yticks=range(3), yticklabels=LEVELS, xlabel="latent function, and cut points", title="rows of the table")
    right.set(xlabel=effect.inputs[0], ylabel="probability, averaged over rows", ylim=(0.0, 1.0))
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=3, frameon=False, fontsize=9)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(10)
    fig.savefig(path, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
