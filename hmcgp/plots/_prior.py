"""Priors one can see: functions and probabilities drawn from them, and prior beside posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import in_units, require
from hmcgp.reporting import diagnostics
from hmcgp.reporting import units as units_of
from hmcgp.reporting.prior_draws import functions_of_kernel
from hmcgp.runtime.checks import check_count, name_among
from hmcgp.runtime.random import RandomStateLike, as_generator
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 120
_PRIOR_DRAWS = 2000
_TAIL = 0.01  # of the prior, beyond which it is not drawn unless the posterior is there


def prior(
    gp: Any,
    X: Any = None,
    y: Any = None,
    *,
    vary: str | int = 0,
    n_functions: int = 15,
    targets: str = "labels",
    random_state: RandomStateLike = 0,
    axes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw what a prior believes: functions of one input (left), and the values that it expects (right).

    Each function is drawn under hyperparameters of its own.  For classes, the left panel has probabilities of the
    second class, and the right one how often the prior expects which probability; for numbers, functions and
    observations, noise included, in the units of y, with the targets of the rows in black.

    Parameters
    ----------
    gp : estimator, fitted or not, or Kernel
        A kernel is drawn for one standardised input (with its default priors where it leaves parameters open).
    X, y : table and targets, optional
        The rows, needed with an estimator that is not fitted.
    vary : str or int, default 0
        The input along which functions are drawn; the others stay at their medians (categories at their commonest).
    n_functions : int, default 15
    targets : {"labels", "numbers"}, default="labels"
        Behind a kernel alone: two classes, or standardised numbers.
    random_state : None, int, SeedSequence, Generator or RandomState, default=0
    axes : ndarray of Axes of shape (2,), optional
        Drawn into when given.

    Returns
    -------
    ndarray of Axes of shape (2,)
    """
    check_count("n_functions", n_functions, 1)
    rng = as_generator(random_state)
    left, right = axes = style.pair_of_axes(axes, (9.0, 3.8), (3, 2))
    if hasattr(gp, "with_values"):  # a kernel
        name_among("targets", targets, ("labels", "numbers"))
        grid = np.linspace(-2.5, 2.5, _GRID)
        drawn = functions_of_kernel(rng, gp, grid, n_functions + 200, targets)
        which = "P(class 1)" if targets == "labels" else "f"
        _functions(left, grid, drawn[:n_functions], "input, standard deviations", which)
        _values(right, drawn[n_functions:], None, targets == "labels")
    else:
        _of_estimator(left, right, gp, X, y, vary, n_functions, rng)
    return axes


def _of_estimator(left: Axes, right: Axes, gp: Any, X: Any, y: Any, vary: str | int, n: int, rng: Any) -> None:
    require(gp, "prior_predictive")
    fitted = hasattr(gp, "trace_") and X is None
    if not fitted and (X is None or y is None):
        raise InvalidInput("give 'X' and 'y' with an estimator that is not fitted: the priors are about their scales.")
    rows, observed = gp.training_data() if fitted else (X, y)
    grid, along, name = _along(rows, vary)
    table, labels = (None, None) if fitted else (X, y), hasattr(gp, "predict_proba")
    lines = gp.prior_predictive(*table, at=along, n_draws=n, random_state=rng)
    values = gp.prior_predictive(*table, at=rows, n_draws=200, observed=not labels, random_state=rng)
    which = f"P({np.unique(np.asarray(observed))[-1]})" if labels else "f"
    _functions(left, grid, lines.reshape(*lines.shape[:2], -1)[..., -1], name, which)
    _values(right, values.reshape(*values.shape[:2], -1)[..., -1], observed, labels)


def _along(rows: Any, vary: str | int) -> tuple[Any, Any, str]:
    """Return values of one input, a table with the other inputs at medians or commonest levels, and its name."""
    frame = _frame(rows)
    names = list(frame.columns)
    if vary not in names and vary not in range(-len(names), len(names)):
        raise InvalidInput(f"'vary' must be one of the inputs {names}, or a position; got {vary!r}.")
    name = vary if vary in names else names[int(vary)]
    column = frame[name]
    grid = np.linspace(column.min(), column.max(), _GRID) if _is_numeric(column) else np.unique(column.astype(str))
    fill = {c: frame[c].median() if _is_numeric(frame[c]) else frame[c].mode()[0] for c in names}
    table = pd.DataFrame({c: [fill[c]] * len(grid) for c in names})
    table[name] = grid
    return grid, table if hasattr(rows, "columns") else table.to_numpy(dtype=float), str(name)


def _frame(rows: Any) -> Any:
    """Return rows as a DataFrame of pandas."""
    if not hasattr(rows, "columns"):
        return pd.DataFrame(np.asarray(rows))
    return rows.to_pandas() if hasattr(rows, "to_pandas") else rows


def _is_numeric(column: Any) -> bool:
    return column.dtype.kind in "iufb"


def _functions(ax: Axes, grid: Any, lines: Array, below: str, beside: str) -> None:
    marker = "" if np.asarray(grid).dtype.kind == "f" else "o"
    for i, line in enumerate(lines):
        ax.plot(grid, line, marker=marker, ms=3, lw=1.1, alpha=0.8, color=style.CHAINS[i % len(style.CHAINS)])
    ax.set(xlabel=below, ylabel=beside)
    if beside.startswith("P("):
        ax.set_ylim(-0.03, 1.03)
    ax.set_title(f"{len(lines)} draws from the prior", **style.TITLE)
    style.clean(ax)


def _values(ax: Axes, values: Array, observed: Any, labels: bool) -> None:
    """Draw how often the prior expects which value, beside those observed."""
    flat = values.ravel()
    if labels:
        ax.hist(flat, bins=20, range=(0.0, 1.0), density=True, color=style.BLUE, alpha=0.55, ec="white")
        within = 100 * np.mean((flat > 0.1) & (flat < 0.9))
        ax.set(xlabel="probability that it expects", xlim=(0.0, 1.0), yticks=[])
        ax.set_title(f"{within:.0f} % between 0.1 and 0.9", **style.TITLE)
    else:
        low, high = np.quantile(flat, [0.01, 0.99])
        seen = None if observed is None else np.asarray(observed, dtype=float).reshape(len(observed), -1)[:, -1]
        if seen is not None:
            low, high = min(low, float(np.nanmin(seen))), max(high, float(np.nanmax(seen)))
        ax.hist(flat, bins=40, range=(low, high), density=True, color=style.BLUE, alpha=0.55, ec="white", label="prior")
        if seen is not None:
            ax.hist(seen, bins=40, range=(low, high), density=True, histtype="step", color=style.INK, label="observed")
            ax.legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
        ax.set(xlabel="value that it expects" if seen is None else "y", yticks=[])
    style.clean(ax, hide=("top", "right", "left"))


def prior_posterior(
    gp: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    max_parameters: int = 12,
    units: str = "standardized",
    random_state: RandomStateLike = 0,
    axes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Draw the prior of each hyperparameter (grey) beside its posterior (blue), with the weights of the draws.

    Where both agree, the data say nothing about it.  Axes are logarithmic, and densities those of the logarithm, except
    for parameters that take negative values.

    Parameters
    ----------
    gp : fitted estimator
    var_names : str or sequence of str, optional
        Parameters to draw, as of `plots.trace`; all those named are drawn.
    max_parameters : int, default 12
        Most parameters drawn when `var_names` is not given.
    units : {"standardized", "input"}, default="standardized"
        Of the parameters, as of `gp.summary`.
    random_state : None, int, SeedSequence, Generator or RandomState, default=0
        Of 2000 draws from the prior, from which its densities are made.
    axes : ndarray of Axes of shape (k,), optional
        Drawn into when given, for k parameters.

    Returns
    -------
    ndarray of Axes of shape (k,)
    """
    require(gp, "trace_", "model_", "parameters_")
    rng, trace = as_generator(random_state), in_units(gp, gp.trace_, units)
    columns = diagnostics.select(list(trace.names), var_names, "var_names")
    total, columns = len(columns), columns if var_names is not None else columns[:max_parameters]
    drawn = np.array([gp.model_.constrain(gp.model_.initial(rng)) for _ in range(_PRIOR_DRAWS)])
    drawn = drawn * units_of.factors(gp.parameters_, units)
    labels = units_of.labels(gp.parameters_, units)
    axes = _panels(len(columns)) if axes is None else style.grid_of_axes(axes, (len(columns),), (0, 0), ", one each")
    for ax, column in zip(axes, columns, strict=True):
        _pair(ax, drawn[:, column], trace.flat[:, column], trace.weight)
        ax.set_title(trace.names[column], **style.TITLE)
        unit = {"any": "", "input": "units of the table", "standardized": "standardised"}[labels[column]]
        ax.set_xlabel(unit, **style.NOTE)
    axes[0].legend(frameon=False, fontsize=style.SMALL, labelcolor=style.INK)
    if len(columns) < total:
        axes[-1].set_title(f"{len(columns)} of {total} shown", loc="right", **style.NOTE)
    return axes


def _panels(k: int) -> NDArray[Any]:
    across = min(k, 4)
    down = -(-k // across)
    panels = style.grid_of_axes(None, (down, across), (2.7 * across, 2.1 * down)).ravel()
    for ax in panels[k:]:
        ax.axis("off")
    return panels[:k]


def _pair(ax: Axes, before: Array, after: Array, weight: Array) -> None:
    log = before.min() > 0.0
    x, z = (np.log(before), np.log(after)) if log else (before, after)
    low, high = np.quantile(x, [_TAIL, 1.0 - _TAIL])
    grid = np.linspace(min(low, z.min()), max(high, z.max()), 250)
    shown = np.exp(grid) if log else grid
    ax.fill_between(shown, gaussian_kde(x)(grid), color=style.GREY, alpha=0.3, lw=0, label="prior")
    if np.ptp(z) <= 1e-12 * max(1.0, float(np.abs(z).max())):
        ax.axvline(after[0], color=style.BLUE, lw=1.6, label="most probable")  # a single draw
    else:
        ax.plot(shown, gaussian_kde(z, weights=weight)(grid), color=style.BLUE, lw=1.6, label="posterior")
    if log:
        style.log_axis(ax.xaxis)
    ax.set(yticks=[], xlim=shown[[0, -1]])
    ax.set_ylim(bottom=0.0)
    style.clean(ax, hide=("top", "right", "left"))
