"""Targets drawn from the posterior predictive distribution, compared with those observed."""

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

_MOST_BARS = 30  # of a rootogram
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
    """Draw replicated targets at the training rows, compared with those observed.

    Regression targets: one density for each replicated table, and that of the observations in black.  Classes: the
    number of rows of each, with intervals over the replicated tables.  Counts: a rootogram (Kleiber & Zeileis 2016),
    the number of rows with each count on a square-root scale.

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
        _classes(ax, gp.classes_, observed, drawn, prob)
    elif gp.model_.likelihood.targets == "counts":
        _rootogram(ax, observed, drawn, prob)
    else:
        column = _output(getattr(gp, "output_names_", None), output)
        _densities(
            ax,
            observed[..., column] if observed.ndim == 2 else observed,
            drawn if drawn.ndim == 2 else drawn[..., column],
            f"y, {output}" if output else "y",
        )
    ax.set_title(f"{len(drawn)} replicated tables", loc="right", **style.NOTE)
    return ax


def _output(names: NDArray[Any] | None, output: str | None) -> int:
    if names is None:
        return 0
    if output not in names.tolist():
        raise InvalidInput(f"'output' must be one of {names.tolist()}; got {output!r}.")
    return int(names.tolist().index(output))


def _classes(ax: Axes, classes: NDArray[Any], observed: NDArray[Any], drawn: NDArray[Any], prob: float) -> None:
    labels = [str(label) for label in classes]
    counts = np.array([[np.sum(row.astype(str) == label) for label in labels] for row in drawn])  # (S, C)
    there = np.array([np.sum(observed.astype(str) == label) for label in labels])
    _bars(ax, np.arange(len(labels)), there, counts, prob, width=0.6)
    ax.set_xticks(np.arange(len(labels)), labels)
    ax.set_xlim(-0.7, len(labels) - 0.3)


def _rootogram(ax: Axes, observed: NDArray[Any], drawn: NDArray[Any], prob: float) -> None:
    """Number of rows in each bin of counts, observed and replicated, on a square-root scale."""
    most = int(max(observed.max(), np.quantile(drawn, 0.999)))
    step = -(-(most + 1) // _MOST_BARS)  # counts in a bar
    edges = np.arange(0, most + step + 1, step) - 0.5
    there = np.histogram(observed, edges)[0]
    counts = np.array([np.histogram(row, edges)[0] for row in drawn])  # (S, bars)
    _bars(ax, edges[:-1] + 0.5 * step, there, counts, prob, width=0.9 * step)
    ax.set_yscale("function", functions=(np.sqrt, np.square))
    ax.set(xlabel="count", ylim=(0.0, 1.1 * max(there.max(), np.quantile(counts.max(axis=1), 0.95))))
    ax.set_ylabel("rows (square-root scale)")


def _bars(
    ax: Axes, place: NDArray[Any], there: NDArray[Any], counts: NDArray[Any], prob: float, *, width: float
) -> None:
    """Draw observed numbers of rows as bars, and replicated ones, of shape (S, bars), as points with intervals."""
    low, high = central_interval(counts, prob)
    ax.bar(place, there, width=width, color=style.PALE, label="observed")
    ax.vlines(place, low, high, color=style.BLUE, lw=2.5, label=f"replicated, {100 * prob:g} %", zorder=3)
    ax.plot(place, counts.mean(axis=0), "o", ms=6, color=style.BLUE, mec="white", mew=1.0, zorder=4)
    ax.set_ylabel("rows")
    style.clean(ax)
    style.legend_above(ax)


def _densities(ax: Axes, observed: NDArray[Any], drawn: NDArray[Any], name: str) -> None:
    seen = observed[np.isfinite(observed)]
    margin = _MARGIN * np.ptp(seen)
    grid = np.linspace(seen.min() - margin, seen.max() + margin, 200)
    for i, row in enumerate(drawn):
        density = gaussian_kde(row[np.isfinite(row)])(grid)
        ax.plot(grid, density, color=style.BLUE, lw=0.6, alpha=0.25, label="replicated" if i == 0 else None)
    ax.plot(grid, gaussian_kde(seen)(grid), color=style.INK, lw=1.8, label="observed", zorder=3)
    ax.plot(seen, np.zeros(len(seen)), "|", ms=8, mew=0.6, color=style.INK, alpha=0.5, zorder=3)
    ax.set(xlabel=name, yticks=[], xlim=(grid[0], grid[-1]))
    ax.set_ylim(bottom=0.0)
    style.clean(ax, hide=("top", "right", "left"))
    ax.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
