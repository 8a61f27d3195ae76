"""Density and trace of every parameter, chain by chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from hmcgp.plots import style
from hmcgp.plots._checks import in_units, require
from hmcgp.reporting import diagnostics
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def trace(
    gp: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    max_rows: int | None = 12,
    units: str = "standardized",
    axes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw the posterior density (left) and the trace (right) of each parameter, one line per chain.

    Axes are logarithmic, and densities those of the logarithm, except for parameters that take negative values.
    Ticks along the bottom mark divergent transitions.

    Where the draws carry weights, as after `refine`, the chains are drawn as they ran (`sampling_trace_`), and a thick
    line adds the density of the weighted draws, over which predictions average.

    Parameters
    ----------
    gp : fitted estimator
        Has `trace_`.
    var_names : str or sequence of str, optional
        Parameters to draw, by full name (``"length_scale[FL]"``), by the name before the bracket, or by
        the end of that, whatever class or part of a sum it is of (``"length_scale"``). All those named are drawn,
        whatever `max_rows`.
    max_rows : int or None, default 12
        Most parameters drawn when `var_names` is not given; None for all.
    units : {"standardized", "input"}, default="standardized"
        Of the parameters, as of `gp.summary`.
    axes : ndarray of Axes of shape (n_rows, 2), optional
        Drawn into when given.

    Returns
    -------
    ndarray of Axes of shape (n_rows, 2)
    """
    require(gp, "trace_")
    weighted = in_units(gp, gp.trace_, units) if getattr(gp.trace_, "log_weight", None) is not None else None
    run = in_units(gp, gp.trace_ if weighted is None else gp.sampling_trace_, units)
    names = list(run.names)
    columns = diagnostics.select(names, var_names, "var_names")
    shown = columns if var_names is not None else columns[:max_rows]
    if axes is not None and len(shown) == 1 and np.shape(axes) == (2,):
        axes = np.reshape(axes, (1, 2))
    size, widths = (9.0, 0.5 + 1.35 * len(shown)), {"width_ratios": [2, 3]}
    axes = style.grid_of_axes(axes, (len(shown), 2), size, ", a row per parameter", gridspec_kw=widths)
    diverging = np.asarray(run.stats.get("diverging", np.zeros(run.draws.shape[:2])), dtype=bool)
    for (left, right), column in zip(axes, shown, strict=True):
        limits, log = _row(left, right, run.draws[:, :, column], diverging)
        if weighted is not None:
            _density(left, weighted.flat[:, column], log, limits, style.INK, weighted.weight, width=2.2)
        left.set_ylim(bottom=0.0)  # after the last curve: it ends the search for an upper limit
        left.set_title(names[column], **style.TITLE)
    _annotate(axes, run.draws.shape[0], int(diverging.sum()), len(shown), len(columns))
    notes = ["units of the table"] * (units == "input") + ["thick: weighted"] * (weighted is not None)
    axes[0, 0].set_title(", ".join(notes), loc="right", **style.NOTE)
    return axes


def _row(left: Axes, right: Axes, draws: Array, diverging: NDArray[np.bool_]) -> tuple[tuple[float, float], bool]:
    """Draw one parameter; return the range of its draws, and whether its axis is logarithmic."""
    low, high = float(draws.min()), float(draws.max())
    log = low > 0.0
    for chain, values in enumerate(draws):
        colour = style.CHAINS[chain % len(style.CHAINS)]
        _density(left, values, log, (low, high), colour)
        right.plot(values, color=colour, lw=0.6, alpha=0.75, rasterized=values.size > 5000, label=f"chain {chain}")
    _ticks(left, draws[diverging])
    _ticks(right, np.nonzero(diverging)[1])
    if log:
        style.log_axis(left.xaxis)
        style.log_axis(right.yaxis)
    left.set_yticks([])
    right.set_xlim(0, draws.shape[1])
    style.clean(left, hide=("top", "right", "left"))
    style.clean(right)
    return (low, high), log


def _density(
    ax: Axes,
    values: Array,
    log: bool,
    limits: tuple[float, float],
    colour: str,
    weight: Array | None = None,
    width: float = 1.2,
) -> None:
    x = np.log10(values) if log else values
    if np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        ax.axvline(values[0], color=colour, lw=1.2)  # a chain that never moved has no density
        return
    low, high = np.log10(limits) if log else limits
    grid = np.linspace(low, high, 200)
    ax.plot(10.0**grid if log else grid, gaussian_kde(x, weights=weight)(grid), color=colour, lw=width)


def _ticks(ax: Axes, positions: NDArray[Any]) -> None:
    if len(positions):
        place, height = ax.get_xaxis_transform(), np.full(len(positions), 0.04)
        ax.plot(positions, height, "|", ms=7, mew=0.9, color=style.INK, transform=place, zorder=3)


def _annotate(axes: NDArray[Any], n_chains: int, n_diverging: int, n_shown: int, n_total: int) -> None:
    if n_chains > 1:
        style.legend_above(axes[0, 1])
        for line in axes[0, 1].get_legend().get_lines():
            line.set_linewidth(1.6)
    if n_diverging:
        axes[0, 1].set_title(f"|  divergent transition ({n_diverging})", loc="right", **style.NOTE)
    for right in axes[:-1, 1]:
        right.tick_params(labelbottom=False)
    axes[-1, 1].set_xlabel("draw", fontsize=style.TEXT, color=style.INK)
    if n_shown < n_total:
        text = f"{n_shown} of {n_total} parameters shown;\nvar_names=[...] or max_rows=None shows others"
        axes[-1, 0].set_xlabel(text, loc="left", **style.NOTE)
