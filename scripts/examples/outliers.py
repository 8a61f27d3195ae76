"""Outliers: a curve of which every tenth point is far off, and the stack loss of a plant.

    python -m scripts.examples.outliers [picture.png]

Student's t, whose scale and degrees of freedom are inferred, beside Gaussian noise.  The picture's point: the noise
swallows the curve where it must explain the outliers, and does not where it has heavy tails.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hmcgp import GPRegressor, plots
from hmcgp.kernels import Constant, Linear

# Brownlee (1965): air flow, water temperature, acid concentration, and stack loss of 21 days
STACK_LOSS = np.array(
    [
        [80, 27, 89, 42], [80, 27, 88, 37], [75, 25, 90, 37], [62, 24, 87, 28], [62, 22, 87, 18], [62, 23, 87, 18],
        [62, 24, 93, 19], [62, 24, 93, 20], [58, 23, 87, 15], [58, 18, 80, 14], [58, 18, 89, 14], [58, 17, 88, 13],
        [58, 18, 82, 11], [58, 19, 93, 12], [50, 18, 89, 8], [50, 18, 86, 7], [50, 19, 72, 8], [50, 19, 79, 8],
        [50, 20, 80, 9], [56, 20, 82, 15], [70, 20, 91, 15],
    ],
    dtype=float,
)  # fmt: skip


def contaminated_curve(n: int = 80, share: float = 0.1, seed: int = 0) -> tuple[Any, Any, Any]:
    """Inputs, targets and the curve behind them; a share of the targets is off by a standard deviation of 3."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(n, 1)), axis=0)
    curve = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 0]
    y = curve + 0.15 * rng.normal(size=n)
    off = rng.random(n) < share
    y[off] += 3.0 * rng.normal(size=off.sum())
    return X, y, curve


def main(path: str = "outliers.png") -> None:
    import matplotlib.pyplot as plt

    X, y, curve = contaminated_curve()
    fig, axes = plt.subplots(1, 2, figsize=(10.0, 3.8), sharey=True, layout="constrained")
    for ax, name in zip(axes, ("gaussian", "student_t"), strict=True):
        gp = GPRegressor(likelihood=name, draws=500, chains=2, random_state=1).fit(X, y)
        error = np.sqrt(np.mean((gp.predict(X) - curve) ** 2))
        print(f"{name}: root mean square error of the curve {error:.3f}; {gp.loo()}")
        plots.regression_1d(gp, X, y, ax=ax)
        ax.plot(X[:, 0], curve, color="black", lw=1.0, ls="--", label="truth")
        ax.set(title=f'likelihood="{name}": error {error:.2f}', xlabel="x", ylabel="y", ylim=(-4.5, 5.5))
        ax.title.set_fontsize(10)
        if name == "student_t":
            likely = gp.outlier_probability() > 0.5
            ax.plot(X[likely, 0], y[likely], "o", ms=10, mfc="none", mec="crimson", label="outlier, P > ½")
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    axes[1].legend(loc="upper left", fontsize=8, frameon=False, ncol=2)
    fig.savefig(path, dpi=150)

    kernel = Constant() + Linear(ard=True)
    plant = GPRegressor(kernel, likelihood="student_t", draws=500, chains=2, random_state=1)
    plant.fit(STACK_LOSS[:, :3], STACK_LOSS[:, 3])
    found = plant.outlier_probability()
    order = np.argsort(-found)[:6]
    print("stack loss, days most probably off:", ", ".join(f"{i + 1} ({found[i]:.2f})" for i in order))


if __name__ == "__main__":
    main(*sys.argv[1:])
