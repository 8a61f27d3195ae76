"""The response as a function of one or two inputs of many, with the interval that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import require, target_name
from hmcgp.plots._predictive import contours
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (5.6, 3.6)  # inches, of one panel


def effect(gp: Any, inputs: Any, *, axes: Any = None, **options: Any) -> NDArray[Any]:
    """Draw the effect of one input, or the surface of two, on what the fit predicts (`gp.effect`).

    Line: the mean; band: the interval of the average curve, over the latent function and the hyperparameters; thin
    lines: single rows, with `curves=True`; ticks at the bottom: values in the training rows.  A category has points
    with bars.  Of two inputs, a surface of the mean, with the training rows as dots; a category among them has a line
    for each level.

    Parameters
    ----------
    gp : fitted estimator
        Has `effect`.
    inputs : str or int, or a pair of them
        Names or positions of the inputs.
    axes : Axes, or array of them, optional
        Drawn into when given: as many as there are panels.
    **options
        Of `gp.effect`: ``at="median"``, ``curves=True``, ``level=0.5``, ….

    Returns
    -------
    ndarray of Axes
        One for each class if there are more than two, or for each output.
    """
    require(gp, "effect", "n_features_in_")
    found = gp.effect(inputs, **options)
    axes = _panels(found, axes)
    label = _response_label(gp, found)
    for k, ax in enumerate(axes):
        mean, low, high = (_of_target(found, part, k) for part in (found.mean, found.low, found.high))
        curves = None if found.curves is None else _of_target(found, found.curves, k)
        _draw(ax, found, mean, low, high, curves)
        if len(found.inputs) == 1 or any(found.categories):
            ax.set_ylabel(label[k])
        style.clean(ax)
        if k == 0 or len(found.inputs) == 2:
            _note(ax, found, "" if ax.get_ylabel() == label[k] else f"{label[k]} ")
    return axes


def effects(
    gp: Any, inputs: Sequence[Any] | None = None, *, columns: int = 3, rows: int = 50, **options: Any
) -> NDArray[Any]:
    """Draw the effects of several inputs side by side, those that change the response most first.

    Several classes, ordered classes or outputs have a column of panels each, and each input a row.

    Parameters
    ----------
    gp : fitted estimator
        Has `effect`.
    inputs : sequence of str or int, optional
        Names or positions; default: all.
    columns : int, default=3
        Panels in a row, if there is one response.
    rows : int, default=50
        Training rows that effects are averaged over.
    **options
        Other options of `gp.effect`.

    Returns
    -------
    ndarray of Axes of shape (n_inputs,), or (n_inputs, n_targets)
    """
    require(gp, "effect", "n_features_in_")
    inputs = range(gp.n_features_in_) if inputs is None else inputs
    curves = [gp.effect(name, rows=rows, **options) for name in inputs]
    if not curves:
        raise InvalidInput("'inputs' is empty; name at least one input.")
    n_targets = curves[0].mean.shape[-1] if curves[0].mean.ndim > 1 else 1
    ranges = np.array([np.ptp(each.mean.reshape(-1, n_targets), axis=0) for each in curves])  # (inputs, targets)
    largest = (ranges / np.maximum(ranges.max(axis=0), np.finfo(float).tiny)).max(axis=1)  # outputs differ in units
    order = np.argsort(-(ranges[:, 0] if n_targets == 1 else largest), kind="stable")
    curves = [curves[i] for i in order]
    if n_targets > 1:
        return _effects_by_target(gp, curves, n_targets)
    columns = min(columns, len(curves))
    height = -(-len(curves) // columns)
    axes = style.grid_of_axes(None, (height, columns), (3.1 * columns, 2.5 * height), sharey=True).ravel()
    for ax, each in zip(axes, curves, strict=False):
        _draw(ax, each, each.mean, each.low, each.high, each.curves)
        style.clean(ax)
    for ax in axes[len(curves) :]:
        ax.set_visible(False)
    for ax in axes[::columns]:
        ax.set_ylabel(_response_label(gp, curves[0])[0])
    _note(axes[0], curves[0])
    return np.asarray(axes[: len(curves)])


def _effects_by_target(gp: Any, curves: Sequence[Any], n_targets: int) -> NDArray[Any]:
    """Draw a row of panels for each input, and a column for each class or output."""
    shape = (len(curves), n_targets)
    axes = style.grid_of_axes(None, shape, (2.6 * n_targets + 0.4, 2.0 * len(curves) + 0.4), sharey="col")
    labels = _response_label(gp, curves[0])
    for each, row in zip(curves, axes, strict=True):
        for k, ax in enumerate(row):
            lines = None if each.curves is None else each.curves[..., k]
            _draw(ax, each, each.mean[..., k], each.low[..., k], each.high[..., k], lines)
            style.clean(ax)
    for ax, label in zip(axes[0], labels, strict=True):
        ax.set_title(label, **style.TITLE)
    _note(axes[-1, 0], curves[-1], below=True)
    return axes


def _panels(found: Any, axes: Any) -> NDArray[Any]:
    n = found.mean.shape[-1] if found.mean.ndim > len(found.inputs) else 1
    if axes is not None and n == 1 and not isinstance(axes, np.ndarray | list | tuple):
        axes = [axes]
    width, height = _SIZE
    figsize = (width if n == 1 else 3.6 * n, height)
    if axes is None:
        return style.grid_of_axes(None, (1, n), figsize).ravel()
    return style.grid_of_axes(axes, (n,), figsize, ": one for each class or output")


def _of_target(found: Any, values: Array, k: int) -> Array:
    extra = found.mean.ndim > len(found.inputs)
    return np.asarray(values[..., k]) if extra else values


def _response_label(gp: Any, found: Any) -> list[str]:
    target = target_name(gp)
    names = found.targets or [target or "y"]
    if found.response == "probability":
        return [f"P({target} = {name})" if target else f"P({name})" for name in names]
    if found.response == "rate":
        return [f"rate of {name}" for name in names]
    if found.response == "latent":
        return [f"latent function, {name}" if found.targets else "contribution" for name in names]
    return [str(name) for name in names]


def _draw(ax: Axes, found: Any, mean: Array, low: Array, high: Array, curves: Array | None) -> None:
    if len(found.inputs) == 2:
        _surface(ax, found, mean)
    elif found.categories[0]:
        _levels(ax, found, mean, low, high)
    else:
        _curve(ax, found, mean, low, high, curves)
    if found.response == "probability" and len(found.inputs) == 1:
        ax.set_ylim(-0.04, 1.04)
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])


def _curve(ax: Axes, found: Any, mean: Array, low: Array, high: Array, curves: Array | None) -> None:
    (x,), name = found.values, found.inputs[0]
    if curves is not None:
        ax.plot(x, curves.T, color=style.BLUE, lw=0.6, alpha=min(1.0, 12.0 / len(curves)), zorder=1)
    ax.fill_between(x, low, high, color=style.INK, alpha=0.14, lw=0, zorder=2)
    ax.plot(x, mean, color=style.INK, lw=1.8, zorder=3)
    place = ax.get_xaxis_transform()
    ticks: dict[str, Any] = {"ms": 7, "mew": 0.7, "alpha": 0.4, "color": style.GREY, "transform": place}
    ax.plot(found.data[0], np.zeros(len(found.data[0])), "|", **ticks)
    ax.set(xlabel=name, xlim=(x[0], x[-1]) if len(x) > 1 else None)


def _levels(ax: Axes, found: Any, mean: Array, low: Array, high: Array) -> None:
    at = np.arange(len(mean))
    ax.vlines(at, low, high, color=style.BLUE, lw=3.0)
    ax.plot(at, mean, "o", ms=6, color=style.BLUE, mec="white", mew=1.2)
    counts = [int(np.sum(found.data[0] == value)) for value in found.values[0]]
    ax.set_xticks(at, [f"{value}\n({n})" for value, n in zip(found.values[0], counts, strict=True)])
    ax.set(xlabel=f"{found.inputs[0]} (rows)", xlim=(-0.5, len(at) - 0.5))


def _surface(ax: Axes, found: Any, mean: Array) -> None:
    if any(found.categories):
        _lines_by_level(ax, found, mean)
        return
    x, y = found.values
    if found.response == "probability":
        contours(ax, x, y, mean.T)
    else:
        filled = ax.contourf(x, y, mean.T, levels=12, cmap="cividis")
        filled.set_edgecolor("face")
        style.colorbar(ax, filled, "", ticks=None)
    ax.plot(*found.data, ".", ms=4, color=style.INK, alpha=0.35, mew=0)
    ax.set(xlabel=found.inputs[0], ylabel=found.inputs[1], xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))


def _lines_by_level(ax: Axes, found: Any, mean: Array) -> None:
    """Draw a line over the quantity for each level of the category (over the levels of the first of two categories)."""
    c = 1 if found.categories[1] else 0
    lines = mean.T if c == 1 else mean  # (levels, values)
    x = found.values[1 - c]
    at = np.arange(len(x)) if found.categories[1 - c] else x
    for line, value, colour in zip(lines, found.values[c], style.CHAINS * len(lines), strict=False):
        ax.plot(at, line, color=colour, lw=1.6, marker="o" if found.categories[1 - c] else None, label=str(value))
    if found.categories[1 - c]:
        ax.set_xticks(at, [str(value) for value in x])
    ax.set_xlabel(found.inputs[1 - c])
    ax.legend(title=found.inputs[c], frameon=False, fontsize=style.SMALL, title_fontsize=style.SMALL)


def _note(ax: Axes, found: Any, text: str = "", *, below: bool = False) -> None:
    """Write above (or below) a panel what is shown, if no axis does, and at which values the other inputs are."""
    if found.held:
        held = list(found.held.items())
        shown = ", ".join(f"{k} = {v:.3g}" if isinstance(v, float) else f"{k} = {v}" for k, v in held[:4])
        text += f"at {shown}{', …' if len(held) > 4 else ''}"
    else:
        text += f"averaged over {found.n_rows} rows"
    if len(found.inputs) == 1:
        text += f"; band: {100 * found.level:g} %"
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "left", "va": "bottom"}
    if below:
        place["va"] = "top"
    ax.annotate(text, (0, 0 if below else 1), (0, -36 if below else 4), **place, **style.NOTE)
