"""Draws of pairs of hyperparameters, coloured by their log density, and the density over two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import in_units, require
from hmcgp.reporting import diagnostics
from hmcgp.reporting import units as units_of
from hmcgp.reporting.intervals import resampled
from hmcgp.runtime.checks import check_count, name_among
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS = 1500
_MAP = "viridis"
_DROP = 12.0  # of the log density below its maximum, beyond which a surface is one colour


def pairs(
    gp: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    max_parameters: int = 5,
    units: str = "standardized",
    axes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw the hyperparameters against each other, each draw in the colour of its log posterior density.

    Axes are logarithmic, except for parameters that take negative values; the density, which is that of unconstrained
    coordinates, goes with them.  Draws that carry weights are resampled by them.

    Parameters
    ----------
    gp : fitted estimator
    var_names : str or sequence of str, optional
        Parameters to draw, as of `plots.trace`; all those named are drawn.
    max_parameters : int, default 5
        Most parameters drawn when `var_names` is not given.
    units : {"standardized", "input"}, default="standardized"
        Of the parameters, as of `gp.summary`.
    axes : ndarray of Axes of shape (k, k), optional
        Drawn into when given, for k parameters; those above the diagonal are switched off.

    Returns
    -------
    ndarray of Axes of shape (k, k)
    """
    require(gp, "trace_")
    check_count("max_parameters", max_parameters, 2)
    trace = in_units(gp, gp.trace_, units)
    columns = diagnostics.select(list(trace.names), var_names, "var_names")
    columns = columns if var_names is not None else columns[:max_parameters]
    draws, lp = _some_draws(trace, len(columns))
    k = len(columns)
    axes = style.grid_of_axes(axes, (k, k), (1.9 * k + 0.8, 1.9 * k), ", a row and a column per parameter")
    for i, row in enumerate(columns):
        _histogram(axes[i, i], draws[:, row])
        for ax in axes[i, i + 1 :]:
            ax.axis("off")
        for j, column in enumerate(columns[:i]):
            drawn = axes[i, j].scatter(*draws[:, [column, row]].T, c=lp, s=6, cmap=_MAP, lw=0)
            _scale(axes[i, j].yaxis, draws[:, row])
        for j, column in enumerate(columns[: i + 1]):
            _scale(axes[i, j].xaxis, draws[:, column])
            _label(axes[i, j], trace.names[column] if i == k - 1 else "", trace.names[row] if 0 == j < i else "")
    style.colorbar(axes[0, -1], drawn, "log density", ticks=None)
    axes[0, 0].set_title("units of the table" if units == "input" else "", **style.NOTE)
    return axes


def _some_draws(trace: Any, n_parameters: int) -> tuple[Array, Array]:
    """Return draws of equal weight and their log densities, the most probable last, to be on top."""
    if n_parameters < 2 or len(trace) < 3:
        raise InvalidInput(
            f"a picture of pairs needs two hyperparameters and several draws; got {n_parameters} and {len(trace)}."
        )
    chosen = resampled(trace.weight)
    chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, _MOST_POINTS).astype(int))]
    lp = np.ravel(trace.stats["lp"])[chosen]
    order = np.argsort(lp)
    return trace.flat[chosen][order], lp[order]


def _histogram(ax: Axes, values: Array) -> None:
    log = values.min() > 0.0
    low, high = float(values.min()), float(values.max())
    edges = np.geomspace(low, high, 25) if log else np.linspace(low, high, 25)
    ax.hist(values, bins=edges.tolist(), color=style.BLUE, alpha=0.5)
    ax.set_yticks([])


def _scale(axis: Any, values: Array) -> None:
    if values.min() > 0.0:
        style.log_axis(axis)


def _label(ax: Axes, below: str, beside: str) -> None:
    ax.set(xlabel=below, ylabel=beside)
    style.clean(ax)
    ax.tick_params(labelbottom=bool(below), labelleft=bool(beside))
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(size=style.SMALL)


def evidence_surface(
    gp: Any,
    first: str,
    second: str,
    *,
    of: str = "posterior",
    n_grid: int = 25,
    limits: tuple[tuple[float, float], tuple[float, float]] | None = None,
    units: str = "standardized",
    ax: Axes | None = None,
) -> Axes:
    """Draw the log posterior density, or the log evidence, over two hyperparameters, with the draws upon it.

    The other hyperparameters stay at the draw of highest density (cross): a cut through the surface, which the draws
    need not follow.

    Parameters
    ----------
    gp : fitted estimator
    first, second : str
        Names of hyperparameters, such as ``"variance"`` and ``"length_scale[FL]"``.
    of : {"posterior", "evidence"}, default="posterior"
        The density that was sampled, in unconstrained coordinates, or log p(y | hyperparameters).
    n_grid : int, default 25
        Values along each axis: as many evaluations squared.
    limits : pair of pairs of float, optional
        Of the two axes, in `units`.  Default: a little more than the range of the draws, or a factor of ten around a
        single one.
    units : {"standardized", "input"}, default="standardized"
        As of `gp.summary`.
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    require(gp, "trace_", "model_", "parameters_")
    name_among("of", of, ("posterior", "evidence"))
    check_count("n_grid", n_grid, 3)
    i, j = _two(list(gp.trace_.names), first, second)
    scale = units_of.factors(gp.parameters_, units)
    draws = gp.trace_.flat * scale
    grids = [_grid(draws[:, c], None if limits is None else limits[n], n_grid) for n, c in enumerate((i, j))]
    heights = np.array([[_height(gp, of, {i: a, j: b}, scale) for a in grids[0]] for b in grids[1]])
    if not np.isfinite(heights).any():
        raise InvalidInput("no point of this surface could be evaluated: take narrower 'limits'.")
    ax = style.new_axes(ax, (5.6, 4.6))
    levels = np.array([-_DROP, -8.0, -6.0, -4.0, -3.0, -2.0, -1.0, -0.5, 1e-9])
    filled = ax.contourf(*grids, np.maximum(heights - heights.max(), levels[0]), levels=levels, cmap=_MAP)
    some = resampled(gp.trace_.weight)[:: max(len(gp.trace_) // 400, 1)]
    ax.plot(*draws[some][:, [i, j]].T, ".", ms=3, color="white", alpha=0.6)
    best = gp.trace_.flat[np.argmax(gp.trace_.stats["lp"])] * scale
    ax.plot(best[i], best[j], "x", ms=9, mew=2, color=style.VERMILION)
    for axis, grid in zip((ax.xaxis, ax.yaxis), grids, strict=True):
        _scale(axis, grid)
    ax.set(xlim=grids[0][[0, -1]], ylim=grids[1][[0, -1]], xlabel=gp.trace_.names[i], ylabel=gp.trace_.names[j])
    style.clean(ax)
    what = "log posterior density" if of == "posterior" else "log evidence"
    style.colorbar(ax, filled, f"{what}, below its maximum here", ticks=[-12, -8, -4, -2, -1])
    ax.set_title("units of the table" if units == "input" else "", loc="right", **style.NOTE)
    return ax


def _two(names: list[str], first: str, second: str) -> tuple[int, int]:
    """Return the columns of two different hyperparameters."""
    one, other = diagnostics.select(names, first, "first"), diagnostics.select(names, second, "second")
    if one == other or len(one) + len(other) > 2:
        raise InvalidInput(f"name two different hyperparameters, each as one of {names}; got {first!r}, {second!r}.")
    return one[0], other[0]


def _grid(values: Array, limits: tuple[float, float] | None, n: int) -> Array:
    positive = values.min() > 0.0
    if limits is None:
        ends = np.log([values.min(), values.max()]) if positive else np.array([values.min(), values.max()])
        margin = 0.15 * np.ptp(ends) or (np.log(10.0) if positive else 1.0)
        low, high = ends + np.array([-margin, margin])
        return np.exp(np.linspace(low, high, n)) if positive else np.linspace(low, high, n)
    if not limits[0] < limits[1] or (positive and limits[0] <= 0.0):
        raise InvalidInput(f"'limits' must be two pairs of rising numbers, positive for positive ones; got {limits}.")
    return np.geomspace(*limits, n) if positive else np.linspace(*limits, n)


def _height(gp: Any, of: str, at: dict[int, float], scale: Array) -> float:
    """Return the log density with two hyperparameters at given values, the others at the best draw, or -inf."""
    theta = np.array(gp.trace_.flat[np.argmax(gp.trace_.stats["lp"])])
    for column, value in at.items():
        theta[column] = value / scale[column]
    try:
        u = gp.model_.unconstrain(theta)
    except InvalidInput:  # beyond the support of a prior
        return -np.inf
    value = float(gp.model_.evaluate(u, gradient=False).logdensity)
    return value - float(gp.model_.log_prior(u)[0]) if of == "evidence" else value
