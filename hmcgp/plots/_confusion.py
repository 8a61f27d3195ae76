"""Confusion matrix, with the predicted probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import check_labels, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def confusion(gp: Any, X: Any, y: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw how many rows of each class are predicted to be of each, and how probable that was.

    Rows of the picture are true classes, columns the most probable ones.  Each cell has the number of cases, and is as
    dark as the mean predicted probability of its column's class among the cases of its row: beside what was decided,
    it shows what was in doubt.

    Parameters
    ----------
    gp : fitted classifier
        Has `classes_` and `predict_proba`.
    X : array or DataFrame of shape (n, d)
        Inputs, best those of cases not used in the fit.
    y : array of shape (n,)
        Labels.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    require(gp, "classes_", "predict_proba")
    classes = np.asarray(gp.classes_)
    labels = check_labels(y, classes)
    p = np.asarray(gp.predict_proba(X))
    if len(p) != len(labels):
        raise InvalidInput(f"'y' must have one label per row of 'X'; got {len(labels)} labels for {len(p)} rows.")
    true = labels[:, None] == classes  # (n, C)
    count = true.T.astype(int) @ (p.argmax(axis=1)[:, None] == np.arange(len(classes)))
    size = true.sum(axis=0)
    mean = (true.T.astype(float) @ p) / np.maximum(size, 1)[:, None]
    ax = style.new_axes(ax, (1.8 + 0.62 * len(classes), 1.4 + 0.55 * len(classes)))
    filled = ax.imshow(mean, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for i, j in np.ndindex(count.shape):
        dark = mean[i, j] > 0.6
        ax.text(j, i, f"{count[i, j]}", ha="center", va="center", color="white" if dark else style.INK)
    ax.set_xticks(range(len(classes)), [str(c) for c in classes], rotation=30, ha="right")
    ax.set_yticks(range(len(classes)), [f"{c} ({k})" for c, k in zip(classes, size, strict=True)])
    ax.set(xlabel="most probable class", ylabel="true class (number of cases)")
    ax.set_title(f"{np.trace(count)} of {len(labels)} right", fontsize=style.TEXT, color=style.INK)
    style.clean(ax, hide=("top", "right", "left", "bottom"))
    style.colorbar(ax, filled, "mean predicted probability", ticks=[0.0, 0.5, 1.0])
    return ax
