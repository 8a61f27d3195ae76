"""Quantile residuals and their probability integral transform."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from hmcgp.plots import style
from hmcgp.plots._checks import check_prob, require


def residuals(
    gp: Any,
    X: Any = None,
    y: Any = None,
    *,
    n_bins: int = 10,
    prob: float = 0.9,
    axes: NDArray[Any] | None = None,
    **options: Any,
) -> NDArray[Any]:
    """Draw residuals against predictions (left) and how often observations fall into each part of theirs (right).

    Residuals are normal quantiles of the predictive distributions: standard normal where predictions are calibrated,
    whatever the shape of these distributions; those of counts and classes are randomised between the probabilities of
    less and of no more than the observation.  The histogram on the right, of the probability integral transform, is
    then flat: a valley says that intervals are too narrow, a hill that they are too wide, a slope that predictions are
    too high or too low.  The five largest residuals are named by their rows.

    Parameters
    ----------
    gp : fitted estimator
    X : array or DataFrame of shape (n, d), optional
        Rows not used in the fit.  Default: the training rows, each predicted by the others (for one output).
    y : array of shape (n,) or (n, k), optional
    n_bins : int, default 10
    prob : float, default 0.9
        Probability of the grey band, within which each bar lies if predictions are calibrated.
    axes : ndarray of Axes of shape (2,), optional
        Drawn into when given.
    **options
        Of `gp.residuals`: ``random_state``, which matters for counts and classes, and ``sizes``.

    Returns
    -------
    ndarray of Axes of shape (2,)
    """
    check_prob(prob)
    require(gp, "residuals", "trace_")
    found = gp.residuals(X, y, **options)
    left, right = axes = style.pair_of_axes(axes, (9.5, 4.0), (3, 2))
    z, predicted = found.normalised.ravel(), found.predicted.ravel()
    seen = np.isfinite(z)
    left.axhspan(-2.0, 2.0, color=style.PALE, lw=0, zorder=0)
    left.axhline(0.0, color=style.GREY, lw=1.0, zorder=1)
    left.plot(predicted[seen], z[seen], "o", ms=4, color=style.BLUE, mec="white", mew=0.5, zorder=3)
    n_outputs = found.pit.shape[1] if found.pit.ndim == 2 else 1
    for i in np.argsort(-np.abs(np.where(seen, z, 0.0)))[:5]:
        place = float(predicted[i]), float(z[i])
        left.annotate(str(i // n_outputs), place, (4, 0), textcoords="offset points", va="center", **style.NOTE)
    left.set(
        xlabel="expected class (0: the first)" if hasattr(gp, "classes_") else "predicted",
        ylabel="residual (normal quantile)",
    )
    beyond = 100 * float(np.mean(np.abs(z[seen]) > 2.0))
    rows = "rows, each left out" if found.left_out else "rows"
    left.set_title(f"{int(seen.sum())} {rows}; {beyond:.1f} % beyond ±2 (4.6 % if calibrated)", **style.TITLE)
    _histogram(right, found.pit[np.isfinite(found.pit)], n_bins, prob)
    for ax in axes:
        style.clean(ax)
    return axes


def _histogram(ax: Any, pit: Any, n_bins: int, prob: float) -> None:
    n = len(pit)
    low, high = (n_bins * beta.ppf(q, n / n_bins + 0.5, n - n / n_bins + 0.5) for q in (0.5 - prob / 2, 0.5 + prob / 2))
    ax.axhspan(low, high, color=style.PALE, lw=0, zorder=0, label=f"{100 * prob:g} % of bars, if calibrated")
    ax.hist(pit, bins=n_bins, range=(0.0, 1.0), density=True, color=style.BLUE, alpha=0.55, ec="white", zorder=2)
    ax.axhline(1.0, color=style.GREY, lw=1.0, ls=style.DASHED, zorder=3)
    ax.set(xlabel="predictive probability of less than observed", ylabel="density", xlim=(0.0, 1.0))
    style.legend_above(ax)
