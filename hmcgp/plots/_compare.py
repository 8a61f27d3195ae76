"""Probabilities of several providers, against each other."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style
from hmcgp.plots._checks import is_class_1, target_label


def compare_evidence(comparison: Any, *, axes: NDArray[Any] | None = None) -> NDArray[Any]:
    """Draw the probabilities of each provider against those of each other, row by row, coloured by the label.

    Points on the dashed diagonal are where two providers agree; points nearer to 1/2 along one axis are those of which
    that provider is less sure.

    Parameters
    ----------
    comparison : EvidenceComparison
        The value of `hmcgp.compare_evidence`, with two providers or more.
    axes : ndarray of Axes of shape (k - 1, k - 1), optional
        Drawn into when given, for k providers.

    Returns
    -------
    ndarray of Axes of shape (k - 1, k - 1)
        Those above the diagonal are switched off.
    """
    if not hasattr(comparison, "probability"):
        raise InvalidInput(f"'comparison' must be what compare_evidence returns; got {type(comparison).__name__}.")
    names = list(comparison.probability.columns)
    if len(names) < 2:
        raise InvalidInput(f"there is one provider only, {names[0]!r}: nothing to draw against each other.")
    k = len(names) - 1
    size = max(1.4 + 2.6 * k, 4.2)
    axes = style.grid_of_axes(axes, (k, k), (size, size))
    event = is_class_1(comparison.y, comparison.classes)
    for i, below in enumerate(names[1:]):
        for j, beside in enumerate(names[:-1]):
            ax = axes[i, j]
            if j > i:
                ax.set_axis_off()
                continue
            ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.0, ls=style.DASHED, zorder=1)
            for rows, colour, label in zip((~event, event), style.CLASSES, comparison.classes, strict=True):
                x, y = comparison.probability.loc[rows, beside], comparison.probability.loc[rows, below]
                ax.plot(x, y, "o", ms=4.5, color=colour, mec="white", mew=0.5, alpha=0.8, label=str(label), zorder=3)
            ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
            if i == k - 1:
                ax.set_xlabel(_label(comparison, beside))
            if j == 0:
                ax.set_ylabel(_label(comparison, below))
            style.clean(ax)
    axes[0, 0].legend(loc="upper left", frameon=False, fontsize=style.SMALL, labelcolor=style.INK, handletextpad=0.1)
    gp = next(iter(comparison.estimators.values()), None)
    given = ", each row given all others" if comparison.left_out else ""
    axes[0, 0].set_title(target_label(gp, None, comparison.classes[1]) + given, **style.TITLE)
    return axes


def _label(comparison: Any, name: str) -> str:
    return f"{name}\nlog loss {float(comparison.table['log_loss'][name]):.3f}"
