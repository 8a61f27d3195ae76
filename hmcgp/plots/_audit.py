"""An audit: log evidence, hyperparameters and probabilities, approximate against exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput
from hmcgp.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hmcgp.posterior.audit_report import Audit

_NAMED = 3  # rows named in the picture
_SPACE = 0.06  # between their names
_PARAMETERS = 12  # hyperparameters shown, those that move farthest


def audit(gp: Any, *, axes: NDArray[Any] | None = None) -> NDArray[Any]:
    """Draw what an approximate evidence gets wrong: log evidence (left), hyperparameters, probabilities (right).

    On the left, exact less approximate log evidence of every draw, with two standard errors; what matters is its
    scatter, since a constant cancels.  Draws whose exact evidence is itself in doubt are vermilion.  In the middle,
    shifts of the posterior means with two standard errors.  On the right, exact against approximate probabilities, with
    the rows that change most named by their index.

    Parameters
    ----------
    gp : fitted GPClassifier or Audit
        The value of `gp.audit()` saves auditing again.
    axes : ndarray of Axes of shape (3,), optional
        Drawn into when given.

    Returns
    -------
    ndarray of Axes of shape (3,)
    """
    found = _audit(gp)
    axes = _three(axes)
    _evidence(axes[0], found)
    _shifts(axes[1], found)
    _probabilities(axes[2], found)
    for ax in axes:
        style.clean(ax)
    return axes


def _audit(gp: Any) -> Audit:
    if hasattr(gp, "log_z_change"):
        return cast("Audit", gp)
    if hasattr(gp, "audit"):
        return cast("Audit", gp.audit())
    raise InvalidInput(f"give what gp.audit() returns, or a fitted GPClassifier; got {type(gp).__name__}.")


def _three(axes: NDArray[Any] | None) -> NDArray[Any]:
    if axes is None:
        import matplotlib.pyplot as plt

        return plt.subplots(1, 3, figsize=(11.0, 3.6), layout="constrained")[1]
    axes = np.asarray(axes, dtype=object)
    if axes.shape != (3,):
        raise InvalidInput(f"'axes' must have the shape (3,); got {axes.shape}.")
    return axes


def _evidence(ax: Axes, found: Audit) -> None:
    ax.axhline(0.0, color=style.GREY, lw=1.0, ls=(0, (4, 3)), zorder=1)
    for rows, colour in ((~found.unsure, style.BLUE), (found.unsure, style.VERMILION)):
        if rows.any():
            x, y, se = found.draws[rows], found.log_z_change[rows], found.standard_error[rows]
            ax.errorbar(x, y, 2.0 * se, fmt="o", ms=4, color=colour, mec="white", mew=0.5, elinewidth=1.0, zorder=3)
    ax.set(xlabel="draw", ylabel=f"log Z, exact minus {found.evidence}")
    ax.set_title("log evidence", loc="left", fontsize=style.TEXT, color=style.INK)
    if found.unsure.any():
        note = f"{int(found.unsure.sum())} of {len(found.draws)} in doubt"
        ax.set_title(note, loc="right", fontsize=style.SMALL, color=style.VERMILION)


def _shifts(ax: Axes, found: Audit) -> None:
    ax.set_xlabel("shift of the mean, in sd")
    ax.set_title("hyperparameters", loc="left", fontsize=style.TEXT, color=style.INK)
    if np.isnan(found.shift).all():
        place: dict[str, Any] = {"ha": "center", "va": "center", "transform": ax.transAxes}
        ax.text(0.5, 0.5, "one draw: no statement", fontsize=style.SMALL, color=style.GREY, **place)
        ax.set(xticks=[], yticks=[])
        return
    shown = np.sort(np.argsort(-np.abs(found.shift), kind="stable")[:_PARAMETERS])
    ax.axvline(0.0, color=style.GREY, lw=1.0, ls=(0, (4, 3)), zorder=1)
    y, reliable = np.arange(len(shown)), found.weights_reliable
    colour = style.BLUE if reliable else style.VERMILION
    x, se = found.shift[shown], found.shift_error[shown]
    ax.errorbar(x, y, xerr=2.0 * se, fmt="o", ms=5, color=colour, mec="white", mew=0.5, elinewidth=1.0, zorder=3)
    ax.set_yticks(y, [found.names[i] for i in shown])
    ax.set_ylim(len(shown) - 0.5, -0.5)
    reach = 1.1 * max(1.0, float(np.max(np.abs(x) + 2.0 * se)))
    ax.set_xlim(-reach, reach)
    note = f"{found.n_effective:.0f} of {len(found.draws)} draws effective"
    ax.set_title(note, loc="right", fontsize=style.SMALL, color=style.GREY if reliable else colour)


def _probabilities(ax: Axes, found: Audit) -> None:
    ax.plot([0, 1], [0, 1], color=style.GREY, lw=1.0, ls=(0, (4, 3)), zorder=1)
    p, exact = found.probability, found.exact_probability
    ax.plot(p, exact, "o", ms=4.5, color=style.BLUE, mec="white", mew=0.5, alpha=0.8, zorder=3)
    for i in _far_apart(found).tolist():
        above = exact[i] > p[i]
        place: dict[str, Any] = {"textcoords": "offset points", "ha": "right" if above else "left", "va": "center"}
        ax.annotate(str(i), (p[i], exact[i]), (-6 if above else 6, 0), fontsize=style.SMALL, color=style.GREY, **place)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set(xlabel=f"probability, {found.evidence}", ylabel="probability, exact")
    ax.set_title(found.rows, loc="left", fontsize=style.TEXT, color=style.INK)
    ax.set_title(f"change {found.rms_change:.3f} rms", loc="right", fontsize=style.SMALL, color=style.GREY)


def _far_apart(found: Audit) -> NDArray[np.intp]:
    """Rows to name: those that change most, but none so close to another that their names would overlap."""
    named: list[int] = []
    for i in found.worst_rows[: 5 * _NAMED].tolist():
        at = found.exact_probability[named]
        if len(named) < _NAMED and (np.abs(at - found.exact_probability[i]) > _SPACE).all():
            named.append(i)
    return np.array(named, dtype=np.intp)
