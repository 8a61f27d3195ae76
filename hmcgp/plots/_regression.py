"""Predictions of a regressor as a function of one or two inputs, with the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import check_prob, frame_2d, grid_1d, grid_2d, input_names, inputs_of, require, target_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def regression_1d(
    gp: Any,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    output: str | int | None = None,
    prob: float = 0.9,
    limits: tuple[float, float] | None = None,
    n_grid: int = 300,
    ax: Axes | None = None,
    **sizes: float,
) -> Axes:
    """Draw the mean over a single input, with bands for the function and for new observations, and the data.

    The bands are `predict_interval` with of="f" and of="y".

    Parameters
    ----------
    gp : fitted regressor, or estimator of counts, with one input
    X, y : array of shape (n, 1) or (n,), array of shape (n,), optional
        Data to show; `y` may have a column for each output.
    output : str or int, optional
        Name or number of the output to show, where the fit has several.
    prob : float, default 0.9
        Probability of the bands.
    limits : pair of float, optional
        Range of the input; that of `X` and a little more when not given.
    n_grid : int, default 300
        Points at which to predict.
    ax : Axes, optional
        Drawn into when given.
    **sizes
        Of counts, ``exposure=`` or ``trials=`` for which they are predicted, where the fit was given those of its rows.

    Returns
    -------
    Axes
    """
    require(gp, "n_features_in_", "predict", "predict_interval")
    check_prob(prob)
    column, y, label = _single_output(gp, y, output)
    data, grid, inputs = grid_1d(gp, X, limits, n_grid)
    observed, function = (gp.predict_interval(inputs, level=prob, of=of, **sizes)[column].T for of in ("y", "f"))
    mean = gp.predict(inputs, **sizes)[column]
    ax = style.new_axes(ax, (6.4, 3.8))
    ax.fill_between(grid, *observed, color=style.BLUE, alpha=0.13, lw=0, label=f"{100 * prob:g} % of observations")
    ax.fill_between(grid, *function, color=style.BLUE, alpha=0.3, lw=0, label="the function")
    ax.plot(grid, mean, color=style.BLUE, lw=1.8, label="mean")
    if data is not None and y is not None:
        ax.plot(data, np.asarray(y), "o", ms=3.6, color=style.INK, mec="white", mew=0.5, label="data", zorder=3)
    ax.set(xlabel=input_names(gp, X, ["input"])[0], ylabel=label, xlim=(grid[0], grid[-1]))
    style.clean(ax)
    style.legend_above(ax)
    return ax


def regression_2d(
    gp: Any, X: Any, y: ArrayLike, *, output: str | int | None = None, n_grid: int = 60, ax: Axes | None = None
) -> Axes:
    """Draw contours of the mean over two inputs, with the data in the same colours.

    Parameters
    ----------
    gp : fitted regressor with two inputs
    X : array or DataFrame of shape (n, 2)
        Inputs of the data to show; they set the limits.
    y : array of shape (n,), or (n, k) for k outputs
    output : str or int, optional
        Name or number of the output to show, where the fit has several.
    n_grid : int, default 60
        Points per side of the grid at which to predict.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    from matplotlib.ticker import MaxNLocator

    require(gp, "n_features_in_", "predict")
    column, y, label = _single_output(gp, y, output)
    data, y_shown = inputs_of(gp, X, 2), np.asarray(y, dtype=float)
    if y_shown.shape != (len(data),):
        raise InvalidInput(f"'y' must have one number per row of 'X'; got {y_shown.shape} for {len(data)} rows.")
    seen = ~np.isnan(y_shown)
    data, y_shown = data[seen], y_shown[seen]
    x0, x1, points = grid_2d(gp, data, n_grid)
    mean = gp.predict(points)[column].reshape(n_grid, n_grid)
    low, high = min(mean.min(), y_shown.min()), max(mean.max(), y_shown.max())
    ax = style.new_axes(ax, (6.2, 4.8))
    colours: dict[str, Any] = {"cmap": "viridis", "vmin": low, "vmax": high}
    filled = ax.contourf(x0, x1, mean, levels=np.linspace(low, high, 41), **colours)
    filled.set_edgecolor("face")  # no hairlines between the levels in vector formats
    ax.scatter(data[:, 0], data[:, 1], c=y_shown, s=24, edgecolor="white", lw=0.8, zorder=3, **colours)
    frame_2d(ax, gp, X, x0, x1)
    style.colorbar(ax, filled, label, ticks=MaxNLocator(7))
    return ax


def _single_output(gp: Any, y: Any, output: str | int | None) -> tuple[Any, Any, str]:
    """Return the index of one output in predictions, its targets, and their name."""
    names = [str(name) for name in getattr(gp, "output_names_", ())]
    if not names:
        if output is not None:
            raise InvalidInput(f"this fit has one output; got output={output!r}.")
        return ..., y, target_name(gp, y) or "y"
    if output not in (*names, *range(len(names))):
        raise InvalidInput(f"this fit has {len(names)} outputs: choose one by output=, of {names}; got {output!r}.")
    number = names.index(output) if isinstance(output, str) else int(output or 0)
    column = (slice(None), number)
    return column, np.asarray(y)[column] if np.ndim(y) == 2 else y, names[number]
