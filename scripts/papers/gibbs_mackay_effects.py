"""Gibbs & MacKay (2000), Table III and Figure 3 (Figure 8 of MacKay 1998), on public tables with many inputs.

Theirs: cracks in welds, 13 inputs, 77 rows to train and 77 to test.  Those data are not public: the published figures
are printed, and beside them the same comparison on the Wisconsin breast cancer data (30 inputs) and the ionosphere
(34), halves of each: test errors and log likelihood of the test labels, from the lower and from the upper bound, at the
maximum of lower bound times prior, and those of a neural network (theirs Bayesian, ours with weight decay by
cross-validation).

Figure 3: the probability of the class as a function of one input, the others at their medians, with the central 68 %
of the posterior of that probability, from either bound.  The upper bound moves the mean of the latent function and
leaves its prior variance (`hmcgp.evidence.bounds`), so its error bars are those of the prior.

    python -m scripts.papers.gibbs_mackay_effects
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from hmcgp import GPClassifier, datasets
from hmcgp.plots import style
from scripts.papers.barber_williams import line
from scripts.papers.barber_williams_tables import network
from scripts.papers.gibbs_mackay import KERNEL

TABLES = {
    "breast cancer": lambda: datasets.load_breast_cancer(version="diagnostic", return_X_y=True),
    "ionosphere": lambda: datasets.load_ionosphere(return_X_y=True),
}
BOUNDS = {"lower": style.BLUE, "upper": style.VERMILION}
WELDS = {"lower": (10, -25.73), "upper": (10, -31.57), "network": (8, -23.6)}  # errors of 77, log likelihood
LEVEL = 0.68  # of the error bars


class Score(NamedTuple):
    """Errors on the test rows, and the log likelihood of their labels."""

    errors: int
    log_likelihood: float

    def __str__(self) -> str:
        return f"{self.errors:3d}, {self.log_likelihood:8.2f}"


class Halves(NamedTuple):
    """A table cut in halves, and the fit of the first by the maximum of the lower bound."""

    gp: GPClassifier
    X: Any
    y: Any
    X_test: Any
    y_test: Any

    def from_bound(self, name: str) -> GPClassifier:
        """The fit with its predictions from one of the bounds, at the same hyperparameters."""
        other = copy.copy(self.gp)
        other.model_ = self.gp.model_.with_evidence(name)
        return other

    def scores(self) -> dict[str, Score]:
        """Scores of both bounds and of the network."""
        fitted = {name: self.from_bound(name) for name in BOUNDS} | {"network": network().fit(self.X, self.y)}
        return {name: self._score(one.predict_proba(self.X_test)) for name, one in fitted.items()}

    def _score(self, p: Any) -> Score:
        wrong = self.gp.classes_[p.argmax(axis=1)] != self.y_test
        return Score(int(wrong.sum()), -log_loss(self.y_test, p, labels=self.gp.classes_, normalize=False))


def halves(name: str, seed: int = 0) -> Halves:
    """Cut a table in halves at random, with as many of each class in both, and fit the first."""
    X, y = TABLES[name]()
    X = X.loc[:, X.nunique() > 1]
    X, y = X[~X.duplicated()], y[~X.duplicated()]
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    gp = GPClassifier(KERNEL, evidence="lower", refine=None, sampler="map", random_state=seed, progressbar=False)
    return Halves(gp.fit(X, y), X, y, X_test, y_test.to_numpy())


def verdict(scores: dict[str, Score]) -> str:
    """Whether the bounds compare as in their Table III."""
    lower, upper = scores["lower"], scores["upper"]
    alike = abs(lower.errors - upper.errors) <= 1
    behind = upper.log_likelihood < lower.log_likelihood
    return (
        f"the bounds {'decide alike' if alike else 'DECIDE DIFFERENTLY'}, and the upper one gives the labels "
        f"{'less' if behind else 'MORE'} probability, {'as in the paper' if alike and behind else 'UNLIKE the paper'}"
    )


def strongest(gp: GPClassifier, n: int) -> list[str]:
    """The inputs that change the probability most, the others at their medians."""
    moves = {name: np.ptp(gp.effect(name, at="median", random_state=0).mean) for name in gp.feature_names_in_}
    return sorted(moves, key=lambda name: -moves[name])[:n]


def draw(ours: Halves, path: Path, n_inputs: int = 3) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    fits = {name: ours.from_bound(name) for name in BOUNDS}
    figure, axes = plt.subplots(1, n_inputs, figsize=(4.6 * n_inputs, 4.0), sharey=True, layout="constrained")
    for ax, name in zip(axes, strongest(fits["lower"], n_inputs), strict=True):
        for bound, gp in fits.items():
            found = gp.effect(name, at="median", level=LEVEL, random_state=0)
            (x,), colour = found.values, BOUNDS[bound]
            dashes = "-" if bound == "lower" else "--"
            if bound == "lower":
                ax.fill_between(x, found.low, found.high, color=colour, alpha=0.18, lw=0, label=f"{LEVEL:.0%} of it")
            else:  # as wide as the prior: lines, to leave the other band to be seen
                ends = [found.low, found.high]
                ax.plot(x, np.transpose(ends), color=colour, lw=1.0, ls=":", label=[f"{LEVEL:.0%} of it", None])
            ax.plot(x, found.mean, color=colour, lw=2.0, ls=dashes, label=f"{bound} bound")
        positive = ours.y == ours.gp.classes_[1]
        for rows, height in ((positive, 1.0), (~positive, 0.0)):
            ax.plot(ours.X.loc[rows, name], np.full(rows.sum(), height), "|", ms=9, mew=0.7, color=style.GREY)
        ax.set(xlabel=name, xlim=(x[0], x[-1]), ylim=(-0.06, 1.06))
        style.clean(ax)
    axes[0].set_ylabel(f"P({ours.gp.classes_[1]})")
    handles, labels = axes[0].get_legend_handles_labels()
    order = [labels.index("lower bound"), 0, labels.index("upper bound"), 2]
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order],
        frameon=False, loc="outside lower center", ncols=4, fontsize=style.SMALL,
    )  # fmt: skip
    figure.suptitle("Effect of one input from either bound, the others at their medians; ticks: training rows")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, bbox_inches="tight")
    plt.close(figure)
    print(path)


def main() -> None:
    options = parse_options()
    print("Table III: test errors, and log likelihood of the test labels")
    for name, theirs in WELDS.items():
        line(f"      welds (13 inputs, 77/77), {name}", str(Score(*theirs)), "not public")
    fits = {name: halves(name, options.seed) for name in TABLES}
    for table, ours in fits.items():
        print(f"{table}: {ours.X.shape[1]} inputs, {len(ours.X)} rows train, {len(ours.X_test)} test")
        scores = ours.scores()
        for name, score in scores.items():
            line(f"      {name}", "", str(score))
        print(f"      verdict: {verdict(scores)}")
    draw(fits["breast cancer"], Path(options.output))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "pictures" / "gibbs_mackay_effects.png"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
