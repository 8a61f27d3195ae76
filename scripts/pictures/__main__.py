"""Make the pictures of the README."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from hmcgp import GPClassifier, compare_evidence, datasets, plots
from scripts.pictures import outputs as picture_outputs
from scripts.pictures.kernels import prior_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default=str(Path(__file__).parent))
    folder = Path(parser.parse_args().output)
    folder.mkdir(parents=True, exist_ok=True)

    save(prior_samples(), folder / "kernels.png")
    save(picture_outputs.draw(picture_outputs.two_outputs()), folder / "outputs.png")
    pima = datasets.load_pima()
    train = np.asarray(pima.train)
    X, y, X_test, y_test = pima.data[train], pima.target[train], pima.data[~train], pima.target[~train]
    all_inputs = GPClassifier(random_state=1).fit(X, y)
    two = GPClassifier(random_state=1).fit(X[["glu", "bmi"]], y)
    one = GPClassifier(random_state=1).fit(X[["glu"]], y)

    predictive = (two, X[["glu", "bmi"]], y)
    save(front(predictive, all_inputs, X_test, y_test), folder / "front.png")
    save(figure_of(plots.predictive(one, X[["glu"]], y)), folder / "predictive_1d.png")
    crabs_X, crabs_y = datasets.load_crabs(return_X_y=True)
    crabs = GPClassifier(random_state=1).fit(crabs_X[["RW", "CL"]], crabs_y)
    save(figure_of(plots.trace(crabs)), folder / "trace.png")

    rows = np.random.default_rng(0).permutation(len(crabs_y))[:80]
    gp = GPClassifier(draws=500, random_state=1)
    print(compared := compare_evidence(gp, crabs_X.iloc[rows], crabs_y.iloc[rows], ["laplace", "ep", "lower"]))
    figure = plt.figure(figsize=(13.0, 6.0), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=[1.0, 1.1])
    left, right = halves
    plots.compare_evidence(compared, axes=left.subplots(2, 2))
    plots.loo(compared.estimators["ep"], axes=right.subplots(2, 1, sharex=True, height_ratios=[3, 2]))
    save(figure, folder / "providers.png")


def front(predictive: tuple[Any, Any, Any], gp: GPClassifier, X_test: Any, y_test: Any) -> Any:
    """Probabilities, effects of the four most relevant inputs, relevance and calibration in one figure."""
    figure = plt.figure(figsize=(15.0, 9.4), layout="constrained")
    panels: Any = figure.subfigures(2, 2, width_ratios=[1.0, 1.1], height_ratios=[1.0, 1.05], wspace=0.04, hspace=0.05)
    plots.predictive(*predictive, ax=panels[0, 0].subplots())
    names = gp.relevance().ranking[:4]
    effects = panels[0, 1].subplots(2, 2, sharey=True)
    for ax, name in zip(effects.ravel(), names, strict=True):
        plots.effect(gp, name, axes=ax)
        if ax is not effects[0, 0]:
            ax.texts[-1].remove()  # the same for all
        if ax not in effects[:, 0]:
            ax.set_ylabel("")
    plots.relevance(gp, ax=panels[1, 0].subplots())
    plots.calibration(gp, X_test, y_test, ax=panels[1, 1].subplots())
    return figure


def figure_of(axes: Any) -> Any:
    return np.ravel(axes)[0].figure


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)
    print(path)


if __name__ == "__main__":
    main()
