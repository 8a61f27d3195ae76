"""Pictures of the study: mean ranks with groups, and what a method loses on each table beside what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from hmcgp.plots import style
from scripts.study.comparison import groups, mean_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 0.6  # nats, where the axis of losses ends
LINEAR = 0.01  # below it that axis is linear, above it logarithmic


def label(contender: str) -> str:
    """Name of a contender in a picture: hmcgp's say how and with which kernel."""
    if "/" not in contender:
        return LABELS.get(contender, contender)
    inference, kernel = contender.split("/")
    return f"hmcgp {LABELS.get(inference, inference)}, {LABELS.get(kernel, kernel)}"


LABELS = {
    "default": "HMC",
    "laplace": "HMC, Laplace",
    "ep": "HMC under EP",
    "map": "MAP",
    "smooth": "default kernel",
    "se": "squared exponential",
    "full": "Matérn + line + effects",
    "matern+linear": "Matérn + line",
    "logistic": "logistic regression (CV)",
    "svm": "SVM (CV, calibrated)",
    "knn": "k-NN (CV)",
    "forest": "random forest",
    "forest tuned": "random forest, tuned",
    "histogram": "HistGradientBoosting",
    "histogram tuned": "HistGradientBoosting, tuned",
    "lightgbm": "LightGBM",
    "lightgbm tuned": "LightGBM, tuned",
    "catboost": "CatBoost",
    "catboost tuned": "CatBoost, tuned",
    "gpc": "scikit-learn's GPC",
    "gpc ard": "scikit-learn's GPC, ARD",
}


def colour(contender: str) -> str:
    """Blue for hmcgp, grey for others."""
    return style.BLUE if "/" in contender else style.GREY


def critical_difference(means: pd.DataFrame, path: Path) -> None:
    """Mean ranks on an axis; bars join contenders that no test tells apart."""
    ranks = mean_ranks(means)
    bars = groups(means)
    half = (len(ranks) + 1) // 2
    fig, ax = plt.subplots(figsize=(9.0, 1.2 + 0.16 * len(bars) + 0.26 * half), layout="constrained")
    low, high = np.floor(ranks.min()), np.ceil(ranks.max())
    top = 0.5 * (len(bars) + 1)
    for i, (name, rank) in enumerate(zip(map(str, ranks.index), ranks, strict=True)):
        left = i < half
        depth = -1.0 * ((i if left else len(ranks) - 1 - i) + 1)
        end = low - 0.2 if left else high + 0.2
        ax.plot([rank, rank, end], [top, depth, depth], color=colour(name), lw=0.9)
        ax.annotate(
            f"{label(name)}  {rank:.1f}" if left else f"{rank:.1f}  {label(name)}", (end, depth),
            xytext=(-4 if left else 4, 0), textcoords="offset points", ha="right" if left else "left", va="center",
            fontsize=style.SMALL, color=style.INK if colour(name) == style.GREY else style.BLUE,
        )  # fmt: skip
    for i, (first, last) in enumerate(bars):
        height = top - 0.5 * (i + 1)
        ax.plot([ranks[first] - 0.05, ranks[last] + 0.05], [height] * 2, color=style.INK, lw=3, solid_capstyle="butt")
    ticks = np.arange(low, high + 1)
    ax.plot([low, high], [top, top], color=style.INK, lw=1)
    for tick in ticks:
        ax.plot([tick, tick], [top, top + 0.25], color=style.INK, lw=1)
        ax.annotate(f"{tick:.0f}", (tick, top + 0.35), ha="center", va="bottom", fontsize=style.SMALL)
    title = (
        f"Mean rank in log loss over {len(means)} tables (1 is best); bars join what Wilcoxon-Holm cannot tell apart"
    )
    ax.set_title(title, **style.TITLE)
    span = high - low
    ax.set_xlim(low - 0.75 * span, high + 0.75 * span)
    ax.set_ylim(-half - 0.6, top + 1.4)
    ax.axis("off")
    _save(fig, path)


def losses_and_seconds(means: pd.DataFrame, seconds: pd.DataFrame, path: Path) -> None:
    """For a talk: how far each contender is behind the best of each table, and the time it takes."""
    behind = means.sub(means.min(axis=1), axis=0)
    order = list(behind.mean().sort_values(ascending=False).index)
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(10.0, 1.3 + 0.3 * len(order)), sharey=True, width_ratios=(3.2, 1.0), layout="constrained"
    )
    rng = np.random.default_rng(0)
    for y, name in enumerate(order):
        values = np.minimum(behind[name].to_numpy(), LARGEST)
        height = y + rng.uniform(-0.22, 0.22, len(values))
        left.scatter(values, height, s=14, color=colour(name), alpha=0.45, lw=0)
        left.plot([behind[name].mean()] * 2, [y - 0.36, y + 0.36], color=colour(name), lw=2.5)
        low, middle, high = np.quantile(seconds[name], (0.1, 0.5, 0.9))
        right.plot([low, high], [y, y], color=colour(name), lw=1.5, alpha=0.6)
        right.plot(middle, y, "o", color=colour(name), ms=5)
    _loss_axis(left)
    left.set_yticks(range(len(order)), [label(name) for name in order])
    left.set_ylim(-0.7, len(order) - 0.3)
    left.set_title(f"How far behind the best method, on each of {len(means)} tables (bar: mean)", **style.TITLE)
    style.log_axis(right.xaxis)
    right.set_xlabel("processor seconds")
    right.set_title("Time of a fit", **style.TITLE)
    for ax in (left, right):
        style.clean(ax)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=style.PALE, zorder=0)
        ax.set_axisbelow(True)
    for text, name in zip(left.get_yticklabels(), order, strict=True):
        text.set_color(style.BLUE if "/" in name else style.INK)
    _save(fig, path)


def _loss_axis(ax: Axes) -> None:
    ax.set_xscale("symlog", linthresh=LINEAR, linscale=0.7)
    ticks = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    ax.set_xlim(-0.0008, LARGEST * 1.1)
    ax.set_xlabel("log loss above that of the best, nats (linear to 0.01, then logarithmic)")


def _save(fig: Figure, path: Path) -> None:
    fig.savefig(path, dpi=150)
    plt.close(fig)
