"""Draw functions from the priors that kernels stand for, as in MacKay (1998), Figure 3: one panel per kernel."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from hmcgp.kernels import (
    ExponentialPower,
    Gibbs,
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
    Wiener,
)

PANELS: list[tuple[str, Kernel]] = [
    ("SquaredExponential(1, 1)", SquaredExponential(1.0, 1.0)),
    ("SquaredExponential(1, 0.3)", SquaredExponential(1.0, 0.3)),
    ("Matern(1, 1, nu=1.5)", Matern(1.0, 1.0, nu=1.5)),
    ("Matern(1, 1, nu=0.5)", Matern(1.0, 1.0, nu=0.5)),
    ("ExponentialPower(1, 1, power=1.5)", ExponentialPower(1.0, 1.0, power=1.5)),
    ("RationalQuadratic(1, 1, shape=0.3)", RationalQuadratic(1.0, 1.0, shape=0.3)),
    ("Triangle(1, 1)", Triangle(1.0, 1.0)),
    ("Spherical(1, 2)", Spherical(1.0, 2.0)),
    ("Periodic(1, 0.7, period=2)", Periodic(1.0, 0.7, period=2.0)),
    ("SquaredExponential(…) * Periodic(…)", SquaredExponential(1.0, 3.0) * Periodic(1.0, 0.7, period=2.0)),
    ("Wiener(1)", Wiener(1.0)),
    ("NeuralNetwork(1, 10, 10)", NeuralNetwork(1.0, 10.0, 10.0)),
    ("Linear(…) + SquaredExponential(…)", Linear(1.0) + SquaredExponential(0.05, 0.3)),
    ("Polynomial(0.3, 0.3, degree=3)", Polynomial(0.3, 0.3, degree=3)),
    ("LocallyLinear(…, …)", LocallyLinear(Matern(1.0, 2.0), SquaredExponential(0.1, 2.0))),
    ("Gibbs(1, 0.5, weight=0.7)", Gibbs(1.0, 0.5, 0.7)),
    ("Rescaled(…, weight=0.6)", Rescaled(SquaredExponential(1.0, 0.4), weight=0.6)),
    ("SinhArcsinh(…, tail=2, skew=0)", SinhArcsinh(Matern(1.0, 1.0, nu=2.5), 2.0, 0.0)),
]

COLOURS = ("#0072B2", "#D55E00", "#009E73")  # Okabe & Ito


def prior_samples(seed: int = 2) -> Any:
    """Return a figure of functions drawn from the prior of each panel's kernel."""
    x = np.linspace(-3.0, 3.0, 601)[:, None]
    rng = np.random.default_rng(seed)
    figure, axes = plt.subplots(3, 6, figsize=(19.0, 7.2), sharex=True, layout="constrained")
    for ax, (title, kernel) in zip(axes.flat, PANELS, strict=True):
        values, vectors = np.linalg.eigh(kernel(x))  # semidefinite matrices have no Cholesky factor
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        ax.set_prop_cycle(color=COLOURS)
        ax.plot(x[:, 0], root @ rng.normal(size=(len(x), len(COLOURS))), lw=1.3)
        ax.set_title(title, fontsize=9, family="monospace")
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("x", fontsize=9)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default=str(Path(__file__).parent / "pictures" / "kernels.png"))
    path = Path(parser.parse_args().output)
    path.parent.mkdir(parents=True, exist_ok=True)
    prior_samples().savefig(path, dpi=80, bbox_inches="tight")
    print(path)


if __name__ == "__main__":
    main()
