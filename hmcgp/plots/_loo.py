"""Leave-one-out predictions of the training rows, and how reliable they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hmcgp.posterior.leave_one_out import LeaveOneOut

_K_LIMIT = 0.7
_NAMED = 5  # rows named in the picture


def loo(gp: Any, *, axes: NDArray[Any] | None = None) -> NDArray[Any]:
    """Draw the leave-one-out log probability, or density, (top) and the Pareto k (bottom) of every row.

    Of two classes, rows below log 1/2 are predicted worse than by a coin; of C, below log 1/C, worse than by chance.
    The five worst rows are named by their index; rows whose k exceeds 0.7, where the value above is not reliable, are
    vermilion in both panels.

    Parameters
    ----------
    gp : fitted estimator or LeaveOneOut
        The value of `gp.loo()` serves as well, without the line of chance, as it does not know the classes.
    axes : ndarray of Axes of shape (2,), optional
        Drawn into when given.

    Returns
    -------
    ndarray of Axes of shape (2,)
    """
    values = _values(gp)
    k = np.asarray(values.pareto_k)
    heights = {"height_ratios": [3, 2]}
    top, bottom = axes = style.grid_of_axes(axes, (2,), (7.0, 5.0), sharex=True, gridspec_kw=heights)
    bad = k > _K_LIMIT
    _points(top, values.pointwise, bad)
    classes = getattr(gp, "classes_", None)
    if classes is not None:
        chance, name = -np.log(len(classes)), "a coin" if len(classes) == 2 else "chance"
        top.axhline(chance, color=style.GREY, lw=1.0, ls=style.DASHED, zorder=1)
        top.text(0.995, chance, name, transform=top.get_yaxis_transform(), ha="right", va="bottom", **style.NOTE)
    for i in np.argsort(values.pointwise)[:_NAMED]:
        place = float(i), float(values.pointwise[i])
        top.annotate(str(i), place, (4, 0), textcoords="offset points", va="center", **style.NOTE)
    title = f"elpd {np.sum(values.pointwise):.1f}, log loss {-np.mean(values.pointwise):.3f}, {len(k)} rows"
    top.set_title(title, **style.TITLE)
    top.set(ylabel=f"log p({'y' if classes is None else 'label'} | other rows)")
    _shapes(bottom, k, bad)
    bottom.set(xlabel="row", ylabel="Pareto k")
    for ax in axes:
        ax.set_xlim(-0.02 * len(k) - 0.5, 1.02 * len(k) - 0.5)
        style.clean(ax)
    return axes


def _values(gp: Any) -> LeaveOneOut:
    if hasattr(gp, "pointwise") and hasattr(gp, "pareto_k"):
        return gp  # type: ignore[no-any-return]
    if hasattr(gp, "loo"):
        return gp.loo()  # type: ignore[no-any-return]
    raise InvalidInput(f"give what gp.loo() returns, or a fitted estimator; got {type(gp).__name__}.")


def _points(ax: Axes, y: Array, bad: NDArray[np.bool_]) -> None:
    x = np.arange(len(y))
    for rows, colour in ((~bad, style.BLUE), (bad, style.VERMILION)):
        ax.plot(x[rows], y[rows], "o", ms=4, color=colour, mec="white", mew=0.5, zorder=3)


def _shapes(ax: Axes, k: Array, bad: NDArray[np.bool_]) -> None:
    if np.isnan(k).all():
        place: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "va": "center"}
        ax.text(0.5, 0.5, "one draw of the hyperparameters: no weights", **place, **style.NOTE)
        ax.set_yticks([])
        return
    finite = k[np.isfinite(k)]
    top = max(1.0, float(finite.max()) if len(finite) else 1.0)
    _points(ax, np.minimum(k, top), bad)  # infinite k, from a tail of too few draws, lies on the upper edge
    ax.axhline(_K_LIMIT, color=style.VERMILION, lw=1.0, ls=style.DASHED, zorder=1)
    ax.set_title(f"{int(bad.sum())} of {len(k)} above {_K_LIMIT}", loc="right", **style.NOTE)
