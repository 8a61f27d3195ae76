"""Relevance of each input: what it does to predictions, or the posterior of its length scale.

A short length scale lets the function change fast along that input.  One that is longer than the
data are wide leaves it nearly straight, or flat, in that input: which of the two, it does not say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import check_prob, require
from hmcgp.reporting.intervals import central_interval, median
from hmcgp.runtime.checks import name_among
from hmcgp.runtime.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SCALES = {"length_scale": 1.0, "weight": -0.5}  # the power of a parameter that is a length scale
_WIDTH_OF_DATA = 4.0  # from -2 to +2 standard deviations of a standardised input


def relevance(
    gp: Any, *, of: str = "change", prob: tuple[float, float] = (0.5, 0.9), ax: Axes | None = None, **options: Any
) -> Axes:
    """Draw the relevance of each input as posterior intervals, the most relevant input on top.

    Dot: median; thick line: the central interval of the smaller probability; thin line: that of the larger.  Diamond:
    the root mean square change over rows, which is far from the dot where an input acts in opposite directions on
    different rows.  A category has a row for each level but the most frequent one; several classes or outputs have a
    colour each.

    Parameters
    ----------
    gp : fitted estimator
        Has `relevance`; for length scales `trace_` and `parameters_`, with one length scale per input.
    of : {"change", "length_scale"}, default="change"
        "change": of the response, averaged over rows, when the input moves up by its standard deviation, over the
        latent function and the hyperparameters (`gp.relevance`).
        "length_scale": of the input.  The weight w of a category (`kernels.Categorical`) or of the inputs of a neural
        network is shown as 1/√w, the length scale that makes two rows as different.  When the fit standardised its
        inputs, length scales beyond 4 (longer than an input's range from -2 to +2 standard deviations) are shaded:
        there the function is nearly straight or flat in that input.  Straight is not irrelevant: see "change".
    prob : pair of float, default (0.5, 0.9)
        Probabilities of the two intervals.
    ax : Axes, optional
        Drawn into when given.
    **options
        Of `gp.relevance`.

    Returns
    -------
    Axes
    """
    name_among("of", of, ("change", "length_scale"))
    if len(prob) != 2:
        raise InvalidInput(f"'prob' must be a pair of probabilities; got {prob!r}.")
    for p in prob:
        check_prob(p)
    if of == "change":
        return _changes(gp, prob, ax, options)
    if options:
        raise InvalidInput(f"of='length_scale' takes no other options; got {sorted(options)}.")
    return _scales(gp, prob, ax)


def _changes(gp: Any, prob: tuple[float, float], ax: Axes | None, options: dict[str, Any]) -> Axes:
    require(gp, "trace_", "relevance")
    result = gp.relevance(**options)
    order, n = result.order, max(len(result.targets), 1)
    change = result.change.reshape(len(result.change), -1, n)[:, order]  # (N, R, C)
    size = result.size.reshape(-1, n)[order]
    labels = [_move_label(result, r) for r in order]
    ax = style.new_axes(ax, (6.5, 0.9 + 0.3 * max(len(labels) * (1 if n == 1 else 0.5 + 0.5 * n), 3)))
    ax.axvline(0.0, color=style.GREY, lw=0.8, zorder=0)
    for k in range(n):
        shift = 0.0 if n == 1 else 0.7 * (k / (n - 1) - 0.5)
        colour = style.BLUE if n == 1 else style.CHAINS[k % len(style.CHAINS)]
        label = None if n == 1 else str(result.targets[k])
        _intervals(ax, change[:, :, k], result.weight, prob, shift=shift, colour=colour, label=label)
        sign = np.where(median(change[:, :, k], result.weight) < 0.0, -1.0, 1.0)
        ax.plot(sign * size[:, k], np.arange(len(order)) + shift, "d", ms=4.5, mfc="white", mec=style.INK, mew=0.8)
    _label_rows(ax, labels, f"{_key(prob)}   diamond: rms over rows")
    if n > 1:
        ax.legend(frameon=False, fontsize=style.SMALL, loc="best")
    what = {"probability": "the probability", "rate": "the rate"}.get(result.unit, "the prediction")
    ax.set_xlabel(f"change of {what} by one standard deviation of the input")
    return ax


def _move_label(result: Any, r: int) -> str:
    """Name of an input, with the two levels if it is a category."""
    return f"{result.inputs[r]}: {result.moves[r]}" if " instead of " in result.moves[r] else str(result.inputs[r])


def _scales(gp: Any, prob: tuple[float, float], ax: Axes | None) -> Axes:
    require(gp, "trace_", "parameters_")
    from matplotlib.ticker import LogLocator, NullFormatter

    labels, draws = _length_scales(gp.parameters_, np.asarray(gp.trace_.draws))
    weight = gp.trace_.weight
    order = np.argsort(median(draws, weight), kind="stable")
    ax = _rows(ax, [labels[i] for i in order], draws[:, order], weight, prob)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())
    standardised = bool(getattr(gp, "standardize", True))
    unit = "standard deviations of the input" if standardised else "units of the input"
    ax.set_xlabel(f"length scale ({unit}); shorter: less straight")
    if standardised:
        _shade(ax, *central_interval(draws, max(prob), weight))
    return ax


def _rows(ax: Axes | None, labels: list[str], draws: Array, weight: Array, prob: tuple[float, float]) -> Axes:
    """Draw one row of intervals for each label, the first on top, and explain the marks below."""
    ax = style.new_axes(ax, (6.5, 0.9 + 0.3 * max(len(labels), 3)))
    _intervals(ax, draws, weight, prob)
    _label_rows(ax, labels, _key(prob) if len(draws) > 1 else "a single draw: its uncertainty is unknown")
    return ax


def _key(prob: tuple[float, float]) -> str:
    return f"dot: median   thick: {100 * min(prob):g} %   thin: {100 * max(prob):g} %"


def _label_rows(ax: Axes, labels: list[str], key: str) -> None:
    """Label the rows, the first on top, and put an explanation of the marks below the axis."""
    n = len(labels)
    ax.set_yticks(np.arange(n), labels)
    ax.set_ylim(n - 0.4, -0.6)
    style.clean(ax, hide=("top", "right", "left"))
    ax.tick_params(axis="y", length=0)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center", "va": "top"}
    ax.annotate(key, (0.5, 0), (0, -34), **place, **style.NOTE)


def _length_scales(parameters: Sequence[Any], draws: Array) -> tuple[list[str], Array]:
    """Return labels and draws, of shape (n_draws, n_rows), of every per-input length scale."""
    blocks = np.split(draws.reshape(-1, draws.shape[-1]), np.cumsum([p.size for p in parameters])[:-1], axis=1)
    found = [(p, block) for p, block in zip(parameters, blocks, strict=True) if p.role in _SCALES and p.labels]
    if not found:
        free = [p.name for p in parameters]
        raise InvalidInput(
            f"'gp' has no inferred length scale per input; its free parameters are {free}. "
            "Fit with a kernel such as SquaredExponential(ard=True)."
        )
    scales = np.concatenate([block ** _SCALES[p.role] for p, block in found], axis=1)
    return _labels([p for p, _ in found]), scales


def _labels(parameters: Sequence[Any]) -> list[str]:
    """Return the names of the inputs, with the part of the kernel where one has several."""
    names = [str(name) for p in parameters for name in p.labels]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({p.name.rpartition('.')[0] or p.name})" for p in parameters for name in p.labels]


def _intervals(
    ax: Axes, draws: Array, weight: Array, prob: tuple[float, float],
    *, shift: float = 0.0, colour: str = style.BLUE, label: str | None = None,
) -> None:  # fmt: skip
    rows = np.arange(draws.shape[1]) + shift
    for p, width in ((max(prob), 1.4), (min(prob), 4.5)):
        low, high = central_interval(draws, p, weight)
        if len(draws) > 1:
            ax.hlines(rows, low, high, color=colour, lw=width)
    ax.plot(median(draws, weight), rows, "o", ms=6, color=colour, mec="white", mew=1.2, label=label)


def _shade(ax: Axes, low: Array, high: Array) -> None:
    right = max(1.5 * high.max(), 4.0 * _WIDTH_OF_DATA)
    ax.set_xlim(min(low.min(), _WIDTH_OF_DATA) / 1.5, right)
    ax.axvspan(_WIDTH_OF_DATA, right, color=style.PALE, lw=0, zorder=0)
    text = "longer than the range of the data: nearly linear or flat"
    ax.text(right, 1.01, text, transform=ax.get_xaxis_transform(), ha="right", va="bottom", **style.NOTE)
