"""Reliability diagram: observed frequency of events against their predicted probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta
from sklearn.metrics import log_loss

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import check_labels, check_prob, require, target_label
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP = (-0.22, -0.05)  # of the y axis, for the histogram


class Bins(NamedTuple):
    """Equal-count bins of predicted probability; each array has one entry per bin."""

    predicted: Array  # mean probability
    observed: Array  # fraction of class 1
    low: Array
    high: Array


def calibration(
    gp: Any,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    n_bins: int = 10,
    prob: float = 0.9,
    of: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a reliability diagram: observed frequency against predicted probability.

    Of a classifier, of a class: bins hold about equally many cases, bars are Jeffreys intervals of the frequency in
    each bin, and the histogram beneath counts the predictions.  Of a regressor, of central predictive intervals: the
    share of the observations that lie within them.

    Parameters
    ----------
    gp : fitted classifier or regressor, or array of shape (n,) or (n, C)
        An array holds predicted probabilities, of the classes in sorted order; one-dimensional, of the second of two.
    X : array or DataFrame of shape (n, d)
        Inputs, best those of cases not used in the fit. Not needed with an array of probabilities; a regressor without
        them predicts each training row from the others.
    y : array of shape (n,)
        Labels or numbers.
    n_bins : int, default 10
        Number of bins; tied predictions share a bin, so there may be fewer.
    prob : float, default 0.9
        Probability of the intervals.
    of : label, optional
        The class whose probability is drawn, against all others: needed with more than two classes.  Default: the
        second of two.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    check_prob(prob)
    if n_bins < 1:
        raise InvalidInput(f"'n_bins' must be at least 1; got {n_bins}.")
    if hasattr(gp, "residuals") and not hasattr(gp, "predict_proba"):
        require(gp, "trace_")
        return _coverage(gp.residuals(X, y), prob, style.new_axes(ax, (4.6, 4.8)))
    if y is None:
        raise InvalidInput("'y', the labels to compare with, must be given.")
    p, label, event = class_probability(gp, X, y, of)
    if len(p) != len(event):
        raise InvalidInput(f"'y' must have one label per prediction; got {len(event)} labels for {len(p)} predictions.")
    ax = style.new_axes(ax, (4.6, 5.2))
    bins = _bin(p, event, n_bins, prob)
    _reliability(ax, bins, prob, f"observed, n = {len(p)}\nlog loss {log_loss(event, p, labels=[False, True]):.3f}")
    _histogram(ax, p)
    ax.set(xlabel=f"predicted {target_label(gp, y, label)}", ylabel="observed frequency")
    ax.set(xlim=(-0.03, 1.03), ylim=(_STRIP[0], 1.03), yticks=np.linspace(0.0, 1.0, 6), aspect="equal")
    style.clean(ax)
    ax.spines["left"].set_bounds(0.0, 1.0)
    return ax


def _coverage(found: Any, prob: float, ax: Axes) -> Axes:
    """Draw the share of observations within central intervals against their probability."""
    levels = np.linspace(0.05, 0.95, 19)
    n = int(np.isfinite(found.pit).sum())
    share = found.coverage(levels)
    # what calibrated predictions would give: Jeffreys intervals around the diagonal
    low, high = (beta.ppf(q, n * levels + 0.5, n * (1.0 - levels) + 0.5) for q in (0.5 - prob / 2, 0.5 + prob / 2))
    ax.fill_between(levels, low, high, color=style.PALE, lw=0, label=f"{100 * prob:g} % range, if calibrated")
    ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.0, ls=style.DASHED, label="perfectly calibrated", zorder=1)
    rows = "rows, each left out" if found.left_out else "rows"
    ax.plot(levels, share, "o-", ms=5, lw=1.2, color=style.BLUE, mec="white", mew=0.8, label=f"observed, {n} {rows}")
    ax.legend(loc="upper left", frameon=False, fontsize=style.SMALL, labelcolor=style.INK, handlelength=1.8)
    ax.set(xlabel="probability of the predictive interval", ylabel="share of observations within")
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    style.clean(ax)
    return ax


def class_probability(gp: Any, X: Any, y: ArrayLike, of: Any) -> tuple[Array, Any, NDArray[np.bool_]]:
    """Return the probability of a class, its label, and where it came true."""
    if hasattr(gp, "predict_proba"):
        require(gp, "classes_")
        if X is None:
            raise InvalidInput("'X' must be given with an estimator.")
        p, classes = np.asarray(gp.predict_proba(X)), np.asarray(gp.classes_)
    elif hasattr(gp, "fit"):
        raise InvalidInput(
            f"plots.calibration is of probabilities of classes or of intervals, and a {type(gp).__name__} has neither."
        )
    else:
        p, classes = np.asarray(gp, dtype=float), np.unique(np.asarray(y))
    if p.ndim not in (1, 2) or not p.size or not ((p >= 0.0) & (p <= 1.0)).all():
        raise InvalidInput("give a fitted classifier, or probabilities between 0 and 1, one per case.")
    if p.ndim == 1:
        p = np.column_stack([1.0 - p, p])
    column = _column(of, classes)
    if p.shape[1] != len(classes):
        raise InvalidInput(f"there are probabilities of {p.shape[1]} classes, and 'y' holds {classes.tolist()}.")
    return p[:, column], classes[column], np.asarray(check_labels(y, classes) == classes[column], dtype=bool)


def _column(of: Any, classes: NDArray[Any]) -> int:
    if of is None and len(classes) == 2:
        return 1
    if of is None:
        raise InvalidInput(
            f"with {len(classes)} classes, 'of' says whose probability to draw: one of {classes.tolist()}."
        )
    if of not in classes.tolist():
        raise InvalidInput(f"'of' must be one of the classes {classes.tolist()}; got {of!r}.")
    return classes.tolist().index(of)


def _bin(p: Array, event: NDArray[np.bool_], n_bins: int, prob: float) -> Bins:
    n_bins = min(n_bins, len(p))
    last = np.arange(1, n_bins) * len(p) // n_bins - 1  # rank of the last case in each bin but the final one
    index = np.searchsorted(np.unique(np.sort(p)[last]), p, side="left")  # ties fall into one bin
    count = np.bincount(index)
    full = count > 0
    n, k = count[full], np.bincount(index, weights=event)[full]
    # Jeffreys: quantiles of Beta(k + 1/2, n - k + 1/2), reaching 0 at k = 0 and 1 at k = n
    low, high = (beta.ppf(q, k + 0.5, n - k + 0.5) for q in (0.5 - prob / 2, 0.5 + prob / 2))
    predicted = np.bincount(index, weights=p)[full] / n
    return Bins(predicted, k / n, np.where(k == 0, 0.0, low), np.where(k == n, 1.0, high))


def _reliability(ax: Axes, bins: Bins, prob: float, label: str) -> None:
    ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.0, ls=style.DASHED, label="perfectly calibrated", zorder=1)
    ax.vlines(
        bins.predicted, bins.low, bins.high, color=style.BLUE, lw=1.6, alpha=0.55, label=f"{100 * prob:g} % interval"
    )
    ax.plot(bins.predicted, bins.observed, "o", ms=6, color=style.BLUE, mec="white", mew=0.9, label=label, zorder=3)
    ax.legend(loc="upper left", frameon=False, fontsize=style.SMALL, labelcolor=style.INK, handlelength=1.8)


def _histogram(ax: Axes, p: Array) -> None:
    """Count the predictions in the strip of `ax` below zero, which no frequency can reach."""
    counts, edges = np.histogram(p, bins=25, range=(0.0, 1.0))
    heights = (_STRIP[1] - _STRIP[0]) * counts / counts.max()
    ax.bar(edges[:-1], heights, np.diff(edges), bottom=_STRIP[0], align="edge", color=style.GREY, alpha=0.5, lw=0)
