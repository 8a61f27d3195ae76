"""Targets drawn anew from the posterior, beside those observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import check_prob, require
from hmcgp.reporting.intervals import central_interval
from hmcgp.runtime.random import RandomStateLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARGIN = 0.1  # of the range of the observations, beyond which densities are not drawn


def posterior_predictive(
    gp: Any,
    *,
    n_draws: int = 100,
    prob: float = 0.9,
    output: str | None = None,
    random_state: RandomStateLike = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw targets that the fit would have you observe at the training rows, beside those observed.

    Numbers: one density for each table drawn anew, and that of the observations in black.  Classes: the numbers of rows
    of each, with intervals over the tables drawn.

    Parameters
    ----------
    gp : fitted estimator
    n_draws : int, default 100
        Tables drawn, each under another draw of the hyperparameters.
    prob : float, default 0.9
        Probability of the intervals.
    output : str, optional
        Which of several outputs.
    random_state : None, int, SeedSequence, Generator or RandomState, default=0
    ax : Axes, optional
        Drawn into when given.

    Returns
    -------
    Axes
    """
    check_prob(prob)
    require(gp, "trace_", "posterior_predictive", "training_data")
    observed = np.asarray(gp.training_data()[1])
    drawn = gp.posterior_predictive(n_draws, random_state)
    ax = style.new_axes(ax, (6.0, 3.8))
    if hasattr(gp, "classes_"):
        _counts(ax, gp.classes_, observed, drawn, prob)
    else:
        column = _output(getattr(gp, "output_names_", None), output)
        _densities(
            ax,
            observed[..., column] if observed.ndim == 2 else observed,
            drawn if drawn.ndim == 2 else drawn[..., column],
            f"y, {output}" if output else "y",
        )
    ax.set_title(f"{len(drawn)} tables drawn from the posterior", loc="right", **style.NOTE)
    return ax


def _output(names: NDArray[Any] | None, output: str | None) -> int:
    if names is None:
        return 0
    if output not in names.tolist():
        raise InvalidInput(f"'output' must be one of {names.tolist()}; got {output!r}.")
    return int(names.tolist().index(output))


def _counts(ax: Axes, classes: NDArray[Any], observed: NDArray[Any], drawn: NDArray[Any], prob: float) -> None:
    labels = [str(label) for label in classes]
    counts = np.array([[np.sum(row.astype(str) == label) for label in labels] for row in drawn])  # (S, C)
    there = np.array([np.sum(observed.astype(str) == label) for label in labels])
    low, high = central_interval(counts, prob)
    place = np.arange(len(labels))
    ax.bar(place, there, width=0.6, color=style.PALE, label="observed")
    ax.vlines(place, low, high, color=style.BLUE, lw=2.5, label=f"drawn anew, {100 * prob:g} %", zorder=3)
    ax.plot(place, counts.mean(axis=0), "o", ms=6, color=style.BLUE, mec="white", mew=1.0, zorder=4)
    ax.set_xticks(place, labels)
    ax.set_ylabel("rows")
    ax.set_xlim(-0.7, len(labels) - 0.3)
    style.clean(ax)
    style.legend_above(ax)


def _densities(ax: Axes, observed: NDArray[Any], drawn: NDArray[Any], name: str) -> None:
    seen = observed[np.isfinite(observed)]
    margin = _MARGIN * np.ptp(seen)
    grid = np.linspace(seen.min() - margin, seen.max() + margin, 200)
    for i, row in enumerate(drawn):
        density = gaussian_kde(row[np.isfinite(row)])(grid)
        ax.plot(grid, density, color=style.BLUE, lw=0.6, alpha=0.25, label="drawn anew" if i == 0 else None)
    ax.plot(grid, gaussian_kde(seen)(grid), color=style.INK, lw=1.8, label="observed", zorder=3)
    ax.plot(seen, np.zeros(len(seen)), "|", ms=8, mew=0.6, color=style.INK, alpha=0.5, zorder=3)
    ax.set(xlabel=name, yticks=[], xlim=(grid[0], grid[-1]))
    ax.set_ylim(bottom=0.0)
    style.clean(ax, hide=("top", "right", "left"))
    ax.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
