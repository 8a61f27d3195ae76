"""Say who has diabetes: fit, diagnose, predict, and draw.

Seven measures of 200 women train a Gaussian-process classifier whose hyperparameters are integrated by Hybrid Monte
Carlo; 332 other women test it (the Pima data, with Ripley's split).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from sklearn.metrics import log_loss

from hmcgp import GPClassifier, datasets, plots


def main() -> None:
    options = parse_options()
    pima = datasets.load_pima()
    X, y = pima.data[pima.train], pima.target[pima.train]
    X_test, y_test = pima.data[~pima.train], pima.target[~pima.train]
    print(f"Pima: {len(X)} rows to train on, {len(X_test)} to test, inputs {', '.join(X.columns)}.")
    print(f"Sampling {options.chains} chains, up to {options.tune} + {options.draws} draws each.", flush=True)

    gp = GPClassifier(draws=options.draws, tune=options.tune, chains=options.chains, random_state=options.seed)
    begin = time.perf_counter()
    gp.fit(X, y)
    fitted = time.perf_counter()
    probabilities = gp.predict_proba(X_test)
    predicted = time.perf_counter()

    columns = ["mean", "sd", "q5", "median", "q95", "ess_bulk", "r_hat"]
    print("\nPosterior of the hyperparameters (inputs in standard deviations):")
    print(gp.summary()[columns].to_string())
    stats = gp.sampling_trace_.stats
    print(f"\n{gp.refinement_}")
    print(
        f"acceptance {stats['acceptance_rate'].mean():.2f}, divergences {int(stats['diverging'].sum())}, "
        f"sampling {gp.sampling_trace_.sampling_time:.1f} s, fit {fitted - begin:.1f} s, "
        f"predictions {predicted - fitted:.1f} s"
    )
    errors = int(np.sum(gp.predict(X_test) != y_test))
    print(f"test errors {errors} of {len(y_test)}, log loss {log_loss(y_test, probabilities):.3f}")

    folder = Path(options.output)
    draw(gp, X_test, y_test, folder)
    print(f"\nPictures: {folder.resolve()}/trace.png, relevance.png, calibration.png")


def draw(gp: GPClassifier, X_test: Any, y_test: Any, folder: Path) -> None:
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    pictures: list[tuple[str, Callable[[], Any]]] = [
        ("trace", lambda: plots.trace(gp)),
        ("relevance", lambda: plots.relevance(gp)),
        ("calibration", lambda: plots.calibration(gp, X_test, y_test)),
    ]
    for name, plot in pictures:
        axes = plot()
        figure = np.ravel(axes)[0].figure
        figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")
        plt.close(figure)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000, help="draws per chain (default 1000)")
    parser.add_argument("--tune", type=int, default=500, help="warm-up draws per chain (default 500)")
    parser.add_argument("--chains", type=int, default=4, help="chains (default 4)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the chains (default 1)")
    parser.add_argument("--output", default="hmcgp-demo", help="folder for the pictures (default hmcgp-demo)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
