"""Predicted probability as a function of one or two inputs, with the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import _checks, style
from hmcgp.plots._regression import regression_1d, regression_2d
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet

_LINES = (0.1, 0.25, 0.5, 0.75, 0.9)


def predictive(gp: Any, X: Any, y: ArrayLike, *, output: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the prediction over the input space of a fit with one or two inputs.

    Parameters
    ----------
    gp : fitted GPClassifier of two classes, GPRegressor or GPCounts
        Fitted on one input (see `predictive_1d`, `regression_1d`) or two (see `predictive_2d`, `regression_2d`).
    X : array or DataFrame of shape (n, 1) or (n, 2)
        Inputs of the data to show.
    y : array of shape (n,)
        Their labels or numbers; of shape (n, k) for several outputs.
    output : str or int, optional
        Name or number of the output to show, where the fit has several.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    _checks.require(gp, "n_features_in_")
    kinds: dict[int, Any] = {1: predictive_1d, 2: predictive_2d}
    options: dict[str, Any] = {}
    if hasattr(gp, "predict_quantiles"):
        kinds, options = {1: regression_1d, 2: regression_2d}, {"output": output}
    elif output is not None:
        raise InvalidInput(f"'output' is for regression with several outputs; got {output!r} for a classifier.")
    if gp.n_features_in_ in kinds:
        drawn: Axes = kinds[gp.n_features_in_](gp, X, y, ax=ax, **options)
        return drawn
    raise InvalidInput(
        f"plots.predictive draws fits on one or two inputs, and 'gp' was fitted on {gp.n_features_in_}. "
        "Fit on two columns, or see plots.calibration and plots.relevance."
    )


def predictive_1d(
    gp: Any,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    prob: float = 0.9,
    limits: tuple[float, float] | None = None,
    n_grid: int = 200,
    ax: Axes | None = None,
) -> Axes:
    """Draw the probability of the second class over a single input, with the interval that holds it.

    The line is `predict_proba`, averaged over the posterior.  The band is `predict_proba_interval`, of the latent
    function and the hyperparameters: at each input, the true probability lies within it with the probability `prob`.

    Parameters
    ----------
    gp : fitted binary classifier with one input
        Has `predict_proba` and `predict_proba_interval`.
    X, y : array of shape (n, 1) or (n,), array of shape (n,), optional
        Data to show, as marks at the top (second class) and bottom (first class).
    prob : float, default 0.9
        Probability of the band.
    limits : pair of float, optional
        Range of the input; that of `X` and a little more when not given.
    n_grid : int, default 200
        Points at which to predict.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    _checks.require(gp, "classes_", "n_features_in_", "predict_proba", "predict_proba_interval")
    _checks.check_prob(prob)
    classes = _checks.binary_classes(gp.classes_)
    data, grid, inputs = _checks.grid_1d(gp, X, limits, n_grid)
    low, high = gp.predict_proba_interval(inputs, level=prob)[:, 1].T
    ax = style.new_axes(ax, (6.0, 3.6))
    ax.fill_between(grid, low, high, color=style.INK, alpha=0.14, lw=0, label=f"{100 * prob:g} % interval")
    ax.plot(grid, gp.predict_proba(inputs)[:, 1], color=style.INK, lw=1.8, label="mean")
    if data is not None and y is not None:
        _rug(ax, data, _checks.is_class_1(y, classes), classes)
    ax.set(xlabel=_checks.input_names(gp, X, ["input"])[0], ylabel=_checks.target_label(gp, y, classes[1]))
    ax.set(xlim=(grid[0], grid[-1]), ylim=(-0.08, 1.08))
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    style.clean(ax)
    style.legend_above(ax)
    return ax


def predictive_2d(
    gp: Any, X: Any, y: ArrayLike, *, n_grid: int = 60, colorbar: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw contours of the probability of the second class over two inputs, with the data.

    Parameters
    ----------
    gp : fitted binary classifier with two inputs
        Has `predict_proba`.
    X : array or DataFrame of shape (n, 2)
        Inputs of the data to show; they set the limits.
    y : array of shape (n,)
        Their labels.
    n_grid : int, default 60
        Points per side of the grid at which to predict.
    colorbar : bool, default True
        Add a colour bar.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    _checks.require(gp, "classes_", "n_features_in_", "predict_proba")
    classes = _checks.binary_classes(gp.classes_)
    event = _checks.is_class_1(y, classes)
    data = _checks.inputs_of(gp, X, 2)
    x0, x1, points = _checks.grid_2d(gp, data, n_grid)
    P = np.clip(gp.predict_proba(points)[:, 1], 0.0, 1.0).reshape(n_grid, n_grid)
    ax = style.new_axes(ax, (6.2, 4.8))
    filled = contours(ax, x0, x1, P)
    _scatter(ax, data, event, classes)
    _checks.frame_2d(ax, gp, X, x0, x1)
    if colorbar:
        style.colorbar(ax, filled, _checks.target_label(gp, y, classes[1]), ticks=[0, *_LINES, 1])
    return ax


def _rug(ax: Axes, data: Array, event: NDArray[np.bool_], classes: NDArray[Any]) -> None:
    for k, height in enumerate((-0.04, 1.04)):
        x, colour = data[event == bool(k)], style.CLASSES[k]
        ax.plot(x, np.full(len(x), height), "|", ms=9, mew=0.9, alpha=0.7, color=colour, label=str(classes[k]))


def contours(ax: Axes, x0: Array, x1: Array, P: Array) -> QuadContourSet:
    """Draw probabilities over two inputs, of shape (len(x1), len(x0)), with a few labelled lines."""
    filled = ax.contourf(x0, x1, P, levels=np.linspace(0.0, 1.0, 101), cmap=style.probability_map(), vmin=0.0, vmax=1.0)
    filled.set_edgecolor("face")  # no hairlines between the levels in vector formats
    inside = [level for level in _LINES if P.min() < level < P.max()]
    if inside:
        widths = [1.6 if level == 0.5 else 0.8 for level in inside]
        lines = ax.contour(x0, x1, P, levels=inside, colors=style.INK, linewidths=widths, linestyles="solid")
        ax.clabel(lines, fmt="%g", fontsize=style.SMALL - 1)
    return filled


def _scatter(ax: Axes, data: Array, event: NDArray[np.bool_], classes: NDArray[Any]) -> None:
    for k, marker in enumerate("o^"):
        (x, y), colour, label = data[event == bool(k)].T, style.CLASSES[k], str(classes[k])
        ax.scatter(x, y, s=26, marker=marker, color=colour, edgecolor="white", lw=0.7, label=label, zorder=3)
    text: dict[str, Any] = {"fontsize": style.SMALL, "labelcolor": style.INK}
    ax.legend(framealpha=0.9, edgecolor="none", handletextpad=0.2, borderpad=0.3, **text)
