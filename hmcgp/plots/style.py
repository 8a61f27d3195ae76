"""The look shared by all pictures: colours, sizes, and a clean frame.

Colours are those of Okabe & Ito (2008), which remain distinct under the common colour-vision
deficiencies; class 0 is always blue and class 1 always vermilion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap

BLUE, VERMILION = "#0072B2", "#D55E00"
CHAINS = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", VERMILION)
CLASSES = (BLUE, VERMILION)
INK, GREY, PALE = "#222222", "#767676", "#EDEDED"
TEXT, SMALL = 10.0, 8.5  # points
TITLE: dict[str, Any] = {"loc": "left", "fontsize": TEXT, "color": INK}
NOTE: dict[str, Any] = {"fontsize": SMALL, "color": GREY}
DASHED = (0, (4, 3))


def new_axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """Return `ax`, or the Axes of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize, layout="constrained")[1]


def grid_of_axes(
    axes: NDArray[Any] | None, shape: tuple[int, ...], figsize: tuple[float, float], meaning: str = "", **options: Any
) -> NDArray[Any]:
    """Return `axes`, refused unless they have this shape, or those of a new figure; `meaning` explains the shape."""
    if axes is None:
        import matplotlib.pyplot as plt

        return plt.subplots(*shape, figsize=figsize, squeeze=False, layout="constrained", **options)[1].reshape(shape)
    axes = np.asarray(axes, dtype=object)
    if axes.shape != shape:
        raise InvalidInput(f"'axes' must have the shape {shape}{meaning}; got {axes.shape}.")
    return axes


def pair_of_axes(axes: NDArray[Any] | None, figsize: tuple[float, float], widths: tuple[float, float]) -> NDArray[Any]:
    """Return two `axes`, or those of a new figure, side by side."""
    if axes is not None:
        return grid_of_axes(axes, (2,), figsize)
    return grid_of_axes(None, (1, 2), figsize, gridspec_kw={"width_ratios": widths}).ravel()


def clean(ax: Axes, *, hide: tuple[str, ...] = ("top", "right")) -> None:
    """Remove the spines that carry no information and make the rest quiet."""
    for side, spine in ax.spines.items():
        spine.set_visible(side not in hide)
        spine.set_color(GREY)
    ax.tick_params(which="both", color=GREY, labelcolor=INK, labelsize=SMALL)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(size=TEXT, color=INK)


def log_axis(axis: Any) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks: few of them, however wide or narrow its range."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    class FewTicks(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            decades = np.log10(vmax / vmin)
            if decades < 0.6:
                return MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(vmin, vmax)
            subs = (1.0, 2.0, 5.0) if decades < 1.4 else (1.0, 3.0) if decades < 2.2 else (1.0,)
            powers = np.arange(np.floor(np.log10(vmin)), np.ceil(np.log10(vmax)) + 1.0)[:: max(int(decades // 3.5), 1)]
            return np.sort(np.multiply.outer(10.0**powers, subs).ravel())

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_major_locator(FewTicks())
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def legend_above(ax: Axes) -> None:
    """Add a legend in one line above the frame."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 4}
    ax.legend(frameon=False, fontsize=SMALL, labelcolor=INK, **place)


def probability_map() -> LinearSegmentedColormap:
    """Colour map with class 0's colour at 0, white at 1/2, class 1's colour at 1, softened so that data stand out."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("hmcgp_probability", ["#6FB1D8", "#FAFAFA", "#EDA06A"])


def colorbar(ax: Axes, filled: ScalarMappable, label: str, *, ticks: Any) -> None:
    """Add a quiet colour bar."""
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(filled, ax=ax, ticks=ticks, format="%g", pad=0.02, aspect=28)
    bar.outline.set_visible(False)  # type: ignore[operator]
    clean(bar.ax, hide=("top", "right", "left", "bottom"))
    bar.set_label(label, size=TEXT, color=INK)


def as_png(ax: Axes) -> tuple[int, bytes]:
    """Return the width of the figure of some axes, in pixels of a page, and the figure as PNG; it is closed."""
    from io import BytesIO

    import matplotlib.pyplot as plt

    figure = ax.get_figure(root=True)
    assert figure is not None
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight", facecolor="white")
    plt.close(figure)
    return int(100 * figure.get_size_inches()[0]), buffer.getvalue()
