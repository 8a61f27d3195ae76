"""Draw functions from the priors that kernels stand for, as in MacKay (1998), Figure 3: one panel per kernel.

Three independent draws each; in the fourth row one draw of three functions that belong together (of three categories,
of three outputs, or a function and its slope), and surfaces over two inputs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from hmcgp.kernels import (
    Additive,
    Categorical,
    Constant,
    Coregional,
    Embedded,
    ExponentialPower,
    Gibbs,
    IntegratedWiener,
    Kernel,
    Linear,
    LocallyLinear,
    Matern,
    NeuralNetwork,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Rescaled,
    SinhArcsinh,
    Spherical,
    SquaredExponential,
    Triangle,
    Warped,
    White,
    Wiener,
    WithDerivatives,
)

PANELS: list[tuple[str, Kernel]] = [
    ("SquaredExponential(1, 1)", SquaredExponential(1.0, 1.0)),
    ("SquaredExponential(1, 0.3)", SquaredExponential(1.0, 0.3)),
    ("Matern(…, nu=2.5)", Matern(variance=1.0, length_scale=1.0, nu=2.5)),
    ("Matern(…, nu=1.5)", Matern(variance=1.0, length_scale=1.0, nu=1.5)),
    ("Matern(…, nu=0.5)", Matern(variance=1.0, length_scale=1.0, nu=0.5)),
    ("ExponentialPower(1, 1, power=1.5)", ExponentialPower(1.0, 1.0, power=1.5)),
    ("RationalQuadratic(1, 1, shape=0.3)", RationalQuadratic(1.0, 1.0, shape=0.3)),
    ("Triangle(1, 1)", Triangle(1.0, 1.0)),
    ("Spherical(1, 2)", Spherical(1.0, 2.0)),
    ("Periodic(1, 0.7, period=2)", Periodic(1.0, 0.7, period=2.0)),
    ("SquaredExponential(…) * Periodic(…)", SquaredExponential(1.0, 3.0) * Periodic(1.0, 0.7, period=2.0)),
    ("Embedded(Matern(…), period=2)", Embedded(Matern(variance=1.0, length_scale=1.0, nu=1.5), period=2.0)),
    ("Wiener(1)", Wiener(1.0)),
    ("IntegratedWiener(1)", IntegratedWiener(1.0)),
    ("NeuralNetwork(1, 10, 10)", NeuralNetwork(1.0, 10.0, 10.0)),
    ("Constant(1) + White(0.05)", Constant(1.0) + White(0.05)),
    ("Linear(…) + SquaredExponential(…)", Linear(1.0) + SquaredExponential(0.05, 0.3)),
    ("Polynomial(0.3, 0.3, degree=3)", Polynomial(0.3, 0.3, degree=3)),
    ("LocallyLinear(…, …)", LocallyLinear(Matern(variance=1.0, length_scale=2.0), SquaredExponential(0.1, 2.0))),
    ("Gibbs(1, 0.5, weight=0.7)", Gibbs(1.0, 0.5, 0.7)),
    ("Rescaled(…, weight=0.6)", Rescaled(SquaredExponential(1.0, 0.4), weight=0.6)),
    ("SinhArcsinh(…, tail=2, skew=0)", SinhArcsinh(Matern(variance=1.0, length_scale=1.0, nu=2.5), 2.0, 0.0)),
    ("Warped(SquaredExponential(…), np.exp)", Warped(SquaredExponential(1.0, 1.0), np.exp)),
]

SMOOTH = SquaredExponential(1.0, 0.8)


class Together(NamedTuple):
    """Functions of x told apart by the code in a second column."""

    title: str
    kernel: Kernel
    names: tuple[str, ...]  # of the codes 0, 1, …


TOGETHER = [
    Together("SquaredExponential(…) * Categorical(0.5)", SMOOTH.on([0]) * Categorical(0.5).on([1]), ("a", "b", "c")),
    Together(
        "SquaredExponential(…) * Coregional(3, …)",
        SMOOTH.on([0]) * Coregional(3, (1.0, 0.4, 0.6), (0.9, -0.8, 0.0)).on([1]),
        ("output 0", "output 1", "output 2"),
    ),
    Together("WithDerivatives(SquaredExponential(…))", WithDerivatives(SMOOTH), ("f", "df/dx")),
]
SURFACES: list[tuple[str, Kernel]] = [
    ("SquaredExponential(1, (0.7, 3), ard=True)", SquaredExponential(1.0, (0.7, 3.0), ard=True)),
    ("Additive(SquaredExponential(…))", Additive(SquaredExponential(1.0, 0.7))),
    ("NeuralNetwork(…), two inputs", NeuralNetwork(1.0, 10.0, 10.0)),
]

COLOURS = ("#0072B2", "#D55E00", "#009E73")  # Okabe & Ito


def draw_from(kernel: Kernel, X: Any, rng: Any, n_samples: int = 1) -> Any:
    """Functions drawn from the prior, of shape (len(X), n_samples)."""
    values, vectors = np.linalg.eigh(kernel(X))  # semidefinite matrices have no Cholesky factor
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return root @ rng.normal(size=(len(X), n_samples))


def prior_samples(seed: int = 2) -> Any:
    """Return a figure of functions drawn from the prior of each panel's kernel."""
    rng = np.random.default_rng(seed)
    figure, axes = plt.subplots(5, 6, figsize=(19.0, 12.0), layout="constrained")
    panels = iter(axes.flat)
    x = np.linspace(-3.0, 3.0, 601)
    for title, kernel in PANELS:
        curves(next(panels), title, x, draw_from(kernel, x[:, None], rng, len(COLOURS)))
    x = np.linspace(-3.0, 3.0, 201)
    for title, kernel, names in TOGETHER:
        rows = np.column_stack([np.tile(x, len(names)), np.repeat(np.arange(len(names)), len(x))])
        curves(ax := next(panels), title, x, draw_from(kernel, rows, rng).reshape(len(names), -1).T)
        ax.legend(names, fontsize=7, frameon=False)
    x = np.linspace(-3.0, 3.0, 25)
    grid = np.stack(np.meshgrid(x, x), axis=-1)
    for title, kernel in SURFACES:
        ax = next(panels)
        ax.contourf(x, x, draw_from(kernel, grid.reshape(-1, 2), rng).reshape(len(x), -1), levels=14)
        ax.set_title(title, fontsize=8, family="monospace")
        ax.tick_params(labelsize=8)
    for ax in panels:
        ax.set_axis_off()
    return figure


def curves(ax: Any, title: str, x: Any, functions: Any) -> None:
    ax.set_prop_cycle(color=COLOURS)
    ax.plot(x, functions, lw=1.3)
    ax.set_title(title, fontsize=8, family="monospace")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "pictures" / "kernels.png"))
    path = Path(parser.parse_args().output)
    path.parent.mkdir(parents=True, exist_ok=True)
    prior_samples().savefig(path, dpi=80, bbox_inches="tight")
    print(path)


if __name__ == "__main__":
    main()
