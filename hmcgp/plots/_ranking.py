"""Receiver operating characteristic, and precision against recall, with bands over draws of the hyperparameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._calibration import class_probability
from hmcgp.plots._checks import check_prob
from hmcgp.reporting.intervals import central_interval
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = np.linspace(0.0, 1.0, 201)
_MOST_DRAWS = 100  # curves that a band is made of


class _Kind(NamedTuple):
    """One way to draw how well cases are ranked."""

    curve: Callable[[NDArray[np.bool_], Array], Array]  # heights over `_GRID`
    score: Callable[..., Any]
    name: str


def roc(
    gp: Any, X: Any = None, y: ArrayLike | None = None, *, of: Any = None, prob: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw the share of a class that is found against the share of others that is taken for it, at every threshold.

    The line is that of the averaged probabilities; the band is over draws of the hyperparameters, with their weights,
    and so is the interval of the area.

    Parameters
    ----------
    gp : fitted classifier, or array of shape (n,) or (n, C)
        An array holds probabilities of the classes in sorted order, and has no band; one-dimensional, of the second.
    X : array or DataFrame of shape (n, d)
        Inputs, best those of cases not used in the fit.
    y : array of shape (n,)
        Labels.
    of : label, optional
        The class that is to be found.  Default: the second of two; each of several against the rest.
    prob : float, default 0.9
        Probability of the band.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    ax = _draw(_Kind(_roc_curve, roc_auc_score, "area"), gp, X, y, of, prob, ax)
    ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.0, ls=style.DASHED, zorder=1)
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    ax.legend(loc="lower right", frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
    return ax


def precision_recall(
    gp: Any, X: Any = None, y: ArrayLike | None = None, *, of: Any = None, prob: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw the share of cases taken for a class that are of it against the share of the class that is found.

    Parameters
    ----------
    gp, X, y, of, prob, ax
        As of `roc`.

    Returns
    -------
    Axes
    """
    ax = _draw(_Kind(_precision_curve, average_precision_score, "average precision"), gp, X, y, of, prob, ax)
    ax.set(xlabel="recall", ylabel="precision")
    ax.legend(loc="lower left", frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
    return ax


def _draw(kind: _Kind, gp: Any, X: Any, y: Any, of: Any, prob: float, ax: Axes | None) -> Axes:
    check_prob(prob)
    if y is None:
        raise InvalidInput("'y', the labels to compare with, must be given.")
    classes = np.asarray(getattr(gp, "classes_", np.unique(np.asarray(y))))
    wanted = [of] if of is not None else classes[1:].tolist() if len(classes) == 2 else classes.tolist()
    class_probability(gp, X, y, wanted[0])  # checks everything
    average = np.asarray(gp.predict_proba(X)) if hasattr(gp, "predict_proba") else None
    draws, weight = _probabilities_of_draws(gp, X)
    ax = style.new_axes(ax, (4.6, 4.6))
    for label, colour in zip(wanted, itertools.cycle(style.CHAINS), strict=False):
        column = classes.tolist().index(label)
        p = class_probability(gp, X, y, label)[0] if average is None else average[:, column]
        event = np.asarray(y) == label
        if event.all() or not event.any():
            raise InvalidInput(f"'y' holds only rows of {label!r}, or none: there is nothing to rank.")
        text = f"{label}: {kind.name} {kind.score(event, p):.3f}"
        if draws is not None:
            text += _band(kind, ax, draws[:, :, column], weight, event, prob, colour)
        ax.plot(_GRID, kind.curve(event, p), color=colour, lw=1.6, label=text, zorder=3)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    style.clean(ax)
    return ax


def _probabilities_of_draws(gp: Any, X: Any) -> tuple[Array | None, Array]:
    """Return the probabilities under some of the draws, (S, n, C), and their weights; None where there is one draw."""
    if not hasattr(gp, "predict_proba_draws") or X is None:
        return None, np.ones(1)
    probabilities = np.asarray(gp.predict_proba_draws(X))
    weight = np.asarray(gp._kept_draws().weight)
    some = np.unique(np.linspace(0, len(weight) - 1, _MOST_DRAWS).astype(int))
    return (probabilities[some], weight[some]) if len(weight) > 1 else (None, weight)


def _band(
    kind: _Kind, ax: Axes, draws: Array, weight: Array, event: NDArray[np.bool_], prob: float, colour: str
) -> str:
    """Draw the band; return the interval of the score as text."""
    low, high = central_interval(np.array([kind.curve(event, p) for p in draws]), prob, weight)
    ax.fill_between(_GRID, low, high, color=colour, alpha=0.2, lw=0)
    least, most = central_interval(np.array([[kind.score(event, p)] for p in draws]), prob, weight)
    return f" ({least[0]:.3f} to {most[0]:.3f})"


def _roc_curve(event: NDArray[np.bool_], p: Array) -> Array:
    false, true, _ = roc_curve(event, p, drop_intermediate=False)
    return np.interp(_GRID, false, true)


def _precision_curve(event: NDArray[np.bool_], p: Array) -> Array:
    """Precision where at least that share is found, at the highest such threshold: a step function."""
    precision, recall, _ = precision_recall_curve(event, p)
    precision, recall = precision[::-1], recall[::-1]  # recall rising
    place = np.searchsorted(recall, np.maximum(_GRID, recall[recall > 0.0].min()) - 1e-12)
    return np.asarray(precision[np.minimum(place, len(precision) - 1)])
