"""Fits of the same rows, ranked: how far each lies behind the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def compare(comparison: Any, *, axes: NDArray[Any] | None = None) -> NDArray[Any]:
    """Draw how far each fit lies behind the best: by leaving rows out (left) and by log evidence (right).

    A dot is the difference from the best fit, which is on the dashed line; lines reach one standard error (thick) and
    two (thin) to either side: those of the difference, row by row, on the left, Monte Carlo errors on the right.

    Parameters
    ----------
    comparison : ModelComparison
        The value of `hmcgp.compare`.
    axes : ndarray of Axes of shape (2,), or (1,) without evidence, optional
        Drawn into when given.

    Returns
    -------
    ndarray of Axes of shape (2,), or (1,) where no fit has a log evidence
    """
    if not hasattr(comparison, "table") or "elpd_diff" not in comparison.table:
        raise InvalidInput(f"'comparison' must be what hmcgp.compare returns; got {type(comparison).__name__}.")
    from matplotlib.ticker import MaxNLocator

    table = comparison.table
    panels = [("elpd_diff", "diff_se", "elpd of rows left out,\nbelow the best")]
    if table["log_evidence"].notna().any():
        panels.append(("evidence_diff", "evidence_se", "log evidence,\nbelow the largest"))
    size = (2.0 + 3.2 * len(panels), 1.3 + 0.45 * max(len(table), 2))
    given = None if axes is None else np.reshape(np.asarray(axes, dtype=object), (1, -1))
    axes = style.grid_of_axes(given, (1, len(panels)), size, ", a panel per measure", sharey=True).ravel()
    for ax, (column, error, label) in zip(axes, panels, strict=True):
        _differences(ax, -table[column], table[error])
        ax.set_xlabel(label)
        ax.margins(x=0.08)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        style.clean(ax, hide=("top", "right", "left"))
        ax.tick_params(axis="y", length=0)
    names = [f"{name}\nlog loss {loss:.3f}" for name, loss in table["log_loss"].items()]
    axes[0].set_yticks(np.arange(len(table)), names)
    axes[0].set_ylim(len(table) - 0.5, -0.5)  # the best on top
    axes[0].set_title("dot: difference   thick: 1 se   thin: 2 se", loc="left", **style.NOTE)
    return axes


def _differences(ax: Axes, difference: pd.Series, error: pd.Series) -> None:
    x, se, rows = difference.to_numpy(), error.to_numpy(), np.arange(len(difference))
    ax.axvline(0.0, color=style.GREY, lw=1.0, ls=style.DASHED, zorder=1)
    for k, width in ((2.0, 1.4), (1.0, 4.5)):
        ax.hlines(rows, x - k * se, x + k * se, color=style.BLUE, lw=width, zorder=2)
    ax.plot(x, rows, "o", ms=6, color=style.BLUE, mec="white", mew=1.2, zorder=3)
    for row in rows[np.isnan(x)]:
        ax.text(0.5, row, "none", transform=ax.get_yaxis_transform(), ha="center", va="center", **style.NOTE)
