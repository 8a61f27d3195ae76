"""Kim & Ghahramani (2006), "Bayesian Gaussian Process Classification with the EM-EP Algorithm": theirs and ours.

    python -m scripts.papers.kim_ghahramani                       everything; `--sections circle` and so on: parts
    python -m scripts.papers.kim_ghahramani --heart FILE          with the Hungarian heart data, a file of yours

The model and its variants are in `kim_ghahramani_model.py`, data and folds in `kim_ghahramani_data.py`, the methods of
Table 2 in `kim_ghahramani_methods.py`.  The paper shows one circle and one set of relevance data; here are the
distributions over 100, and where the paper's lie in them.  Its EM-EP runs beside L-BFGS, which made the other figures.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmcgp.datasets.user_files import HEART_VARIABLE
from hmcgp.posterior import label_noise
from hmcgp.runtime.parallel import resolve_n_jobs, run_tasks
from scripts.papers.barber_williams import errors, line
from scripts.papers.kim_ghahramani_data import (
    N_INPUTS,
    N_RELEVANT,
    RADIUS_SQUARED,
    TABLES,
    circle,
    folds,
    relevance_data,
)
from scripts.papers.kim_ghahramani_methods import METHODS, cross_validate
from scripts.papers.kim_ghahramani_model import CIRCLE_START, TABLE_START, build, climb

TABLE_2 = {  # error ± its standard error on heart, thyroid, ionosphere, crabs, Pima.tr
    "GPC m-soft": [(0.1559, 0.0329), (0.0277, 0.0147), (0.0514, 0.0173), (0.025, 0.0118), (0.280, 0.0510)],
    "GPC s-hard": [(0.2043, 0.0193), (0.0277, 0.0147), (0.0513, 0.0141), (0.065, 0.0158), (0.325, 0.0473)],
    "GPC s-soft": [(0.1568, 0.0212), (0.0277, 0.0147), (0.0485, 0.0156), (0.065, 0.0158), (0.245, 0.0448)],
    "SVM-EP": [(0.2011, 0.0289), (0.0229, 0.0148), (0.0429, 0.0163), (0.050, 0.0176), (0.255, 0.0448)],
    "SVM hard": [(0.2349, 0.0241), (0.0420, 0.0153), (0.0568, 0.0167), (0.060, 0.0205), (0.340, 0.0483)],
    "SVM soft": [(0.1943, 0.0212), (0.0366, 0.0224), (0.0598, 0.0158), (0.055, 0.0146), (0.275, 0.0403)],
    "1-NN": [(0.3724, 0.0421), (0.0561, 0.0177), (0.1398, 0.0159), (0.075, 0.0196), (0.295, 0.0254)],
    "LDA": [(0.1664, 0.0186), (0.1251, 0.0204), (0.1256, 0.0226), (0.055, 0.0166), (0.255, 0.0288)],
}  # fmt: skip
PUBLISHED = {method: dict(zip(TABLES, row, strict=True)) for method, row in TABLE_2.items()}


# -- two labels of forty flipped -------------------------------------------------------------------------------------


class CircleResult(NamedTuple):
    """One replicate: ε adapted, and ε = 0."""

    flip: float
    error: float
    error_without: float
    log_evidence: float
    log_evidence_without: float
    n_found: int  # flipped labels that are, given the data, more probably wrong than right
    n_accused: int  # other labels of which that is said


def circle_replicate(seed: int) -> CircleResult:
    split, flipped = circle(seed)
    adapted, without = (climb(build(split.X, split.y, ard=True, flips=f), CIRCLE_START, 2) for f in (True, False))
    error, error_without = (
        errors(f.probabilities(split.X_test), split.y_test) / len(split.y_test) for f in (adapted, without)
    )
    suspects = np.flatnonzero(label_noise.flip_probability(adapted.model, adapted.theta[None, :], n_jobs=1) > 0.5)
    n_found = int(np.isin(flipped, suspects).sum())
    evidence = adapted.log_evidence, without.log_evidence
    return CircleResult(adapted.value("flip"), error, error_without, *evidence, n_found, len(suspects) - n_found)


# -- relevance -------------------------------------------------------------------------------------------------------


class Relevance(NamedTuple):
    """One replicate: one length scale for all inputs (s), and one for each (m)."""

    log_evidence_s: float
    log_evidence_m: float
    error_s: float
    error_m: float
    length_scales: Any  # (6,), of m


def relevance_replicate(seed: int) -> Relevance:
    split = relevance_data(seed)
    s = climb(build(split.X, split.y, ard=False), TABLE_START, N_INPUTS)
    m = climb(build(split.X, split.y, ard=True), s.start(), N_INPUTS)
    error_s, error_m = (errors(f.probabilities(split.X_test), split.y_test) / len(split.y_test) for f in (s, m))
    return Relevance(s.log_evidence, m.log_evidence, error_s, error_m, m.l**-0.5)


# -- EM-EP and L-BFGS ------------------------------------------------------------------------------------------------


class Climbs(NamedTuple):
    """Both climbs from the same start."""

    difference: float  # of the log densities at which they end, EM-EP's over L-BFGS's
    em_ep: int  # evaluations of the density or of EM's surrogate
    lbfgs: int


def climbs(X: Any, y: Any, start: dict[str, Any], ard: bool, flips: bool = True) -> Climbs:
    model = build(X, y, ard=ard, flips=flips)
    em, direct = (climb(model, start, X.shape[1], method) for method in ("em-ep", "lbfgs"))
    ends = [model.evaluate(f.position, gradient=False).logdensity for f in (em, direct)]
    return Climbs(ends[0] - ends[1], em.evaluations, direct.evaluations)


# -- report ----------------------------------------------------------------------------------------------------------


def standard_error(values: Any) -> float:
    """Of their mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def replicates(function: Callable[..., Any], n: int) -> list[Any]:
    return run_tasks([(function, (seed,)) for seed in range(n)], resolve_n_jobs(None, n))


def distribution(what: str, published: float | None, values: Any, digits: int = 3) -> None:
    """Print the mean, the middle 90 % and, of a published figure, the share of replicates below it."""
    low, high = np.quantile(values, [0.05, 0.95])
    ours = f"{np.mean(values):.{digits}f} ± {standard_error(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
    if published is not None:
        ours += f"; theirs lies above {np.mean(np.asarray(values) < published):.0%}"
    line(f"      {what}", "" if published is None else f"{published:g}", ours)


def report_circle(n: int) -> list[CircleResult]:
    rows = replicates(circle_replicate, n)
    values = {name: np.array([getattr(row, name) for row in rows]) for name in CircleResult._fields}
    print(f"Circle, two of 40 labels flipped: their one data set; mean ± standard error (middle 90 %) of our {n}")
    distribution("ε found", 0.05, values["flip"])
    distribution("test error, ε adapted", 0.0281, values["error"])
    distribution("test error, ε = 0", 0.0740, values["error_without"])
    distribution("log evidence, ε adapted", -22.9487, values["log_evidence"], 2)
    distribution("log evidence, ε = 0", -23.2358, values["log_evidence_without"], 2)
    better, worse = (np.sum(sign * (values["error"] - values["error_without"]) < 0.0) for sign in (1.0, -1.0))
    line("      adapted ε makes fewer errors, as many, more", "fewer", f"{better}, {n - better - worse}, {worse}")
    ratio = values["error"] / np.maximum(values["error_without"], 1e-9)
    line(
        "      ratio of the errors, theirs among ours", "0.38", f"{np.mean(ratio <= 0.38):.0%} are as small or smaller"
    )
    means = f"{values['n_found'].mean():.2f}; {values['n_accused'].mean():.2f}"
    line("      flipped labels found, of 2; others accused", "", means)
    return rows


def report_relevance(n: int) -> list[Relevance]:
    rows = replicates(relevance_replicate, n)
    print(f"\nRelevance, three inputs of six: their one data set; our {n}")
    distribution("log evidence, one length scale", -55.45, [r.log_evidence_s for r in rows], 1)
    distribution("log evidence, one for each input", -35.41, [r.log_evidence_m for r in rows], 1)
    distribution("gain", 20.04, [r.log_evidence_m - r.log_evidence_s for r in rows], 1)
    distribution("test error, one length scale", 0.06, [r.error_s for r in rows])
    distribution("test error, one for each input", 0.04, [r.error_m for r in rows])
    medians = [f"{x:.3g}" for x in np.median([r.length_scales for r in rows], axis=0) ** -2.0]
    line("      median l, relevant inputs", "", " ".join(medians[:N_RELEVANT]))
    line("      irrelevant inputs", "→ 0", " ".join(medians[N_RELEVANT:]))
    return rows


def report_climbs(n: int) -> None:
    print("\nEM-EP, as in the paper, against L-BFGS from the same start")
    cases: dict[str, list[tuple[Any, ...]]] = {
        f"circle, {n} replicates": [(*circle(seed).split[:2], CIRCLE_START, True) for seed in range(n)],
        "relevance, one l for all, 2 replicates": [(*relevance_data(s)[:2], TABLE_START, False) for s in range(2)],
        "Pima.tr, one l for all, 2 folds": [(f.X, f.y, TABLE_START, False) for f in folds("Pima.tr")[:2]],
    }
    for name, sets in cases.items():
        tasks = [(climbs, arguments) for arguments in sets]
        rows = run_tasks(tasks, resolve_n_jobs(None, len(sets)))
        difference, em, direct = np.array(rows, dtype=float).T
        same = np.sum(np.abs(difference) < 0.01)
        spread = f"{difference.min():+.2f} to {difference.max():+.2f}"
        ours = f"{same} of {len(rows)} end together (differences {spread}); {em.mean():.0f} and {direct.mean():.0f}"
        line(f"      {name}", "", f"{ours} evaluations")


def report_tables(options: argparse.Namespace) -> None:
    heart = options.heart or os.environ.get(HEART_VARIABLE)
    cut = " (2 folds only)" if options.quick else ""
    print(f"\nTable 2, 10-fold cross-validation{cut}: error ± its standard error over folds; log loss in nats")
    for name in TABLES if heart else [name for name in TABLES if name != "heart"]:
        begin = time.perf_counter()
        hmc = not options.quick and name in options.hmc
        found = cross_validate(folds(name, heart, options.seed)[: 2 if options.quick else None], hmc=hmc)
        print(f"{name}   ({time.perf_counter() - begin:.0f} s)")
        for method in [m for m in METHODS if m in found]:
            column = found[method]
            theirs = PUBLISHED.get(method, {}).get(name)
            loss = "" if np.isnan(column.log_loss) else f"   log loss {column.log_loss:.4f}"
            note = "" if np.isnan(column.r_hat) else f"   R-hat ≤ {column.r_hat:.2f}"
            far = ""
            if theirs is not None:
                z = (column.error - theirs[0]) / np.hypot(column.error_se, theirs[1])
                far = f"   {z:+.1f} standard errors from theirs"
            published = "" if theirs is None else f"{theirs[0]:.4f} ± {theirs[1]:.4f}"
            ours = f"{column.error:.4f} ± {column.error_se:.4f}{loss}{far}{note}"
            print(f"      {method:<14} {published:>18}   {ours}", flush=True)
    if not heart:
        print(f"(heart: give its file by --heart or {HEART_VARIABLE})")


# -- picture ---------------------------------------------------------------------------------------------------------


def draw(circles: list[CircleResult], relevance: list[Relevance], path: Path, seed: int = 0) -> None:
    """One circle with both boundaries; errors of all circles; length scales of all sets of relevance data."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from hmcgp.plots import style

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14.0, 4.6), layout="constrained")
    _draw_boundaries(left, seed)
    both = np.array([[row.error_without, row.error] for row in circles])
    top = 1.05 * both.max()
    middle.plot([0.0, top], [0.0, top], color=style.GREY, lw=0.8)
    middle.plot(*both.T, ".", color=style.BLUE, ms=7, alpha=0.6, label=f"our {len(both)} data sets")
    middle.plot(0.0740, 0.0281, "*", color=style.VERMILION, ms=16, label="the paper's one")
    middle.set(xlim=(0.0, top), ylim=(0.0, top), aspect="equal")
    middle.set(xlabel="test error, ε = 0", ylabel="test error, ε adapted", title="Test errors with and without ε")
    middle.legend(frameon=False, loc="upper left", fontsize=style.SMALL)
    places = np.arange(1, N_INPUTS + 1)
    scales = np.array([row.length_scales for row in relevance])
    for k in range(N_INPUTS):
        colour = style.BLUE if k < N_RELEVANT else style.GREY
        x = places[k] + np.linspace(-0.25, 0.25, len(scales))
        right.plot(x, scales[:, k], ".", color=colour, ms=4, alpha=0.6)
        right.hlines(np.median(scales[:, k]), places[k] - 0.35, places[k] + 0.35, color=colour, lw=2.5)
    right.set(yscale="log", xticks=places, xticklabels=[f"x{k}" for k in places], ylabel="length scale")
    right.set_title(f"Relevance: x1 to x{N_RELEVANT} decide, the others do not")
    for ax in (left, middle, right):
        style.clean(ax)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)
    print(path)


def _draw_boundaries(ax: Any, seed: int) -> None:
    from matplotlib.patches import Circle

    from hmcgp.plots import style

    split, flipped = circle(seed)
    ticks = np.linspace(-1.0, 1.0, 121)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    ax.add_patch(Circle((0.0, 0.0), np.sqrt(RADIUS_SQUARED), fill=False, color=style.GREY, ls=":", lw=1.5))
    for flips, colour, dash in ((True, style.BLUE, "-"), (False, style.VERMILION, "--")):
        fitted = climb(build(split.X, split.y, ard=True, flips=flips), CIRCLE_START, 2)
        p = fitted.probabilities(grid)[:, 1].reshape(len(ticks), -1)
        ax.contour(ticks, ticks, p, levels=[0.5], colors=colour, linestyles=dash, linewidths=2.0)
        ax.plot([], [], color=colour, ls=dash, lw=2.0, label=f"ε = {fitted.value('flip'):.3f}" if flips else "ε = 0")
    for label, marker in ((1.0, "o"), (-1.0, "x")):
        ax.plot(
            *split.X[split.y == label].T, marker, color=style.INK, mfc="none", ms=6, ls="", label=f"y = {label:+.0f}"
        )
    ax.plot(*split.X[flipped].T, "s", color="C1", mfc="none", mew=2.0, ms=13, ls="", label="flipped")
    ax.set(aspect="equal", xlabel="x₁", ylabel="x₂", title="One of them: where p = ½, and the true circle")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=style.SMALL)


def main() -> None:
    options = parse_options()
    n = 8 if options.quick else 100
    print(f"{'':46} {'paper':>12}   ours")
    circles = report_circle(n) if "circle" in options.sections else []
    relevance = report_relevance(n) if "relevance" in options.sections else []
    if circles and relevance:
        draw(circles, relevance, Path(options.output))
    if "climbs" in options.sections:
        report_climbs(2 if options.quick else 20)
    if "tables" in options.sections:
        report_tables(options)


def parse_options() -> argparse.Namespace:
    sections = ["circle", "relevance", "climbs", "tables"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="+", choices=sections, default=sections)
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--heart", help=f"file of the Hungarian heart data (default: that named by {HEART_VARIABLE})")
    parser.add_argument("--hmc", nargs="*", choices=list(TABLES), default=["thyroid", "crabs", "Pima.tr", "heart"],
                        help="tables that HMC runs on")  # fmt: skip
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "pictures" / "kim_ghahramani.png"))
    parser.add_argument("--quick", action="store_true", help="8 replicates, 2 folds, no HMC")
    return parser.parse_args()


if __name__ == "__main__":
    main()
